"""Masks as objects: any block is that block of the whole, and the range of keys leaves none out."""

import pytest
import torch

from regard.core import (
    AttentionInputs,
    Causal,
    Conjunction,
    DilatedWindow,
    Mask,
    Padding,
    Predicate,
    Segments,
    Window,
    fused_attention,
    reference_attention,
    tensors,
)
from regard.core.errors import InputError
from tolerances import FP32_OF_LARGEST, assert_close_to_largest
from unit.core.cases import BATCH, HEADS, MASKS, Sizes

SIZES = [Sizes(7, 11), Sizes(7, 7), Sizes(11, 5)]
REAL = [name for name in MASKS if name != "none"]


def _made(name: str, sizes: Sizes) -> tuple[Mask, list]:
    mask, rule = MASKS[name](sizes)
    assert mask is not None
    spans = [range(n) for n in (BATCH, HEADS, sizes.queries, sizes.keys)]
    return mask, [
        [[[rule(b, h, i, j) for j in spans[3]] for i in spans[2]] for h in spans[1]] for b in spans[0]
    ]


@pytest.mark.parametrize("name", REAL)
def test_the_dense_mask_is_what_the_rule_says(name: str) -> None:
    for sizes in SIZES:
        mask, wanted = _made(name, sizes)
        dense = mask.dense(sizes.queries, sizes.keys)
        assert dense.dtype == torch.bool
        assert dense.expand(BATCH, HEADS, sizes.queries, sizes.keys).tolist() == wanted


@pytest.mark.parametrize("name", REAL)
def test_a_block_is_that_block_of_the_whole(name: str) -> None:
    for sizes in SIZES:
        mask, wanted = _made(name, sizes)
        for rows, columns in (
            ([3], [0, 1, 4]),
            ([4, 0, 2], [3]),
            ([1, 2, 3], [2, 3, 4]),
            ([2, 2], [4, 4, 0]),
        ):
            block = mask.block(torch.tensor(rows), torch.tensor(columns))
            assert block.expand(BATCH, HEADS, len(rows), len(columns)).tolist() == [
                [[[head[i][j] for j in columns] for i in rows] for head in item] for item in wanted
            ]


@pytest.mark.parametrize("name", REAL)
def test_the_range_of_keys_holds_every_key_that_may_be_seen(name: str) -> None:
    for sizes in SIZES:
        mask, wanted = _made(name, sizes)
        for first in range(sizes.queries):
            for last in range(first, sizes.queries):
                start, stop = mask.key_range(first, last, sizes.keys)
                assert 0 <= start <= stop <= sizes.keys
                seen = {
                    j
                    for item in wanted
                    for head in item
                    for row in head[first : last + 1]
                    for j, sees in enumerate(row)
                    if sees
                }
                assert seen <= set(range(start, stop))


@pytest.mark.parametrize(
    ("mask", "first", "last", "wanted"),
    [
        (Causal(), 3, 5, (0, 6)),
        (Causal(offset=4), 3, 5, (0, 10)),
        (Causal(offset=-5), 0, 3, (0, 0)),
        (Window(left=2, right=1), 5, 6, (3, 8)),
        (Window(left=2), 5, 6, (3, 11)),
        (Window(None, right=0, offset=2), 5, 6, (0, 9)),
        (Window(left=1) & Causal(), 5, 6, (4, 7)),
        (Causal() & Window(left=1, offset=9), 2, 2, (10, 10)),
        (Padding(torch.ones(1, 11, dtype=torch.bool)), 5, 6, (0, 11)),
        (Segments(torch.tensor([[4] * 3 + [0] * 4 + [7] * 4])), 3, 4, (3, 7)),
        (Segments(torch.tensor([[4] * 3 + [0] * 8, [4] * 5 + [0] * 6])), 3, 3, (0, 11)),
        (Segments(torch.tensor([[1, 2, 3]]), torch.tensor([[2] * 4 + [3] * 7])), 1, 1, (0, 4)),
        (Segments(torch.tensor([[1, 2, 3]]), torch.tensor([[2] * 4 + [3] * 7])), 0, 0, (0, 0)),
    ],
)
def test_the_range_of_keys_is_no_wider_than_need_be(mask, first: int, last: int, wanted) -> None:
    assert mask.key_range(first, last, 11) == wanted


