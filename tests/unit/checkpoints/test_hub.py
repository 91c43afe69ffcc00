"""The hub, played by a server on this machine: what is asked, what is fetched, and when to give up."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants

from regard.checkpoints import Source, _hub, find, licence_of, read_tensors
from regard.core.errors import CheckpointError, ModelNotFoundError
from unit.checkpoints.stored import COMMIT, cache_model, make_model


class Hub:
    """A server on this machine that answers as the hub does."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, bytes]] = {}
        self.refusals: dict[str, tuple[int, str]] = {}
        self.fetched: list[str] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self.answer(with_body=False)

            def do_GET(self) -> None:
                self.answer(with_body=True)

            def answer(self, with_body: bool) -> None:
                status, headers, body = hub.respond(self.path, with_body)
                self.send_response(status)
                for key, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(key, value)
                self.end_headers()
                if with_body:
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}).start()

    def respond(self, path: str, with_body: bool) -> tuple[int, dict[str, str], bytes]:
        path = path.partition("?")[0].strip("/").removeprefix("api/models/")
        name, _, rest = re.sub("/(revision|tree|resolve)/", r"//\1/", path, count=1).partition("//")
        kind, _, rest = rest.partition("/")
        file = rest.partition("/")[2]
        if name in self.refusals:
            status, code = self.refusals[name]
            return status, {"X-Error-Code": code}, b"{}"
        if name not in self.files:
            return 404, {"X-Error-Code": "RepoNotFound"}, b"{}"
        files = self.files[name]
        if kind == "revision":
            siblings = [{"rfilename": file} for file in files]
            return 200, {}, json.dumps({"id": name, "sha": COMMIT, "siblings": siblings}).encode()
        if kind == "tree":
            tree = [
                {"type": "file", "path": file, "size": len(data), "oid": f"{i:040x}"}
                for i, (file, data) in enumerate(files.items())
            ]
            return 200, {}, json.dumps(tree).encode()
        if file not in files:
            return 404, {"X-Error-Code": "EntryNotFound"}, b""
        if with_body:
            self.fetched.append(file)
        number = list(files).index(file)
        return 200, {"ETag": f'"{number:040x}"', "X-Repo-Commit": COMMIT}, files[file]


def use_endpoint(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", url)
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}"
    )
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    hub = Hub()
    use_endpoint(monkeypatch, hub.url)
    yield hub
    hub.server.shutdown()
    hub.server.server_close()


def test_a_cached_model_without_its_tokenizer_is_completed(hub: Hub, hf_home: Path) -> None:
    # as transformers' AutoModel leaves it, which never asks for the tokenizer
    folder = cache_model(hf_home, "someone/a-model")
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert find("someone/a-model") == Source(name="someone/a-model", folder=folder, kind="cache")
    hub.files["someone/a-model"] = files | {"tokenizer.json": b"{}"}
    source = find("someone/a-model")
    assert source.kind == "hub"
    assert (source.folder / "tokenizer.json").read_bytes() == b"{}"
    hub.fetched.clear()
    assert find("someone/a-model").kind == "cache"
    assert hub.fetched == []


