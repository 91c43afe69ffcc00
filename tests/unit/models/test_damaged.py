"""Files of a model's folder that are not what they should be: one line, whatever they are, and no wait."""

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.checkpoints import licence_of
from regard.core.errors import CheckpointError, RegardError
from regard.core.files import SMALL
from regard.embedding import read_sentence_settings
from unit.models.folders import write, write_tokenizer

TYPE = "sentence_transformers.models."
BESIDE: dict[str, Any] = {
    "tokenizer_config.json": {"mask_token": "w1", "model_max_length": 11},
    "special_tokens_map.json": {"cls_token": "w3"},
    "added_tokens.json": {"w30": 30},
    "modules.json": [
        {"path": "", "type": TYPE + "Transformer"},
        {"path": "1_Pooling", "type": TYPE + "Pooling"},
        {"path": "2_Normalize", "type": TYPE + "Normalize"},
    ],
    "1_Pooling/config.json": {"pooling_mode_mean_tokens": True},
    "2_Normalize/config.json": {},
    "sentence_bert_config.json": {"max_seq_length": 9},
    "config_sentence_transformers.json": {"prompts": {"query": "w1 "}},
}
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(26))]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_tokenizer(write(tmp_path), 31)
    for name, value in BESIDE.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps(value))
    (tmp_path / "README.md").write_text("---\nlicense: mit\n---\n")
    (tmp_path / "chat_template.jinja").write_text("{{ messages }}")
    return tmp_path


class _WaitedError(BaseException):
    """No error that anybody catches on the way."""


@pytest.fixture(autouse=True)
def no_wait() -> Iterator[None]:
    """Whoever opens a pipe waits for ever; here that ends as an error."""

    def end(number: int, frame: object) -> None:
        raise _WaitedError

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def use(folder: Path) -> None:
    regard.load(folder)
    read_sentence_settings(folder)


def refused(folder: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        use(folder)
    told = str(caught.value)
    assert "\n" not in told
    told.encode()  # it can be printed
    return told


def device(file: Path) -> None:
    file.symlink_to(os.devnull)


def pipe(file: Path) -> None:
    os.mkfifo(file)


def large(file: Path) -> None:
    with file.open("wb") as stream:
        stream.truncate(SMALL + 1)


JSON_FILES = [*BESIDE, "config.json"]
PLAIN = "it is not a plain file"
OTHERWISE = {
    ("config.json", device): "has no config.json",
    ("config.json", pipe): "has no config.json",
    ("model.safetensors", large): "header of the safetensors file: not valid JSON",  # its size is no matter
}


@pytest.mark.parametrize("damage", [device, pipe, large])
@pytest.mark.parametrize("name", [*JSON_FILES, "model.safetensors", "tokenizer.json", "chat_template.jinja"])
def test_what_is_no_small_file(folder: Path, name: str, damage: Any) -> None:
    (folder / name).unlink()
    damage(folder / name)
    usual = "it has 100,000,001 bytes" if damage is large else PLAIN
    assert OTHERWISE.get((name, damage), usual) in refused(folder)


@pytest.mark.parametrize("damage", [device, pipe, large])
def test_a_vocabulary_and_a_card_that_are_none(folder: Path, damage: Any) -> None:
    (folder / "README.md").unlink()
    damage(folder / "README.md")
    assert licence_of(folder) is None
    for name in ("README.md", "tokenizer.json", *(name for name in BESIDE if "/" not in name)):
        (folder / name).unlink()
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    assert regard.load(folder).tokenizer.encode("w3").token_ids
    (folder / "vocab.txt").unlink()
    damage(folder / "vocab.txt")
    if damage is large:
        assert "it has 100,000,001 bytes" in refused(folder)
    else:
        assert regard.load(folder).loaded.tokenizer is None


@pytest.mark.parametrize("half", ["\ud800", "w1\udfff"])
@pytest.mark.parametrize("name", JSON_FILES)
def test_half_of_a_surrogate_pair(folder: Path, name: str, half: str) -> None:
    value = json.loads((folder / name).read_text())
    for more in ({"mask_token": half}, {half: "w1"}):
        damaged = [*value, more] if isinstance(value, list) else value | more
        (folder / name).write_text(json.dumps(damaged))
        assert re.search(r"half of a surrogate pair in a string \(U\+D[8F]", refused(folder))


def test_a_whole_pair_is_a_letter(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text(r'{"mask_token": "\ud83d\ude00"}')
    use(folder)


@pytest.mark.parametrize("path", ["a\0b", "\0", "x" * 100_000, "1_Pooling/../../x"])
def test_a_path_that_no_file_has(folder: Path, path: str) -> None:
    for place in range(3):
        modules = json.loads(json.dumps(BESIDE["modules.json"]))
        modules[place]["path"] = path
        (folder / "modules.json").write_text(json.dumps(modules))
        assert re.search(r"modules\.json: the field '\[\d\]\.path' must stay inside", refused(folder))


def test_a_shard_that_no_file_has(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    for shard in ("a\0b.safetensors", "x" * 1000 + ".safetensors"):
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": shard}}))
        assert "safetensors" in refused(folder)


@pytest.mark.parametrize("path", ["a\0b", "a\ud800"])
def test_a_path_in_python(path: str) -> None:
    for read in (regard.load, regard.Trace.open, regard.Concordance):
        for given in (path, Path(path)):
            with pytest.raises(RegardError):
                read(given)
