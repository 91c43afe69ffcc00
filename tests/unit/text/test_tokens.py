"""Spans: what `tokenizers` reports in many ways, and oracles that recompute them from the pieces."""

from __future__ import annotations

import random
import unicodedata

import pytest

from regard.text import Encoding, Token, Tokenizer, split_words
from regard.text._tokens import align_spans, align_words

KINDS = ["wordpiece", "byte_level", "byte_level_prefix", "unigram", "default"]

NASTY = [
    *"abcteBANK.,'-#$▁ĠıİßΣςé½™…１",
    *("the ", "bank", " don't", "river bank", "fishing", "café", "[UNK]", "[MASK]", "[SEP]", "<s>", "</s>"),
    *("\u0301", "\u0327", "e\u0301", "e\u0301\u0327", "\u093f", "\u094d", "न", "\u0e31", "ก"),
    *("日", "本", "語", "한", "국", "\u1112\u1161\u11ab", "ｶﾞ", "が"),
    *("ש", "\u05b8", "\u05c1", "ל", "م", "\u064f", "\u0651", "ﷺ", "\u0600"),
    *("👩\u200d👩\u200d👧", "👋🏽", "🇫🇷", "🇩", "❤\ufe0f", "😀", "\u200d", "\ufe0f"),
    *("ﬁ", "ﬀ", "\u00ad", "\u200b", "\u200c", "\u200e", "\u202e", "\ufeff", "\u2060", "\u3164", "\ufffd"),
    *("\0", "\x07", "\x1c", "\x7f", "\x85", "\r\n", "\n", "\t", " ", "  ", "\u00a0", "\u202f", "\u3000"),
]


def nasty_texts(seed: int, count: int) -> list[str]:
    """Random texts that every tokenizer keeps something of."""
    rng = random.Random(seed)
    return ["".join((*rng.choices(NASTY, k=rng.randint(0, 12)), "a")) for _ in range(count)]


def spans_of(encoding: Encoding) -> list[tuple[str, tuple[int, int] | None]]:
    return [(token.text, token.span) for token in encoding.tokens if token.sequence is not None]


