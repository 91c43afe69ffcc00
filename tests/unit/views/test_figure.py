"""Figures without a display, without global state, whole or not at all."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard.core.errors import InputError, MissingExtraError, OutputError
from regard.views import plot_positions
from regard.views._figure import check_format, new_figure, write_figure


def test_needs_no_display_and_leaves_pyplot_alone() -> None:
    program = (
        "import sys, pathlib, io\n"
        "from regard.views._figure import new_figure, write_figure\n"
        "figure = new_figure(width=2, height=3)\n"
        "figure.savefig(io.BytesIO(), format='png')\n"
        "print('matplotlib.pyplot' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, env={"HOME": "/nowhere"}
    )
    assert done.stdout == "False\n", done.stderr


def test_has_the_size_asked_for() -> None:
    assert new_figure(width=2.0, height=3.0).get_size_inches().tolist() == [2.0, 3.0]


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match="pip install matplotlib"):
        new_figure(width=1, height=1)


def test_replaces_a_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "plot.svg"
    path.write_text("old")
    write_figure(new_figure(width=1, height=1), path)
    assert path.read_text().rstrip().endswith("</svg>")


def test_leaves_what_was_there_when_drawing_fails(tmp_path: Path) -> None:
    path = tmp_path / "plot.png"
    path.write_text("old")
    figure = new_figure(width=1, height=1)
    figure.text(0, 0, "$x^$")
    with pytest.raises(ValueError, match="Expected"):
        write_figure(figure, path)
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("place", ["missing/plot.png", "file/plot.png", "folder.png"])
def test_cannot_be_written(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder.png").mkdir()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(OutputError, match="cannot be written"):
        write_figure(new_figure(width=1, height=1), tmp_path / place)
    assert sorted(tmp_path.rglob("*")) == before


def test_format_is_the_ending() -> None:
    for name in ("a.png", "a.SVG", "a.b.pdf"):
        check_format(Path(name))
    with pytest.raises(InputError, match=r"got 'a\.gif'"):
        check_format(Path("a.gif"))


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
