"""How many small faults the tests catch: constants and comparisons changed one at a time, drawn by a seed.

    python benchmarks/mutants.py --count 30 --keep

Each mutant stands in a copy of the project, and meets the doctests of its module and the unit tests of its
package; with `--far` those that survive meet all unit and parity tests. A survivor is looked at by hand: it
may be equivalent, as the size of a buffer is. The last line is JSON.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

from _harness import finish, machine

ROOT = Path(__file__).parents[1]
COPIED = ("src", "tests", "scripts", "benchmarks", "docs", "pyproject.toml", "README.md", "CONTRIBUTING.md")
SECONDS = 3600
"""After which a mutant counts as caught: it does not end."""
OTHERS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "is": "is not", "is not": "is"}


class Mutant(NamedTuple):
    """What stands at a place of a file, in columns of bytes, and what comes in its place."""

    file: Path
    line: int
    first: int
    last: int
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.file.relative_to('src/regard')}:{self.line} {self.before} -> {self.after}"

    def into(self, copy: Path) -> None:
        lines = (copy / self.file).read_bytes().splitlines(keepends=True)
        line = lines[self.line - 1]
        lines[self.line - 1] = line[: self.first] + self.after.encode() + line[self.last :]
        (copy / self.file).write_bytes(b"".join(lines))


def mutants(file: Path) -> Iterator[Mutant]:
    """Every number plus one, or twice itself, and every comparison by its neighbour; not in annotations."""
    source = (ROOT / file).read_bytes()
    tree, lines = ast.parse(source), source.splitlines()
    annotations = [getattr(node, name, None) for node in ast.walk(tree) for name in ("annotation", "returns")]
    left_out = {id(inner) for node in annotations if node is not None for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and type(node.value) in (int, float) and id(node) not in left_out:
            changed = node.value + 1 if isinstance(node.value, int) else node.value * 2 or 1.0
            at = node.lineno, node.col_offset, node.end_col_offset or 0
            yield Mutant(file, *at, str(node.value), repr(changed))
        elif isinstance(node, ast.Compare) and len(node.ops) == 1:
            right = node.comparators[0]
            at = right.lineno, node.left.end_col_offset or 0, right.col_offset
            sign = lines[at[0] - 1][at[1] : at[2]].decode().strip()
            if node.left.end_lineno == right.lineno and sign in OTHERS:
                yield Mutant(file, *at, f" {sign} ", f" {OTHERS[sign]} ")


def drawn(count: int, seed: int) -> list[Mutant]:
    """The packages in turn; of each a module, and a place in it."""
    draw, packages = random.Random(seed), defaultdict(list)
    for path in sorted((ROOT / "src/regard").glob("*/**/*.py")):
        file = path.relative_to(ROOT)
        if Path(ROOT, "tests/unit", file.parts[2]).is_dir() and (found := list(mutants(file))):
            packages[file.parts[2]].append(found)
    names = draw.sample(sorted(packages), len(packages))
    return [draw.choice(draw.choice(packages[names[n % len(names)]])) for n in range(count)]


@contextmanager
def copy_with(mutant: Mutant | None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="regard-mutant-") as place:
        for name in COPIED:
            source = ROOT / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, Path(place, name))
        if mutant is not None:
            mutant.into(Path(place))
        yield Path(place)


def passes(copy: Path, *which: str) -> bool:
    """Whether these tests pass in the copy; which of them fails is of no interest."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *which]
    env = os.environ | {"PYTHONPATH": str(copy / "src"), "OMP_NUM_THREADS": "1"}
    try:
        return not subprocess.run(command, cwd=copy, env=env, capture_output=True, timeout=SECONDS).returncode
    except subprocess.TimeoutExpired:
        return False


@cache
def check(units: str) -> None:
    """End where tests fail without a mutant: each would count as caught."""
    with copy_with(None) as copy:
        if not passes(copy, units):
            raise SystemExit(f"{units} fails as it is.")


def survives(mutant: Mutant, *, far: bool) -> bool:
    """Whether no test sees it: of its package, or with `far` of all."""
    check(units := f"tests/unit/{mutant.file.parts[2]}")
    with copy_with(mutant) as copy:
        # Doctests by themselves: a module that is named by its file is imported a second time.
        stages = [[units], [str(mutant.file)]] + far * [["tests/unit", "tests/parity"]]
        return all(passes(copy, *which) for which in stages)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--far", action="store_true", help="survivors meet all unit and parity tests: 10 min each"
    )
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    rows = []
    for number, mutant in enumerate(drawn(options.count, options.seed), 1):
        row = {"mutant": str(mutant), "survives": survives(mutant, far=options.far)}
        rows.append(row)
        print(f"{number:3} {'SURVIVES' if row['survives'] else 'caught'} {mutant}", flush=True)
    print(f"caught: {1 - sum(row['survives'] for row in rows) / len(rows):.2f} of {len(rows)}")
    finish("mutants", machine(), rows, keep=options.keep)


if __name__ == "__main__":
    main()
