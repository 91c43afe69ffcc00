"""The SVG writer, and the picture of a head."""

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from regard.core.errors import InputError, MissingExtraError, OutputError
from regard.views import HeadPicture, PictureForm, plot_positions
from regard.views._assets import palette
from regard.views._sheet import (
    Box,
    Curve,
    Sheet,
    Text,
    check_format,
    figure_of,
    legal,
    new_figure,
    svg_of,
    write_figure,
)

NS = "{http://www.w3.org/2000/svg}"
HOSTILE = (
    "<script>alert(1)</script>",
    "a&b\"'",
    "]]>",
    "\x00\x1b[31m",
    "\ud800",
    "\u202ebank",
    "日本語",
    "\n",
)


@pytest.fixture
def weights() -> npt.NDArray[np.float64]:
    made = np.random.default_rng(0).random((3, 5)) ** 4
    return made / made.sum(axis=1, keepdims=True)


def _picture(
    weights: npt.NDArray[np.float64], form: PictureForm = "lines", least: float = 0.0
) -> HeadPicture:
    return HeadPicture(
        weights=weights, queries=("p", "q", "r"), keys=tuple("abcde"), title="m", form=form, least=least
    )


def _said(svg: str, tag: str) -> dict[str, float]:
    found = (each.findtext(f"{NS}title") for each in ElementTree.fromstring(svg).iter(f"{NS}{tag}"))
    return {said.rpartition(": ")[0]: float(said.rpartition(": ")[2]) for said in found if said}


@pytest.mark.parametrize(("form", "tag"), [("lines", "path"), ("map", "rect")])
def test_tells_every_weight(weights: npt.NDArray[np.float64], form: PictureForm, tag: str) -> None:
    said = _said(_picture(weights, form).svg(), tag)
    for i, query in enumerate("pqr"):
        for j, key in enumerate("abcde"):
            if form == "map" or weights[i, j] >= 0.002:
                assert said.pop(f"{query} → {key}") == pytest.approx(weights[i, j], abs=5e-5)
    assert said == {}


def test_lines_run_between_their_tokens_as_wide_as_their_weight(weights: npt.NDArray[np.float64]) -> None:
    root = ElementTree.fromstring(_picture(weights).svg())
    at = {text.text: float(text.get("y", "")) - 0.35 * 13 for text in root.iter(f"{NS}text")}
    drawn = []
    for path in root.iter(f"{NS}path"):
        title = path.findtext(f"{NS}title") or ""
        query, _, key = title.partition(": ")[0].partition(" → ")
        numbers = path.get("d", "")[1:].replace("C", " ").split()
        assert float(numbers[1]) == pytest.approx(at[query], abs=2e-3)
        assert float(numbers[-1]) == pytest.approx(at[key], abs=2e-3)
        weight = weights["pqr".index(query), "abcde".index(key)]
        assert float(path.get("stroke-width", "")) == pytest.approx(
            0.6 + 3.4 * weight / weights.max(), abs=1e-3
        )
        drawn.append(weight)
    assert drawn == sorted(drawn)  # the strongest on top


def test_the_largest_cell_is_the_darkest(weights: npt.NDArray[np.float64]) -> None:
    root = ElementTree.fromstring(_picture(weights, "map").svg())
    cells = [each.get("fill") for each in root.iter(f"{NS}rect") if each.find(f"{NS}title") is not None]
    assert cells[int(weights.argmax())] == palette()["query"]
    texts = [each.text for each in root.iter(f"{NS}text")]
    assert f"{weights.max():.2f}".removeprefix("0") in texts


def test_least_leaves_out_lines(weights: npt.NDArray[np.float64]) -> None:
    svg = _picture(weights, least=0.2).svg()
    assert len(_said(svg, "path")) == (weights >= 0.2).sum()
    assert f"A line for every weight from 0.2 up; in full, {weights.max():.4f}." in svg


