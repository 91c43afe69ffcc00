"""The words of a text: found in it by Unicode, or given; and their forms."""

from __future__ import annotations

import functools
import pickle
import random
import time
import unicodedata
from pathlib import Path

import pytest
import regex
import tokenizers
import transformers

import regard
from regard.core.errors import InputError
from regard.text import Tokenizer, Words, fold, split_words
from regard.text._words import boundaries, shown, single_spaced
from tolerances import PARITY_FP32, assert_close_to_largest


@functools.cache
def break_class(character: str) -> str:
    """A character's Word_Break value, of those that the rules name."""
    for name in BREAK_CLASSES:
        if regex.match(rf"(?V1)\p{{WB={name}}}", character):
            return name
    return "Other"


BREAK_CLASSES = (
    *("CR", "LF", "Newline", "Extend", "ZWJ", "Format", "Katakana", "Hebrew_Letter", "ALetter", "Numeric"),
    *("Single_Quote", "Double_Quote", "MidNumLet", "MidLetter", "MidNum", "ExtendNumLet"),
    *("Regional_Indicator", "WSegSpace"),
)
LETTER = ("ALetter", "Hebrew_Letter")
MID_LETTER = ("MidLetter", "MidNumLet", "Single_Quote")
MID_NUM = ("MidNum", "MidNumLet", "Single_Quote")
LINE_END = ("CR", "LF", "Newline")
HANGING = ("Extend", "Format", "ZWJ")


def breaks(text: str) -> list[int]:
    """Where UAX #29 breaks a text, rule by rule (WB1 to WB999), in quadratic time."""
    classes = [break_class(character) for character in text]
    found = [0]
    for i in range(1, len(text)):
        before, after = classes[i - 1], classes[i]
        if before == "CR" and after == "LF":
            continue  # WB3
        if before in LINE_END or after in LINE_END:
            found.append(i)  # WB3a, WB3b
            continue
        if before == "ZWJ" and regex.match(r"\p{Extended_Pictographic}", text[i]):
            continue  # WB3c
        if before == after == "WSegSpace" or after in HANGING:
            continue  # WB3d, WB4
        # WB4: from here on what hangs on a character is skipped.
        left = [
            c for j, c in enumerate(classes[:i]) if c not in HANGING or j == 0 or classes[j - 1] in LINE_END
        ]
        right = [c for c in classes[i:] if c not in HANGING]
        one, two = left[-1], left[-2] if len(left) > 1 else ""
        nxt, far = right[0], right[1] if len(right) > 1 else ""
        run = len(left) - len("".join("R" if c == "Regional_Indicator" else "-" for c in left).rstrip("R"))
        joined = (
            (one in LETTER and nxt in LETTER)  # WB5
            or (one in LETTER and nxt in MID_LETTER and far in LETTER)  # WB6
            or (two in LETTER and one in MID_LETTER and nxt in LETTER)  # WB7
            or (one == "Hebrew_Letter" and nxt == "Single_Quote")  # WB7a
            or (one == far == "Hebrew_Letter" and nxt == "Double_Quote")  # WB7b
            or (two == nxt == "Hebrew_Letter" and one == "Double_Quote")  # WB7c
            or (one in (*LETTER, "Numeric") and nxt == "Numeric")  # WB8, WB9
            or (one == "Numeric" and nxt in LETTER)  # WB10
            or (two == nxt == "Numeric" and one in MID_NUM)  # WB11
            or (one == far == "Numeric" and nxt in MID_NUM)  # WB12
            or (one == nxt == "Katakana")  # WB13
            or (one in (*LETTER, "Numeric", "Katakana", "ExtendNumLet") and nxt == "ExtendNumLet")  # WB13a
            or (one == "ExtendNumLet" and nxt in (*LETTER, "Numeric", "Katakana"))  # WB13b
            or (nxt == "Regional_Indicator" and run % 2 == 1)  # WB15, WB16
        )
        if not joined:
            found.append(i)
    return [*found, len(text)]


