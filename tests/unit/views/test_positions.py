"""The picture of positions shows the table's numbers."""

from typing import Any

import numpy as np
import pytest

from regard.core.errors import InputError
from regard.views import plot_positions


def test_draws_the_table() -> None:
    table = np.random.default_rng(3).standard_normal((7, 11)).astype(np.float32)
    figure = plot_positions(table)
    axes = figure.axes[0]
    [image] = axes.images
    assert np.array_equal(image.get_array(), table)
    largest = float(np.abs(table).max())
    assert image.get_clim() == (-largest, largest)
    assert axes.get_title() == "Positional encoding, 7 positions x 11 dimensions"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("embedding dimension", "position")
    assert len(figure.axes) == 2  # the colour bar


def test_zeros_and_lists() -> None:
    assert plot_positions(np.zeros((2, 3))).axes[0].images[0].get_clim() == (-1.0, 1.0)
    assert plot_positions([[1.0, 2.0]]).axes[0].images[0].get_array().shape == (1, 2)  # type: ignore[arg-type]


@pytest.mark.parametrize("table", [np.zeros(5), np.zeros((0, 5)), np.zeros((2, 0)), np.zeros((2, 3, 5)), 1.0])
def test_refuses_what_is_no_table(table: Any) -> None:
    with pytest.raises(InputError, match=r"table must have shape \(positions, d_model\); got "):
        plot_positions(table)
