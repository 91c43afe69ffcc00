"""The table and the plot say the record's numbers; any text can stand beside them."""

import io
import json
import unicodedata
import warnings
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from rich.cells import cell_len
from rich.console import Console

from regard.core.errors import InputError
from regard.tracing import Comparison
from regard.tracing.comparison import _comparison as module


def make(count: int = 2, /, layers: int = 5, **fields: Any) -> Comparison:
    vectors = np.random.default_rng(7).standard_normal((layers + 1, count, 11))
    vectors[0] = vectors[0, 0]
    unit = vectors / np.linalg.norm(vectors, axis=2, keepdims=True)
    usual: dict[str, Any] = {
        "model": "random",
        "words": ("bank",) * count,
        "texts": tuple(f"text {number}" for number in range(count)),
        "similarity": unit @ unit.transpose(0, 2, 1),
        "others": np.linspace(0.1, 0.4, layers + 1),
    }
    return Comparison(**(usual | fields))


def printed(comparison: Comparison, width: int = 80) -> str:
    file = io.StringIO()
    Console(file=file, width=width, highlight=False).print(comparison)
    return file.getvalue()


def rows(text: str) -> list[list[str]]:
    """The tables' rows, cell by cell, bars aside."""
    table = text[text.index("layer") : text.index("The word ")]
    return [line.replace("█", "").split() for line in table.splitlines() if line.strip()]


def test_two_texts() -> None:
    comparison = make()
    header, *body = rows(printed(comparison))
    assert header == ["layer", "1-2", "others"]
    assert [row[:-2] for row in body] == [["0", "learned"], ["1"], ["2"], ["3"], ["4"], ["5", "contextual"]]
    assert [row[-2] for row in body] == [f"{value:.3f}" for value in comparison.similarity[:, 0, 1]]
    assert [row[-1] for row in body] == [f"{value:.3f}" for value in comparison.others]
    assert body[0][-2] == "1.000"
    bars = [
        line.count("█") for line in printed(comparison).splitlines() if line[:1].isdigit() and "." in line
    ]
    assert bars == [round(40 * max(0, value)) for value in comparison.similarity[:, 0, 1]]
    moved = 1 - comparison.similarity[-1, 0, 1]
    said = f"The word moves by {moved:.2f} (1 - cosine); two different words of one text are 0.60 apart"
    assert " ".join(printed(comparison).split()).endswith(f"{said} (others).")


@pytest.mark.parametrize(("texts", "tables"), [(3, 1), (5, 2), (11, 8)])
def test_every_pair_has_a_column(texts: int, tables: int) -> None:
    comparison = make(texts, layers=13)
    text = printed(comparison)
    lines = rows(text)
    headers = [line[1:-1] for line in lines if line[0] == "layer"]
    assert len(headers) == tables
    assert list(chain(*headers)) == [f"{a + 1}-{b + 1}" for a, b in comparison.pairs]
    last = [line[2:-1] for line in lines if line[:2] == ["13", "contextual"]]
    assert list(chain(*last)) == [f"{comparison.similarity[13, a, b]:.3f}" for a, b in comparison.pairs]
    assert max(map(cell_len, text.splitlines())) <= 80


@pytest.mark.parametrize("text", ["漢字 " * 300, "w" * 3000, "word " * 900, "👍" * 500])
def test_long_texts_are_cut(text: str) -> None:
    lines = printed(_with_texts(text, "short")).splitlines()
    assert max(map(cell_len, lines)) <= 80
    assert len(lines) < 19
    assert any("…" in line for line in lines)
    assert "2 bank  short" in lines
    assert max(map(cell_len, printed(make(words=(text, text))).splitlines())) <= 80


def _with_texts(*texts: str) -> Comparison:
    return make(len(texts), texts=texts)


def test_text_is_printed_literally_and_not_obeyed() -> None:
    comparison = make(words=("[b]", "\x1b[1m"), model="[red]m[/red]\x07")
    text = printed(comparison)
    assert "[red]m[/red]␇" in text
    assert "2 ␛[1m  text 1" in text
    text = printed(_with_texts("[bold]x[/bold]\x1b[31m \u202e :smile:", "a\nb"))
    assert "1 bank  [bold]x[/bold]␛[31m \\u202e :smile:" in text
    assert "2 bank  a↵b" in text
    assert not [char for char in text if unicodedata.category(char) in ("Cc", "Cf") and char != "\n"]