def test_a_download_takes_only_what_is_needed(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(tmp_path / "mine")
    wanted = {file.name: file.read_bytes() for file in model.iterdir()} | {"tokenizer.json": b"{}"}
    hub.files["someone/a-model"] = wanted | {
        "pytorch_model.bin": b"a pickle",
        "onnx/model.safetensors": b"a copy",
        "consolidated.safetensors": b"another copy",
        "modeling.py": b"code",
    }
    source = find("someone/a-model")
    assert (source.name, source.kind) == ("someone/a-model", "hub")
    assert {file.name: file.read_bytes() for file in source.folder.iterdir()} == wanted
    assert sorted(hub.fetched) == sorted(wanted)
    assert read_tensors(source.folder).read("table").tolist() == [[1.0, 1.0], [1.0, 1.0]]
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert find("someone/a-model") == dataclasses.replace(source, kind="cache")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("someone/all-MiniLM-L6-v1", r"and the hub has no such model, .*; did you mean .*MiniLM-L6-v2\?$"),
        ("someone/secret", "the hub asks for its conditions to be accepted"),
        ("someone/notes", r"the hub's repository of that name has no config\.json"),
        ("someone/ailing", r"the hub could not be reached \(.*503"),
    ],
)
def test_what_the_hub_does_not_give(hub: Hub, name: str, message: str) -> None:
    hub.refusals |= {"someone/secret": (403, "GatedRepo"), "someone/ailing": (503, "")}
    hub.files["someone/notes"] = {"README.md": b"notes"}
    with pytest.raises(ModelNotFoundError, match=message):
        find(name)


def pickled() -> bytes:
    stream = io.BytesIO()
    torch.save({"table": torch.ones(3)}, stream)
    return stream.getvalue()


