"""A folder's files: which are read, what is refused, and what is asked of a tokenizer beside texts."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import AddedToken, models, pre_tokenizers

from regard.core.errors import CheckpointError, InputError, MissingExtraError
from regard.text import SpecialIds, Tokenizer

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "bank", "##s"]


def put(folder: Path, **files: Any) -> Path:
    """Files by their name, with "__" for the dot."""
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return folder


def bert(folder: Path, **files: Any) -> Path:
    return put(folder, vocab__txt="\n".join(PIECES), **files)


def refusal(folder: Path, tokenizer_class: str = "BertTokenizer") -> str:
    with pytest.raises(CheckpointError) as caught:
        Tokenizer.from_folder(folder, tokenizer_class=tokenizer_class)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def read(folder: Path, tokenizer_class: str = "BertTokenizer") -> Tokenizer:
    tokenizer = Tokenizer.from_folder(folder, tokenizer_class=tokenizer_class)
    assert tokenizer is not None
    return tokenizer


def test_a_folder_without_any_is_none(tmp_path: Path) -> None:
    assert Tokenizer.from_folder(put(tmp_path, config__json={}), tokenizer_class="BertTokenizer") is None
    with pytest.raises(InputError, match=r"^folder must be a string or a path; got NoneType\.$"):
        Tokenizer.from_folder(None, tokenizer_class="BertTokenizer")  # type: ignore[arg-type]


def test_tokenizer_json_goes_first(tmp_path: Path, model_folder: Path) -> None:
    text = (model_folder / "tokenizer.json").read_text(encoding="utf-8")
    tokenizer = read(bert(tmp_path, tokenizer__json=text))
    assert tokenizer.encode("bank").token_ids == (101, 2924, 102)
    assert tokenizer.special_ids == SpecialIds()
    put(tmp_path, tokenizer_config__json={"mask_token": "[MASK]", "cls_token": {"content": "[CLS]"}})
    assert read(tmp_path).special_ids == SpecialIds(mask=103, cls=101)
    assert read(model_folder).special_ids.sep == 102


def test_vocab_txt(tmp_path: Path) -> None:
    tokenizer = read(bert(tmp_path))
    tokens = tokenizer.encode("The [MASK] x", "BANKS").tokens
    assert [(token.id, token.type_id) for token in tokens] == [
        *((2, 0), (5, 0), (4, 0), (1, 0), (3, 0)),
        *((6, 1), (7, 1), (3, 1)),
    ]
    assert [token.special for token in tokens] == [True, False, True, False, True, False, False, True]
    assert tokenizer.special_ids == SpecialIds(pad=0, unk=1, cls=2, sep=3, mask=4)
    assert tokenizer.decode((2, 5, 6, 7, 3), skip_special=True) == "the banks"
    assert tokenizer.decode([2, 6]) == "[CLS] bank"
    assert tokenizer.target is tokenizer


@pytest.mark.parametrize("stated", ["tokenizer_config__json", "config__json"])
def test_a_class_that_is_stated_goes_before_the_family(stated: str, tmp_path: Path) -> None:
    bert(tmp_path, **{stated: {"tokenizer_class": "BertTokenizerFast"}})
    assert read(tmp_path, "RobertaTokenizer").encode("bank").token_ids == (2, 6, 3)
    put(tmp_path, **{stated: {"tokenizer_class": "BertJapaneseTokenizer"}})
    assert refusal(tmp_path) == (
        f"{tmp_path} has vocab.txt, from which no BertJapaneseTokenizer is built: add its "
        "tokenizer.json (transformers writes it: AutoTokenizer.from_pretrained(…).save_pretrained(…))"
    )
    put(tmp_path, **{stated: {"tokenizer_class": "PreTrainedTokenizerFast"}})
    assert read(tmp_path).vocab_size == 8


def test_files_of_another_family(tmp_path: Path) -> None:
    assert "has vocab.txt, from which no GPT2Tokenizer is built" in refusal(bert(tmp_path), "GPT2Tokenizer")
    assert "no ModernBertTokenizer is built" in refusal(tmp_path, "ModernBertTokenizer")


def test_incomplete_and_damaged_files(tmp_path: Path) -> None:
    put(tmp_path, vocab__json={"a": 0})
    assert "has vocab.json, but not merges.txt, which belongs to it" in refusal(tmp_path, "GPT2Tokenizer")
    put(tmp_path, merges__txt="#version: 0.2\na b c\n")
    assert "vocab.json with merges.txt is not a usable vocabulary: " in refusal(tmp_path, "GPT2Tokenizer")
    put(tmp_path, vocab__json="{", merges__txt="")
    assert "is not a usable vocabulary: " in refusal(tmp_path, "GPT2Tokenizer")
    put(tmp_path, vocab__json={"a": 0})
    assert "vocab.json lacks the unk token, '<unk>': state unk_token" in refusal(tmp_path, "RobertaTokenizer")
    (tmp_path / "source.spm").write_bytes(b"")
    assert "vocab.json has no unk token" in refusal(tmp_path, "MarianTokenizer")
    put(tmp_path, vocab__json={"a": 0, "b": 0})
    assert "vocab.json must give each piece an id of its own" in refusal(tmp_path, "MarianTokenizer")
    (tmp_path / "vocab.json").unlink()
    assert "vocab.json is missing: a Marian tokenizer is of two .spm files" in refusal(
        tmp_path, "MarianTokenizer"
    )


def test_a_vocabulary_without_its_special_tokens(tmp_path: Path) -> None:
    put(tmp_path, vocab__txt="the\nbank\n")
    assert "vocab.txt lacks the unk token, '[UNK]': state unk_token in tokenizer_config.json" in refusal(
        tmp_path
    )
    bert(tmp_path, tokenizer_config__json={"cls_token": None})
    assert "vocab.txt lacks the cls token, null: " in refusal(tmp_path)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"tokenizer_config__json": "{"}, "tokenizer_config.json: not valid JSON"),
        ({"tokenizer_config__json": []}, "tokenizer_config.json: the JSON must be an object; got list"),
        (
            {"tokenizer_config__json": {"do_lower_case": "no"}},
            "do_lower_case must be true or false; got 'no'",
        ),
        ({"tokenizer_config__json": {"mask_token": 3}}, "mask_token must be a token; got 3"),
        ({"tokenizer_config__json": {"tokenizer_class": 3}}, "tokenizer_class must be a string; got 3"),
        ({"tokenizer_config__json": {"additional_special_tokens": [3]}}, "must be a list of tokens"),
        ({"tokenizer_config__json": {"added_tokens_decoder": {"x": "y"}}}, "must give a token for each id"),
        ({"tokenizer_config__json": {"added_tokens_decoder": ["y"]}}, "must give a token for each id"),
        ({"added_tokens__json": {"[New]": "8"}}, "the id of '[New]' must be a number; got '8'"),
        ({"added_tokens__json": {"[New]": 9}}, "'[New]' must have id 9, but the vocabulary gives it 8"),
        ({"added_tokens__json": {"bank": 8}}, "'bank' must have id 8, but the vocabulary gives it 6"),
        ({"special_tokens_map__json": "nul"}, "special_tokens_map.json: not valid JSON"),
    ],
)
def test_settings_that_cannot_be_read(files: dict[str, Any], message: str, tmp_path: Path) -> None:
    assert message in refusal(bert(tmp_path, **files))


def test_a_sentencepiece_model_without_its_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spiece.model").write_bytes(b"\0")
    monkeypatch.setitem(sys.modules, "transformers.convert_slow_tokenizer", None)
    with pytest.raises(MissingExtraError, match=r"pip install transformers sentencepiece protobuf"):
        Tokenizer.from_folder(tmp_path, tokenizer_class="T5Tokenizer")


def test_a_damaged_sentencepiece_model(tmp_path: Path) -> None:
    """The pieces come first in the file: cut off behind them it would still be one, of other settings."""
    (tmp_path / "spiece.model").write_bytes(b"\xff" * 7)
    assert "spiece.model is not a usable SentencePiece model: " in refusal(tmp_path, "T5Tokenizer")
    for content in (b"", b"\x0a\x0a\x0a\x03<s>\x15\0\0\0\0"):
        (tmp_path / "spiece.model").write_bytes(content)
        assert "spiece.model is not a usable SentencePiece model: it is incomplete" in refusal(
            tmp_path, "T5Tokenizer"
        )


# --- against the model's table


def counted(size: int, added: int) -> Tokenizer:
    vocabulary = {f"w{number}": number for number in range(size)}
    backend = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="w0"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_tokens([AddedToken(f"<a{number}>", special=True) for number in range(added)])
    return Tokenizer.from_str(backend.to_str())


def test_a_table_as_long_as_the_vocabulary_or_longer() -> None:
    tokenizer = counted(7, 2)
    assert tokenizer.within(9) is tokenizer
    assert tokenizer.within(64) is tokenizer


def test_a_table_too_short_for_the_vocabulary() -> None:
    with pytest.raises(CheckpointError, match=r"has tokens up to id 8, but .* has 6 rows: .* Take the tok"):
        counted(7, 2).within(6)


def test_a_table_too_short_for_added_tokens_refuses_texts_that_use_them() -> None:
    tokenizer = counted(7, 2).within(8)
    assert tokenizer.encode("w3 <a0>").token_ids == (3, 7)
    with pytest.raises(InputError, match=r'the text has "<a1>", an added token with id 8, but .* has 8 rows'):
        tokenizer.encode("w3 <a1>")


# --- ids


def test_what_is_decoded_must_be_in_the_vocabulary() -> None:
    tokenizer = counted(7, 2)
    assert tokenizer.decode((1, 8, 2)) == "w1 <a1> w2"
    assert tokenizer.decode((1, 8, 2), skip_special=True) == "w1 w2"
    with pytest.raises(InputError, match=r"^id 9 is not in the vocabulary of 9 tokens"):
        tokenizer.decode([9])
    assert (tokenizer.piece_of(8), tokenizer.piece_of(9), tokenizer.piece_of(-1)) == ("<a1>", None, None)
    assert (tokenizer.is_special(8), tokenizer.is_special(1), tokenizer.is_special(9)) == (True, False, False)
