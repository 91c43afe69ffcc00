"""Text from outside, made safe to print for people."""

# Unicode's pictures stand for controls below a blank, escapes for those above and for those of direction.
_PICTURES = {code: chr(0x2400 + code) for code in range(0x20)} | {0x7F: "␡"}
_C1 = {code: f"\\x{code:02x}" for code in range(0x80, 0xA0)}
# The controls of bidirectional text, which can make a line read as another, and the two other line ends.
_UNSEEN = {
    code: f"\\u{code:04x}"
    for code in (0x61C, 0x200E, 0x200F, 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}
_SIGNS = _PICTURES | _C1 | _UNSEEN


def printable(text: str) -> str:
    """The text in one line, with a visible sign for every character that a terminal would obey."""
    return text.translate(_SIGNS)


def excerpt(text: str, cells: int) -> str:
    """The text as it can be printed, cut to so many columns of a terminal; an ellipsis shows the cut."""
    from rich.cells import cell_len, set_cell_size

    text = printable(text)
    return text if cell_len(text) <= cells else set_cell_size(text, cells - 1).rstrip() + "…"
