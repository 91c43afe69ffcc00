"""The style sheets: six sizes of type, and colours that have their names in one file."""

import json
import re
from pathlib import Path

import numpy as np

from regard.views import HeadPicture, _assets
from regard.views._picture import _ink_on, _shade

VIEWS = Path(__file__).parents[3] / "src/regard/views"  # a wheel has its bundles alone
STATIC = VIEWS / "static"
SHEETS = [file for file in STATIC.glob("**/*.css") if "built" not in file.parts]
SIZES = {"note": 12, "small": 13, "text": 14, "title": 17, "sentence": 25, "door": 34}


def test_no_size_of_type_but_the_six() -> None:
    found: dict[str, str] = {}
    for sheet in SHEETS:
        style = sheet.read_text(encoding="utf-8")
        found |= dict(re.findall(r"--font-(\w+): (\d+)px;", style))
        for size in re.findall(r"font(?:-size)?:\s+([^;]+);", style):
            assert re.search(r"var\(--font-\w+\)|^inherit$", size), f"{sheet.name}: {size}"
    assert {name: int(size) for name, size in found.items()} == SIZES


def test_every_colour_has_its_name_in_the_palette() -> None:
    code = [
        file for kind in ("js", "css") for file in STATIC.glob(f"**/*.{kind}") if "built" not in file.parts
    ]
    for file in [*code, *VIEWS.glob("*.py")]:
        known = {"#ffffff", "#000000"} if file.name == "_picture.py" else set()
        assert set(re.findall(r"#[0-9a-fA-F]{6}\b", file.read_text(encoding="utf-8"))) <= known, file.name


def test_page_and_picture_read_the_same_colours() -> None:
    colours = json.loads(_assets.read("palette.json"))
    style = _assets.style()
    for theme in ("light", "dark", "print"):
        for name, colour in colours[theme].items():
            assert name == "series" or f"--{name}: {colour};" in style
    picture = HeadPicture(weights=np.eye(2), queries=("a", "b"), keys=("a", "b"), title="")
    assert f'stroke="{colours["light"]["query"]}"' in picture.svg()


def test_numbers_in_a_map_can_be_read() -> None:
    def light(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts]
        return sum(part * each for part, each in zip((0.2126, 0.7152, 0.0722), linear, strict=True)) + 0.05

    for part in np.linspace(0, 1, 101):
        two = sorted((light(_shade(float(part))), light(_ink_on(_shade(float(part))))))
        assert two[1] / two[0] >= 4.5


def test_the_room_decides_and_not_the_window() -> None:
    """So that one style serves a page and a notebook's cell."""
    for sheet in SHEETS:
        style = sheet.read_text(encoding="utf-8")
        assert "@media screen" not in style, sheet.name
        assert [line for line in re.findall(r".*\d+v[hw]\b.*", style) if "--regard-height:" not in line] == []
    assert "@container regard" in _assets.style()
    assert "@media screen" not in _assets.module()
