"""The statistics that the docs show are what comes out, and each has its line in the table."""

import contextlib
import io
import re
from pathlib import Path

from regard.tracing import Statistics

DOCUMENT = Path(__file__).parents[2] / "docs" / "howto" / "statistics.md"


def test_the_example_says_what_it_prints() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, str(DOCUMENT), "exec"), {})
    lines = printed.getvalue().splitlines()
    claims = [line.split("#", 1)[1].strip() for line in code.splitlines() if line.startswith("print(")]
    assert lines[:2] == [claim.split(": ")[0] for claim in claims[:2]]
    assert lines[-1].split()[0] == "5.11"


def test_every_statistic_has_its_line() -> None:
    table = "".join(
        line for line in DOCUMENT.read_text(encoding="utf-8").splitlines(True) if line.startswith("| `")
    )
    named = {name for line in table.splitlines() for name in re.findall(r"`(\w+)`", line.split("|")[1])}
    measured = set(Statistics.__dataclass_fields__) - {"kind", "layers", "tokens", "key_tokens"}
    assert named == measured
