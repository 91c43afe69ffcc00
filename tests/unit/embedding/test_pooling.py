"""Pooling over texts that lie end to end, against loops in double precision."""

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from regard.core.errors import InputError
from regard.embedding import KINDS, WORD_KINDS, Kind, WordKind, pool, pool_words
from regard.embedding._pooling import Row, added, pool_rows
from tolerances import FP32_OF_LARGEST, FP64, assert_close_to_largest

LENGTHS = [5, 1, 17, 3]
WIDTH = 7


def by_hand(kind: str, text: Tensor, skip: int) -> list[float]:
    """A text's vector, entry by entry."""
    rows = [(place, row) for place, row in enumerate(text.double().tolist(), start=1) if place > skip]
    columns = list(zip(*(row for _, row in rows), strict=True))
    places = [place for place, _ in rows]
    match kind:
        case "mean":
            return [math.fsum(column) / len(rows) for column in columns]
        case "mean_sqrt_len":
            return [math.fsum(column) / math.sqrt(len(rows)) for column in columns]
        case "cls":
            return rows[0][1]
        case "last":
            return rows[-1][1]
        case "max":
            return [max(column) for column in columns]
        case "weighted_mean":
            return [
                math.fsum(p * x for p, x in zip(places, column, strict=True)) / sum(places)
                for column in columns
            ]
    raise AssertionError(kind)


def vectors(dtype: torch.dtype = torch.float64, lengths: Sequence[int] = LENGTHS) -> Tensor:
    return (torch.randn(sum(lengths), WIDTH, dtype=torch.float64) - 0.5).to(dtype)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("skip", [0, 2])
@pytest.mark.parametrize(
    ("dtype", "tol"),
    [(torch.float64, FP64), (torch.float32, FP32_OF_LARGEST), (torch.bfloat16, FP32_OF_LARGEST)],
)
def test_each_pooling_is_its_formula(kind: str, skip: int, dtype: torch.dtype, tol: float) -> None:
    lengths = [length + skip for length in LENGTHS]
    given = vectors(dtype, lengths)
    pooled = pool(kind, given, lengths, skip=skip)  # type: ignore[arg-type]
    expected = [by_hand(kind, text, skip) for text in given.split(lengths)]
    assert pooled.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert_close_to_largest(pooled, expected, tol)


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_has_the_same_bits_in_any_company(kind: str) -> None:
    given = vectors(torch.float32)
    together = pool(kind, given, LENGTHS)  # type: ignore[arg-type]
    alone = [pool(kind, text, [len(text)])[0] for text in given.split(LENGTHS)]  # type: ignore[arg-type]
    assert torch.equal(together, torch.stack(alone))


def test_infinities_beside_a_text_do_not_reach_it() -> None:
    given = vectors(torch.float32)
    given[: LENGTHS[0]] = math.inf
    assert pool(KINDS, given, LENGTHS)[1:].isfinite().all()


def test_axes_after_the_first_are_kept() -> None:
    given = torch.randn(sum(LENGTHS), 2, WIDTH)
    pooled = pool(["mean", "max"], given, LENGTHS)
    assert pooled.shape == (len(LENGTHS), 2, 2 * WIDTH)
    for layer in range(2):
        assert torch.equal(pooled[:, layer], pool(["mean", "max"], given[:, layer], LENGTHS))


def test_joined_poolings_stand_in_the_order_given() -> None:
    given = vectors()
    joined = pool(["last", "mean"], given, LENGTHS)
    assert torch.equal(joined[:, :WIDTH], pool("last", given, LENGTHS))
    assert torch.equal(joined[:, WIDTH:], pool("mean", given, LENGTHS))


def test_no_texts_give_no_vectors() -> None:
    for kind in KINDS:
        assert pool(kind, torch.zeros(0, WIDTH), []).shape == (0, WIDTH)


@pytest.mark.parametrize(
    ("kinds", "lengths", "skip", "message"),
    [
        ("median", LENGTHS, 0, "median"),
        ([], LENGTHS, 0, r"pooling must be one or several of mean, cls"),
        ("mean", [5, 1], 0, "26 rows of vectors; got 6"),
        ("mean", LENGTHS, 1, "a text has 1 tokens, and the first 1 are the prompt's"),
    ],
)
def test_what_cannot_be_pooled_is_refused(kinds: str, lengths: list[int], skip: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        pool(kinds, vectors(), lengths, skip=skip)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", WORD_KINDS)
def test_a_word_is_made_of_its_pieces(kind: WordKind) -> None:
    of = {
        "mean": lambda pieces: pieces.mean(0),
        "first": lambda pieces: pieces[0],
        "last": lambda pieces: pieces[-1],
        "max": lambda pieces: pieces.amax(0),
    }[kind]
    given = torch.randn(11, 2, WIDTH, dtype=torch.float64)
    groups = [[3], [0, 1, 2], [10, 4, 10], [7, 8]]
    rows = torch.tensor([row for group in groups for row in group])
    starts = torch.tensor([0, 1, 4, 7])
    expected = torch.stack([of(given[group]) for group in groups])
    assert_close_to_largest(pool_words([kind], given, rows, starts), expected, FP64)
    joined = pool_words([kind, "mean"], given.bfloat16(), rows, starts)
    assert (joined.dtype, joined.shape) == (torch.float32, (4, 2, 2 * WIDTH))
    none = torch.zeros(0, dtype=torch.int64)
    assert pool_words([kind], torch.randn(3, WIDTH), none, none).shape == (0, WIDTH)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("skip", [0, 2, 5])
def test_a_text_in_parts_is_pooled_as_one(kind: Kind, skip: int) -> None:
    """The prompt may end in the first part, or fill it."""
    text = vectors(lengths=[23])
    kinds: list[Kind] = [kind, "cls"]
    first, rows, read = 0, [], []
    for length in (4, 1, 11, 7):  # each read with a token before and one behind, which are not pooled
        rows.append(Row(length + 2, 1, length + 1, first, 23))
        read += [vectors(lengths=[1]), text[first : first + length], vectors(lengths=[1])]
        first += length
    found = added(kinds, list(pool_rows(kinds, torch.cat(read), rows, skip=skip)))
    assert_close_to_largest(found[:WIDTH], by_hand(kind, text, skip), FP64)
    assert_close_to_largest(found, pool(kinds, text, [23], skip=skip)[0], FP64)
