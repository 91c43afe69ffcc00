"""Tokenizers of GGUF files: tiny ones of each kind, worked out by hand, and damaged ones."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import pre_tokenizers

from gguf_metadata import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED, keys
from regard.core.errors import CheckpointError
from regard.text import SpecialIds, Tokenizer

Said = dict[str, object]

HARD = [
    *(
        "a",
        " ",
        "   ",
        "\t",
        "\n",
        "\r\n",
        "a  b",
        " a ",
        "a\t\tb",
        "\n\n a\n",
        "\u00a0a\u3000",
        "\x00\x07\x1b",
        "\u200b",
    ),
    *(
        "0",
        "12345",
        "3.14",
        "½²Ⅳ",
        "٣१２",
        "I'll don't 'S DON'T",
        "日本語。中文，",
        "한국어",
        "नमस्ते",
        "שָׁלוֹם",
        "สวัสดี",
    ),
    *(
        "👩\u200d👧",
        "❤️",
        "🇫🇷",
        "e\u0301",
        "é",
        "ﬁßẞİ",
        "<s></s>",
        "<|end|>",
        "<0x41>",
        "▁",
        "▁▁",
        "Ġ",
        "\U0010fffd",
    ),
]


def made(metadata: Said) -> Tokenizer:
    tokenizer = Tokenizer.from_gguf(metadata, file=Path("model.gguf"))
    assert tokenizer is not None
    return tokenizer


def refusal(metadata: Said) -> str:
    with pytest.raises(CheckpointError) as caught:
        made(metadata)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix("model.gguf")


def byte_pairs(*more: tuple[str, int], merges: tuple[str, ...] = ("a b", "Ġ ab"), **said: Any) -> Said:
    """All bytes in order, what the merges make, then more tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*alphabet, *(merge.replace(" ", "") for merge in merges), *(token for token, _ in more)]
    types = [*[NORMAL] * (len(tokens) - len(more)), *(kind for _, kind in more)]
    said = {"model": "gpt2", "pre": "gpt-2", "merges": list(merges)} | said
    return keys(tokens=tokens, token_type=types, **said)


# Piece, score, type.
PIECES = [
    ("<unk>", 0.0, UNKNOWN),
    ("<s>", 0.0, CONTROL),
    ("</s>", 0.0, CONTROL),
    *((f"<0x{byte:02X}>", 0.0, BYTE) for byte in range(256)),
    *(("▁a", -1.0, NORMAL), ("bc", -2.0, NORMAL), ("ab", -3.0, NORMAL), ("▁abc", -4.0, NORMAL)),
    *(("▁", -5.0, NORMAL), ("a", -6.0, NORMAL), ("b", -7.0, NORMAL), ("c", -8.0, NORMAL)),
]


def pieces(*more: tuple[str, float, int], **said: Any) -> Said:
    tokens, scores, types = (list(each) for each in zip(*PIECES, *more, strict=True))
    said = {"model": "llama", "unk": 0, "bos": 1, "eos": 2} | said
    return keys(tokens=tokens, scores=np.array(scores), token_type=np.array(types), **said)


def word_pieces(*more: tuple[str, int], **said: Any) -> Said:
    tokens = [
        ("[PAD]", CONTROL),
        ("[UNK]", CONTROL),
        ("[CLS]", CONTROL),
        ("[SEP]", CONTROL),
        ("[MASK]", CONTROL),
    ]
    tokens += [("▁river", NORMAL), ("▁bank", NORMAL), ("s", NORMAL), ("", NORMAL), ("▁", NORMAL), *more]
    said = {"model": "bert", "pad": 0, "unk": 1, "bos": 2, "eos": 3, "sep": 3, "mask": 4} | said
    return keys(tokens=[token for token, _ in tokens], token_type=[kind for _, kind in tokens], **said)


