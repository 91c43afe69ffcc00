"""A tokenizer file as a function: its ids are the library's, its refusals are one clear line."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from tokenizers import models, pre_tokenizers

from regard.core.errors import CheckpointError, InputError
from regard.text import Tokenizer

KINDS = ["wordpiece", "byte_level", "byte_level_prefix", "unigram", "default"]
SENTENCE = "Write a poem about a man fishing on a river bank."
TEXTS = [
    SENTENCE,
    "time flies like an arrow",
    "Don't  naïve café cafe\u0301\r\nשָׁלוֹם عَرَبِيّ 日本語 👩\u200d👧 🇫🇷 co\u00adop ﬁsh İ \0 …",
    "The capital is [MASK]. [SEP] x",
    "bank " * 400,
]


def plain(backend: tokenizers.Tokenizer) -> Tokenizer:
    return Tokenizer.from_str(backend.to_str())


def test_the_documents_numbers(default: Tokenizer) -> None:
    encoding = default.encode("time flies like an arrow", add_special_tokens=False)
    assert encoding.token_ids == (2051, 10029, 2066, 2019, 8612)
    assert " ".join(token.text for token in default.encode(SENTENCE).tokens) == (
        "[CLS] write a poem about a man fishing on a river bank . [SEP]"
    )


def test_ids_are_those_of_transformers(default: Tokenizer, model_folder: Path) -> None:
    from transformers import AutoTokenizer

    oracle = AutoTokenizer.from_pretrained(model_folder)
    for text, pair in [*((text, None) for text in TEXTS), *zip(TEXTS, TEXTS[::-1], strict=True)]:
        for special in (True, False):
            expected = oracle(text, pair, add_special_tokens=special, truncation=False, padding=False)
            encoding = default.encode(text, pair, add_special_tokens=special)
            assert list(encoding.token_ids) == expected["input_ids"]
            assert list(encoding.type_ids) == expected["token_type_ids"]
    assert default.vocab_size == len(oracle) == 30522


@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_those_of_the_library(
    kind: str, backends: dict[str, str], all_tokenizers: dict[str, Tokenizer]
) -> None:
    backend = tokenizers.Tokenizer.from_str(backends[kind])
    backend.no_truncation()
    backend.no_padding()
    for text, pair in zip(TEXTS, TEXTS[::-1], strict=True):
        for special in (True, False):
            expected = backend.encode(text, pair, add_special_tokens=special)
            encoding = all_tokenizers[kind].encode(text, pair, add_special_tokens=special)
            assert list(encoding.token_ids) == expected.ids
            assert list(encoding.type_ids) == expected.type_ids
            assert [token.text for token in encoding.tokens] == expected.tokens


@pytest.mark.parametrize("kind", ["wordpiece", "default"])
def test_stored_truncation_and_padding_are_off(
    kind: str, backends: dict[str, str], all_tokenizers: dict[str, Tokenizer]
) -> None:
    stored = json.loads(backends[kind])
    assert stored["truncation"] is not None
    assert stored["padding"] is not None
    tokenizer = all_tokenizers[kind]
    assert len(tokenizer.encode("bank").tokens) == 3
    assert len(tokenizer.encode("bank " * 600).tokens) == 602


def test_a_pair_keeps_its_two_texts_apart(default: Tokenizer) -> None:
    encoding = default.encode("The bank", "A bank.")
    assert encoding.texts == ("The bank", "A bank.")
    rows = [(token.text, token.span, token.sequence, token.word, token.special) for token in encoding.tokens]
    assert rows == [
        ("[CLS]", None, None, None, True),
        ("the", (0, 3), 0, 0, False),
        ("bank", (4, 8), 0, 1, False),
        ("[SEP]", None, None, None, True),
        ("a", (0, 1), 1, 2, False),
        ("bank", (2, 6), 1, 3, False),
        (".", (6, 7), 1, 4, False),
        ("[SEP]", None, None, None, True),
    ]
    assert encoding.type_ids == (0, 0, 0, 0, 1, 1, 1, 1)
    assert [(word.text, word.sequence, word.tokens) for word in encoding.words] == [
        ("The", 0, (1,)),
        ("bank", 0, (2,)),
        ("A", 1, (4,)),
        ("bank", 1, (5,)),
        (".", 1, (6,)),
    ]


def test_a_special_token_in_the_text_has_a_span_and_no_word(default: Tokenizer) -> None:
    encoding = default.encode("It is [MASK]!", add_special_tokens=False)
    mask = encoding.tokens[2]
    assert (mask.text, mask.span, mask.sequence, mask.word, mask.special) == (
        "[MASK]",
        (6, 12),
        0,
        None,
        True,
    )
    assert [(word.text, word.tokens) for word in encoding.words] == [
        ("It", (0,)),
        ("is", (1,)),
        ("[", ()),
        ("MASK", ()),
        ("]", ()),
        ("!", (3,)),
    ]


def test_an_unknown_word_is_not_special_but_unk_in_the_text_is(default: Tokenizer) -> None:
    unknown, written = default.encode("👩 [UNK]", add_special_tokens=False).tokens
    assert unknown.id == written.id == default.id_of("[UNK]")
    assert (unknown.special, unknown.word) == (False, 0)
    assert (written.special, written.word) == (True, None)


def test_a_dropped_word_keeps_its_place() -> None:
    backend = tokenizers.Tokenizer(models.BPE({"a": 0, "b": 1}, []))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    encoding = plain(backend).encode("a zz b")
    assert [(word.text, word.tokens) for word in encoding.words] == [("a", (0,)), ("zz", ()), ("b", (1,))]


def test_vocabulary_both_ways(default: Tokenizer) -> None:
    assert default.token_of(2924) == "bank"
    assert default.id_of("bank") == 2924
    assert default.token_of(np.int64(101)) == "[CLS]"
    assert default.id_of("[CLS]") == 101


def own_blank() -> Tokenizer:
    """The blank that it puts before a text does not count as a token."""
    backend = tokenizers.Tokenizer(models.BPE({"▁": 0}, []))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    return plain(backend)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        *((lambda default, n=n: default.token_of(n), f"id {n} is not in the v") for n in (-1, 30522, 2**40)),
        (lambda default: default.token_of("bank"), r'id must be an integer; got str "\'bank\'"$'),
        (lambda default: default.id_of("Ġbank"), '"Ġbank" is not in the vocabulary of 30522 tokens'),
        (lambda default: default.id_of("\ud800"), r'"\\ud800" is not in the vocabulary'),
        (lambda default: default.id_of(3), r"token must be a string; got int$"),
        (lambda default: Tokenizer.from_str({}), r"json must be the text of a tokenizer.json; got dict$"),
        (lambda default: own_blank().encode("x"), "text leaves no token"),
    ],
)
def test_what_is_refused(call: Callable[[Tokenizer], object], message: str, default: Tokenizer) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        call(default)


@pytest.mark.parametrize("given", ["Ġbank", "␣bank", " bank"])
def test_a_piece_may_be_given_as_it_is_read(all_tokenizers: dict[str, Tokenizer], given: str) -> None:
    tokenizer = all_tokenizers["byte_level"]
    assert tokenizer.piece_of(tokenizer.id_of(given)) == "Ġbank"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((b"bank",), "text must be a string; got bytes"),
        ((["bank"],), "text must be a string; got list"),
        (("bank", 3), "pair must be a string; got int"),
        (("",), "text is empty: "),
        ((" \n\t\u3000",), "text is empty but for white space: "),
        (("bank", ""), "pair is empty: "),
        (("ab\udc80c",), "text is not valid Unicode: position 2 holds half of a surrogate pair (U+DC80)"),
        (("bank", "\ud83d"), "pair is not valid Unicode: position 0 "),
        (("\u200b",), "text leaves no token: "),
        (("bank", "\0\x07"), "pair leaves no token: "),
    ],
)
def test_texts_that_cannot_be_encoded(arguments: tuple[str, ...], message: str, default: Tokenizer) -> None:
    with pytest.raises(InputError) as caught:
        default.encode(*arguments)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"model": {"type": "X"}}', "\ud800"])
def test_json_that_is_no_tokenizer(content: str) -> None:
    with pytest.raises(CheckpointError, match=r"^the JSON given is not a usable tokenizer.json: [^\n]+$"):
        Tokenizer.from_str(content)


@pytest.mark.parametrize(("prefix", "second"), [("x", "é"), ("##", "b"), ("x", "")])
def test_merges_that_would_end_the_process(prefix: str, second: str) -> None:
    made = json.loads(tokenizers.Tokenizer(models.BPE()).to_str())
    vocabulary = {token: number for number, token in enumerate(dict.fromkeys(("a", second, f"a{second}")))}
    for merges in ([["a", second]], [f"a {second}"]):
        made["model"] |= {"vocab": vocabulary, "merges": merges, "continuing_subword_prefix": prefix}
        with pytest.raises(CheckpointError, match=f"its merges have '{second}' inside a word, without the"):
            Tokenizer.from_str(json.dumps(made))
    made["model"] |= {"vocab": {"a": 0, "xé": 1, "aé": 2}, "merges": [["a", "xé"]]}
    made["model"]["continuing_subword_prefix"] = "x"
    assert Tokenizer.from_str(json.dumps(made)).encode("aé").token_ids == (2,)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    for content, reason in [
        (b'{"version": "1.0"', "is not a usable tokenizer.json: EOF"),
        (b"\xff\xfe{", "cannot be read as a tokenizer.json: 'utf-8' codec"),
        (None, "cannot be read as a tokenizer.json: it is not a plain file"),
    ]:
        file.unlink(missing_ok=True)
        if content is None:
            file.mkdir()
        else:
            file.write_bytes(content)
        with pytest.raises(CheckpointError) as caught:
            Tokenizer.from_folder(tmp_path, tokenizer_class="BertTokenizer")
        assert str(caught.value).startswith(f"{file} {reason}")
        assert "\n" not in str(caught.value)


def refused_as_it_fails(folder: Path, backend: dict[str, Any], text: str) -> str:
    """What each way of reading a text says of a tokenizer that fails on it, or on its own template."""
    (folder / "tokenizer.json").write_text(json.dumps(backend), encoding="utf-8")
    tokenizer = Tokenizer.from_folder(folder, tokenizer_class="BertTokenizer")
    assert tokenizer is not None
    said = []
    for call in (
        lambda: tokenizer.encode(text),
        lambda: tokenizer.bulk.frame(),
        lambda: tokenizer.bulk.pieces([text]),
    ):
        try:
            call()
        except CheckpointError as error:
            said.append(str(error))
    assert all(each.startswith(f"{folder / 'tokenizer.json'}: the tokenizer ") for each in said)
    return " ".join(said)


def test_a_tokenizer_that_fails_is_named(tmp_path: Path) -> None:
    made = json.loads(tokenizers.Tokenizer(models.WordLevel({"a": 0}, unk_token="[UNK]")).to_str())
    assert refused_as_it_fails(tmp_path, made, "b").count("the tokenizer failed on") == 2


def bert_like() -> dict[str, Any]:
    backend = tokenizers.Tokenizer(models.WordPiece({"[UNK]": 0, "[CLS]": 1, "a": 2}, unk_token="[UNK]"))
    backend.normalizer = tokenizers.normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A", special_tokens=[("[CLS]", 1)]
    )
    made: dict[str, Any] = json.loads(backend.to_str())
    return made


def test_a_panic_in_the_library_is_an_error(tmp_path: Path) -> None:
    backend = tokenizers.Tokenizer.from_str(json.dumps(bert_like()))
    backend.add_tokens(["\u200d"])  # which its own normalizer takes away
    said = refused_as_it_fails(tmp_path, json.loads(backend.to_str()), "naïve é日")
    assert said.count("the tokenizer failed on") == 2
    made = bert_like()
    del made["post_processor"]["special_tokens"]["[CLS]"]
    assert refused_as_it_fails(tmp_path, made, "a").count("the tokenizer failed on the text") == 2


def test_a_template_of_ids_without_tokens(tmp_path: Path) -> None:
    made = bert_like()
    made["post_processor"]["special_tokens"]["[CLS]"]["tokens"] = []
    said = refused_as_it_fails(tmp_path, made, "a")
    assert said.count("gives 2 ids, but 1 tokens; its template") == 2


def test_it_can_be_pickled(default: Tokenizer) -> None:
    again = pickle.loads(pickle.dumps(default))
    assert again.encode("A [MASK] ﬁsh") == default.encode("A [MASK] ﬁsh")


@pytest.mark.parametrize(
    ("kind", "unit"),
    [("default", "the bank, "), ("default", "e\u0301"), ("byte_level_prefix", "🇫🇷"), ("unigram", "日")],
)
def test_long_texts_take_linear_time(kind: str, unit: str, all_tokenizers: dict[str, Tokenizer]) -> None:
    start = time.perf_counter()
    all_tokenizers[kind].encode(unit * (20_000 // len(unit)))
    # A fraction of a second; trying every word for every token would take minutes.
    assert time.perf_counter() - start < 15