@pytest.mark.parametrize("kind", KINDS)
def test_properties_hold_for_random_texts(kind: str, all_tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = all_tokenizers[kind]
    texts = nasty_texts(seed=3, count=600)
    for text, pair in zip(texts, texts[1:] + texts[:1], strict=True):
        encoding = tokenizer.encode(text, pair)
        check_words(encoding)
        for sequence, one in enumerate((text, pair)):
            own = [token for token in encoding.tokens if token.sequence == sequence]
            check_spans(one, own)
            check_alignment(one, own, encoding)
        for token in encoding.tokens:
            assert encoding.tokens[token.index] is token
            assert (token.span is None) == (token.sequence is None)
            if token.special:
                assert token.word is None
            if token.span is None:
                assert token.special


def check_spans(text: str, tokens: list[Token]) -> None:
    last = (0, 0)
    for token in tokens:
        assert token.span is not None
        start, end = token.span
        assert 0 <= start <= end <= len(text), (text, token)
        assert start >= last[0], (text, token)
        assert end >= last[1], (text, token)
        last = token.span
        if start == end:
            assert not token.text.strip("▁Ġ"), (text, token)
        covered = text[start:end]
        assert covered == covered.strip() or covered.isspace(), (text, token)


def check_alignment(text: str, tokens: list[Token], encoding: Encoding) -> None:
    """The word of each token by trying all words."""
    words = [word for word in encoding.words if word.sequence == tokens[0].sequence]
    for token in tokens:
        assert token.span is not None
        covered = range(*token.span)
        shared = [len(range(max(covered.start, w.span[0]), min(covered.stop, w.span[1]))) for w in words]
        if token.special or text[token.span[0] : token.span[1]].isspace() or not any(shared):
            assert token.word is None, (text, token)
        else:
            assert token.word == words[shared.index(max(shared))].index, (text, token)


def check_words(encoding: Encoding) -> None:
    expected = [(i, span) for i, text in enumerate(encoding.texts) for span in split_words(text)]
    assert [(word.sequence, word.span) for word in encoding.words] == expected
    for index, word in enumerate(encoding.words):
        assert word.index == index
        assert word.text == encoding.texts[word.sequence][word.span[0] : word.span[1]]
        assert word.tokens == tuple(token.index for token in encoding.tokens if token.word == index)


def test_byte_level_spans_are_the_characters_of_the_bytes(byte_tokenizer: Tokenizer) -> None:
    """A byte-level piece spells its bytes: counted through the text they give its span."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    byte_of = {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}
    for text in nasty_texts(seed=4, count=600):
        owner = [i for i, character in enumerate(text) for _ in character.encode()]
        position = 0
        spelled = b""
        for token in byte_tokenizer.encode(text).tokens:
            piece = token.text.encode() if token.special else bytes(byte_of[sign] for sign in token.text)
            start, end = owner[position], owner[position + len(piece) - 1] + 1
            covered = text[start:end]
            if not covered.isspace():
                start, end = end - len(covered.lstrip()), start + len(covered.rstrip())
            assert token.span == (start, end), (text, token)
            position += len(piece)
            spelled += piece
        assert spelled == text.encode()


def bert_form(text: str) -> str:
    """BERT's uncased normaliser, from its description: cleaned, lower case, without accents."""
    kept = [c for c in text if c != "\ufffd" and unicodedata.category(c) not in ("Cc", "Cf")]
    stripped = [c for c in unicodedata.normalize("NFD", "".join(kept)) if unicodedata.category(c) != "Mn"]
    return "".join(c.lower() for c in stripped)


def test_wordpieces_spell_what_they_span(default: Tokenizer) -> None:
    checked = 0
    for text in nasty_texts(seed=5, count=600):
        groups: list[tuple[int, int, list[str]]] = []  # tokens that share characters are compared together
        for token in default.encode(text, add_special_tokens=False).tokens:
            assert token.span is not None
            start, end = token.span
            if groups and start < groups[-1][1]:
                first, stop, pieces = groups.pop()
                groups.append((first, max(stop, end), [*pieces, token.text]))
            else:
                groups.append((start, end, [token.text]))
        covered = set()
        for start, end, pieces in groups:
            covered.update(range(start, end))
            if "[UNK]" in pieces or pieces[0] in ("[MASK]", "[SEP]"):
                continue
            spelled = "".join(piece.removeprefix("##") for piece in pieces)
            # NFD once more: lower case of İ is two code points, of which BERT strips the second afterwards.
            assert bert_form(text[start:end]).replace("\u0307", "") == spelled, (text, start, end)
            checked += 1
        for i, character in enumerate(text):
            if unicodedata.category(character)[0] in "LNPS" and bert_form(character):
                assert i in covered or character == "\u3164", (text, i)
    assert checked > 1500


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("don't", [("don", (0, 3)), ("'", (3, 4)), ("t", (4, 5))]),
        # Accents that BERT strips stay with their letter.
        ("cafe\u0301 x", [("cafe", (0, 5)), ("x", (6, 7))]),
        ("e\u0301\u0327", [("e", (0, 3))]),
        ("שָׁלוֹם", [("ש", (0, 3)), ("##ל", (3, 4)), ("##ו", (4, 6)), ("##ם", (6, 7))]),
        ("مُحَمَّد", [("م", (0, 2)), ("##ح", (2, 4)), ("##م", (4, 7)), ("##د", (7, 8))]),
        ("हिन्दी", [("ह", (0, 1)), ("##ि", (1, 2)), ("##न", (2, 4)), ("##द", (4, 5)), ("##ी", (5, 6))]),
        # A mark that stands on a blank belongs to no letter.
        ("x \u0301y", [("x", (0, 1)), ("y", (3, 4))]),
        ("한", [("ᄒ", (0, 1)), ("##ᅡ", (0, 1)), ("##ᆫ", (0, 1))]),
        ("한\u0301", [("ᄒ", (0, 2)), ("##ᅡ", (0, 2)), ("##ᆫ", (0, 2))]),
        ("日本 x", [("日", (0, 1)), ("本", (1, 2)), ("x", (3, 4))]),
        ("👩\u200d👩\u200d👧 x", [("[UNK]", (0, 5)), ("x", (6, 7))]),
        ("🇫🇷 👋🏽", [("[UNK]", (0, 2)), ("[UNK]", (3, 5))]),
        ("co\u00adop", [("coop", (0, 5))]),
        ("a\u200bb", [("ab", (0, 3))]),
        ("ﬁsh", [("ﬁ", (0, 1)), ("##sh", (1, 3))]),
        ("straße", [("st", (0, 2)), ("##raße", (2, 6))]),
        ("İstanbul", [("istanbul", (0, 8))]),
        ("a\0b\x07c", [("abc", (0, 5))]),
        ("a\r\nb", [("a", (0, 1)), ("b", (3, 4))]),
        ("  the  bank ", [("the", (2, 5)), ("bank", (7, 11))]),
        ("zz[MASK]", [("z", (0, 1)), ("##z", (1, 2)), ("[MASK]", (2, 8))]),
    ],
)
def test_spans_of_the_default_tokenizer(
    text: str, expected: list[tuple[str, tuple[int, int]]], default: Tokenizer
) -> None:
    assert spans_of(default.encode(text)) == expected


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("byte_level", "a  bank ", [("a", (0, 1)), ("Ġ", (1, 2)), ("Ġbank", (3, 7)), ("Ġ", (7, 8))]),
        ("byte_level", " bank", [("Ġbank", (1, 5))]),
        ("byte_level", "\r\nbank", [("č", (0, 1)), ("Ċ", (1, 2)), ("b", (2, 3)), ("ank", (3, 6))]),
        # The blank in front is the tokenizer's own; the one of the text keeps its place.
        ("byte_level_prefix", "bank  bank", [("Ġbank", (0, 4)), ("Ġ", (4, 5)), ("Ġbank", (6, 10))]),
        ("byte_level_prefix", ".x", [("Ġ", (0, 0)), (".", (0, 1)), ("x", (1, 2))]),
        ("unigram", "a  bank", [("▁a", (0, 1)), ("▁", (1, 2)), ("▁bank", (3, 7))]),
        ("unigram", "xé", [("▁", (0, 0)), ("x", (0, 1)), ("é", (1, 2))]),
        ("unigram", "xe\u0301", [("▁", (0, 0)), ("x", (0, 1)), ("é", (1, 3))]),
        # A low line block that is written out is a character like any other.
        ("unigram", "▁bank", [("▁bank", (0, 5))]),
        ("unigram", "x▁", [("▁", (0, 0)), ("x", (0, 1)), ("▁", (1, 2))]),
        ("unigram", "…", [("▁", (0, 0)), (".", (0, 1)), (".", (0, 1)), (".", (0, 1))]),
    ],
)
def test_spans_of_blanks(
    kind: str, text: str, expected: list[tuple[str, tuple[int, int]]], all_tokenizers: dict[str, Tokenizer]
) -> None:
    assert spans_of(all_tokenizers[kind].encode(text)) == expected


