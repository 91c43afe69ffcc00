"""Tokens that are drawn: how often each, with which filters, and by which chance."""

from typing import Any

import pytest
import torch
from torch import Tensor

from regard.core.errors import InputError
from regard.decoding import Rules, Sampling, greedy, sample
from regard.decoding._choice import key_of
from tolerances import FP64, assert_close_to_largest
from unit.decoding.toy import decoder, log_probabilities, pair

TEXTS = [[3, 1], [4, 1, 0, 3], [1]]
DRAWS, RARE = 3000, 0.001


def p_value(counts: Tensor, wanted: Tensor) -> float:
    """Of Pearson's chi-squared test: how often chance alone is as far from what was wanted."""
    statistic = ((counts - wanted).square() / wanted).sum().double()
    return float(torch.special.gammaincc(torch.tensor((len(counts) - 1) / 2).double(), statistic / 2))


@pytest.mark.parametrize(
    ("how", "left"),
    [
        ({}, [0.1, 0.4, 0.2, 0.25, 0.05]),
        ({"temperature": 0.5}, [0.01, 0.16, 0.04, 0.0625, 0.0025]),
        ({"top_k": 2}, [0, 0.4, 0, 0.25, 0]),
        ({"top_k": 9}, [0.1, 0.4, 0.2, 0.25, 0.05]),
        ({"top_p": 0.5}, [0, 0.4, 0, 0.25, 0]),
        ({"top_p": 0.39}, [0, 1, 0, 0, 0]),
        ({"top_p": 0.0}, [0, 1, 0, 0, 0]),
        ({"min_p": 0.45}, [0, 0.4, 0.2, 0.25, 0]),
        ({"top_k": 3, "top_p": 0.7}, [0, 0.4, 0, 0.25, 0]),  # 0.4 + 0.25 of 0.85 left
        ({"temperature": 0.5, "top_p": 0.8}, [0, 0.16, 0, 0.0625, 0]),
        ({"top_p": 0.9, "min_p": 0.6}, [0, 0.4, 0, 0.25, 0]),
    ],
    ids=str,
)
def test_as_often_as_the_probability_that_is_left(how: dict[str, Any], left: list[float]) -> None:
    scores = torch.tensor([0.1, 0.4, 0.2, 0.25, 0.05], dtype=torch.float64).log()[None]
    sampling = Sampling(**how, seed=5)
    wanted = torch.tensor(left, dtype=torch.float64) / sum(left)
    assert_close_to_largest(sampling.filtered(scores).exp()[0], wanted, FP64)
    drawn = sampling(scores.expand(DRAWS, -1), range(DRAWS), 0)
    counts = torch.bincount(drawn, minlength=5)
    likely = wanted > 0
    assert counts[~likely].sum() == 0
    assert likely.sum() == 1 or p_value(counts[likely], DRAWS * wanted[likely]) > RARE


@pytest.mark.parametrize("name", ["top_p", "typical_p"])
def test_the_whole_share_leaves_what_no_sum_would_show(name: str) -> None:
    """1 + 1e-30 is 1: what is kept for a share of 1 is all, and not what adds up to it."""
    scores = torch.tensor([[0.0, -69.0]], dtype=torch.float64)
    assert Sampling(**{name: 1.0}).filtered(scores).isfinite().all()


def test_the_chance_of_a_token_is_that_of_its_place() -> None:
    """Neither the lengths nor the keys nor the seeds of draws go together."""
    scores = torch.full((1, 2), 0.5).log()
    for tables in (
        [[Sampling(seed=seed)(scores, [7], length) for length in range(300)] for seed in (0, 1)],
        [[Sampling()(scores, [key], length) for length in range(300)] for key in (0, 1)],
    ):
        one, other = (torch.cat(row) for row in tables)
        alike = int((one == other).sum())
        assert p_value(torch.tensor([alike, 300 - alike]), torch.tensor([150, 150])) > RARE
    assert len({key_of(ids, place) for ids in ([1, 23], [12, 3], [1, 2, 3]) for place in (0, 1)}) == 6