def test_boundaries_are_those_of_the_standard() -> None:
    rng = random.Random(2)
    alphabet = "abשℹ1,.:'\"_ \u3000\r\n\x85\u0301\u00ad\u200d\ufe0f👩❤🏽🇫🇷🇩日カ\u202f\u00a0\u0600$ก\u200b"
    assert {break_class(c) for c in alphabet} == {*BREAK_CLASSES, "Other"}
    for _ in range(5000):
        # Few kinds at a time, so that they meet in all orders.
        text = "".join(rng.choices(rng.sample(alphabet, k=4), k=rng.randint(1, 10)))
        assert boundaries(text) == breaks(text), ascii(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [0]),
        ("a\ud800b", [0, 1, 2, 3]),
        ("'apple'", [0, 1, 6, 7]),
        ("l'arbre o'clock", [0, 7, 8, 15]),
        ("🇫🇷🇩 x", [0, 2, 3, 4, 5]),
        ("\u0301a", [0, 1, 2]),
        ('צ"ל "א"', [0, 3, 4, 5, 6, 7]),
        ("👩\u200d👧a", [0, 3, 4]),
        ("ℹ\u200dℹa", [0, 4]),
    ],
)
def test_boundaries_of(text: str, expected: list[int]) -> None:
    assert boundaries(text) == expected


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


def test_what_is_refused(default: Tokenizer) -> None:
    for text in (None, b"bank", ["bank"]):
        with pytest.raises(InputError, match=f"text must be a string.*{type(text).__name__}"):
            split_words(text)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="pair must be cut into words where the text is, or neither"):
        default.encode(Words(["a"]), "bank")


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("Bank", "bANK", True),
        ("straße", "STRASSE", True),
        ("café", "CAFE\u0301", True),
        ("e\u0327\u0301", "e\u0301\u0327", True),
        ("co\u00adop", "coop", True),
        ("bank\u200f", "bank", True),
        ("Don’t", "don't", True),
        ("canʼt", "can't", True),
        ("cafe", "café", False),
        ("fish", "ﬂsh", False),
        ("o", "0", False),
    ],
)
def test_fold(one: str, other: str, alike: bool) -> None:
    assert one != other
    assert (fold(one) == fold(other)) is alike


def test_single_spaced() -> None:
    assert single_spaced(" a \r\n\u00a0 b\u2028") == "a b"


def test_shown_is_one_short_harmless_line() -> None:
    assert shown("a\n\tb\u2028c\x1b[31m\u202e\ud800") == '"a b c\\x1b[31m\\u202e\\ud800"'
    assert shown("x" * 1000) == '"' + "x" * 59 + '…"'
    assert shown("שלום 👩\u200d👧") == '"שלום 👩\u200d👧"'


WORDS = [
    "New York",
    "don't",
    "fishing",
    "U.S.",
    "x\u0301y",
    "naïve",
    "日本",
    "👍🏽",
    "_",
    "[MASK]",
    "bank",
    "...",
]


def test_it_is_a_text_that_knows_its_words() -> None:
    text = Words(WORDS)
    assert text == " ".join(WORDS)
    assert (text.words, [text[start:end] for start, end in split_words(text)]) == (WORDS, WORDS)
    again = pickle.loads(pickle.dumps(text))
    assert (type(again), again, again.spans) == (Words, text, text.spans)
    assert Words([]) == ""
    with pytest.raises(InputError, match="words must be a list of words; got the text 'bank'"):
        Words("bank")
    for bad in (["a", ""], ["a", " "], ["a", None]):
        with pytest.raises(InputError, match=r"words\[1\] must be a text that is not blank"):
            Words(bad)  # type: ignore[arg-type]


