"""What newcomers to the code read names files that are there, and that a text passes through."""

import ast
import os
import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import regard
from regard.models import FAMILIES

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "regard"
PAGE = (ROOT / "docs" / "ideas" / "house.md").read_text("utf-8")
PICTURE = (ROOT / "docs" / "images" / "house.svg").read_text("utf-8")

NAMED_ELSEWHERE = {
    "checkpoints/_hub.py": "what sentence-transformers called a file of its own",
    "cli/train.py": "an objective",
    "embedding/_settings.py": "an architecture of GGUF files",
    "models/modeling_regard_pruned.py": "copied beside checkpoints, where regard is not",
    "scaling/_cases.py": "a kind of attention",
    "serving/_completions.py": "an example in a documentation",
    "text/_cuts.py": "how GGUF files name a way of cutting texts",
    "text/_gguf.py": "kinds of tokenizers in GGUF files",
    "text/_library.py": "how GGUF files name a way of cutting texts",
    "text/_special.py": "how marks are written",
    "text/_training.py": "how marks are written",
    "training/_scoring.py": "an objective",
    **dict.fromkeys(
        [f"training/tasks/_{name}.py" for name in ("classify", "clm", "distil", "electra", "mlm", "seq2seq")],
        "the family of an objective's new networks, and how marks are written",
    ),
    "training/tasks/__init__.py": "an objective",
}
"""Files outside `models/families` where a string that is a model type means something else, or has to be."""


def _strings(file: Path) -> set[str]:
    return {
        node.value
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def test_what_is_said_of_a_family_is_in_its_file() -> None:
    files = {file.relative_to(SRC).as_posix(): file for file in SRC.rglob("*.py")}
    naming = {name for name, file in files.items() if _strings(file).intersection(FAMILIES)}
    elsewhere = {name for name in naming if not name.startswith("models/families/")}
    assert elsewhere == set(NAMED_ELSEWHERE), "a fact about a family belongs to its `Family`"


def test_what_is_named_is_there() -> None:
    named = re.findall(r"`([a-z_]+/[\w/]*(?:\.py|\.js)?)`", PAGE)
    assert len(named) > 20
    assert [each for each in named if not (SRC / each).exists() and not (ROOT / each).exists()] == []
    others = re.findall(r"`((?:tests|docs|[a-z_]+)/[\w/]+\.(?:md|json|py))`", PAGE)
    assert len(others) > 20
    assert [each for each in others if not (SRC / each).exists() and not (ROOT / each).exists()] == []


def test_a_text_passes_through_what_the_picture_shows() -> None:
    shown = re.findall(r">([\w/]+\.(?:py|js))<", PICTURE)
    assert [each for each in shown if not (SRC / each).exists()] == []
    entered: dict[str, None] = {}
    installed = f"{Path(regard.__file__).parent}{os.sep}"

    def note(frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(installed) and frame.f_code.co_name != "__init__":
            entered[file.removeprefix(installed).replace(os.sep, "/")] = None

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
