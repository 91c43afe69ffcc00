"""Every key that the page listens to stands in its help and in the table of docs/views.md, and no others."""

import re
from pathlib import Path

import pytest

from regard.views import _assets

STATIC = Path(_assets.__file__).parent / "static"
DOCS = Path(__file__).parents[3] / "docs" / "views.md"

ARROWS = {"ArrowUp": "↑", "ArrowDown": "↓", "ArrowLeft": "←", "ArrowRight": "→"}
NAMES = {**ARROWS, " ": "Space", "a": "A", "PageUp": "Page Up", "PageDown": "Page Down"}
# What the table of the docs calls the places of a folder's keys.
PLACES = {
    "base": ("everywhere", "tabs"),
    "heads": ("pictures of heads, in any view", "in *Heads*", "words in *Heads*"),
    "model": ("pictures of heads, in any view", "in *Model*, *Difference*"),
    "difference": ("pictures of heads, in any view", "in *Model*, *Difference*"),
    "story": ("in *Story*",),
    "neuron": ("keys in *Calculation*",),
}
EVERYWHERE = {"Escape"}  # a menu in a view listens to it too
BROWSER = {"Tab", "Shift Tab", "Shift"}


def _read(folder: str) -> list[str]:
    return [path.read_text(encoding="utf-8") for path in sorted((STATIC / folder).glob("*.js"))]


def _keys_of(script: str) -> set[str]:
    """The keys that a script compares with, or has an entry for."""
    found = set(re.findall(r'event\.key [=!]== "([^"]+)"', script))
    for entries in re.findall(r"\{([^;]*?)\}\[event\.key\]", script):
        found |= set(re.findall(r'(?:^|[{,\n])\s*"?([A-Z]\w+|[\[\]])"?: ', entries))
    return found


def _listened(folder: str) -> set[str]:
    found: set[str] = set()
    for script in _read(folder):
        keys = _keys_of(script)
        assert bool(keys) == ("event.key" in script), f"keys of {folder} that this test cannot read"
        found |= {NAMES.get(key, key) for key in keys}
    return found


def _help(folder: str) -> str:
    found = "".join(re.findall(r"const HELP = \[\n(.*?)\n\];", "\n".join(_read(folder)), re.DOTALL))
    return found.replace("Arrow keys", " ".join(ARROWS.values())).replace("arrow keys", "")


def _table() -> dict[str, set[str]]:
    """The keys of each place."""
    found: dict[str, set[str]] = {}
    section = DOCS.read_text(encoding="utf-8").partition("## Keys")[2].partition("\n## ")[0]
    place = ""
    for row in re.findall(r"^\|(.*)\|$", section, re.MULTILINE)[2:]:
        where, keys, _ = (cell.strip() for cell in row.split("|"))
        place = where or place
        found.setdefault(place, set()).update(re.findall(r"`([^`]+)`", keys))
    return found


@pytest.mark.parametrize("folder", PLACES)
def test_the_help_and_the_table_name_every_key(folder: str) -> None:
    listened = _listened(folder)
    assert len(listened) > 3
    said = _help(folder) + (_help("base") if listened & EVERYWHERE else "")
    missing = {key for key in listened if not re.search(rf"(?<![\w-]){re.escape(key)}(?![\w-])", said)}
    assert missing == set()
    table = _table()
    written = set().union(*(table[place] for place in PLACES[folder])) | (EVERYWHERE & table["everywhere"])
    assert listened - written == set()
    assert written - listened - BROWSER - EVERYWHERE == set()


def test_no_other_folder_listens_to_keys() -> None:
    sources = {path: path.read_text("utf-8") for path in STATIC.glob("*/*.js") if path.parent.name != "built"}
    others = {path.parent.name for path, script in sources.items() if "event.key" in script}
    assert others == set(PLACES)
    listening = {path.parent.name for path, script in sources.items() if '"keydown"' in script}
    assert listening <= others | {"notebook"}  # which keeps a cell's keys from the notebook
