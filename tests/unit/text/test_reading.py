"""Tokens that a model wrote, read back: the words and spans that encoding the text gives."""

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from regard.core.errors import InputError
from regard.text import Tokenizer, read_back

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