def test_a_conjunction_is_flat_however_it_came_about() -> None:
    one, two, three = Causal(), Window(left=3), Padding(torch.ones(1, 5, dtype=torch.bool))
    assert ((one & two) & three).parts() == (one & (two & three)).parts() == (one, two, three)
    assert Conjunction((Conjunction((one, two)), three)).parts() == (one, two, three)
    assert one.parts() == (one,)


def test_segments_of_a_batch_of_one_hold_for_all_items() -> None:
    Segments(torch.tensor([[0, 0, 1]])).check(batch=4, q_len=3, k_len=3)
    with pytest.raises(InputError, match=r"segments of queries must have shape \(4, 3\)"):
        Segments(torch.zeros(2, 3, dtype=torch.int64)).check(batch=4, q_len=3, k_len=3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Padding(torch.ones(2, 5)), r"real must be a bool .*got torch.float32 .*with .bool\(\)"),
        (lambda: Padding(torch.ones(5, dtype=torch.bool)), r"real must be .*got torch.bool of shape \(5,\)"),
        (lambda: Window(left=-1), "left must be at least 0, .*got -1"),
        (lambda: Window(left=None, right=-2), "right must be at least 0, .*got -2"),
        (lambda: Segments(torch.ones(2, 5)), r"queries must be integers .*got torch.float32"),
        (
            lambda: Segments(torch.ones(2, 5).long(), torch.ones(5).long()),
            r"keys must be integers .*got torch.int64 of shape \(5,\)",
        ),
        (lambda: DilatedWindow(left=-1, right=1), "left must be at least"),
        (lambda: DilatedWindow(left=1, right=-1), "right must be at least"),
        (lambda: DilatedWindow(left=1, right=1, dilation=0), "dilation must be at least"),
        (lambda: Conjunction(()), "masks must hold at least one mask"),
        (lambda: Predicate(lambda i, j: i + j).dense(2, 2), "must return bool .*got torch.int64"),
        (lambda: Predicate(lambda i, j: (i == j)[None]).dense(2, 2), r"two axes .*got .*\(1, 2, 2\)"),
    ],
)
def test_what_is_no_mask_is_refused(make, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", REAL)
def test_the_simplified_mask_hides_the_same(name: str) -> None:
    for sizes in [*SIZES, Sizes(2, 3), Sizes(1, 7)]:
        mask, wanted = _made(name, sizes)
        for each in (mask, mask & Causal(offset=1), mask & Window(left=3) & Window(None, right=3)):
            dense = each.dense(sizes.queries, sizes.keys)
            simple = each.simplified(sizes.queries, sizes.keys)
            again = torch.ones_like(dense) if simple is None else simple.dense(sizes.queries, sizes.keys)
            shape = (BATCH, HEADS, sizes.queries, sizes.keys)
            assert again.expand(shape).equal(dense.expand(shape))
        assert mask.dense(sizes.queries, sizes.keys).expand(shape).tolist() == wanted


def _real(*rows: str) -> Padding:
    return Padding(torch.tensor([[sign == "1" for sign in row] for row in rows]))


PADDED = _real("11110", "11111")
PACKED = Segments(torch.tensor([[0, 0, 1, 1, 1]]))


@pytest.mark.parametrize(
    ("mask", "q_len", "wanted"),
    [
        (Causal(), 5, (Causal(),)),
        (Causal(offset=3), 5, (Causal(offset=3),)),
        (Causal(offset=4), 5, None),
        (Window(left=4), 5, None),
        (Window(left=3), 5, (Window(left=3),)),
        (Window(left=3), 4, None),
        (Window(left=3, offset=1), 4, (Window(left=3, offset=1),)),
        (Window(left=4, right=4), 5, None),
        (Window(left=4, right=3), 5, (Causal(offset=3),)),
        (Window(left=3, right=4), 5, (Window(left=3),)),
        (Window(left=9, right=0), 5, (Causal(),)),
        (Window(None, right=2, offset=1), 5, (Causal(offset=3),)),
        (Window(None), 5, None),
        (Causal() & Window(left=4), 5, (Causal(),)),
        (Causal(offset=2) & PADDED & Window(left=9, right=1), 5, (Causal(offset=1), PADDED)),
        (_real("11111", "11111") & Causal(), 5, (Causal(),)),
        (_real("11111"), 5, None),
        (PADDED, 5, (PADDED,)),
        (PACKED & PADDED, 5, (PACKED, PADDED)),
        (Segments(torch.tensor([[3] * 5, [7] * 5])), 5, None),
        (Segments(torch.tensor([[3] * 4]), torch.tensor([[3] * 5])), 4, None),
        (Causal(offset=4) & _real("11111"), 5, None),
    ],
)
def test_what_hides_nothing_is_left_out(mask: Mask, q_len: int, wanted: tuple[Mask, ...] | None) -> None:
    simple = mask.simplified(q_len, 5)
    assert (None if simple is None else simple.parts()) == wanted


def test_what_cannot_be_simplified_is_the_same_object() -> None:
    for mask in (Causal(), PADDED, Causal() & PADDED, PACKED & Window(left=2)):
        assert mask.simplified(5, 5) is mask


@pytest.mark.parametrize("keys", [[0, 0, 1, 1, 1], [2, 2, 2, 2, 2]])
def test_segments_of_one_query_segment_still_hide_other_keys(keys: list[int]) -> None:
    mask = Segments(torch.tensor([[0, 0, 0]]), torch.tensor([keys]))
    assert mask.simplified(3, 5) is mask


def test_numbers_on_another_device_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensors, "_CPU", "another device")
    for mask in (_real("11111"), Segments(torch.zeros(2, 5, dtype=torch.int64))):
        assert mask.simplified(5, 5) is mask


