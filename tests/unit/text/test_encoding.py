"""The records: what they hold cannot be changed, two of the same content are equal; and tokens read back."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from regard.core.errors import InputError
from regard.core.wording import visible
from regard.text import Encoding, Token, Tokenizer, Word, read_back
from unit.text import chats


def test_records_are_frozen_slotted_values(default: Tokenizer) -> None:
    encoding = default.encode("The bank")
    assert encoding == default.encode("The bank")
    assert encoding != default.encode("The  bank")
    assert len({encoding, default.encode("The bank")}) == 1
    for record in (encoding, encoding.tokens[0], encoding.words[0]):
        assert not hasattr(record, "__dict__")
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(record, dataclasses.fields(record)[0].name, None)


@pytest.mark.parametrize("record", [Word, Token, Encoding])
def test_fields_go_by_name(record: type) -> None:
    with pytest.raises(TypeError, match="positional"):
        record(1)


def test_ids_and_types_are_in_the_order_of_the_tokens(default: Tokenizer) -> None:
    encoding = default.encode("The bank", "A river")
    assert encoding.token_ids == (101, 1996, 2924, 102, 1037, 2314, 102)
    assert encoding.type_ids == (0, 0, 0, 0, 1, 1, 1)
    assert [token.index for token in encoding.tokens] == list(range(7))


def test_surfaces_are_what_people_read(all_tokenizers: dict[str, Tokenizer]) -> None:
    def surfaces(kind: str, text: str) -> list[tuple[str, str]]:
        return [(token.text, token.surface) for token in all_tokenizers[kind].encode(text).tokens]

    assert surfaces("default", "Straße") == [
        ("[CLS]", "[CLS]"),
        ("st", "St"),
        ("##raße", "raße"),
        ("[SEP]", "[SEP]"),
    ]
    assert surfaces("byte_level", "a  bank") == [("a", "a"), ("Ġ", " "), ("Ġbank", "bank")]
    assert surfaces("unigram", "xé")[:3] == [("▁", "␣"), ("x", "x"), ("é", "é")]
    assert {shown for _, shown in surfaces("byte_level", "日")} == {"日"}


@pytest.mark.parametrize(
    ("kind", "text", "shown", "labels"),
    [
        ("default", "Straße 🍕", "[CLS] st ##raße [UNK] [SEP]", "[CLS] St ##raße 🍕 [SEP]"),
        ("byte_level", "a  bank\n\tæ", "a ␣ ␣bank ↵ ⇥ <0xC3> <0xA6>", "a ␣ bank ↵ ⇥ <0xC3> <0xA6>"),
        ("byte_level", " æ", "␣ <0xC3> <0xA6>", "␣ <0xC3> <0xA6>"),
        ("byte_level_prefix", ".x</s>", "<s> ␣ . x </s> </s>", "<s> ␣ . x </s> </s>"),
        ("unigram", "a  bank", "␣a ␣ ␣bank </s>", "a ␣ bank </s>"),
    ],
)
def test_tokens_are_shown_as_what_stands_in_the_text(
    all_tokenizers: dict[str, Tokenizer], kind: str, text: str, shown: str, labels: str
) -> None:
    tokenizer = all_tokenizers[kind]
    tokens = tokenizer.encode(text).tokens
    assert [token.shown for token in tokens] == [tokenizer.shown(token.id) for token in tokens]
    assert " ".join(token.shown for token in tokens) == shown
    assert " ".join(token.label for token in tokens) == labels
    given = Encoding.from_ids([token.id for token in tokens], tokenizer)
    assert " ".join(token.label for token in given.tokens) == shown
    assert [given.find(f"{token.shown}#1") for token in given.tokens if shown.count(token.shown) == 1]


def test_byte_level_pieces_are_read_as_the_library_writes_them() -> None:
    """Characters of one to four bytes, whole, cut after each byte, and behind a blank."""
    write = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str
    wanted: dict[str, str] = {}
    for text in [*map(chr, range(1, 0x180)), *"€日本\ufeff\ufffd🙂𐍈\U0010ffff", "a é日", " 日", "\n\n"]:
        [(piece, _)] = write(text)
        wanted[piece] = visible(text)
        spelled = [f"<0x{byte:02X}>" if byte > 127 else visible(chr(byte)) for byte in text.encode()]
        if len(text) == 1:
            wanted |= {piece[:cut]: "".join(spelled[:cut]) for cut in range(1, len(piece))}
            wanted |= {piece[cut:]: "".join(spelled[cut:]) for cut in range(1, len(piece))}
            [(begun, _)] = write(" " + text)
            wanted |= {begun[:-1]: "␣" + "".join(spelled[:-1]) for _ in range(len(spelled) > 1)}
    backend = Backend(models.BPE({piece: id for id, piece in enumerate(wanted)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel()
    tokenizer = Tokenizer.from_str(backend.to_str())
    assert {piece: tokenizer.shown(tokenizer.id_of(piece)) for piece in wanted} == wanted
    assert tokenizer.shown(len(wanted)) == str(len(wanted))


def test_pieces_of_sentencepiece_are_read_with_their_bytes() -> None:
    backend = Backend(models.BPE({"▁": 0, "▁the": 1, "x▁y": 2, "<0x0A>": 3, "<0xE6>": 4, "Ġ": 5}, []))
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    backend.add_tokens(["▁▁", "<mark>"])
    tokenizer = Tokenizer.from_str(backend.to_str())
    assert [tokenizer.shown(id) for id in range(8)] == [
        *("␣", "␣the", "x y", "↵", "<0xE6>", "Ġ"),
        *("▁▁", "<mark>"),  # added tokens stand in texts as they are
    ]


def test_added_tokens_that_are_normalized_are_shown_as_texts_have_them() -> None:
    backend = Backend(models.WordLevel({"the": 0}, "the"))
    backend.normalizer, backend.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    backend.add_special_tokens([AddedToken("[MASK]", normalized=True)])
    tokenizer = Tokenizer.from_str(backend.to_str())
    assert tokenizer.shown(1) == "[MASK]"
    assert [token.shown for token in tokenizer.encode("the [MASK]").tokens] == ["the", "[MASK]"]


# --- tokens without a text


def test_from_ids(default: Tokenizer) -> None:
    encoding = Encoding.from_ids(np.array([101, 2924, 2015, 30522]), default)
    assert [(token.index, token.id, token.text, token.special) for token in encoding.tokens] == [
        (0, 101, "[CLS]", True),
        (1, 2924, "bank", False),
        (2, 2015, "##s", False),
        # Tables are often longer than the vocabulary.
        (3, 30522, "30522", False),
    ]
    assert (encoding.texts, encoding.words) == ((), ())
    for token in encoding.tokens:
        assert (token.span, token.word, token.sequence, token.type_id) == (None, None, 0, 0)
        assert token.surface == token.text
        assert type(token.id) is int
    named = Encoding.from_ids(iter([3, 0]))
    assert [(token.text, token.special) for token in named.tokens] == [("3", False), ("0", False)]


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([], "ids is empty: give at least one token id"),
        ([1, -1], 'ids must be integers from 0 up, rows of the model\'s table; got int "-1" at position 1'),
        ([True], 'ids must be integers from 0 up, rows of the model\'s table; got bool "True" at position 0'),
        (["a"], "ids must be integers from 0 up, rows of the model's table; got str \"'a'\" at position 0"),
    ],
)
def test_ids_that_are_none(ids: list[object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        Encoding.from_ids(ids)  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_finding_among_ids(default: Tokenizer) -> None:
    encoding = Encoding.from_ids([101, 2924, 2015, 2924, 102], default)
    assert encoding.find(-1) == (4,)
    assert encoding.find("##s") == (2,)
    assert encoding.find("[CLS]") == (0,)
    assert encoding.find("bank#2") == (3,)
    assert Encoding.from_ids([7, 9]).find("9") == (1,)
    for selector, message in [
        (
            "river",
            '"river" is no piece of these tokens: only their ids are known here, and without a text there ',
        ),
        ("river#1", '"river" is no piece of these tokens'),
        ("bank", '"bank" occurs 2 times: "bank#1" at token 1, "bank#2" at token 3; choose one of these'),
        ("bank#3", '"bank#3" asks for occurrence 3, but "bank" occurs 2 times: "bank#1" at token 1, '),
        ("", '"" is no piece of these tokens'),
        (5, "token position 5 is out of range: the text has 5 tokens"),
    ]:
        with pytest.raises(InputError) as caught:
            encoding.find(selector)  # type: ignore[arg-type]
        assert str(caught.value).startswith(message)


TEXT = "the bank, the river"


def of_bytes() -> Tokenizer:
    """Every byte is a token, and so are some pieces with their blank."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {sign: id for id, sign in enumerate([*alphabet, "Ġt", "Ġth", "Ġthe"])}
    merges = [("Ġ", "t"), ("Ġt", "h"), ("Ġth", "e")]
    backend = Backend(models.BPE(vocabulary, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<s>"])
    return Tokenizer.from_str(backend.to_str())


@pytest.mark.parametrize("text", [TEXT, "a 日本 the café", "🙂 the\nend"])
def test_what_encoding_gives(text: str) -> None:
    tokenizer = of_bytes()
    wanted = tokenizer.encode(text)
    found = read_back(wanted.token_ids, tokenizer)
    assert found.texts == wanted.texts
    assert found.words == wanted.words
    # Encoding gives a blank alone its place; to read, it is nothing.
    seen = [place for place, token in enumerate(wanted.tokens) if token.surface.strip()]
    for place in seen:
        assert found.tokens[place] == wanted.tokens[place]


def test_other_pieces_than_the_tokenizer_would_take_and_special_ones() -> None:
    tokenizer = of_bytes()
    start = tokenizer.id_of("<s>")
    apart = [tokenizer.id_of(sign) for sign in ("Ġ", "t", "h", "e", "Ġthe")]
    found = read_back([start, *apart, start], tokenizer)
    assert found.texts == (" the the",)
    assert [token.span for token in found.tokens] == [None, (1, 1), (1, 2), (2, 3), (3, 4), (5, 8), None]
    assert [word.tokens for word in found.words] == [(2, 3, 4), (5,)]
    assert [token.special for token in found.tokens] == [True, *[False] * 5, True]


def test_half_a_character_has_the_place_of_the_whole_or_of_nothing() -> None:
    tokenizer = of_bytes()
    ids = tokenizer.encode("日").token_ids
    assert [token.span for token in read_back(ids, tokenizer).tokens] == [(0, 1)] * 3
    assert read_back(ids[:2], tokenizer).token_ids == ids[:2]
    with pytest.raises(InputError, match="ids is empty"):
        read_back([], tokenizer)


def test_a_special_token_between_words_parts_them() -> None:
    """As of a chat whose template has no blank there: "hello" and "ok" are no "hellook"."""
    made = chats.tokenizer()
    ids = made.encode("<|im_start|>hello<|im_end|><|im_start|>ok.<|im_end|>").token_ids
    found = read_back(ids, made)
    assert found.texts == ("hellook.",)
    assert [word.text for word in found.words] == ["hello", "ok", "."]
    assert [found.tokens[place].text for place in found.find("ok")] == ["o", "k"]
    assert [token.text for token in found.tokens if token.word == 0] == list("hello")
