"""Nothing from outside reaches a terminal as a command, and an excerpt keeps its columns."""

import unicodedata

import pytest
from rich.cells import cell_len

from regard.core.wording import excerpt, printable, visible


def test_every_control_gets_a_visible_sign() -> None:
    controls = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) == "Cc"]
    assert len(controls) == 65
    for control in controls:
        shown = printable(control)
        assert shown.isprintable()
        assert control not in shown
    assert printable("\x00\x1b\n\t\x7f") == "␀␛↵⇥␡"
    assert printable("\x9b31m") == "\\x9b31m"


@pytest.mark.parametrize("code", [0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)])
def test_bidirectional_controls_are_escaped(code: int) -> None:
    assert printable(f"a{chr(code)}b") == f"a\\u{code:04x}b"


@pytest.mark.parametrize(
    ("text", "signed"),
    [
        ("bank", "bank"),
        (" river bank", "␣river bank"),
        ("  a  ", "␣␣a␣␣"),
        ("   ", "␣␣␣"),
        ("\n\n", "↵↵"),
        (" \tx\r\n", "␣⇥x␍↵"),
        ("", "(empty)"),
        ("\u00a0", "U+00A0"),
        ("\u200f\u0301", "U+200F U+0301"),
        ("\x85", "U+0085"),
        ("a\u202e", "a\\u202e"),
    ],
)
def test_what_nobody_would_see_has_a_sign(text: str, signed: str) -> None:
    assert visible(text) == signed
    assert printable(signed) == visible(signed) == signed


def test_leaves_every_other_character() -> None:
    text = "Grüße, 河岸 👩‍🌾 नदी [bold]x[/bold] $x^2$ \\x1b שלום"
    assert printable(text) == text
    assert printable("") == ""


@pytest.mark.parametrize("text", ["river bank", "河岸" * 7, "a👍" * 7, "\x1b[31m" * 7])
@pytest.mark.parametrize("cells", [5, 11, 17, 200])
def test_an_excerpt_fits(text: str, cells: int) -> None:
    cut = excerpt(text, cells)
    assert cell_len(cut) <= cells
    if cell_len(printable(text)) <= cells:
        assert cut == printable(text)
    else:
        assert cut.endswith("…")
        assert printable(text).startswith(cut[:-1])
