"""Tokenizers that are learned: what they give back, what `transformers` makes of them, what is refused."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from regard.core.errors import CheckpointError, InputError
from regard.text import Tokenizer, train_tokenizer, write_tokenizer

TEXTS = [
    f"{who} {does} the {what} of the river{end}"
    for who in ("He", "A fisherman", "The Bank")
    for does in ("sees", "owns", "loves")
    for what in ("bank", "banks", "mouth")
    for end in (".", ", über\u00e1ll!")
]
ODD = ["  two  blanks ", "\ttab\nline\r\n", "日本語 😀", "e\u0301 \u00e9", "<s> [CLS] <|endoftext|>x"]


def learned(kind: Any, **options: Any) -> Tokenizer:
    return train_tokenizer(TEXTS, kind=kind, **({"size": 300} | options))


@pytest.mark.parametrize("kind", ["bpe", "characters"])
def test_a_text_comes_back_as_it_was(kind: str) -> None:
    texts = [*TEXTS, *ODD]
    tokenizer = train_tokenizer(texts, kind=kind, size=300)  # type: ignore[arg-type]
    for text in texts:
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False).token_ids) == text
        (ids,) = tokenizer.bulk.pieces([text])
        assert tokenizer.decode(ids) == text
    if kind == "characters":
        letters = sorted({*"".join(texts), "\n"})
        assert [tokenizer.token_of(id) for id in range(tokenizer.vocab_size)] == letters
        assert len(tokenizer.encode("日本 😀").tokens) == 4  # code points


@pytest.mark.parametrize("kind", ["wordpiece", "unigram"])
def test_words_come_back(kind: str) -> None:
    tokenizer = learned(kind)
    for text in TEXTS:
        back = tokenizer.decode(tokenizer.encode(text).token_ids, skip_special=True)
        assert back.replace(" ", "") == text.replace(" ", "")


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "characters"])
def test_the_same_texts_give_the_same_tokenizer(kind: str) -> None:
    mixed = random.Random(0).sample(TEXTS, len(TEXTS))
    marks = {train_tokenizer(texts, kind=kind, size=300).mark() for texts in [TEXTS, mixed] * 3}  # type: ignore[arg-type]
    assert len(marks) == 1


MARKED = {
    "gpt2": (["<|endoftext|>"], [], []),
    "bert": (["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], ["[CLS]"], ["[SEP]"]),
    "bart": (["<s>", "<pad>", "</s>", "<unk>", "<mask>"], ["<s>"], ["</s>"]),
    "t5": (["<pad>", "</s>", "<unk>"], [], ["</s>"]),
    "none": ([], [], []),
}


@pytest.mark.parametrize(
    ("kind", "marks"),
    [
        *((kind, marks) for kind in ("bpe", "characters") for marks in MARKED),
        *((kind, marks) for kind in ("wordpiece", "unigram") for marks in ("bert", "bart", "t5")),
    ],
)
def test_files_mean_the_same_to_regard_and_transformers(tmp_path: Path, kind: str, marks: str) -> None:
    tokenizer = learned(kind, marks=marks, special=["<sep>"])
    tokens, before, after = MARKED[marks]
    assert [tokenizer.token_of(id) for id in range(len(tokens) + 1)] == [*tokens, "<sep>"]
    frame = tokenizer.bulk.frame()
    assert [list(map(tokenizer.token_of, ids)) for ids in (frame.before, frame.after)] == [before, after]

    write_tokenizer(tokenizer, tmp_path)
    again = Tokenizer.from_folder(tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    assert again is not None
    assert (again.mark(), again.special_ids) == (tokenizer.mark(), tokenizer.special_ids)
    for text, pair in pairwise(TEXTS):
        assert theirs(text)["input_ids"] == list(again.encode(text).token_ids)
        assert theirs(text, pair)["input_ids"] == list(again.encode(text, pair).token_ids)
    for role in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"):
        assert getattr(theirs, f"{role}_token_id") == getattr(tokenizer.special_ids, role)


def test_pieces_are_those_of_frequent_words() -> None:
    assert [token.text for token in learned("wordpiece").encode("The river banks").tokens] == [
        "[CLS]",
        "The",
        "river",
        "banks",
        "[SEP]",
    ]
    assert [token.text for token in learned("bpe").encode("the river").tokens][-1] == "Ġriver"
    assert [token.text for token in learned("unigram").encode("the river").tokens][-2] == "▁river"


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram", "characters"])
def test_lowercase(kind: str) -> None:
    tokenizer = learned(kind, lowercase=True)
    assert tokenizer.encode("THE BANK").token_ids == tokenizer.encode("the bank").token_ids
    other = learned(kind)
    assert other.encode("The Bank").token_ids != other.encode("the bank").token_ids


def test_unknown_characters_are_refused_or_marked() -> None:
    tokenizer = learned("characters")
    for call in (tokenizer.encode, lambda text: tokenizer.bulk.pieces(["the", text])):
        with pytest.raises(CheckpointError, match="has no token for 'q', and none for what it does not know"):
            call("the queue")
    tokenizer = learned("characters", special=["[UNK]"])
    assert [token.text for token in tokenizer.encode("aq").tokens] == ["a", "[UNK]"]
    assert tokenizer.special_ids.unk == 0


def test_a_frame_without_the_letter_a() -> None:
    assert len(train_tokenizer(["0123"], kind="characters").bulk.frame()) == 0


def test_texts_are_counted() -> None:
    told: list[int] = []
    train_tokenizer(iter(TEXTS * 100), size=300, on_texts=told.append)
    assert told == [1000, 2000, 3000, 4000, 5000, 5400]


def broken() -> Iterator[str]:
    yield "a"
    raise InputError("line 2 is broken.")


@pytest.mark.parametrize(
    ("texts", "options", "told"),
    [
        (TEXTS, {"kind": "word"}, r"kind must be one of bpe, .*; got 'word'\. Did you mean 'wordpiece'\?"),
        (TEXTS, {"marks": "BERT"}, r"marks must be one of .*; got 'BERT'\. Did you mean 'bert'\?"),
        (TEXTS, {"kind": "unigram", "marks": "gpt2"}, "marks must have a token for unknown text"),
        (TEXTS, {"size": 10**11}, "size must be a whole number, from 1 to 10000000; got 1"),
        (TEXTS, {"size": 256}, r"size must be at least 257, for 256 characters or bytes .* got 256"),
        (TEXTS, {"kind": "wordpiece", "size": 40}, r"size must be at least \d+, .*; got 40"),
        (TEXTS, {"kind": "unigram", "size": 20}, r"size must be at least 30, .*; got 20"),
        (TEXTS, {"kind": "characters", "size": 20}, r"size must be at least 28, .*; got 20"),
        (TEXTS, {"special": "[A]"}, "special must be a list of tokens"),
        ([], {}, "texts must hold at least one word"),
        ([" ", "\n"], {"kind": "unigram"}, "texts must hold at least one word"),
        ("one", {}, "texts must be several texts"),
        (["a", 1], {}, r"texts\[1\] must be a string; got int"),
        (["a", "\ud800"], {}, r"texts\[1\] is not valid Unicode: position 0"),
        (broken(), {}, "line 2 is broken"),
    ],
)
def test_what_is_refused(texts: Any, options: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        train_tokenizer(texts, **options)
