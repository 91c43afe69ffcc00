"""How large each package may be. To raise a figure, write it here, and say why in the commit."""

import ast
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[2] / "src" / "regard"

BUDGET = {
    "blocks": (3_010, 16),
    "checkpoints": (3_235, 0),
    "cli": (3_540, 0),
    "concordance": (4_120, 12),
    "core": (4_830, 29),
    "data": (1_360, 3),
    "decoding": (2_875, 31),
    "embedding": (5_649, 13),
    "kernels": (2_915, 0),
    "lenses": (1_985, 0),
    "model": (1_140, 0),
    "models": (8_805, 18),
    "positions": (991, 12),
    "pruning": (460, 6),
    "scaling": (740, 4),
    "serving": (2_642, 3),
    "text": (4_560, 9),
    "tracing": (12_900, 61),
    "training": (6_354, 20),
    "views": (4_600, 7),
    "words": (620, 3),
}
"""Of each package: lines of Python, and names in its `__all__`."""


def _size(package: str) -> tuple[int, int]:
    lines = sum(len(path.read_text("utf-8").splitlines()) for path in (SRC / package).rglob("*.py"))
    tree = ast.parse((SRC / package / "__init__.py").read_text("utf-8"))
    listed = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and [ast.unparse(each) for each in node.targets] == ["__all__"]
    ]
    return lines, sum(len(node.elts) for node in listed if isinstance(node, ast.List))


@pytest.mark.parametrize("package", BUDGET)
def test_keeps_to_its_budget(package: str) -> None:
    lines, names = _size(package)
    most_lines, most_names = BUDGET[package]
    assert lines <= most_lines, f"{package} has grown: delete something, or raise BUDGET and say why"
    assert names <= most_names, f"{package} has more public names: keep one private, or raise BUDGET"


def test_every_package_has_a_budget() -> None:
    assert set(BUDGET) == {path.parent.name for path in SRC.glob("*/__init__.py")}
