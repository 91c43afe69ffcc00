"""Greedy decoding: the likeliest token each time, rules, and rows that leave."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.core.errors import CheckpointError, InputError
from regard.decoding import Lookup, Rules, beam_search, greedy, speculate
from regard.models import load_checkpoint, new_network, write_checkpoint
from regard.models.families.bart import original_transformer
from regard.models.families.bert import BertConfig
from regard.models.families.bert import build as build_bert
from unit.decoding.toy import decoder, log_probabilities, pair

TEXTS = [[3, 1], [4, 1, 0, 3, 3], [1], [2, 6, 9]]


@pytest.mark.parametrize(
    "rules",
    [
        Rules(start_ids=(0,), end_ids=(2,), max_length=9),
        Rules(start_ids=(0,), end_ids=(2, 7), min_length=4, max_length=9),
        Rules(start_ids=(0, 5), end_ids=(2,), forbidden_ids=(1, 3, 4), max_length=9),
        Rules(start_ids=(0,), end_ids=(2,), first_id=8, last_id=2, max_length=5),
        Rules(start_ids=(0,), max_length=1),
    ],
)
@pytest.mark.parametrize("two", [False, True])
def test_every_token_is_the_likeliest_that_rules_allow(rules: Rules, two: bool) -> None:
    network = pair(11) if two else decoder(11)
    start = list(rules.start_ids)
    for text, way in zip(TEXTS, greedy(network, TEXTS, rules=rules), strict=True):
        read = text if two else start + text
        before = start[1:] if two else []
        tokens = [*way.token_ids, *rules.end_ids[: 1 if way.ended else 0]]
        scores = log_probabilities(network, read, before + tokens, start[0])[len(before) :]
        total = 0.0
        for length, token in enumerate(tokens):
            allowed = set(range(11)) - set(rules.forbidden_ids)
            if length < rules.min_length:
                allowed -= set(rules.end_ids)
            forced = rules.first_id if length == 0 else rules.last_id if length == 4 else None
            if forced is not None:
                assert token == forced
                continue
            likeliest = max(allowed, key=scores[length].tolist().__getitem__)
            assert likeliest == token or (way.ended and {likeliest, token} <= set(rules.end_ids))
            total += float(scores[length, likeliest])
        assert way.log_probability == pytest.approx(total, rel=1e-12)
        assert way.ended or len(way.token_ids) == rules.max_length


def test_a_finished_text_leaves_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    network, rows = decoder(11), []
    plain = network.decode

    def decode(token_ids: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        rows.append(len(token_ids))
        return plain(token_ids, *args, **kwargs)

    monkeypatch.setattr(network, "decode", decode)
    texts = [[token] for token in range(11)]
    for search, ways in ((greedy, 1), (beam_search, 4)):
        rows.clear()
        written = search(network, texts, rules=Rules(end_ids=(2, 8), max_length=9))
        assert rows[0] == 11
        assert rows[1:] == sorted(rows[1:], reverse=True)
        assert rows[-1] < 11 * ways, written


def test_rules_of_a_checkpoint(tmp_path: Path) -> None:
    config = original_transformer(11, d_model=6, num_layers=1, num_heads=2, d_ff=11)
    folder = write_checkpoint(new_network(config), tmp_path / "pair")
    assert Rules.of(load_checkpoint(folder)) == Rules(start_ids=(0,), end_ids=(1,))
    assert Rules.of(pair(11)) == Rules(start_ids=(0,), end_ids=(1,))
    file = folder / "generation_config.json"
    said: dict[str, Any] = {"eos_token_id": [1, 7], "decoder_start_token_id": 4, "forced_bos_token_id": 9}
    said |= {"bad_words_ids": [[0], [3, 4], [7]], "forced_eos_token_id": None}
    said |= {"repetition_penalty": 1.3, "no_repeat_ngram_size": 3}
    file.write_text(json.dumps(said))
    expected = Rules(
        start_ids=(4,),
        end_ids=(1, 7),
        forbidden_ids=(0,),
        forbidden=((3, 4),),
        first_id=9,
        max_length=5,
        repetition_penalty=1.3,
        no_repeat=3,
    )
    assert Rules.of(load_checkpoint(folder), max_length=5) == expected
    file.write_text('{"eos_token_id": "end"}')
    with pytest.raises(CheckpointError, match="'eos_token_id' must be an id or a list of ids; got end"):
        Rules.of(load_checkpoint(folder))
    assert Rules.of(decoder()) == Rules()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"end_ids": (-1,)}, "end_ids must be a whole number, at least 0; got -1"),
        ({"last_id": 1.5}, "last_id must be a whole number"),
        ({"min_length": 7, "max_length": 5}, "max_length must be a whole number, at least 7; got 5"),
        ({"max_length": 0}, "max_length must be a whole number, at least 1"),
        ({"end_ids": 5}, "end_ids must hold ids in a tuple; got 5"),
        ({"forbidden": (5,)}, "forbidden must hold ids in a tuple; got 5"),
        ({"forbidden": ((),)}, "forbidden must hold sequences of at least one token"),
        ({"no_repeat": -1}, "no_repeat must be a whole number, at least 0"),
        ({"repetition_penalty": 0}, "repetition_penalty must be above 0; got 0"),
    ],
)
def test_rules_that_cannot_be(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Rules(**arguments)


def test_tokens_that_a_model_does_not_have_are_never_written() -> None:
    network = decoder()
    plain = greedy(network, TEXTS[:1], rules=Rules(max_length=4))
    beyond = Rules(
        max_length=4, end_ids=(99,), min_length=2, forbidden_ids=(5, 6), forbidden=((1, 99), (99, 1))
    )
    assert greedy(network, TEXTS[:1], rules=beyond) == plain
    (guessed,) = speculate(network, TEXTS[:1], guess=Lookup(), rules=beyond)
    assert guessed.token_ids == plain[0].token_ids
    with pytest.raises(InputError, match="first_id must be a whole number, from 0 to 4; got 5"):
        greedy(network, TEXTS[:1], rules=Rules(first_id=5))


def test_refusals() -> None:
    network = decoder()
    with pytest.raises(InputError, match="beams is not a rule; the rules are start_ids, end_ids"):
        Rules.of(network, beams=3)
    with pytest.raises(InputError, match="texts must hold at least one text"):
        greedy(network, [])
    with pytest.raises(InputError, match=r"texts\[1\] must hold at least one token"):
        greedy(network, [[1], []])
    with pytest.raises(InputError, match=r"texts\[1\] must leave room for a token: it has 20, .* is 19"):
        greedy(network, [[1], [1] * 20])
    with pytest.raises(InputError, match=r"max_length must be at most 18 for texts\[1\], .* 2 tokens of"):
        greedy(network, [[1], [1, 1]], rules=Rules(max_length=19))
    with pytest.raises(InputError, match="start_ids must be given"):
        greedy(pair(), [[1]], rules=Rules())
    with pytest.raises(InputError, match=r"token_ids must be from 0 to 4; got 5"):
        greedy(network, [[5]])
    bert = build_bert(BertConfig(vocab_size=13, d_model=6, num_layers=1, num_heads=2, d_ff=11))
    with pytest.raises(InputError, match="this bert has no decoder"):
        greedy(bert, [[1]])
