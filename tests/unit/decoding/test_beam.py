"""Beam search against every text that there is, and what ends it."""

import math
from collections.abc import Callable
from functools import cache

import pytest
import torch

from regard.core.errors import InputError, RegardError
from regard.decoding import Beams, Power, Rules, Wu, beam_search, greedy
from regard.decoding._beam import _highest
from regard.models import Transformer
from tolerances import FP64, assert_close_to_largest
from unit.decoding.toy import decoder, every_text, log_probabilities, pair

END, LONGEST = 2, 4
TEXTS = [[3, 1], [4, 1, 0, 3], [1]]


@cache
def all_ways(make: Callable[[], Transformer]) -> list[list[tuple[tuple[int, ...], float, int]]]:
    """Of each text, every continuation that there is."""
    return [list(every_text(make(), text, end=END, longest=LONGEST)) for text in TEXTS]


@pytest.mark.parametrize("make", [decoder, pair])
@pytest.mark.parametrize("counts", [Power(0.0), Power(1.0), Power(-0.5), Wu(0.6)], ids=repr)
@pytest.mark.parametrize(("exhaustive", "best"), [(False, 9), (True, 9), (True, 1)])
def test_beams_enough_find_the_best_of_all(
    make: Callable[[], Transformer], counts: Power | Wu, exhaustive: bool, best: int
) -> None:
    network = make()
    rules = Rules(start_ids=() if network.encoder is None else (0,), end_ids=(END,), max_length=LONGEST)
    found = beam_search(
        network, TEXTS, beams=700, best=best, counts=counts, exhaustive=exhaustive, rules=rules
    )
    for written, ways in zip(all_ways(make), found, strict=True):
        scored = [(total / counts(length), ids, total) for ids, total, length in written]
        wanted = sorted(scored, reverse=True)[:best]
        assert [way.token_ids for way in ways] == [ids for _, ids, _ in wanted]
        assert_close_to_largest([way.score for way in ways], [score for score, _, _ in wanted], FP64)
        assert_close_to_largest([way.log_probability for way in ways], [each for *_, each in wanted], FP64)
        assert [way.ended for way in ways] == [len(way.token_ids) < LONGEST for way in ways]


def by_hand(
    network: Transformer, text: list[int], *, beams: int, ends: tuple[int, ...], start: int
) -> list[tuple[float, tuple[int, ...]]]:
    """The search in plain loops: every way with every token, sorted."""
    ways: list[tuple[float, list[int]]] = [(0.0, [])]
    done: list[tuple[float, tuple[int, ...]]] = []
    for length in range(1, 7):
        after = [
            (total + score, [*written, token])
            for total, written in ways
            for token, score in enumerate(log_probabilities(network, text, written, start)[-1].tolist())
        ]
        after.sort(reverse=True)
        done += [
            (total / length, tuple(written[:-1])) for total, written in after[:beams] if written[-1] in ends
        ]
        ways = [(total, written) for total, written in after if written[-1] not in ends][:beams]
        if len(done) >= beams and length < 6:  # at the limit unfinished ways count too
            return sorted(done, reverse=True)
    return sorted(done + [(total / 6, tuple(written)) for total, written in ways], reverse=True)


@pytest.mark.parametrize("make", [decoder, pair])
@pytest.mark.parametrize("ends", [(2,), (2, 3), (0, 1, 4)])
@pytest.mark.parametrize("beams", [1, 2, 3, 5])
def test_every_step_keeps_the_likeliest(
    make: Callable[[], Transformer], beams: int, ends: tuple[int, ...]
) -> None:
    network = make()
    rules = Rules(start_ids=() if network.encoder is None else (0,), end_ids=ends, max_length=6)
    found = beam_search(network, TEXTS, beams=beams, best=beams, rules=rules)
    for text, ways in zip(TEXTS, found, strict=True):
        expected = by_hand(network, text, beams=beams, ends=ends, start=0)[:beams]
        assert [way.token_ids for way in ways] == [ids for _, ids in expected]
        assert_close_to_largest([way.score for way in ways], [score for score, _ in expected], FP64)


