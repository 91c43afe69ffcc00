"""Windows over long texts."""

import itertools
import random
from collections.abc import Sequence

import pytest

from regard import InputError, Truncate, Windows
from regard.embedding._passages import Part


def _cases() -> list[tuple[int, int, int, list[int]]]:
    dice = random.Random(5)
    cases = []
    for _ in range(300):
        room = dice.randint(1, 13)
        length, overlap = dice.randint(1, 61), dice.randint(0, room - 1)
        starts = sorted(dice.sample(range(length), dice.randint(0, length)))
        cases.append((length, room, overlap, starts))
    return cases


def test_every_piece_is_embedded_once_within_a_window_that_holds_it() -> None:
    for length, room, overlap, starts in _cases():
        parts = Windows(overlap=overlap).parts(length, room=room, starts=starts)
        taken = [piece for part in parts for piece in range(part.first, part.last)]
        assert taken == list(range(length))
        assert all(part.start <= part.first < part.last <= part.stop for part in parts)


def test_windows_are_full_and_neighbours_share_what_was_asked_for() -> None:
    for length, room, overlap, starts in _cases():
        parts = Windows(overlap=overlap).parts(length, room=room, starts=starts)
        assert parts[0].start == 0
        assert parts[-1].stop == length
        if length > room:
            assert {part.stop - part.start for part in parts} == {room}
            assert all(left.stop - right.start >= overlap for left, right in itertools.pairwise(parts))
            fewer = len(parts) - 1
            assert fewer * room - (fewer - 1) * overlap < length, "one window fewer would do"


@pytest.mark.parametrize(
    ("window", "length", "room", "starts", "parts"),
    [
        (Windows(overlap=4), 12, 8, range(12), [Part(0, 8, 0, 6), Part(4, 12, 6, 12)]),
        # The middle is 6, inside the word 3..7; the starts within the shared pieces 4..8 are 7 and 8.
        (Windows(overlap=4), 12, 8, [0, 3, 7, 8, 10], [Part(0, 8, 0, 7), Part(4, 12, 7, 12)]),
        (Windows(overlap=4), 12, 8, [0, 1, 11], [Part(0, 8, 0, 6), Part(4, 12, 6, 12)]),
        (
            Windows(),
            10,
            4,
            range(10),
            [Part(0, 4, 0, 3), Part(2, 6, 3, 5), Part(4, 8, 5, 7), Part(6, 10, 7, 10)],
        ),
        (Windows(overlap=1), 5, 5, range(5), [Part(0, 5, 0, 5)]),
        (Truncate(), 5, 5, range(5), [Part(0, 5, 0, 5)]),
        (Truncate(), 7, 5, range(7), [Part(0, 5, 0, 5)]),
    ],
    ids=["middle", "start of a word", "long word", "half by default", "fits", "fits too", "cut off"],
)
def test_the_parts_of_a_text(
    window: Windows | Truncate, length: int, room: int, starts: Sequence[int], parts: list[Part]
) -> None:
    assert window.parts(length, room=room, starts=starts) == parts


@pytest.mark.parametrize("kind", [Windows, Truncate])
@pytest.mark.parametrize("size", [0, -3, 2.0, True, "5"])
def test_sizes_that_are_none_are_refused(kind: type, size: object) -> None:
    with pytest.raises(InputError, match=r"size must be a whole number"):
        kind(size)


def test_an_overlap_as_long_as_a_window_is_refused() -> None:
    with pytest.raises(InputError, match=r"overlap must be less than the 5 pieces .* got 5"):
        Windows(overlap=5).parts(11, room=5, starts=())
    with pytest.raises(InputError, match=r"overlap must be a whole number, at least 0"):
        Windows(overlap=-1)
