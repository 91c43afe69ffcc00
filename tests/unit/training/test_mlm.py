"""BERT's masking: how much is drawn, and what becomes of it."""

from __future__ import annotations

import numpy as np
import pytest

from regard.core.errors import InputError
from regard.training import NOT_A_TARGET
from regard.training._feed import generator
from regard.training.tasks._mlm import Masking

MASK, ORDINARY = 4, np.arange(5, 997)
TOKENS = generator(0, purpose="text").integers(5, 997, size=41)
WORDS = np.array([-1, *np.repeat(np.arange(13), 3), -1])


def many(masking: Masking, count: int = 3000) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    drawn = [masking(TOKENS, WORDS, generator(0, place, purpose="mask")) for place in range(count)]
    return np.array([seen for seen, _ in drawn]), np.array([labels for _, labels in drawn])


@pytest.mark.parametrize("whole_words", [True, False])
def test_of_the_drawn_tokens_eight_in_ten_are_masked_one_is_random_and_one_stays(whole_words: bool) -> None:
    seen, labels = many(Masking(MASK, ORDINARY, share=0.15, whole_words=whole_words))
    drawn = labels != NOT_A_TARGET
    assert not drawn[:, [0, -1]].any(), "the template's own tokens are never drawn"
    assert np.array_equal(labels[drawn], np.broadcast_to(TOKENS, labels.shape)[drawn])
    assert np.array_equal(seen[~drawn], np.broadcast_to(TOKENS, seen.shape)[~drawn])
    fates = [seen[drawn] == MASK, (seen != TOKENS)[drawn] & (seen[drawn] != MASK), (seen == TOKENS)[drawn]]
    for fate, wanted in zip(fates, (0.8, 0.1, 0.1), strict=True):
        # Five standard errors of so many draws; a random token is the right one once in 992 times.
        room = 5 * (wanted * (1 - wanted) / drawn.sum()) ** 0.5 + 0.1 / 992
        assert abs(fate.mean() - wanted) < room
    share = drawn[:, 1:-1].mean()
    assert abs(share - 0.15) < 5 * (0.15 * 0.85 / drawn[:, 1:-1].size * (3 if whole_words else 1)) ** 0.5
    by_word = drawn[:, 1:-1].reshape(len(drawn), 13, 3)
    together = (by_word.all(axis=2) | ~by_word.any(axis=2)).all()
    assert together == whole_words


def test_every_token_is_drawn_as_often() -> None:
    _, labels = many(Masking(MASK, ORDINARY, share=0.3, whole_words=False))
    often = (labels != NOT_A_TARGET)[:, 1:-1].mean(axis=0)
    assert abs(often - 0.3).max() < 5 * (0.3 * 0.7 / len(labels)) ** 0.5


def test_at_least_one_word_is_drawn_and_nothing_of_a_text_without_words() -> None:
    masking = Masking(MASK, ORDINARY, share=0.01)
    _, labels = many(masking, 20)
    assert ((labels != NOT_A_TARGET).sum(axis=1) == 3).all()
    seen, labels = masking(TOKENS, np.full_like(WORDS, -1), generator(0, purpose="mask"))
    assert np.array_equal(seen, TOKENS)
    assert (labels == NOT_A_TARGET).all()


def test_a_share_that_leaves_nothing_to_read_is_refused() -> None:
    with pytest.raises(InputError, match=r"task\.masked must be above 0 and below 1; got 1"):
        Masking(MASK, ORDINARY, share=1.0)