def test_what_a_length_counts_for() -> None:
    assert [Power(0.5)(length) for length in (1, 4, 9)] == [1.0, 2.0, 3.0]
    assert_close_to_largest([Wu(0.6)(length) for length in (1, 7)], [1.0, 2.0**0.6], FP64)


def test_a_longer_search_never_finds_less() -> None:
    network, better = decoder(11), 0
    rules = Rules(end_ids=(2, 8), max_length=9)
    texts = [[token] for token in range(11)]
    soon = beam_search(network, texts, beams=2, rules=rules)
    late = beam_search(network, texts, beams=2, exhaustive=True, rules=rules)
    for (one,), (other,) in zip(soon, late, strict=True):
        assert other.score >= one.score
        better += other.score > one.score
    assert better


def test_one_beam_is_greedy_also_with_several_ends() -> None:
    network = decoder(11)
    rules = Rules(end_ids=(2, 8), max_length=9)
    texts = [[token] for token in range(11)]
    ways = beam_search(network, texts, beams=1, rules=rules)
    expected = greedy(network, texts, rules=rules)
    assert len({len(way.token_ids) for way in expected}) > 2
    assert [way.token_ids for (way,) in ways] == [way.token_ids for way in expected]
    assert [way.ended for (way,) in ways] == [way.ended for way in expected]


def test_texts_with_other_limits_end_by_themselves() -> None:
    """Without a number the longest text depends on the source: 2 n + 50, or what the table has room for."""
    network = pair()
    rules = Rules(start_ids=(0,))
    ways = beam_search(network, [[3] * 3, [3]], beams=2, rules=rules)
    assert [len(way.token_ids) for (way,) in ways] == [19, 19]
    one, other = decoder(max_seq_len=300), decoder()
    assert [len(way.token_ids) for way in greedy(one, [[3], [3] * 60], rules=Rules())] == [256, 241]
    assert [len(way.token_ids) for (way,) in beam_search(other, TEXTS, beams=2, rules=Rules())] == [
        18,
        16,
        19,
    ]


def test_refusals() -> None:
    with pytest.raises(InputError, match="best must be at most the number of beams, 2; got 3"):
        beam_search(decoder(), TEXTS, beams=2, best=3)
    with pytest.raises(InputError, match="exhaustive must be False, True or 'heuristic'; got 'never'"):
        Beams(2, exhaustive="never")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="alpha must be a finite number; got nan"):
        Power(math.nan)
    network = decoder()
    torch.nn.init.constant_(network.head.output.weight, math.nan)  # type: ignore[union-attr, arg-type]
    for search in (greedy, beam_search):
        with pytest.raises(RegardError, match="the network's logits are not numbers"):
            search(network, TEXTS, rules=Rules(max_length=3))


@pytest.mark.parametrize("size", [7, 127, 128 * 9, 128 * 40 + 13])
def test_the_highest_of_a_row_are_those_of_all_of_it(size: int) -> None:
    scores = torch.randn(5, size)
    scores[1] = scores[1].round()  # many are equal
    scores[2, : size // 2] = -torch.inf
    scores[3] = -torch.inf
    for count in (1, 3, 5, min(size, 40)):
        values, places = _highest(scores, count)
        assert torch.equal(values, scores.sort(dim=1, descending=True).values[:, :count])
        assert torch.equal(values, scores.gather(1, places))
        assert all(len(set(row)) == count for row in places.tolist())


def test_an_exhaustive_search_hopes_for_the_next_length_too() -> None:
    """Where long texts count for less than they cost, the next length promises more than the longest."""
    network, text = decoder(), [1, 0, 1]
    rules = Rules(end_ids=(END,), max_length=6)
    ((found,),) = beam_search(
        network, [text], beams=5, best=1, counts=Power(-1.0), exhaustive=True, rules=rules
    )
    after = log_probabilities(network, text, [4, 1], start=0)
    in_three = float(after[0, 4] + after[1, 1] + after[2, END])
    assert 3 * in_three > float(after[0, END])  # which had ended first
    assert found.token_ids == (4, 1)
    assert_close_to_largest([found.score], [3 * in_three], FP64)