def test_a_repository_with_pickles_only(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {"config.json": b"{}", "pytorch_model.bin": pickled()}
    hub.files["someone/old"] = wanted | {
        "tf_model.h5": b"x",
        "training_args.bin": b"x",
        "x/pytorch_model.bin": b"x",
    }
    source = find("someone/old")
    assert {file.name for file in source.folder.iterdir()} == set(wanted)
    assert sorted(hub.fetched) == sorted(wanted)
    assert read_tensors(source.folder).read("table").tolist() == [1, 1, 1]
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert find("someone/old") == dataclasses.replace(source, kind="cache")


def test_a_repository_with_shards_of_pickles(hub: Hub) -> None:
    one, two = (f"pytorch_model-0000{number}-of-00002.bin" for number in (1, 2))
    index = json.dumps({"weight_map": {"table": one}}).encode()
    files = {"config.json": b"{}", "pytorch_model.bin.index.json": index, one: pickled()}
    hub.files["someone/old"] = files
    assert read_tensors(find("someone/old").folder).names() == ("table",)
    hub.files["someone/half"] = files | {
        "pytorch_model.bin.index.json": json.dumps({"weight_map": {"table": one, "other": two}}).encode()
    }
    with pytest.raises(
        CheckpointError, match=r"'someone/half' on the hub has no whole weights that regard reads"
    ):
        find("someone/half")


def test_a_repository_without_weights(hub: Hub) -> None:
    hub.files["someone/tensorflow"] = {"config.json": b"{}", "tf_model.h5": b"weights"}
    with pytest.raises(
        CheckpointError,
        match=r"no whole weights that regard reads \(model\.safetensors, or .*; convert it with",
    ):
        find("someone/tensorflow")
    assert hub.fetched == ["config.json"]


PARTS = {
    "vocab.txt": b"x",
    "vocab.json": b"x",
    "merges.txt": b"x",
    "spiece.model": b"x",
    "source.spm": b"x",
    "target.spm": b"x",
    "target_vocab.json": b"{}",
}


@pytest.mark.parametrize("has_tokenizer", [True, False])
def test_what_a_tokenizer_is_built_from_only_where_there_is_none(
    hub: Hub, tmp_path: Path, has_tokenizer: bool
) -> None:
    model = make_model(tmp_path / "mine")
    wanted = {file.name: file.read_bytes() for file in model.iterdir()} | {
        "README.md": b"x",
        "added_tokens.json": b"{}",
        "special_tokens_map.json": b"{}",
        "tokenizer_config.json": b"{}",
    }
    wanted |= {"tokenizer.json": b"{}"} if has_tokenizer else PARTS
    others = {
        "original/tokenizer.model": b"x",
        "onnx/vocab.txt": b"x",
        "rust_model.ot": b"x",
        "train.py": b"x",
    }
    hub.files["someone/a-model"] = PARTS | wanted | others
    assert {file.name for file in find("someone/a-model").folder.iterdir()} == set(wanted)
    assert sorted(hub.fetched) == sorted(wanted)
    hub.fetched.clear()
    assert find("someone/a-model").kind == "cache"
    assert hub.fetched == []


def test_a_download_that_breaks_off(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.files["someone/a-model"] = {"config.json": b"{}", "model.safetensors": b"short"}
    whole = hub.respond

    def refuse_the_listing(path: str, with_body: bool) -> tuple[int, dict[str, str], bytes]:
        return (403, {}, b"{}") if path.startswith("/api/") else whole(path, with_body)

    monkeypatch.setattr(hub, "respond", refuse_the_listing)
    with pytest.raises(CheckpointError, match="the download of 'someone/a-model' from the hub broke off"):
        find("someone/a-model")


def test_a_closed_port(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    use_endpoint(monkeypatch, f"http://127.0.0.1:{port}")
    started = time.monotonic()
    with pytest.raises(
        ModelNotFoundError, match=r"the hub could not be reached \(.+\); get it with `hf download"
    ):
        find("someone/a-model")
    assert time.monotonic() - started < 3


def test_a_name_server_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    use_endpoint(monkeypatch, "http://hub.invalid")
    released = threading.Event()

    def hang(*_: object, **__: object) -> list[object]:
        released.wait(30)
        raise socket.gaierror(socket.EAI_AGAIN, "hung")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    monkeypatch.setattr(_hub, "LOOKUP_SECONDS", 0.3)
    started = time.monotonic()
    try:
        with pytest.raises(ModelNotFoundError, match=r"could not be reached \(no answer within 0\.3 s\)"):
            find("someone/a-model")
        assert time.monotonic() - started < 3
    finally:
        released.set()
        for thread in threading.enumerate():
            if thread.name == "regard-hub-lookup":
                thread.join(10)


def test_the_real_deadline_is_five_seconds() -> None:
    assert _hub.LOOKUP_SECONDS == 5


def card(folder: Path, text: str) -> Path:
    (folder / "README.md").write_bytes(text.encode())
    return folder


@pytest.mark.parametrize(
    ("block", "licence"),
    [
        ("language: en\nlicense: mit\ntags:\n- x", "mit"),
        ("license:   bsd-3-clause   # as the paper says", "bsd-3-clause"),
        ("license: [mit, 'apache-2.0']", "mit, apache-2.0"),
        ("license:\n  - mit\n  # more\n  - apache-2.0", "mit, apache-2.0"),
        ("license: other\nlicense_name: gemma", "gemma"),
        ("license_name: gemma\nlicense: Other", "gemma"),
        ("license: other\nlicense_link: LICENSE", "other"),
        ("license: mit\nlicense_name: something", "mit"),
        ("license: mit\r\ntags: x\r", "mit"),
        ("license_name: gemma", None),
        ("license:", None),
        ("license: unknown", None),
        ("license:\n  name: mit", None),
        ("license: 3", None),
        ("model-index:\n- name: x\n  license: mit", None),
        ("license: [", None),
        ("- license", None),
    ],
    ids=repr,
)
def test_a_card(tmp_path: Path, block: str, licence: str | None) -> None:
    assert licence_of(card(tmp_path, f"---\n{block}\n---\n# A model\nlicense: wtfpl\n")) == licence


def test_no_block(tmp_path: Path) -> None:
    for text in ("", "# A model\n---\nlicense: mit\n---\n", "---\nlicense: mit\n", "license: mit"):
        assert licence_of(card(tmp_path, text)) is None
    (tmp_path / "README.md").write_bytes(b"---\nauthor: \xff\xfe\nlicense: mit\n---\n")
    assert licence_of(tmp_path) is None


def test_no_card(tmp_path: Path) -> None:
    assert licence_of(tmp_path) is None
    assert licence_of(tmp_path / "nowhere") is None
    (tmp_path / "README.md").mkdir()
    assert licence_of(tmp_path) is None
