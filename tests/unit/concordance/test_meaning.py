"""Directions of meaning, beside their formulas."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from regard.concordance import Concordance
from regard.concordance._meaning import refined
from regard.core.errors import InputError
from tolerances import FP64, assert_close_to_largest
from unit.concordance.conftest import Make


def test_examples_move_a_query_as_rocchio_says() -> None:
    query = np.array([1.0, 2.0, 0.0])
    more, less = np.array([[0.0, 1.0, 0.0], [0.0, 3.0, 2.0]]), np.array([[4.0, 0.0, 0.0], [0.0, 0.0, 4.0]])
    # q + (0, 2, 1) - (2, 0, 2) / 2
    moved = np.array([0.0, 4.0, 0.0])
    assert_close_to_largest(refined(query, more, less), moved / 4.0, FP64)


def test_a_model_is_loaded_after_the_word_is_found(made: Make) -> None:
    loads: list[str] = []

    @contextmanager
    def loading() -> Iterator[None]:
        loads.append("once")
        yield

    asked = Concordance(made("The bank lent money.\n")._store.folder, loading=loading())
    with pytest.raises(InputError, match="bonk"):
        asked.find("bonk", sentence="She sat on the bonk.")
    assert loads == []
    asked.find("bank", sentence="She sat on the bank.")
    asked.find("bank", sentence="The bank lent money.")
    assert loads == ["once"]
