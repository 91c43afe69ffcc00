"""The course as notebooks, and as pages that show what its cells print and draw.

    make course                                   all fourteen chapters, into build/course/
    .venv/bin/python scripts/course.py 03 10      those whose names begin so

A chapter is one Markdown file in docs/learn/course: its Python blocks are the cells, so it reads well as it
is, and a change to it is a change of a few lines. Each is run in a kernel of its own; a cell that raises ends
all. Answers, which the chapters fold with `<details>`, are folded cells in the notebook.
"""

import argparse
import base64
import html
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHAPTERS = Path(__file__).parent.parent / "docs" / "learn" / "course"
BUILT = CHAPTERS.parents[2] / "build" / "course"
SECONDS = 300

_CODE = re.compile(r"^```python\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
_LIVE = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+examples/[\w-]+\.html)(?:#([^)]*))?\)")
_ANSWER = '<details markdown="1"><summary>Answer</summary>'
_END = "</details>"
# What a page shows of a cell's result, the best first, and how the file is called that it goes into.
_PICTURES = {"image/svg+xml": ".svg", "image/png": ".png"}


@dataclass(frozen=True)
class Cell:
    """A cell: Python, or Markdown.

    Args:
        text: what is in it.
        is_code: whether it is Python.
        is_answer: whether it is part of an answer, which is folded.
    """

    text: str
    is_code: bool
    is_answer: bool


def cells(text: str) -> Iterator[Cell]:
    """The cells of a chapter, in order.

    Example:
        >>> [cell.text for cell in cells("Look:\\n\\n```python\\n1 + 1\\n```\\n")]
        ['Look:', '1 + 1']
    """
    folded = 0
    for place, part in enumerate(_CODE.split(text)):
        if place % 2:
            yield Cell(part.rstrip(), True, bool(folded))
            continue
        # A fold ends with its cell: around code in an answer it ends before it, and begins again after it.
        before, folded = folded, folded + part.count(_ANSWER) - part.count(_END)
        if before:
            part = re.sub(rf"^{_ANSWER}\s*{_END}", "", f"{_ANSWER}\n{part}")
        if folded:
            part = re.sub(rf"{_ANSWER}\s*{_END}$", "**Answer**", f"{part}\n{_END}")
        if part.strip():
            yield Cell(part.strip(), False, bool(folded))


def notebook(text: str) -> dict[str, Any]:
    """A chapter as a Jupyter notebook that has not been run, as JSON; its links lead from build/course."""
    made: list[dict[str, Any]] = []
    text = re.sub(r"\]\((\d\d-[\w-]+)\.md", r"](\1.ipynb", text.replace("](../../", "](../../docs/"))
    for number, cell in enumerate(cells(text)):
        kind = "code" if cell.is_code else "markdown"
        made.append({"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": cell.text})
        if cell.is_code:
            made[-1] |= {"execution_count": None, "outputs": []}
            if cell.is_answer:
                made[-1]["metadata"] = {"jupyter": {"source_hidden": True, "outputs_hidden": True}}
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": kernel}, "cells": made}


def page(text: str, run: dict[str, Any], name: str, folder: Path) -> str:
    """A chapter as Markdown with what its cells printed and drew below them.

    Args:
        text: the chapter.
        run: its notebook, run.
        name: what the files with pictures begin with.
        folder: where they are written.
    """
    results = (each["outputs"] for each in run["cells"] if each["cell_type"] == "code")
    drawn = 0

    def with_outputs(found: re.Match[str]) -> str:
        nonlocal drawn
        shown = [found[0]]
        for output in next(results):
            data = output.get("data", {"text/plain": output.get("text", "")})
            kind = next((kind for kind in _PICTURES if kind in data), None)
            if kind is not None:
                drawn += 1
                file = folder / f"{name}-{drawn}{_PICTURES[kind]}"
                content = data[kind]
                file.write_bytes(content.encode() if "svg" in kind else base64.b64decode(content))
                said = re.search(r"<title[^>]*>([^<]*)", content) if "svg" in kind else None
                shown.append(f"![{said[1] if said else 'What this draws'}]({file.name})\n")
            elif "text/html" in data:
                shown.append(f"<div>{data['text/html']}</div>\n")
            else:
                shown.append(f"``` {{.text .output}}\n{data['text/plain'].rstrip()}\n```\n")
        return "\n".join(shown)

    title, _, rest = _with_frames(text).partition("\n")
    return f"{title}\n\n[This chapter as a notebook]({name}.ipynb)\n{_CODE.sub(with_outputs, rest)}"


def _with_frames(text: str) -> str:
    """Below each paragraph with a link to a live page the page itself, in a frame."""
    paragraphs = text.split("\n\n")
    for place, paragraph in enumerate(paragraphs):
        if found := _LIVE.search(paragraph):
            address = html.escape(f"{found[2]}#bare&{found[3] or ''}")
            frame = f'<iframe title="{found[1]}" src="{address}" loading="lazy"></iframe>'
            paragraphs[place] = f"{paragraph}\n\n{frame}"
    return "\n\n".join(paragraphs)


def build(chapter: Path, folder: Path) -> None:
    """Run a chapter, and write its notebook and its page into a folder."""
    import nbformat
    from nbclient import NotebookClient
    from nbformat.sign import NotebookNotary

    text = chapter.read_text(encoding="utf-8")
    run = nbformat.from_dict(notebook(text))  # type: ignore[no-untyped-call]
    NotebookClient(
        run,
        timeout=SECONDS,
        kernel_name="python3",
        coalesce_streams=True,
        resources={"metadata": {"path": str(folder)}},
        extra_arguments=["--log-level=ERROR"],  # each kernel warns that it listens on this machine
    ).execute()
    # Jupyter draws no pictures of a notebook that it does not know to have run here.
    NotebookNotary().sign(run)  # type: ignore[no-untyped-call]
    nbformat.write(run, folder / f"{chapter.stem}.ipynb")  # type: ignore[no-untyped-call]
    (folder / chapter.name).write_text(page(text, run, chapter.stem, folder), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", help="the beginnings of the names of chapters; none for all")
    parser.add_argument("--to", type=Path, default=BUILT, help="the folder, by default build/course")
    asked = parser.parse_args(arguments)
    asked.to.mkdir(parents=True, exist_ok=True)
    chosen = tuple(asked.names) or ("",)
    for chapter in sorted(CHAPTERS.glob("[0-9]*.md")):
        if chapter.name.startswith(chosen):
            start = time.perf_counter()
            build(chapter, asked.to)
            print(f"{chapter.stem}: {time.perf_counter() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main()