def unigrams(*more: tuple[str, float, int], fill: int = 0, **said: Any) -> Said:
    rows = [("<pad>", 0.0, CONTROL), ("</s>", 0.0, CONTROL), ("<unk>", 0.0, UNKNOWN), ("▁", -2.0, NORMAL)]
    rows += [("a", -2.5, NORMAL), ("b", -2.5, NORMAL), ("▁ab", -6.0, NORMAL), ("ab", -5.5, NORMAL), *more]
    rows += [(f"[PAD{row}]", -1000.0, UNUSED) for row in range(fill)]
    tokens, scores, types = (list(each) for each in zip(*rows, strict=True))
    said = {"model": "t5", "pad": 0, "eos": 1, "unk": 2, "add_space_prefix": True} | said
    said = {"remove_extra_whitespaces": True} | said
    return keys(tokens=tokens, scores=scores, token_type=types, **said) | {"general.architecture": "t5"}


def texts_of(tokenizer: Tokenizer, text: str, **how: bool) -> str:
    return "|".join(token.text for token in tokenizer.encode(text, **how).tokens)


# --- the kinds


@pytest.mark.parametrize("metadata", [byte_pairs(), pieces(add_bos_token=False)], ids=["gpt2", "llama"])
def test_any_text_comes_back(metadata: Said) -> None:
    tokenizer = made(metadata)
    for text in HARD:
        if text.strip():
            encoding = tokenizer.encode(text)
            # SentencePiece takes the sign with which it spells a blank for one.
            wanted = text.replace("▁", " ") if metadata["tokenizer.ggml.model"] == "llama" else text
            assert tokenizer.decode(encoding.token_ids) == wanted
            covered = {at for token in encoding.tokens if token.span for at in range(*token.span)}
            assert covered >= {at for at, one in enumerate(text) if one.strip()}


def test_pairs_of_bytes() -> None:
    tokenizer = made(
        byte_pairs(("<|im_end|>", CONTROL), ("<｜end▁of▁sentence｜>", CONTROL), ("  ", USER_DEFINED))
    )
    assert texts_of(tokenizer, "ab ab<|im_end|>  b<｜end▁of▁sentence｜>") == (
        "ab|Ġab|<|im_end|>|  |b|<｜end▁of▁sentence｜>"
    )
    assert [tokenizer.is_special(tokenizer.id_of(each)) for each in ("<|im_end|>", "  ", "ab")] == [
        *(True, False, False)
    ]
    whole = made(byte_pairs(pre="llama-bpe", merges=("a b", "b c", "ab bc"), add_bos_token=False))
    assert texts_of(whole, "abbc abc") == "abbc|Ġ|ab|c"


def test_which_tokens_are_special() -> None:
    """Those of these types, and those with a role, but for the one that fills up: any token may do that."""
    tokenizer = made(byte_pairs(("<?>", UNKNOWN), ("<x>", NORMAL), ("<y>", NORMAL), eos=259, pad=260))
    assert [tokenizer.is_special(id) for id in (258, 259, 260)] == [True, True, False]
    assert texts_of(tokenizer, "<?><x><y>") == "<?>|<x>|<|y|>"


def test_a_part_that_is_a_piece_stays_whole_where_the_family_says_so() -> None:
    """Llama 3: "bca" is in the vocabulary, and no merge leads to it."""
    metadata = byte_pairs(("bca", NORMAL), pre="llama-bpe", add_bos_token=False)
    assert texts_of(made(metadata), "bca") == "bca"
    assert texts_of(made(metadata | keys(pre="dbrx")), "bca") == "b|c|a"


def test_a_blank_before_a_text_of_pairs_of_bytes() -> None:
    assert texts_of(made(byte_pairs(add_space_prefix=True)), "ab") == "Ġab"
    assert texts_of(made(byte_pairs(add_space_prefix=True, pre="smollm")), "ab") == "ab"


def test_pieces_by_their_scores() -> None:
    """ "▁a" comes first, then "bc"; and these two make a piece. Byte by byte what is in none."""
    tokenizer = made(pieces())
    assert texts_of(tokenizer, "abc") == "<s>|▁abc"
    assert texts_of(tokenizer, "babc é", add_special_tokens=False) == "▁|b|a|bc|▁|<0xC3>|<0xA9>"
    assert texts_of(tokenizer, " a</s>ab", add_special_tokens=False) == "▁|▁a|</s>|▁a|b"
    listed = made(pieces(merges=["a b"]) | keys(scores=None))
    assert texts_of(listed, "abc", add_special_tokens=False) == "▁|ab|c"