def test_hostile_names_are_text() -> None:
    n = len(HOSTILE)
    for form in ("lines", "map"):
        picture = HeadPicture(
            weights=np.full((n, n), 1 / n), queries=HOSTILE, keys=HOSTILE, title="</title><x>", form=form
        )
        root = ElementTree.fromstring(picture.svg().encode("utf-8"))
        tags = {each.tag.removeprefix(NS) for each in root.iter()}
        assert tags <= {"svg", "title", "desc", "rect", "path", "text"}
        texts = [each.text for each in root.iter(f"{NS}text")]
        assert "<script>alert(1)</script>" in texts
        assert "↵" in texts


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"keys": ("a",)}, "of shape"),
        ({"weights": np.full((3, 5), 2.0)}, "from 0 to 1"),
        ({"weights": np.full((3, 5), np.nan)}, "from 0 to 1"),
        ({"form": "pie"}, "lines"),
        ({"least": 1.0}, "least"),
        ({"weights": np.zeros((129, 5)), "queries": 129 * ("x",)}, r"holds 128 .* got 129 and 5"),
    ],
)
def test_refuses(weights: npt.NDArray[np.float64], fields: dict[str, object], said: str) -> None:
    usual = {"weights": weights, "queries": ("p", "q", "r"), "keys": tuple("abcde"), "title": "m"}
    with pytest.raises(InputError, match=said):
        HeadPicture(**(usual | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(("ending", "magic"), [("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_writes_each_format(
    weights: npt.NDArray[np.float64], tmp_path: Path, ending: str, magic: bytes
) -> None:
    for form in ("lines", "map"):
        _picture(weights, form).write(tmp_path / f"{form}.{ending}")
        assert (tmp_path / f"{form}.{ending}").read_bytes().startswith(magic)


def test_refuses_a_file_it_cannot_write_rightly(weights: npt.NDArray[np.float64], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must end in"):
        _picture(weights).write(tmp_path / "a.jpg")
    with pytest.raises(OutputError):
        _picture(weights).write(tmp_path / "none/a.svg")
    hebrew = HeadPicture(weights=np.eye(1), queries=("שלום",), keys=("a",), title="m")
    with pytest.raises(InputError, match=r"right to left.*\.svg"):
        hebrew.write(tmp_path / "a.png")
    assert list(tmp_path.iterdir()) == []
    hebrew.write(tmp_path / "a.svg")


def test_a_sheet_is_the_same_in_matplotlib() -> None:
    sheet = Sheet(width=144, height=72, title="t", description="d")
    sheet.shapes = [
        Box(x=10, y=20, width=30, height=5, colour="#ff0000"),
        Curve(start=(0, 0), end=(144, 72), colour="#00ff00", width=2, opacity=0.5, bent=True),
        Text(x=5, y=6, text="$x^$", anchor="end"),
    ]
    figure = figure_of(sheet)
    assert figure.get_size_inches().tolist() == [2, 1]
    (axes,) = figure.axes
    assert axes.get_ylim() == (72, 0)
    box, curve = axes.patches
    assert box.get_window_extent().bounds == pytest.approx(
        (10 * 100 / 72, 47 * 100 / 72, 30 * 100 / 72, 5 * 100 / 72)
    )
    assert curve.get_path().vertices.tolist() == [[0, 0], [72, 0], [72, 72], [144, 72]]
    assert (axes.texts[0].get_text(), axes.texts[0].get_ha()) == ("$x^$", "right")
    figure.savefig("/dev/null", format="png")


def test_straight_lines_and_numbers() -> None:
    sheet = Sheet(width=10, height=10, title="", description="")
    sheet.shapes.append(Curve(start=(0, 1.23456), end=(2, 3), colour="#000000"))
    assert 'd="M0 1.235L2 3"' in svg_of(sheet)
    assert legal("\ufffe\t\x0b") == "\ufffd\t\ufffd"
    assert legal("a\x00b\ud800") == "a\ufffdb\ufffd"


def test_text_cannot_become_a_tag() -> None:
    sheet = Sheet(width=20, height=10, title="a<b", description="")
    sheet.shapes.append(Text(x=1, y=5, text="<script>"))
    assert "<script>" not in svg_of(sheet)
    assert "&lt;script&gt;" in svg_of(sheet)


def test_needs_no_display_and_leaves_pyplot_alone() -> None:
    program = (
        "import sys, pathlib, io\n"
        "from regard.views._sheet import new_figure, write_figure\n"
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


def test_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for table in (np.zeros(5), np.zeros((0, 5)), np.zeros((2, 0)), np.zeros((2, 3, 5)), 1.0):
        with pytest.raises(InputError, match=r"table must have shape \(positions, d_model\); got "):
            plot_positions(table)  # type: ignore[arg-type]
    for name in ("a.png", "a.SVG", "a.b.pdf"):
        check_format(Path(name))
    with pytest.raises(InputError, match=r"got 'a\.gif'"):
        check_format(Path("a.gif"))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match="pip install matplotlib"):
        new_figure(width=1, height=1)
