"""Selectors: what a person writes, the tokens that are meant, and messages that say what to write instead."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tokenizers
from tokenizers import models, pre_tokenizers

from regard.core.errors import InputError
from regard.text import Encoding, Tokenizer

TEXT = "The river bank is by the bank of England."


@pytest.fixture(scope="module")
def encoding(default: Tokenizer) -> Encoding:
    return default.encode(TEXT)


def refusal(encoding: Encoding, selector: object) -> str:
    with pytest.raises(InputError) as caught:
        encoding.find(selector)  # type: ignore[arg-type]
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("river", (2,)),
        ("RIVER", (2,)),
        (" river\n", (2,)),
        ("England.", (9, 10)),
        # As written before case is set aside: "The" and "the" differ.
        ("The", (1,)),
        ("the", (6,)),
        ("bank#1", (3,)),
        ("bank#2", (7,)),
        ("BANK#2", (7,)),
        ("bank#02", (7,)),
        ("river bank", (2, 3)),
        ("river\n bank", (2, 3)),
        ("the bank", (6, 7)),
        ("THE River BANK is", (1, 2, 3, 4)),
        ("bank of#1", (7, 8)),
        ("[CLS]", (0,)),
        ("[SEP]", (11,)),
        ("[SEP]#1", (11,)),
        (0, (0,)),
        (11, (11,)),
        (-1, (11,)),
        (-12, (0,)),
        (np.int64(3), (3,)),
        ((10, 14), (3,)),
        ("10:14", (3,)),
        ((4, 14), (2, 3)),
        ((3, 15), (2, 3)),  # blanks at its ends
        ((np.int64(25), 29), (7,)),
        ((33, 41), (9, 10)),
    ],
)
def test_found(selector: str | int | tuple[int, ...], expected: tuple[int, ...], encoding: Encoding) -> None:
    assert encoding.find(selector) == expected


@pytest.mark.parametrize(
    ("text", "selector", "expected"),
    [
        ("I don't.", "don't", (2, 3, 4)),
        ("cafe\u0301", "CAFÉ", (1,)),
        ("Straße", "STRASSE", (1, 2)),
        ("co\u00adop", "coop", (1,)),
        ("Ⅳ שָׁלוֹם", "שָׁלוֹם", (2, 3, 4, 5)),
        ("日本語 x", "本語", (2, 3)),
        ("a 🇫🇷🇩🇪 b", "🇫🇷🇩🇪", (2,)),
        ("by inter\x02national rail", "International", (2,)),
        ("inter\x02\x03na\x04tional", "international", (1,)),
        ("a 3.14, b", "3.14", (2, 3, 4)),
        ("The [MASK] x", "[MASK]", (2,)),
        ("bank#2 bank", "bank#2", (4,)),
        # The text's own "#": it is what it says.
        ("bank#9 bank", "bank#9", (1, 2, 3)),
        ("bank#2 bank", "bank#1", (1,)),
        ("BANK#2 bank bank", "bank#2", (5,)),
        ("bank # 2 bank", "bank#2", (4,)),
        ("a C# b C#", "C##2", (5, 6)),
        ("bank #1", "#1", (2, 3)),
        ("at 4:20 pm", "4:20", (2, 3, 4)),  # as written before it is a span
        ("The [MASK] x", (4, 10), (2,)),
        ("a 🇫🇷🇩🇪 b", (2, 6), (2,)),
    ],
)
def test_found_in(
    text: str, selector: str | tuple[int, ...], expected: tuple[int, ...], default: Tokenizer
) -> None:
    assert default.encode(text).find(selector) == expected


def test_found_in_pairs(default: Tokenizer) -> None:
    pair = default.encode("The bank", "A bank")
    assert pair.find("The") == (1,)
    assert pair.find("A") == (4,)
    assert pair.find("bank#2") == (5,)
    assert pair.find("[SEP]#2") == (6,)
    assert (pair.find((4, 8)), pair.find((2, 6, 1)), pair.find("4:8")) == ((2,), (5,), (2,))
    # Words of two texts do not follow each other.
    assert refusal(pair, "bank A").startswith('"bank A" is not a word of the texts; ')


def test_every_word_is_found_by_itself_and_its_number(all_tokenizers: dict[str, Tokenizer]) -> None:
    for tokenizer in all_tokenizers.values():
        encoding = tokenizer.encode("The bank, the Bank; a river bank.", "Bank of a river?")
        for text, group in itertools.groupby(
            sorted(encoding.words, key=lambda w: (w.text, w.index)), lambda w: w.text
        ):
            for number, word in enumerate(group, start=1):
                assert encoding.find(f"{text}#{number}") == word.tokens
                assert encoding.find((*word.span, word.sequence)) == word.tokens


@pytest.mark.parametrize(
    ("span", "told"),
    [
        ((4, 4), "selector must be a span (start, end) of tokens, within 41 characters; got (4, 4)"),
        ((36, 42), "41 characters; got (36, 42)"),
        ((-4, 3), "got (-4, 3)"),
        ((1, 4, 1), "got (1, 4, 1)"),
        ((1,), "got (1,)"),
        ((1, 2, 0, 0), "got (1, 2, 0, 0)"),
        (("a", "b"), "got ('a', 'b')"),
        ((9, 10), 'span 9:10, "", has no token; give another'),
        ((6, 14), 'span 6:14, "ver bank", has only a part of token 2, "river"; give 4:9 in full'),
        ("0:99", "got (0, 99)"),
    ],
)
def test_a_span_that_is_none(encoding: Encoding, span: object, told: str) -> None:
    assert told in refusal(encoding, span)
    assert "no text, since it was given as ids" in refusal(Encoding.from_ids([1, 2]), (0, 2))


def test_an_ambiguous_word_lists_where_it_stands(encoding: Encoding) -> None:
    assert refusal(encoding, "bank") == (
        '"bank" occurs 2 times in the text: "bank#1" at token 3 (The river bank is by the…), '
        '"bank#2" at token 7 (…is by the bank of England.); choose one of these'
    )


def test_an_ambiguous_word_of_a_pair_names_the_text(default: Tokenizer) -> None:
    message = refusal(default.encode("A Don't", "Don't."), "don't")
    assert message == (
        '"don\'t" occurs 2 times in the text: "don\'t#1" at tokens 2, 3, 4 in the first text (A Don\'t), '
        "\"don't#2\" at tokens 6, 7, 8 in the second text (Don't.); choose one of these"
    )


def test_an_ambiguous_special_token(default: Tokenizer) -> None:
    message = refusal(default.encode("a", "b"), "[SEP]")
    assert message == (
        '"[SEP]" occurs 2 times in the text: "[SEP]#1" at token 2, "[SEP]#2" at token 4; choose one of these'
    )


def test_long_lists_are_shortened(default: Tokenizer) -> None:
    message = refusal(default.encode("bank " * 500), "bank")
    assert '"bank#20" at token 20 ' in message
    assert "bank#21" not in message
    assert message.endswith(", and 480 more; choose one of these")
    text = " ".join(f"w{number}" for number in range(60))
    message = refusal(default.encode(text), "zebra")
    assert message.endswith('"w38", "w39" and 20 more')


def test_contexts_are_short_in_texts_without_blanks(default: Tokenizer) -> None:
    message = refusal(default.encode("日本" * 500 + "x" * 400 + "日"), "日")
    assert max(len(part) for part in message.split(", ")) < 120
    message = refusal(default.encode("x" * 400 + " bank " + "y" * 400 + " bank"), "bank")
    assert len(message) < 300


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        (
            "bank#3",
            '"bank#3" asks for occurrence 3, but "bank" occurs 2 times in the text: "bank#1" at token 3 (',
        ),
        (
            "bank#0",
            '"bank#0" asks for occurrence 0, but "bank" occurs 2 times in the text: "bank#1" at token 3 (',
        ),
        (
            "river#2",
            '"river#2" asks for occurrence 2, but "river" occurs once in the text: '
            '"river#1" at token 2 (The river bank is by…); choose "river" or "river#1"',
        ),
        (
            "[CLS]#2",
            '"[CLS]#2" asks for occurrence 2, but "[CLS]" occurs once in the text: "[CLS]#1" at token 0; ',
        ),
        ("lake#2", '"lake" is not a word of the text; the words are "The", "river", '),
        ("banks#99999999999", '"banks#99999999999" is not a word of the text; '),
        ("", 'selector names no word: got ""; '),
        (" \u200b", "selector names no word: got "),
        (
            12,
            "token position 12 is out of range: the text has 12 tokens, so 0 to 11, or -12 to -1 from "
            "the end",
        ),
        (-13, "token position -13 is out of range: "),
        (True, 'selector must be a word or a token position; got bool "True"'),
        (b"bank", "selector must be a word or a token position; got bytes "),
    ],
)
def test_refused(selector: object, message: str, encoding: Encoding) -> None:
    assert refusal(encoding, selector).startswith(message)


def test_a_word_that_is_not_there_lists_the_words_and_the_nearest(encoding: Encoding) -> None:
    assert refusal(encoding, "Banks") == (
        '"Banks" is not a word of the text; the words are "The", "river", "bank", "is", "by", "the", "of", '
        '"England", "."; did you mean "bank"?'
    )
    # A part of a word is no word.
    assert refusal(encoding, "riv").startswith('"riv" is not a word of the text; ')
    assert "did you mean" not in refusal(encoding, "\ud800\n\x1b")


def test_a_dropped_word(default: Tokenizer) -> None:
    message = refusal(default.encode("an odd \u0301 mark"), "\u0301")
    assert message.startswith(
        'the tokenizer dropped "\u0301" (an odd \u0301 mark) and left no token for it; '
    )
    backend = tokenizers.Tokenizer(models.BPE({"a": 0, "b": 1}, []))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    encoding = Tokenizer.from_str(backend.to_str()).encode("a zz qq b")
    assert refusal(encoding, "zz qq").startswith('the tokenizer dropped "zz qq" (a zz qq b) ')
    assert encoding.find("zz qq b") == (1,)


@pytest.mark.parametrize(
    ("text", "selector", "token", "joined"),
    [
        ("x ab\u200bc", "c", '2, "abc"', '"ab\u200bc"'),
        ("x ab\u200bc", "ab", '2, "abc"', '"ab\u200bc"'),
        ("by inter\x02national", "national", '2, "international"', '"inter\\x02national"'),
        ("a 🇫🇷🇩🇪 b", "🇫🇷", '2, "[UNK]"', '"🇫🇷🇩🇪"'),
    ],
)
def test_a_word_without_a_token_of_its_own(
    text: str, selector: str, token: str, joined: str, default: Tokenizer
) -> None:
    """What a piece says of two words together, it says of neither."""
    position = token[0]
    assert refusal(default.encode(text), selector) == (
        f'"{selector}" has no token of its own: the tokenizer joins it with what is beside it in token '
        f"{token}; select {joined}, or position {position}"
    )


def test_a_word_inside_a_special_token(default: Tokenizer) -> None:
    message = refusal(default.encode("It is [MASK]"), "MASK")
    assert message == (
        '"MASK" is part of the special token "[MASK]" at token 3: select "[MASK]", or position 3'
    )


def test_an_occurrence_without_token_counts(default: Tokenizer) -> None:
    message = refusal(default.encode("MASK and [MASK]"), "MASK")
    assert '"MASK#2" at no token ' in message
    assert default.encode("MASK and [MASK]").find("MASK#1") == (1,)
