"""Texts as they are written: what each step adds joins to what is written at once."""

from typing import Any

import pytest
import torch

from regard.core.errors import InputError
from regard.decoding import Beams, Rules, Sampling, along, decode_texts
from regard.text import Tokenizer
from unit.decoding.test_decoded import MAKERS
from unit.decoding.test_texts import ROWS, TEXTS, WORDS, tokenizer
from unit.decoding.toy import decoder, pair

FULL = [text for text in TEXTS if text.strip()]


@pytest.mark.parametrize("two", [True, False])
@pytest.mark.parametrize("stop", ["", "b c", "d"])
@pytest.mark.parametrize(("choice", "count"), [(None, 1), (Sampling(temperature=3.0, seed=1), 2)])
def test_what_is_added_joins_to_what_is_written(two: bool, stop: str, choice: Any, count: int) -> None:
    network, words = pair(ROWS) if two else decoder(ROWS), tokenizer(end=True)
    rules = Rules(start_ids=(0,) if two else (), end_ids=(1,), max_length=7)
    how: dict[str, Any] = {"choice": choice, "count": count, "rules": rules, "stop": [stop] if stop else ()}
    wanted = [way for ways in decode_texts(network, words, FULL, **how) for way in ways]
    read, steps = along(network, words, FULL, **how, top=3)
    assert read == [len(text.split()) + two for text in FULL]
    added = [each for step in steps for each in step]
    for place, way in enumerate(wanted):
        own = [each for each in added if each.way == place]
        assert "".join(each.text for each in own) == way.text
        tokens = [each.token for each in own if each.token is not None]
        assert tuple(token.id for token in tokens) == way.token_ids
        told = torch.tensor([token.log_probability for token in tokens])
        torch.testing.assert_close(told, torch.tensor(way.log_probabilities[: len(tokens)]))
        assert [each.end for each in own if each.end] == ["stop" if way.ended else "length"]
        assert own[-1].end
        if not stop:  # special tokens are no text
            there = [token for token in tokens if token.id > 1]
            assert all(way.text[token.start :].startswith(token.text) for token in there)
        for each in own:
            scores = [token.log_probability for token in each.likeliest]
            assert scores == sorted(scores, reverse=True)
            assert len(scores) == (3 if each.token else 0)
            assert each.token is None or choice or each.token == each.likeliest[0]


def test_ids_are_read_as_they_are() -> None:
    network, words = decoder(ROWS), tokenizer(end=False)
    rules = Rules(max_length=4)
    ids = [[WORDS.index(word) for word in text.split()] for text in FULL]
    (read, one), (_, other) = (along(network, words, texts, rules=rules) for texts in (ids, FULL))
    assert list(one) == list(other)
    assert read == [len(each) for each in ids]
    for odd in (-1, ROWS):
        with pytest.raises(InputError, match=rf"texts\[1\] must be ids from 0 to {ROWS - 1}; got {odd}"):
            along(network, words, ["a", [3, odd]])
    with pytest.raises(InputError, match="one token after another"):
        along(network, words, ["a"], choice=Beams(2))  # type: ignore[arg-type]


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_tokens_are_spelled_where_they_are_text(make: Any) -> None:
    words: Tokenizer = make()
    network = decoder(words.highest_id + 1)
    _, steps = along(network, words, ["a b"], rules=Rules(max_length=12), choice=Sampling(seed=3), top=1)
    written = [each for step in steps for each in step][:-1]
    assert len(written) == 12
    for each in written:
        assert each.token is not None
        assert each.token.text
        assert "\N{REPLACEMENT CHARACTER}" not in each.token.text
