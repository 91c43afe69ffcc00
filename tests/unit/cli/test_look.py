"""`regard look`: which options its four pages have, said before a model is loaded."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from regard.cli._app import app
from regard.core.errors import InputError

OF_A_TEXT = ("--target t", "--values 1", "--only 1", "--measures norm", "--all-positions", "--svg a.svg")
FORMS = {
    "x --generate": ("with --generate: a text is written.", (*OF_A_TEXT, "--live", "y")),
    "RUN": ("with a run: RUN has its traces.", (*OF_A_TEXT, "--heads 1", "--live")),
    "x --live": ("with --live: the page works out what is typed.", (*OF_A_TEXT, "--heads 1")),
    "x y --live": (
        "with TEXT2 and --live: the page runs the model on both.",
        ("--pair z", "--heads 1", "--target t"),
    ),
    "x y": ("with TEXT2: the page compares two sentences.", (*OF_A_TEXT, "--pair z")),
}
WRONG = [
    *((f"{form} {more}", f"left out {why}") for form, (why, refused) in FORMS.items() for more in refused),
    *(
        (f"x {more}", "goes with --svg, --png or --pdf.")
        for more in ("--layer 0", "--head 0", "--kind cross", "--map")
    ),
    *(
        (f"{form} {more} 1", f"{more} goes with --generate.")
        for form in ("x", "RUN", "--live")
        for more in ("--max", "--beams")
    ),
    ("x --png a.svg", "--png writes a file that ends in .png; got 'a.svg'."),
    ("x -o a.PNG", "--output writes a page; for a picture of one head give --png a.PNG."),
    ("x --svg a.svg -o a.svg", "--output and --svg name the same file"),
    ("x x --live", "TEXT2 must be another text than TEXT"),
    ("x x", "TEXT2 must be another text than TEXT"),
    ("x --heads 1.", "--heads must be layers and heads such as 3.5,4.1"),
    ("x --only 1.", "--only must be layers and heads"),
    ("x --values 1.", "--values must be layers and heads"),
    ("x --measures flow", "--measures must be a list of norm"),
]


@pytest.mark.parametrize(("words", "said"), WRONG, ids=[words for words, _ in WRONG])
def test_what_does_not_go_together(
    words: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("RUN").mkdir()
    Path("RUN", "settings.json").write_text("{}")
    error = CliRunner().invoke(app, ["look", *words.split()]).exception
    assert isinstance(error, InputError)
    assert said in str(error)
