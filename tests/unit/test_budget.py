"""How large each package may be. To raise a figure, write it here, and say why in the commit."""

import ast
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[2] / "src" / "regard"

BUDGET = {
    "blocks": (1_678, 16),
    "checkpoints": (2_023, 0),
    "cli": (2_850, 0),
    "concordance": (3_204, 12),
    "core": (2_869, 29),
    "data": (930, 3),
    "decoding": (1_780, 31),
    "embedding": (3_576, 13),
    "kernels": (2_010, 0),
    "foreign": (1_510, 0),
    "api": (600, 0),
    "models": (5_920, 18),
    "positions": (430, 12),
    "pruning": (273, 6),
    "scaling": (460, 4),
    "serving": (2_106, 3),
    "text": (3_080, 9),
    "tracing": (9_232, 63),
    "training": (4_095, 20),
    "views": (3_082, 7),
    "words": (390, 3),
}
"""Of each package: lines of code, and names in its `__all__`."""


def code_lines(path: Path) -> int:
    """Lines that are neither empty nor a comment nor part of a docstring: to explain more costs nothing."""
    text = path.read_text("utf-8")
    told = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and node.value.value is not ...
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines = enumerate(map(str.strip, text.splitlines()), 1)
    return sum(line != "" and not line.startswith("#") and number not in told for number, line in lines)


def _names(package: str) -> int:
    tree = ast.parse((SRC / package / "__init__.py").read_text("utf-8"))
    listed = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and [ast.unparse(each) for each in node.targets] == ["__all__"]
    ]
    return sum(len(node.elts) for node in listed if isinstance(node, ast.List))


@pytest.mark.parametrize("package", BUDGET)
def test_keeps_to_its_budget(package: str) -> None:
    code, names = sum(map(code_lines, (SRC / package).rglob("*.py"))), _names(package)
    most_code, most_names = BUDGET[package]
    assert code <= most_code, f"{package} has grown: delete something, or raise BUDGET and say why"
    assert names <= most_names, f"{package} has more public names: keep one private, or raise BUDGET"


def test_every_package_has_a_budget() -> None:
    assert set(BUDGET) == {path.parent.name for path in SRC.glob("*/__init__.py")}