def test_ids_are_those_of_transformers(all_tokenizers: dict[str, Tokenizer]) -> None:
    """Of tokenizers that run words together those of one made with add_prefix_space=True."""
    for name, tokenizer in all_tokenizers.items():
        backend = tokenizers.Tokenizer.from_str(tokenizer.to_str())
        before = backend.pre_tokenizer
        if isinstance(before, tokenizers.pre_tokenizers.ByteLevel):
            before.add_prefix_space = True
            backend.pre_tokenizer = before
        oracle = transformers.PreTrainedTokenizerFast(tokenizer_object=backend)
        for words in (WORDS, ["bank"], ["a", "river"]):
            read = tokenizer.encode(Words(words))
            assert list(read.token_ids) == oracle(words, is_split_into_words=True).input_ids, name
            assert [word.text for word in read.words] == words
            pair = tokenizer.encode(Words(words), Words(["a", "bank"]))
            both = oracle(words, ["a", "bank"], is_split_into_words=True)
            assert list(pair.token_ids) == both.input_ids, name


def test_tokens_and_words_know_their_places(all_tokenizers: dict[str, Tokenizer]) -> None:
    """A token stands within its word; bulk and encode agree."""
    for name, tokenizer in all_tokenizers.items():
        text = Words(["\x10te\x01st", *WORDS, "\x02bank"])
        read = tokenizer.encode(text, add_special_tokens=False)
        for token in read.tokens:
            assert token.span is not None
            if token.word is not None and token.span[0] < token.span[1]:
                start, end = read.words[token.word].span
                assert start <= token.span[0] <= token.span[1] <= end, (name, token)
        for word in read.words:
            if word.tokens:
                assert read.find(f"{word.text}#1") == read.find(word.span) == word.tokens
        (aligned,) = tokenizer.bulk.aligned([text])
        assert aligned.ids == list(read.token_ids) == tokenizer.bulk.pieces(["a bank", text])[1]
        assert aligned.words == [word.span for word in read.words if word.tokens]


def test_every_entrance_takes_lists_of_words(tmp_path: Path) -> None:
    model = regard.load()
    hf = transformers.AutoTokenizer.from_pretrained(model.loaded.source.folder)
    own = transformers.AutoModel.from_pretrained(model.loaded.source.folder)
    words = ["New York", "'s", "unforgettable", "bank"]
    read = hf(words, is_split_into_words=True, return_tensors="pt")
    states = own(**read).last_hidden_state[0].detach()
    of = read.word_ids()
    wanted = [states[[n for n, each in enumerate(of) if each == word]].mean(0) for word in range(len(words))]
    trace, plain = model.trace([words, "a plain text"])
    found = model.embed(["a plain text", tuple(words)], level="word").of(1)
    assert found.texts == words
    assert found.spans.tolist() == [list(span) for span in Words(words).spans]
    for place, word in enumerate(words):
        assert_close_to_largest(found.vectors[place], wanted[place], PARITY_FP32)
        assert_close_to_largest(trace.embedding(word), wanted[place], PARITY_FP32)
    assert plain.encoding.texts == ("a plain text",)
    trace.save(tmp_path / "a.safetensors")
    assert regard.Trace.open(tmp_path / "a.safetensors").encoding == trace.encoding
    alone = model.trace(Words(words))
    assert_close_to_largest(alone.embedding("New York"), wanted[0], PARITY_FP32)
    assert model.heads([words]).to_json() == model.heads([Words(words)]).to_json()
    assert model.compare([words, ["a", "bank"]], "bank").texts == ("New York 's unforgettable bank", "a bank")
    sentence = model.embed([words])
    assert_close_to_largest(sentence[0], _normed(states.mean(0)), PARITY_FP32)
    prompted = model.embed([words, "x"], prompt="query: ")
    assert_close_to_largest(prompted[0], model.embed([["query:", *words]])[0], PARITY_FP32)


def _normed(vector: object) -> object:
    return vector / vector.norm()  # type: ignore[attr-defined, operator]
