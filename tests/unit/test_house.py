"""What newcomers to the code read names files that are there, and that a text passes through."""

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import regard

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "regard"
PAGE = (ROOT / "docs" / "ideas" / "house.md").read_text("utf-8")
PICTURE = (ROOT / "docs" / "images" / "house.svg").read_text("utf-8")


def test_what_is_named_is_there() -> None:
    named = re.findall(r"`([a-z_]+/[\w/]*(?:\.py|\.js)?)`", PAGE)
    assert len(named) > 20
    assert [each for each in named if not (SRC / each).exists()] == []


def test_a_text_passes_through_what_the_picture_shows() -> None:
    shown = re.findall(r">([\w/]+\.(?:py|js))<", PICTURE)
    assert [each for each in shown if not (SRC / each).exists()] == []
    entered: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(f"{SRC}/") and frame.f_code.co_name != "__init__":
            entered[file.removeprefix(f"{SRC}/")] = None

    model = regard.load()
    sys.setprofile(note)
    try:
        html = model.trace("a river bank").page().html
    finally:
        sys.setprofile(None)
    ours = [each for each in shown if each.endswith(".py") and not each.startswith("cli/")]
    assert [each for each in ours if each not in entered] == []
    assert not any(each.startswith("training/") for each in entered)
    assert 'id="regard"' in html