N = 43


@pytest.mark.parametrize(("left", "right", "dilation"), [(2, 3, 5), (0, 1, 2), (3, 0, 1), (7, 7, 3)])
def test_a_query_sees_the_keys_of_the_rule(left: int, right: int, dilation: int) -> None:
    mask = DilatedWindow(left=left, right=right, dilation=dilation)
    dense = mask.dense(N, N)[0, 0]
    for i in range(N):
        wanted = {i + dilation * m for m in range(-left, right + 1)} & set(range(N))
        assert set(dense[i].nonzero()[:, 0].tolist()) == wanted
        start, stop = mask.key_range(i, i, N)
        assert wanted <= set(range(start, stop))
    assert torch.equal(mask.since(17, 4).dense(N - 17, N - 4), mask.dense(N, N)[:, :, 17:, 4:])
    assert torch.equal((mask & Causal()).dense(N, N)[0, 0], dense.tril())
    simple = mask.simplified(N, N)
    assert isinstance(simple, Window) == (dilation == 1)
    assert simple is not None
    assert torch.equal(simple.dense(N, N)[0, 0], dense)


def test_attention_is_exact_in_blocks() -> None:
    q, k, v = torch.randn(3, 1, 2, 300, 5)
    inputs = AttentionInputs(q=q, k=k, v=v, mask=DilatedWindow(left=4, right=2, dilation=3))
    exact = reference_attention(inputs)
    assert_close_to_largest(fused_attention(inputs), exact.context, FP32_OF_LARGEST)
    assert int((exact.weights[0, 0, 150] > 0).sum()) == 7
    assert isinstance(inputs.head(1).mask, DilatedWindow)
