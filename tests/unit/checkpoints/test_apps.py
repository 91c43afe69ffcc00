"""Models that other programs keep, in folders laid out as those programs lay them out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from regard.checkpoints import Source, available, find
from regard.core.errors import CheckpointError, ModelNotFoundError
from unit.checkpoints.gguf.by_hand import File

DIGEST = "ab" * 32
MODEL = {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{DIGEST}"}


@pytest.fixture
def ollama(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ollama's folder with llama3.2:1b, somebody's tiny:latest, and one of another registry."""
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path))
    (tmp_path / "blobs").mkdir()
    File().save(tmp_path / "blobs", f"sha256-{DIGEST}")
    for name in (
        "registry.ollama.ai/library/llama3.2/1b",
        "registry.ollama.ai/me/tiny/latest",
        "hf.co/a/b/Q4",
    ):
        write(tmp_path, name, [{"mediaType": "application/vnd.ollama.image.license"}, MODEL])
    return tmp_path


def write(folder: Path, name: str, layers: object) -> None:
    manifest = folder / "manifests" / name
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_text(json.dumps({"schemaVersion": 2, "layers": layers}))


@pytest.mark.parametrize(
    "name",
    [
        "llama3.2:1b",
        "library/llama3.2:1b",
        "registry.ollama.ai/library/llama3.2:1b",
        "me/tiny",
        "hf.co/a/b:Q4",
    ],
)
def test_ollama(ollama: Path, name: str) -> None:
    file = ollama / "blobs" / f"sha256-{DIGEST}"
    assert find(f"ollama:{name}") == Source(name=f"ollama:{name}", folder=file, kind="app")
    assert {"ollama:llama3.2:1b", "ollama:me/tiny:latest", "ollama:hf.co/a/b:Q4"} <= {
        each.name for each in available()
    }


ADAPTER = {"mediaType": MODEL["mediaType"][:-5] + "adapter"}


@pytest.mark.parametrize(
    ("name", "layers", "message"),
    [
        ("ollama:qwen3", None, r"no model 'qwen3:latest' here; it has hf\.co/a/b:Q4, llama3\.2:1b,"),
        ("ollama:new", [MODEL, ADAPTER], "has an adapter beside its weights"),
        ("ollama:new", [MODEL | {"digest": "sha256:../../x"}], "names no file with weights"),
        (
            "ollama:new",
            [MODEL | {"digest": f"sha256:{'0' * 64}"}],
            "is missing; run `ollama pull new:latest` ag",
        ),
        ("lmstudio:x/y", None, r"^lmstudio has no model 'x/y' here; it keeps no model in its usual"),
    ],
)
def test_what_a_program_lacks_is_told(ollama: Path, name: str, layers: object, message: str) -> None:
    if layers is not None:
        write(ollama, "registry.ollama.ai/library/new/latest", layers)
    with pytest.raises((CheckpointError, ModelNotFoundError), match=message):
        find(name)


def test_lm_studio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LMSTUDIO_MODELS", str(tmp_path))
    one, two = tmp_path / "someone" / "tiny-GGUF", tmp_path / "someone" / "both-GGUF"
    for folder, names in (
        (one, ["tiny.gguf", "mmproj-tiny.gguf"]),
        (two, ["a.gguf", "b-00001-of-00002.gguf", "b-00002-of-00002.gguf"]),
    ):
        folder.mkdir(parents=True)
        for name in names:
            File().save(folder, name)
    assert find("lmstudio:someone/tiny-GGUF").folder == one / "tiny.gguf"
    assert find("lmstudio:someone/both-GGUF/b-00001-of-00002.gguf").folder == two / "b-00001-of-00002.gguf"
    with pytest.raises(
        ModelNotFoundError, match=r"it has someone/both-GGUF/a\.gguf, someone/both-GGUF/b-00001"
    ):
        find("lmstudio:someone/both-GGUF")
    # The folder itself will do, where it has one model.
    assert find(one) == Source(name=str(one), folder=one / "tiny.gguf", kind="folder")
    with pytest.raises(
        CheckpointError, match=r"has several models; give the file of one: a\.gguf, b-00001-of"
    ):
        find(two)


def test_llama_cpp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_CACHE", str(tmp_path))
    file = File().save(tmp_path, "ggml-org_tiny_Q8_0.gguf")
    assert find("llama.cpp:ggml-org_tiny_Q8_0").folder == file
