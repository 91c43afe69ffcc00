"""Curves and points as pictures; the key over curves stays on the sheet however many names there are."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from regard.core.errors import InputError
from regard.views import Cloud, CurvePicture, Panel, PointPicture, Series

SVG = "{http://www.w3.org/2000/svg}"
WIDE = Cloud(title="wide", groups={"a": [(-10.0, 0.0, "left"), (10.0, 2.0, "<right>")]}, below="two")
ONE = Cloud(title="one", groups={"a": [(3.0, 3.0, "x")], "b": [(3.0, 3.0, "y")]})


def test_points_stand_where_they_should_and_say_what_they_are() -> None:
    root = ElementTree.fromstring(PointPicture(title="t", clouds=[WIDE, ONE]).svg())
    said = {each.find(f"{SVG}title"): each for each in root.iter(f"{SVG}rect")}
    marks = {title.text: each for title, each in said.items() if title is not None}
    assert list(marks) == ["a: left", "a: <right>", "a: x", "b: y"]
    left, right, *both = (tuple(float(each.get(name, "")) for name in ("x", "y")) for each in marks.values())
    # Both axes alike: 20 across is 146 of the 170 points, and 2 upwards a tenth of it.
    assert (right[0] - left[0], left[1] - right[1]) == (pytest.approx(146), pytest.approx(14.6))
    assert both[0] == both[1] == (20 + 186 + 85 - 3, 82 + 85 - 3)
    assert marks["a: x"].get("fill") == marks["a: left"].get("fill") != marks["b: y"].get("fill")
    assert root.findtext(f"{SVG}desc") == "wide: two; one: "


def test_it_is_saved_whole_or_refused(tmp_path: Path) -> None:
    picture = PointPicture(title="t", clouds=[ONE])
    for ending in ("svg", "png"):
        picture.write(tmp_path / f"points.{ending}")
    assert (tmp_path / "points.svg").read_text() == picture.svg()
    assert (tmp_path / "points.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(InputError, match=r"must end in \.pdf, \.png or \.svg"):
        picture.write(tmp_path / "points.gif")


def test_curves_are_drawn_unless_the_ending_is_a_table_s(tmp_path: Path) -> None:
    series = [Series(name="run", points=[(1, 3.0), (2, 2.0)])]
    picture = CurvePicture(title="t", along="steps", panels=[Panel(title="loss", series=series)])
    picture.write(tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text().startswith("panel,series,steps,value")
    with pytest.raises(InputError, match=r"must end in \.pdf, \.png or \.svg"):
        picture.write(tmp_path / "a.txt")


def test_a_long_key_has_rows() -> None:
    names = [f"attention-{number}" for number in range(11)]
    series = [Series(name=name, points=[(1, 1.0), (2, 3.0)]) for name in names]
    svg = CurvePicture(title="t", along="steps", panels=[Panel(title="loss", series=series)]).svg()
    at = [float(re.search(rf'<text x="([\d.]+)"[^>]*>{name}<', svg)[1]) for name in names]  # type: ignore[index]
    assert max(at) + 90 < 720
    assert at.count(min(at)) == 3
