"""The positional-encoding matrix as a picture."""

from typing import TYPE_CHECKING

import numpy as np

from regard.core.errors import InputError
from regard.views._figure import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_positions(table: np.ndarray) -> "Figure":
    """Draw a table of positions: a row a position, a column a dimension, blue below zero and red above.

    Args:
        table: (positions, d_model), such as `sinusoidal_encoding(100, 400).numpy()`.

    Returns:
        A matplotlib figure; `figure.savefig("positions.png")` writes it.

    Raises:
        MissingExtraError: matplotlib is not installed.
        InputError: not a table.

    Example:
        >>> figure = plot_positions(np.eye(3))
        >>> figure.axes[0].get_ylabel()
        'position'
    """
    table = np.asarray(table)
    if table.ndim != 2 or table.size == 0:
        raise InputError(f"table must have shape (positions, d_model); got {table.shape}.")
    figure = new_figure(width=8.0, height=3.2)
    axes = figure.subplots()
    limit = float(np.abs(table).max()) or 1.0
    image = axes.imshow(
        table, cmap="coolwarm", vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest"
    )
    axes.set_title(f"Positional encoding, {table.shape[0]} positions x {table.shape[1]} dimensions")
    axes.set_ylabel("position")
    axes.set_xlabel("embedding dimension")
    figure.colorbar(image)
    return figure