@pytest.mark.parametrize("two", [False, True])
def test_the_company_and_the_count_change_nothing(two: bool) -> None:
    network = pair(11) if two else decoder(11)
    rules = Rules(start_ids=(0,) if two else (), end_ids=(2, 8), max_length=9)
    sampling = Sampling(temperature=4.0, seed=3)
    together = sample(network, TEXTS, choice=sampling, count=3, rules=rules)
    assert len({way.token_ids for ways in together for way in ways}) > 4
    assert len({len(way.token_ids) for ways in together for way in ways}) > 2
    for text, ways in zip(TEXTS, together, strict=True):
        for cached in (True, False):
            (alone,) = sample(network, [text], choice=sampling, count=2, rules=rules, cached=cached)
            assert [way.token_ids for way in alone] == [way.token_ids for way in ways[:2]]
        for way in ways:
            tokens = [*way.token_ids]
            scores = log_probabilities(network, text, tokens, 0)
            told = scores[range(len(tokens)), tokens]
            assert_close_to_largest(way.log_probabilities[: len(tokens)], told, FP64)
            assert len(way.log_probabilities) == len(tokens) + way.ended
    assert sample(network, TEXTS, choice=Sampling(temperature=4.0, seed=4), rules=rules) != together


@pytest.mark.parametrize("temperature", [1e-4, 1e-307, 1e-320])  # the last two divide to infinity
def test_next_to_no_temperature_is_greedy(temperature: float) -> None:
    network, rules = decoder(11), Rules(end_ids=(2, 8), max_length=9)
    (cold,) = zip(*sample(network, TEXTS, choice=Sampling(temperature=temperature), rules=rules), strict=True)
    assert list(cold) == greedy(network, TEXTS, rules=rules)


def test_how_often_whole_texts_are_drawn() -> None:
    network, rules = decoder(), Rules(max_length=2)
    (ways,) = sample(network, [[3, 1]], count=DRAWS, rules=rules)
    first = log_probabilities(network, [3, 1], [], 0)[0]
    both = torch.stack(
        [first[token] + log_probabilities(network, [3, 1], [token], 0)[1] for token in range(5)]
    )
    counts = torch.zeros(5, 5, dtype=torch.float64)
    for way in ways:
        counts[way.token_ids] += 1
    wanted = DRAWS * both.exp()
    often = wanted > 5
    rest = [(DRAWS - each[often].sum())[None] for each in (counts, wanted)]
    both = [torch.cat([each[often], other]) for each, other in zip((counts, wanted), rest, strict=True)]
    assert p_value(*both) > RARE


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"temperature": 0}, "temperature must be above 0; got 0"),
        ({"top_k": 0}, "top_k must be a whole number, at least 1; got 0"),
        ({"top_p": 1.5}, "top_p must be from 0 to 1; got 1.5"),
        ({"min_p": "x"}, "min_p must be a finite number; got 'x'"),
        ({"seed": -1}, "seed must be a whole number, from 0 to "),
    ],
)
def test_refusals(how: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Sampling(**how)


@pytest.mark.parametrize("share", [0.3, 0.9, 0.99999, 1.0 - 2**-53])
def test_the_likeliest_of_many_tokens(share: float) -> None:
    """More of them than are sorted at once; of equals all or none."""
    scores = (torch.arange(19_997) % 4999).double().mul(-1e-3).log_softmax(0)[torch.randperm(19_997)]
    kept = Sampling(top_p=share).filtered(torch.stack((scores, scores.flip(0)))).isfinite()
    order = scores.sort(descending=True).values.exp()
    lowest = order[int((order.cumsum(0) - order < share).sum()) - 1]
    assert torch.equal(kept[0], scores.exp() >= lowest)
    assert torch.equal(kept[0], kept[1].flip(0))
    assert int(kept[0].sum()) > 1000
