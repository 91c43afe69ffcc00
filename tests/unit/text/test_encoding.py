"""The records: what they hold cannot be changed, and two of the same content are equal."""

from __future__ import annotations

import dataclasses

import pytest

from regard.text import Encoding, Token, Tokenizer, Word


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
