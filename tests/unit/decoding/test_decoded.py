"""Tokens as text, before all of them are there: bytes, blanks and stops."""

import random
from collections.abc import Callable

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from regard.decoding._decoded import Pieces
from regard.text import Tokenizer

TEXT = "a river, 河岸 👍🏽 \ufffd\ufffd e\u0301 END of"


def byte_level() -> Tokenizer:
    """Like GPT-2: every byte is a token, and " of" and "ND" are too."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("o", "f"), ("Ġ", "of"), ("N", "D")]
    words = [*letters, *("".join(pair) for pair in merges)]
    backend = tokenizers.Tokenizer(models.BPE({word: id for id, word in enumerate(words)}, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<end>"])
    return Tokenizer.from_str(backend.to_str())


def byte_fallback() -> Tokenizer:
    """Like Llama: words begin with "▁", and what the vocabulary lacks is written in bytes."""
    words = [*(f"<0x{byte:02X}>" for byte in range(256)), *"▁arive,ENDof", "ND", "▁of", "<unk>"]
    vocabulary = {word: id for id, word in enumerate(words)}
    merges = [("N", "D"), ("▁", "o"), ("▁o", "f")]
    vocabulary["▁o"] = len(vocabulary)
    backend = tokenizers.Tokenizer(
        models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    strip = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    backend.decoder = decoders.Sequence(strip)
    backend.add_special_tokens(["<end>"])
    return Tokenizer.from_str(backend.to_str())


def word_pieces() -> Tokenizer:
    words = ["[UNK]", "a", "river", "##s", ",", "'", "t", "END", "o", "##f", "<end>"]
    backend = tokenizers.Tokenizer(models.WordPiece({word: id for id, word in enumerate(words)}))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    backend.add_special_tokens(["<end>"])
    return Tokenizer.from_str(backend.to_str())


MAKERS = (byte_level, byte_fallback, word_pieces)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("stops", [(), ("END",), ("er", "D o")], ids=str)
def test_what_is_settled_stays(make: Callable[[], Tokenizer], stops: tuple[str, ...]) -> None:
    """Of texts and of tokens thrown together, all that follows only adds to what was given out."""
    tokenizer, draw = make(), random.Random(7)
    (before, real) = tokenizer.bulk.pieces(["a river", TEXT])
    rows = [real, *(draw.choices(range(tokenizer.vocab_size), k=draw.randint(1, 40)) for _ in range(120))]
    given_early = 0
    for prompt in ((), before):
        pieces = Pieces(tokenizer, prompt, stops)
        for ids in rows:
            stopped = next((n for n in range(1, len(ids)) if pieces.has_stop(ids[:n])), len(ids))
            whole = pieces.text(ids[:stopped])
            given = ""
            for n in range(1, stopped + 1):
                settled = pieces.settled(ids[:n])
                assert settled.startswith(given) or given.startswith(settled)
                given = max(given, settled, key=len)
                assert whole.startswith(given)
                given_early += len(given) > 0
            assert not any(stop in whole for stop in stops)
    assert given_early > 300


def test_no_half_characters() -> None:
    tokenizer = byte_level()
    (ids,) = tokenizer.bulk.pieces([TEXT])
    pieces = Pieces(tokenizer, ())
    shown = {pieces.settled(ids[:n]) for n in range(1, len(ids) + 1)}
    assert pieces.text(ids) == TEXT
    assert {TEXT[: n + 1] for n in range(len("a river, 河岸 👍🏽 "))} <= shown
    for text in shown:
        assert TEXT.startswith(text)


def test_a_stop_across_tokens() -> None:
    tokenizer = byte_level()
    (ids,) = tokenizer.bulk.pieces(["the END of"])
    assert [tokenizer.token_of(id) for id in ids[-3:]] == ["E", "ND", "Ġof"]
    pieces = Pieces(tokenizer, (), ("D o", "f it"))
    assert [pieces.settled(ids[:n]) for n in range(4, len(ids) + 1)] == ["the ", "the E", "the EN", "the EN"]
    assert [pieces.has_stop(ids[:n]) for n in range(4, len(ids) + 1)] == [False] * 3 + [True]
    assert pieces.text(ids) == "the EN"


@pytest.mark.parametrize(
    ("make", "prompt", "text"),
    [
        (byte_level, "a", " of"),
        (byte_fallback, "a", " of"),
        (byte_fallback, "a 河", " of"),
        (word_pieces, "a", " of"),
        (word_pieces, "river", "s"),
    ],
)
def test_the_prompt_and_the_text_are_the_whole(make: Callable[[], Tokenizer], prompt: str, text: str) -> None:
    tokenizer = make()
    before, both = tokenizer.bulk.pieces([prompt, prompt + text])
    assert both[: len(before)] == before or make is word_pieces
    new = both[len(before) :] or [tokenizer.id_of("##s")]
    end = tokenizer.id_of("<end>")
    assert Pieces(tokenizer, [*before, end]).text([*new, end]) == text
    assert Pieces(tokenizer, [end]).text(new) == text.lstrip() or make is not byte_fallback