def test_what_no_piece_spells() -> None:
    """Where there are no bytes, all of it in a row is one token."""
    rows = [row for row in PIECES if row[2] != BYTE]
    tokens, scores, types = (list(each) for each in zip(*rows, strict=True))
    tokenizer = made(keys(model="llama", unk=0, bos=1, tokens=tokens, scores=scores, token_type=types))
    assert tokenizer.encode("éèa", add_special_tokens=False).token_ids == (7, 0, 8)
    with_bytes = made(unigrams(*((f"<0x{byte:02X}>", 0.0, BYTE) for byte in range(256))))
    assert texts_of(with_bytes, "é", add_special_tokens=False) == "▁|<0xC3>|<0xA9>"
    assert made(unigrams()).encode("é", add_special_tokens=False).token_ids == (3, 2)


def test_pieces_without_a_blank_before_the_text() -> None:
    blanks = (("  ", -1000.0, USER_DEFINED), ("\n\n", -1000.0, USER_DEFINED))
    tokenizer = made(pieces(*blanks, add_space_prefix=False, add_bos_token=False, add_eos_token=True))
    assert texts_of(tokenizer, "ab a   b\n\n\n") == "ab|▁a|▁▁|▁|b|\n\n|<0x0A>|</s>"
    assert tokenizer.encode("a▁▁b").token_ids == tokenizer.encode("a  b").token_ids
    assert tokenizer.decode(tokenizer.encode("a  b").token_ids, skip_special=True) == "a  b"


def test_word_pieces() -> None:
    tokenizer = made(word_pieces(("▁[NEW]", USER_DEFINED)))
    assert texts_of(tokenizer, "River BANKS, é") == "[CLS]|river|bank|##s|[UNK]|[UNK]|[SEP]"
    assert tokenizer.encode("bank[new]s", add_special_tokens=False).token_ids == (
        6,
        tokenizer.id_of("[NEW]"),
        1,
    )
    assert tokenizer.encode("bank", "bank").type_ids == (0, 0, 0, 1, 1)
    assert tokenizer.id_of("##") == 8
    assert tokenizer.id_of("##▁") == 9
    assert tokenizer.special_ids == SpecialIds(unk=1, sep=3, pad=0, cls=2, mask=4)
    assert tokenizer.end_ids == ()


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ({}, "e|e|e"),
        ({"normalizer__lowercase": False}, "E|[UNK]|é"),
        ({"normalizer__lowercase": True, "normalizer__strip_accents": False}, "e|é|é"),
        ({"normalizer__lowercase": False, "normalizer__strip_accents": True}, "E|E|e"),
    ],
)
def test_how_words_are_normalised(said: Said, found: str) -> None:
    letters = [(f"▁{letter}", NORMAL) for letter in ("eéE" if said else "eé")]
    assert texts_of(made(word_pieces(*letters, **said)), "E É é", add_special_tokens=False) == found


def test_unigrams() -> None:
    """ "▁ab" is worth -6, "▁" and "ab" -7.5; "ab" -5.5, "a" and "b" -5."""
    tokenizer = made(unigrams(fill=128))
    assert texts_of(tokenizer, "  ab  ab ") == "▁ab|▁ab|</s>"
    assert texts_of(tokenizer, "aab<extra_id_0>a", add_special_tokens=False) == "▁|a|a|b|<extra_id_0>|▁|a"
    assert [tokenizer.id_of(f"<extra_id_{number}>") for number in (99, 0)] == [8, 107]
    assert [tokenizer.piece_of(id) for id in (107, 108, 135)] == ["<extra_id_0>", None, None]
    assert made(unigrams(fill=99)).vocab_size == 8
    assert made(unigrams(fill=128) | {"general.architecture": "bert"}).vocab_size == 8
    assert tokenizer.encode("ab", "ab").token_ids == (6, 1, 6, 1)


