"""Every cell of the course runs, asserts and answers included; chapters become notebooks and pages."""

import ast
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.usefixtures("loaded_once")

ROOT = Path(__file__).parents[2]
COURSE = runpy.run_path(str(ROOT / "scripts" / "course.py"))
CHAPTERS = sorted(COURSE["CHAPTERS"].glob("[0-9]*.md"))

TEXT = """# A chapter

Look, [there](04-next.md) and [here](../../examples/bank.html#view=model):

```python
6 * 7
```

<details markdown="1"><summary>Answer</summary>

First.

```python
print("a")
```

Second.

</details>

<details markdown="1"><summary>Answer</summary>

```python
print("b")
```

</details>

The end.
"""


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.stem)
def test_every_cell_runs(chapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    cells = [cell for cell in COURSE["cells"](chapter.read_text(encoding="utf-8")) if cell.is_code]
    assert sum("assert" in cell.text for cell in cells) >= 3
    assert sum(cell.is_answer for cell in cells) >= 2
    for cell in cells:
        body = ast.parse(cell.text).body
        shown = body.pop() if isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), chapter.name, "exec"), names)
        if shown is not None:
            value = eval(compile(ast.Expression(shown.value), chapter.name, "eval"), names)
            draw = getattr(value, "_repr_svg_", None)
            assert draw is None or draw().rstrip().endswith("</svg>")


def test_the_chapters_are_numbered() -> None:
    titles = [chapter.read_text(encoding="utf-8").partition("\n")[0] for chapter in CHAPTERS]
    for number, (chapter, title) in enumerate(zip(CHAPTERS, titles, strict=True), start=1):
        assert chapter.name.startswith(f"{number:02}-")
        assert title.startswith(f"# {number}. ")


def test_a_notebook_folds_its_answers() -> None:
    made = COURSE["notebook"](TEXT)
    assert [(cell["cell_type"], cell["metadata"] != {}) for cell in made["cells"]] == [
        *(("markdown", False), ("code", False)),
        *(("markdown", False), ("code", True), ("markdown", False), ("code", True), ("markdown", False)),
    ]
    for cell in made["cells"]:
        assert cell["source"].count("<details") == cell["source"].count("</details>"), cell["source"]
    told = [cell["source"] for cell in made["cells"] if cell["cell_type"] == "markdown"]
    assert [text.count("<details") for text in told] == [0, 1, 1, 0]
    assert "First." in told[1]
    assert "Second." in told[2]
    assert told[2].endswith("**Answer**")
    assert told[3] == "The end."
    assert "(04-next.ipynb)" in told[0]
    assert "(../../docs/examples/bank.html#view=model)" in told[0]


def test_a_page_shows_what_cells_print_and_draw(tmp_path: Path) -> None:
    made = COURSE["notebook"](TEXT)
    svg = "<svg><title>Forty-two</title></svg>"
    answers = iter(
        [
            [{"output_type": "execute_result", "data": {"text/plain": "42", "image/svg+xml": svg}}],
            [{"output_type": "stream", "text": "a\n"}],
            [{"output_type": "stream", "text": "b\n"}],
        ]
    )
    for cell in made["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = next(answers)
    page = COURSE["page"](TEXT, made, "03-this", tmp_path)
    assert "6 * 7\n```\n\n![Forty-two](03-this-1.svg)\n" in page
    assert (tmp_path / "03-this-1.svg").read_text() == svg
    assert re.findall(r"``` {.text .output}\n(.*?)\n```", page) == ["a", "b"]
    frame = '<iframe title="here" src="../../examples/bank.html#bare&amp;view=model" loading="lazy"></iframe>'
    assert f"#view=model):\n\n{frame}\n\n```python" in page
    assert page.count("<details") == page.count("</details>") == 2
