"""Windows over long texts."""

import itertools
import random

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


def test_a_border_is_the_middle_of_what_two_windows_share() -> None:
    parts = Windows(overlap=4).parts(12, room=8, starts=range(12))
    assert parts == [Part(0, 8, 0, 6), Part(4, 12, 6, 12)]


def test_a_border_moves_to_the_nearest_start_of_a_word() -> None:
    # The middle is 6, inside the word 3..7; the starts within the shared pieces 4..8 are 7 and 8.
    parts = Windows(overlap=4).parts(12, room=8, starts=[0, 3, 7, 8, 10])
    assert parts[0].last == parts[1].first == 7


def test_a_word_longer_than_the_overlap_is_divided_in_the_middle() -> None:
    parts = Windows(overlap=4).parts(12, room=8, starts=[0, 1, 11])
    assert parts[0].last == 6


def test_by_default_neighbours_share_half() -> None:
    assert Windows().parts(16, room=8, starts=range(16))[1].start == 4


def test_a_text_that_fits_is_one_part() -> None:
    for window in (Windows(overlap=1), Truncate()):
        assert window.parts(5, room=5, starts=range(5)) == [Part(0, 5, 0, 5)]


def test_truncation_keeps_the_first_pieces() -> None:
    assert Truncate().parts(7, room=5, starts=range(7)) == [Part(0, 5, 0, 5)]


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