def test_what_is_unknown_scores_less_than_the_least_piece() -> None:
    """Rows that fill the table have scores far below: with them "é" alone would cost as much as all else."""
    more = [
        ("éa", -11.0, NORMAL),
        *((f"[PAD{row}]", -1000.0, UNUSED) for row in range(2)),
        ("z", -12.0, NORMAL),
    ]
    tokenizer = made(unigrams(*more))
    # Unknown costs -12 - 10: "é" with "ab" is -27.5, "éa" with "b" -13.5.
    assert texts_of(tokenizer, "éab", add_special_tokens=False) == "▁|éa|b"
    scores = dict(json.loads(tokenizer.to_str())["model"]["vocab"])
    assert min(scores.values()) == -12


# --- what stands around texts


@pytest.mark.parametrize(
    ("metadata", "single", "pair"),
    [
        (byte_pairs(bos=256, eos=257), "a", "a|b"),
        (byte_pairs(bos=256, eos=257, pre="tekken"), "ab|a", "ab|a|ab|b"),
        (
            byte_pairs(bos=256, eos=257, pre="tekken", add_bos_token=False, add_eos_token=True),
            *("a|Ġab", "a|Ġab|b|Ġab"),
        ),
        (
            byte_pairs(bos=256, eos=257, add_bos_token=True, add_eos_token=True, add_sep_token=True),
            *("ab|a|Ġab", "ab|a|Ġab|Ġab|b|Ġab"),
        ),
        (pieces(), "<s>|▁a", "<s>|▁a|<s>|▁|b"),
        (unigrams(), "▁|a|</s>", "▁|a|</s>|▁|b|</s>"),
        (unigrams(bos=0, add_bos_token=True), "<pad>|▁|a|</s>", "<pad>|▁|a|</s>|</s>|▁|b|</s>"),
    ],
)
def test_what_stands_around_texts(metadata: Said, single: str, pair: str) -> None:
    tokenizer = made(metadata)
    assert texts_of(tokenizer, "a") == single
    assert "|".join(token.text for token in tokenizer.encode("a", "b").tokens) == pair


def test_a_mask_takes_the_blank_before_it() -> None:
    tokenizer = made(byte_pairs(("<mask>", CONTROL), pre="roberta-bpe", mask=258))
    assert texts_of(tokenizer, "a <mask> b") == "a|<mask>|Ġ|b"


def test_the_ids_that_end_an_answer() -> None:
    more = [
        ("<|eot_id|>", CONTROL),
        ("<|endoftext|>", CONTROL),
        ("<|im_end|>", USER_DEFINED),
        ("<done>", NORMAL),
    ]
    tokenizer = made(byte_pairs(*more, eos=259, eom=261))
    assert tokenizer.end_ids == (259, 261, 258)  # not what the file takes for text
    assert tokenizer.within(262) is tokenizer
    assert tokenizer.is_special(261)
    assert made(byte_pairs(*more)).end_ids == (258, 259)
    assert made(pieces()).end_ids == (2,)


def test_the_chat_template_is_kept() -> None:
    template = {"tokenizer.chat_template": "{{ messages }}"}
    tokenizer = made(byte_pairs(("<|end|>", CONTROL)) | template)
    for each in (tokenizer, pickle.loads(pickle.dumps(tokenizer)), tokenizer.within(258)):
        assert (each.chat_template, each.end_ids) == ("{{ messages }}", (258,))
    assert made(byte_pairs()).chat_template is None


def test_rows_without_a_piece() -> None:
    """They have no name: a decoder never writes them. The rest keep their ids."""
    tokenizer = made(byte_pairs(("[PAD258]", UNUSED), ("", NORMAL), ("", UNUSED), ("<x>", CONTROL)))
    assert [tokenizer.piece_of(id) for id in (257, 258, 259, 260, 261)] == ["Ġab", None, None, None, "<x>"]
    assert tokenizer.highest_id == 261


# --- older files


def test_a_file_without_a_tokenizer() -> None:
    for metadata in ({}, keys(model="none"), keys(model="no_vocab")):
        assert Tokenizer.from_gguf(metadata, file=Path("model.gguf")) is None


def test_a_file_older_than_its_key_of_cuts() -> None:
    metadata = byte_pairs()
    del metadata["tokenizer.ggml.pre"]
    assert refusal(metadata | {"general.architecture": "llama"}).startswith(
        " does not say how it cuts texts; regard knows gpt-2, "
    )
    tokenizer = made(metadata | {"general.architecture": "qwen2"})
    assert texts_of(tokenizer, "e\u0301") == texts_of(made(byte_pairs(pre="qwen2")), "é")


