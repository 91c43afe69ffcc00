"""Blocks: where they end, whatever batches the rows come in."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from regard.embedding.job._inputs import BLOCK_ROWS, Block, blocks
from regard.embedding.job._reading import Batch, infer
from unit.embedding.job.reading import plain


def batches(texts: list[str | None], cuts: list[int]) -> list[Batch]:
    return [
        Batch(
            numbers=range(start, stop),
            origins=[(number, "in", number + 1) for number in range(start, stop)],
            texts=texts[start:stop],
            reasons=["bad" if text is None else None for text in texts[start:stop]],
            carried=[pa.array(range(start, stop), pa.int64())],
        )
        for start, stop in zip([0, *cuts], [*cuts, len(texts)], strict=True)
    ]


def cut(texts: list[str | None], cuts: list[int], *, shard_rows: int, characters: int) -> list[Block]:
    return list(blocks(batches(texts, cuts), shard_rows=shard_rows, characters=characters))


def good(block: Block) -> list[int]:
    """The numbers of the rows that have a text."""
    return block.take(np.arange(len(block.texts)))[0].tolist()


def test_by_hand() -> None:
    texts = ["aaa", None, "bb", "cccc", "ééé", "d", "eeeeeeeee", "f"]
    found = cut(texts, [], shard_rows=4, characters=6)
    assert [(block.shard, good(block), block.closes) for block in found] == [
        (0, [0, 2], False),  # 5 bytes; 4 more would be too many
        (0, [3], True),
        (1, [4], False),  # 6 bytes
        (1, [5], False),
        (1, [6], False),  # alone, though too long
        (1, [7], True),
    ]
    numbers = [[0, 1, 2], [3], [4], [5], [6], [7]]
    assert [block.rows.numbers for block in found] == numbers
    assert [block.rows.carried[0].to_pylist() for block in found] == numbers
    bad = {"row": 1, "id": 1, "input": "in", "input_row": 2, "reason": "bad"}
    assert found[0].without({}) == [bad]
    worse = {"row": 2, "id": 2, "input": "in", "input_row": 3, "reason": "worse"}
    assert found[0].without({1: "worse"}) == [bad, worse]
    assert found[0].take(np.array([1, 1, 0]))[1][0].to_pylist() == [2, 2, 0]


def test_a_block_has_so_many_rows_at_most() -> None:
    texts: list[str | None] = ["a", None] * (BLOCK_ROWS // 2) + ["b"] * (BLOCK_ROWS + 7)
    shard = 2 * BLOCK_ROWS + 3
    found = cut(texts, [5], shard_rows=shard, characters=10**6)
    assert [(block.shard, len(block.rows.numbers), block.closes) for block in found] == [
        (0, BLOCK_ROWS, False),
        (0, BLOCK_ROWS, False),
        (0, 3, True),
        (1, 4, True),
    ]
    assert [good(block) for block in found[1:]] == [
        list(range(BLOCK_ROWS, 2 * BLOCK_ROWS)),
        list(range(2 * BLOCK_ROWS, shard)),
        list(range(shard, shard + 4)),
    ]


def test_a_last_shard_that_is_full_is_closed_once() -> None:
    found = cut(["a", "b", "c", "d"], [2], shard_rows=2, characters=100)
    assert [(block.shard, block.closes) for block in found] == [(0, True), (1, True)]
    assert cut([], [], shard_rows=2, characters=100) == []


@pytest.mark.parametrize("seed", range(3))
def test_batches_do_not_show(seed: int) -> None:
    draw = random.Random(seed)
    texts = [None if draw.random() < 0.2 else "x" * draw.randrange(1, 9) for _ in range(60)]
    cuts = sorted(draw.sample(range(1, 60), 7))
    options = {"shard_rows": 11, "characters": 20}
    assert [plain(block) for block in cut(texts, cuts, **options)] == [
        plain(block) for block in cut(texts, [], **options)
    ]


def test_a_whole_number_that_no_double_holds_is_no_float() -> None:
    assert str(infer("n", [1.5, 2**53]).type) == "double"
    kept = infer("n", [1.5, 2**60 + 1])
    assert kept.as_json
    assert kept.arrow([1.5, 2**60 + 1]).to_pylist() == ["1.5", "1152921504606846977"]
