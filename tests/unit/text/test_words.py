"""Words come from the text alone: Unicode's boundaries, and only what can be seen."""

from __future__ import annotations

import random
import time
import unicodedata

import pytest

from regard.core.errors import InputError
from regard.text import split_words
from regard.text._words import fold, shown, single_spaced


def words(text: str) -> list[str]:
    return [text[start:end] for start, end in split_words(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("don't can’t", ["don't", "can’t"]),
        ("Hello, world! It's 3.14", ["Hello", ",", "world", "!", "It's", "3.14"]),
        ("'quoted' 'apple' “bank”", ["'", "quoted", "'", "'", "apple", "'", "“", "bank", "”"]),
        ("foo_bar x@y.com re-use", ["foo_bar", "x", "@", "y.com", "re", "-", "use"]),
        ("U.S.A. e.g.", ["U.S.A", ".", "e.g", "."]),
        ("...", [".", ".", "."]),
        ("日本語", ["日", "本", "語"]),
        ("カタカナ", ["カタカナ"]),
        ("שָׁלוֹם עולם", ["שָׁלוֹם", "עולם"]),
        ("مُحَمَّد، أهلا", ["مُحَمَّد", "،", "أهلا"]),
        ("हिन्दी", ["हिन्दी"]),
        ("cafe\u0301 x", ["cafe\u0301", "x"]),
        ("👩\u200d👩\u200d👧 👋🏽 ❤\ufe0f", ["👩\u200d👩\u200d👧", "👋🏽", "❤\ufe0f"]),
        ("🇫🇷🇩🇪x🇫 y", ["🇫🇷", "🇩🇪", "x", "🇫", "y"]),
        ("co\u00adop", ["co\u00adop"]),
        ("a\u200bb", ["a", "b"]),
        ("a\0b\x07c\x1b", ["a", "b", "c"]),
        ("a\r\nb\u2028c\td\u00a0e\u3000f", ["a", "b", "c", "d", "e", "f"]),
        ("ﬁsh straße İstanbul", ["ﬁsh", "straße", "İstanbul"]),
        ("\ufeffbank", ["bank"]),
        ("\u0301a", ["\u0301", "a"]),
        # A mark after a blank, and a blank that joins: neither brings the blank into the word.
        ("x \u0301y", ["x", "\u0301", "y"]),
        ("1\u202f000 km\u202f; \u202fx", ["1\u202f000", "km", ";", "x"]),
        # An Arabic number sign is a format character, and prints.
        ("\u0600\u0661", ["\u0600\u0661"]),
        ("\u200b\u00ad\ufe0f \u3164\u200e\n", []),
        ("", []),
    ],
)
def test_words_of(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_thai_comes_out_in_parts() -> None:
    """The documented limit: without a dictionary, no more than this is known."""
    assert "".join(words("ข้าวผัด")) == "ข้าวผัด"
    assert len(words("ข้าวผัด")) == 5


def test_random_strings_give_ordered_visible_words() -> None:
    rng = random.Random(1)
    alphabet = "aB.,'\" \n\t_1\u0301\u00ad\u200b\u200d\ufe0f👩🏽🇫🇷日ש\u05b8\0\x1f\u202f\u00a0ﬁ\u0600ก็"
    for _ in range(3000):
        text = "".join(rng.choices(alphabet, k=rng.randint(0, 14)))
        last = 0
        for start, end in split_words(text):
            assert last <= start < end <= len(text), ascii(text)
            word = text[start:end]
            assert word == word.strip(), ascii(text)
            assert unicodedata.category(word[0]) != "Cc", ascii(text)
            last = end
        lost = set(text) - set("".join(words(text)))
        assert not any(c.isalnum() or unicodedata.category(c)[0] in "PS" for c in lost), ascii(text)


@pytest.mark.parametrize("unit", ["🇫🇷", "🇫", "a\u0301", "\u0301", "a'", "👩\u200d", "\r\n", "\u00ad", "日"])
def test_long_texts_take_linear_time(unit: str) -> None:
    start = time.perf_counter()
    split_words(unit * (200_000 // len(unit)))
    # A fraction of a second; walking back at each of 200 000 flags takes minutes.
    assert time.perf_counter() - start < 10


@pytest.mark.parametrize("text", [None, b"bank", 3, ["bank"]])
def test_only_strings_have_words(text: object) -> None:
    with pytest.raises(InputError, match=f"text must be a string.*{type(text).__name__}"):
        split_words(text)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Bank", "bANK"),
        ("straße", "STRASSE"),
        ("café", "CAFE\u0301"),
        ("e\u0327\u0301", "e\u0301\u0327"),
        ("co\u00adop", "coop"),
        ("bank\u200f", "bank"),
    ],
)
def test_fold_makes_equal(one: str, other: str) -> None:
    assert one != other
    assert fold(one) == fold(other)


@pytest.mark.parametrize(("one", "other"), [("cafe", "café"), ("fish", "ﬂsh"), ("o", "0")])
def test_fold_keeps_apart(one: str, other: str) -> None:
    assert fold(one) != fold(other)


def test_single_spaced() -> None:
    assert single_spaced(" a \r\n\u00a0 b\u2028") == "a b"


def test_shown_is_one_short_harmless_line() -> None:
    assert shown("a\n\tb\u2028c\x1b[31m\u202e\ud800") == '"a b c\\x1b[31m\\u202e\\ud800"'
    assert shown("x" * 1000) == '"' + "x" * 59 + '…"'
    assert shown("שלום 👩\u200d👧") == '"שלום 👩\u200d👧"'


def test_apostrophes_of_either_form_are_one_spelling() -> None:
    assert fold("Don’t") == fold("don't")