def test_a_file_without_types() -> None:
    metadata = pieces()
    del metadata["tokenizer.ggml.token_type"]
    assert texts_of(made(metadata), "abc</s>") == "<s>|▁abc|</s>"


# --- damage


def _damaged(metadata: Said, **said: Any) -> Said:
    changed = metadata | keys(**said)
    return {key: value for key, value in changed.items() if value is not None}


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (
            keys(model="rwkv"),
            " has a tokenizer of the kind 'rwkv' (tokenizer.ggml.model); regard reads gpt2, llama, bert, t5",
        ),
        (keys(tokens=["a"]), " has a tokenizer of the kind 'none' (tokenizer.ggml.model); regard reads"),
        (keys(model=3), ": the tokenizer's setting tokenizer.ggml.model must be a string; got 3"),
        (byte_pairs(pre="new"), " cuts texts in the way 'new'; regard knows gpt-2, "),
        (_damaged(byte_pairs(), tokens=None), "tokens must be a list of texts in UTF-8; got None"),
        (_damaged(byte_pairs(), tokens=[]), "tokens must be a list of texts in UTF-8; got []"),
        (
            _damaged(byte_pairs(), tokens=["a", b"\xff"]),
            "tokens must be a list of texts in UTF-8; got ['a', b'",
        ),
        (
            _damaged(byte_pairs(), tokens=["a", "\udcff"]),
            "tokens must be a list of texts in UTF-8; got ['a', '",
        ),
        (byte_pairs(("a", NORMAL)), " has the token 'a' twice: download the file again, or convert"),
        (_damaged(byte_pairs(), merges=None), "merges must be a list of texts in UTF-8; got None"),
        (_damaged(byte_pairs(), merges=["a b c"]), "merges must be a list of pairs of pieces; got ['a b c']"),
        (_damaged(byte_pairs(), merges=["a é"]), " has no usable tokenizer: "),
        (_damaged(byte_pairs(), token_type=[1, 2]), "token_type must be a number for each of the 258 tokens"),
        (byte_pairs(eos=258), "eos_token_id must be the id of one of the 258 tokens; got 258"),
        (
            byte_pairs(("[PAD258]", UNUSED), ("<x>", NORMAL), eos=258),
            " has '[PAD258]' at another id than 258: download the file",
        ),
        (byte_pairs(unk=-1), "unknown_token_id must be the id of one of the 258 tokens; got -1"),
        (byte_pairs(bos=True), "bos_token_id must be the id of one of the 258 tokens; got True"),
        (byte_pairs(add_bos_token=1), "add_bos_token must be true or false; got 1"),
        (byte_pairs(add_bos_token=True), " lacks tokenizer.ggml.bos_token_id, without which no text is read"),
        (byte_pairs() | {"tokenizer.chat_template": 3}, "tokenizer.chat_template must be a string; got 3"),
        (_damaged(pieces(), scores=None), "scores must be a number for each of the 267 tokens; got None"),
        (_damaged(pieces(), scores=np.zeros(266)), "scores must be a number for each of the 267 tokens"),
        (
            _damaged(pieces(), scores=np.full(267, np.nan)),
            "scores must be a number for each of the 267 tokens",
        ),
        (_damaged(pieces(), bos=None), " lacks tokenizer.ggml.bos_token_id"),
        (word_pieces(("▁River", NORMAL)), " has pieces with capitals (River), but does not say whether"),
        (_damaged(word_pieces(), unk=None), " lacks tokenizer.ggml.unknown_token_id"),
        (_damaged(word_pieces(), bos=None), " lacks tokenizer.ggml.cls_token_id"),
        (_damaged(unigrams(), unk=None), " lacks tokenizer.ggml.unknown_token_id"),
        (unigrams(precompiled_charsmap=[9, 9, 9]), " has no usable tokenizer: "),
        (unigrams(precompiled_charsmap=np.array([1.5])), " has no usable tokenizer: "),
    ],
)
def test_a_damaged_file_is_one_line(metadata: Said, message: str) -> None:
    assert message in refusal(metadata)