def test_bytes_of_one_emoji_share_its_span_and_its_word(byte_tokenizer: Tokenizer) -> None:
    encoding = byte_tokenizer.encode("a👩\u200d👧")
    assert [token.span for token in encoding.tokens[1:]] == [(1, 2)] * 4 + [(2, 3)] * 3 + [(3, 4)] * 4
    assert [word.text for word in encoding.words] == ["a", "👩\u200d👧"]
    assert encoding.words[1].tokens == tuple(range(1, 12))


def test_order_is_kept_where_offsets_are_out_of_order_or_range() -> None:
    assert align_spans("abcd", ["x", "y", "z"], [(2, 3), (1, 2), (3, 9)]) == [(2, 3), (2, 3), (3, 4)]


def test_a_token_goes_to_the_word_it_shares_most_with() -> None:
    words = [(0, 1), (1, 4), (5, 7), (7, 9)]
    assert align_words("a___ bbcc", [(0, 1), (0, 4), (4, 5), (5, 9), (6, 9)], words) == [0, 1, None, 2, 3]


def test_a_blank_inside_a_number_has_no_word(byte_tokenizer: Tokenizer) -> None:
    encoding = byte_tokenizer.encode("1\u202f000")
    assert [word.text for word in encoding.words] == ["1\u202f000"]
    blanks = [token for token in encoding.tokens if token.span == (1, 2)]
    assert len(blanks) == 3
    assert all(token.word is None for token in blanks)
