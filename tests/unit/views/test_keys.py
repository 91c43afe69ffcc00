"""The keys that the page listens to are those of its help and of the table in docs/howto/views.md."""

import re
from pathlib import Path

STATIC = Path(__file__).parents[3] / "src/regard/views/static"  # a wheel has its bundles alone
DOCS = Path(__file__).parents[3] / "docs" / "howto" / "views.md"

ARROWS = {"ArrowUp": "↑", "ArrowDown": "↓", "ArrowLeft": "←", "ArrowRight": "→"}
NAMES = {**ARROWS, " ": "Space", "a": "A", "p": "P", "PageUp": "Page Up", "PageDown": "Page Down"}
KEY = r"Arrow(?:Up|Down|Left|Right)|Home|End|Page(?:Up|Down)|Enter|Escape|Tab|[aA\[\]? ]"
BROWSER = {"Tab", "Shift Tab", "Shift"}  # the browser's own, which the table names too

# A key is compared with, is one of several, or has an entry in a table.
LISTENS = [rf'[=!]== "({KEY}|[,.p])"', rf'(?:^|[{{,(])\s*"?({KEY})"?: ', rf'\["({KEY})", ', rf', "({KEY})"\]']
# The live page is a program of its own: its fields are the browser's.
OTHERS = {"built", "live", "notebook"}


def _scripts() -> list[str]:
    return [path.read_text("utf-8") for path in STATIC.glob("*/*.js") if path.parent.name not in OTHERS]


def _listened() -> set[str]:
    found = {key for script in _scripts() for way in LISTENS for key in re.findall(way, script, re.MULTILINE)}
    return {NAMES.get(key, key) for key in found}


def test_the_table_names_every_key() -> None:
    section = DOCS.read_text(encoding="utf-8").partition("## Keys")[2].partition("\n## ")[0]
    written = set(re.findall(r"`([^`]+)`", "".join(re.findall(r"^\|(.*)\|$", section, re.MULTILINE)[2:])))
    assert len(written) > 12
    assert _listened() == written - BROWSER


def test_the_help_names_every_key() -> None:
    said = " ".join(re.findall(r"const HELP = \[\n(.*?)\n\];", "\n".join(_scripts()), re.DOTALL))
    assert {
        key for key in _listened() if not re.search(rf"(?<![\w-]){re.escape(key)}(?![\w-])", said)
    } == set()
