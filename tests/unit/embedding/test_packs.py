"""Which rows run together."""

import random

import pytest

from regard.embedding._packs import pack


@pytest.mark.parametrize("mixed", [False, True])
def test_every_row_is_in_one_run_of_its_length_and_packs_keep_to_the_budget(mixed: bool) -> None:
    dice = random.Random(7)
    for _ in range(100):
        lengths = [dice.randint(1, 23) for _ in range(dice.randint(0, 97))]
        budget = dice.randint(1, 131)
        packs = pack(lengths, tokens=budget, mixed=mixed)
        runs = [run for each in packs for run in each]
        assert sorted(row for run in runs for row in run.rows) == list(range(len(lengths)))
        assert all(lengths[row] == run.length for run in runs for row in run.rows)
        for each in packs:
            tokens = sum(len(run.rows) * run.length for run in each)
            assert tokens <= budget or sum(len(run.rows) for run in each) == 1
            assert mixed or len(each) == 1


def test_the_longest_come_first_and_equal_ones_in_order() -> None:
    ((first,), (second,)) = pack([2, 5, 2, 5], tokens=10)
    assert (first.rows, second.rows) == ((1, 3), (0, 2))


def test_long_rows_are_bounded_by_their_square() -> None:
    # 4096 tokens squared are 2^24: such rows run alone, however large the budget.
    packs = pack([4096] * 3, tokens=10**6)
    assert [len(run.rows) for (run,) in packs] == [1, 1, 1]


def test_no_rows_are_no_packs() -> None:
    assert pack([], tokens=5) == []


@pytest.mark.parametrize("mixed", [False, True])
def test_packs_get_smaller_towards_the_end(mixed: bool) -> None:
    """So that no core is left alone with a large one: of what is left an eighth at most, or 256 tokens."""
    sizes = [sum(len(run.rows) * run.length for run in each) for each in pack([7] * 2003, mixed=mixed)]
    assert sum(sizes) == 7 * 2003
    left = sum(sizes)
    for size in sizes:
        wanted = min(512, max(256, left // 8))
        assert size == min(left, wanted - wanted % 7)
        left -= size
    assert sizes[0] == 511
    assert sizes[-2] == 252
