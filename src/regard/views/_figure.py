"""matplotlib figures without a display and without its global state, written whole or not at all."""

import warnings
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from regard.core.errors import InputError
from regard.core.extras import missing
from regard.core.files import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FORMATS = (".pdf", ".png", ".svg")


def new_figure(*, width: float, height: float) -> "Figure":
    """An empty figure.

    Args:
        width, height: in inches.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing("plots need", error, "matplotlib") from error
    return Figure(figsize=(width, height), layout="constrained")


def check_format(path: Path) -> None:
    """Refuse a file whose ending says no format.

    Raises:
        InputError: an ending other than .pdf, .png or .svg.
    """
    if path.suffix.lower() not in _FORMATS:
        raise InputError(f"the plot's file must end in .pdf, .png or .svg; got {str(path)!r}.")


def write_figure(figure: "Figure", path: Path) -> None:
    """Write a figure in the format that the file's ending says.

    Raises:
        InputError: an ending other than .pdf, .png or .svg.
        OutputError: the file cannot be written.
    """
    check_format(path)
    drawn = BytesIO()
    with warnings.catch_warnings():
        # A sign that matplotlib's font lacks is drawn as a box; a warning for each would be noise.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)
        warnings.filterwarnings(
            "ignore", message="Matplotlib currently does not support", category=UserWarning
        )
        figure.savefig(drawn, format=path.suffix.lower()[1:], dpi=150)
    write_whole(path, drawn.getvalue())