def test_without_a_direction_there_is_a_dash() -> None:
    comparison = make()
    comparison.similarity[0], comparison.others[0] = np.nan, np.nan
    assert rows(printed(comparison))[1] == ["0", "learned", "-", "-"]
    plain = json.loads(json.dumps(comparison.to_json(), allow_nan=False))
    assert plain["similarity"][0] == [[None, None], [None, None]]
    assert plain["similarity"][1:] == comparison.similarity[1:].tolist()
    assert plain["others"] == [None, *comparison.others[1:].tolist()]
    assert (plain["model"], plain["words"], plain["texts"]) == ("random", ["bank"] * 2, ["text 0", "text 1"])


def test_a_negative_similarity_has_no_bar() -> None:
    comparison = make(layers=1)
    comparison.similarity[1] = -0.5
    assert rows(printed(comparison))[2] == ["1", "contextual", "-0.500", "0.400"]


@pytest.mark.parametrize(
    ("ending", "start"),
    [(".png", b"\x89PNG\r\n\x1a\n"), (".svg", b"<?xml"), (".pdf", b"%PDF-"), (".PNG", b"\x89PNG")],
)
def test_plot_in_every_format(tmp_path: Path, ending: str, start: bytes) -> None:
    path = tmp_path / f"plot{ending}"
    make(3).plot(path)
    assert path.read_bytes().startswith(start)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def drawn(monkeypatch: pytest.MonkeyPatch, comparison: Comparison, path: Path) -> Any:
    """The figure that is written."""
    figures = []
    write = module.write_figure

    def keep(figure: Any, where: Path) -> None:
        figures.append(figure)
        write(figure, where)

    monkeypatch.setattr(module, "write_figure", keep)
    comparison.plot(path)
    return figures[0]


def test_plot_draws_the_numbers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    comparison = make(3)
    axes = drawn(monkeypatch, comparison, tmp_path / "plot.svg").axes[0]
    *lines, others = axes.lines
    assert np.array_equal(others.get_ydata(), comparison.others)
    for line, (a, b) in zip(lines, comparison.pairs, strict=True):
        assert np.array_equal(line.get_xdata(), np.arange(6))
        assert np.array_equal(line.get_ydata(), comparison.similarity[:, a, b])
        assert line.get_label() == f"{a + 1} and {b + 1}"
    assert len({(line.get_marker(), line.get_linestyle()) for line in axes.lines}) == 4
    assert axes.get_title() == "“bank” between sentences, random"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "1 and 2",
        "1 and 3",
        "2 and 3",
        "others",
    ]


@pytest.mark.parametrize("text", ["$5 and $x^", "\\frac{", "漢字 👍", "\x1b[31m\n", "word " * 600, "שלום"])
def test_plot_takes_any_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    comparison = make(words=(text, "_"), texts=(text, "$"), model=text)
    figure = drawn(monkeypatch, comparison, tmp_path / "plot.png")
    with warnings.catch_warnings(action="ignore"):  # signs that the font lacks
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
    for artist in (figure._supxlabel, figure.axes[0].title):
        assert not artist.get_parse_math()
        box = artist.get_window_extent(canvas.get_renderer())
        assert 0 <= box.x0 < box.x1 <= figure.bbox.width


def test_plot_of_many_texts_has_no_legend(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    axes = drawn(monkeypatch, make(11), tmp_path / "plot.png").axes[0]
    assert len(axes.lines) == 55 + 1
    assert axes.get_legend() is None


@pytest.mark.parametrize("name", ["plot.jpg", "plot", ".png", "plot.png.txt"])
def test_plot_refuses_other_endings(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"the plot's file must end in \.pdf, \.png or \.svg; got "):
        make().plot(tmp_path / name)
    assert list(tmp_path.iterdir()) == []
