"""Build the site: documentation, README and reference as HTML that works from disk and loads nothing else.

    make docs                                     into build/site; open build/site/index.html
    .venv/bin/python scripts/docs.py [--to FOLDER] [--quick]

The pages keep the places that they have in the repository, so their links need no change. The navigation is
that of docs/README.md: its headings, and its links in their order. Zensical aborts on a link or an anchor
that leads nowhere. Beside the home page stand the page of a model that writes, writes.html, whose weights
a browser gets when somebody asks for them, and the live page of the default model, live.html, to which the
picture of the home page leads.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import addresses
import course
from reference import Reference

import regard
from regard.cli.look import BEGINNING, OPENING
from regard.views import Page

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("*.md", "CITATION.cff", "docs/**/*", "benchmarks/results/*")
CONTENTS = Path("docs/README.md")
LIVE = "live.html"
WRITES = "writes.html"


def live_page() -> Page:
    """The live page of the default model."""
    return regard.load().live_page(OPENING)


def page_that_writes() -> Page:
    """The live page of the default decoder, with its weights beside it."""
    return regard.load("smollm2").live_page(BEGINNING, beside="writes.bin")


def build(
    folder: Path,
    reference: Reference,
    live: Callable[[], Page] = live_page,
    writes: Callable[[], Page] = page_that_writes,
) -> Path:
    """Build the site in a folder, and give its first page."""
    pages = folder / "docs"
    shutil.rmtree(pages, ignore_errors=True)
    stage(pages, reference)
    write_live(live(), pages)
    written = writes()
    written.write(pages / WRITES)
    assert written.beside is not None
    size = f"{len(written.beside[1]) / 1e6:.0f} MB"
    home = pages / "README.md"
    text = home.read_text(encoding="utf-8")
    said = f"[Or see a model write]({WRITES}), and from which words it reads the next ({size}, when you ask)."
    picture = re.search(r"^\[!\[.*\]\[live\]$", text, re.MULTILINE)
    assert picture is not None
    home.write_text(f"{text[: picture.end()]}\n\n{said}{text[picture.end() :]}", encoding="utf-8")
    nav = navigation(pages)
    settings = (ROOT / "zensical.toml").read_text(encoding="utf-8")
    config = folder / "zensical.toml"
    config.write_text(settings.replace("[project]\n", f"[project]\nnav = {toml(nav)}\n", 1), encoding="utf-8")
    subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "--config-file", config],
        check=True,
    )
    (folder / "site" / "llms.txt").write_text(llms(pages, nav), encoding="utf-8")
    return folder / "site" / "index.html"


def write_live(page: Page, pages: Path) -> None:
    """Write the live page with what a link to it is drawn with: its picture, by its address on the site."""
    site = addresses.project_urls().get("Documentation", "").rstrip("/")
    at = f"{site}/" if site else ""
    picture = Path(LIVE).with_suffix(".png").name
    (pages / picture).write_bytes(page.preview.png())
    head = page.preview.head(site and at + LIVE, at + picture)
    replace(page, html=page.html.replace(page.preview.head(), head, 1)).write(pages / LIVE)


def llms(pages: Path, nav: Sequence[object]) -> str:
    """The site's contents for language models, as llmstxt.org says: a heading a section, a line a page."""
    settings = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
    lines = [f"# {settings['site_name']}", "", f"> {settings['site_description']}."]

    def add(title: str, entries: Sequence[object]) -> None:
        names = [each for each in entries if isinstance(each, str)]
        if names:
            lines.extend(["", f"## {title}", "", *map(line, names)])
        for each in entries:
            if isinstance(each, Mapping):
                for inner, inside in each.items():
                    add(inner, [inside] if isinstance(inside, str) else inside)

    def line(name: str) -> str:
        text = (pages / name).read_text(encoding="utf-8")
        heading = re.search(r"^# (.+)$", text, re.MULTILINE)
        assert heading is not None, name
        first = next((each for each in text[heading.end() :].split("\n\n") if each.strip()[:1].isalnum()), "")
        # The first sentence, without the marks of Markdown.
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)|[*`]", r"\1", " ".join(first.split()))
        said = re.split(r"(?<=[.:?!])\s", plain)[0].rstrip(":")
        title = re.sub(r"[*`]", "", heading[1])
        return f"- [{title}]({re.sub('README$', 'index', name.removesuffix('.md'))}.html): {said}"

    add(settings["site_name"], nav)
    return "\n".join(lines) + "\n"


def stage(pages: Path, reference: Reference) -> None:
    """Copy what is written by hand and write what is generated, all into one folder."""
    for pattern in COPIED:
        for file in ROOT.glob(pattern):
            if file.is_file():
                (pages / file.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, pages / file.relative_to(ROOT))
    _with_outputs(pages)
    home = pages / "README.md"
    text = addresses.addressed(home.read_text(encoding="utf-8"), {})
    home.write_text(re.sub(r"^\[live\]: .*$", f"[live]: {LIVE}", text, flags=re.MULTILINE), encoding="utf-8")
    for file in pages.rglob("*.md"):
        up = "../" * (len(file.relative_to(pages).parts) - 1)
        text = file.read_text(encoding="utf-8")
        file.write_text(reference.linked(text, folder=f"{up}docs/reference/"), encoding="utf-8")
    for name, text in reference.pages.items():
        (pages / "docs/reference" / name).write_text(text, encoding="utf-8")
    with (pages / "docs/reference/README.md").open("a", encoding="utf-8") as contents:
        contents.write(
            f"\n{reference.contents}\n* [The command line](command-line.md): what `--help` prints.\n"
        )


def _with_outputs(pages: Path) -> None:
    """Show what the cells of the course print and draw, in the chapters that `make course` has run."""
    for chapter in _chapters(ran=True):
        for file in course.BUILT.glob(f"{chapter.stem}[-.]*"):
            shutil.copyfile(file, pages / chapter.relative_to(ROOT).with_name(file.name))


def _chapters(*, ran: bool) -> list[Path]:
    """The chapters of the course that have run since they were changed, or those that have not."""

    def has_run(chapter: Path) -> bool:
        result = course.BUILT / chapter.name
        return result.is_file() and result.stat().st_mtime >= chapter.stat().st_mtime

    return [each for each in sorted(course.CHAPTERS.glob("[0-9]*.md")) if has_run(each) == ran]


def navigation(pages: Path) -> list[object]:
    """The sections and pages of docs/README.md, then the reference's."""
    tabs: list[object] = [{"regard": "README.md"}]  # a page, not a section: the logo leads to it
    opened: list[list[object]] = [tabs]
    for mark, title, target in re.findall(
        r"^(##+) (.+)$|\]\(([\w/.-]+\.md)\)", (pages / CONTENTS).read_text(encoding="utf-8"), re.MULTILINE
    ):
        if mark:
            inside: list[object] = []
            del opened[len(mark) - 1 :]
            opened[-1].append({title: inside})
            opened.append(inside)
        else:
            page = (pages / CONTENTS.parent / target).resolve().relative_to(pages.resolve())
            opened[-1].append(str(page))
            if page == Path("docs/reference/README.md"):
                opened[-1] += [f"{page.parent}/{name}" for name in _generated(pages / page.parent)]
    return tabs


def _generated(folder: Path) -> list[str]:
    """The pages of the reference: what most people look for, then the packages."""
    first = ("regard.md", "Model.md", "Trace.md", "command-line.md")
    names = {each.name for each in folder.glob("*.md")} - {"README.md", *first}
    return [*first, *sorted(names, key=lambda name: name.removesuffix(".md"))]


def toml(value: object) -> str:
    """A value as TOML on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, str):
        return json.dumps(value)
    assert isinstance(value, Sequence)
    return "[" + ", ".join(map(toml, value)) + "]"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--to", type=Path, default=ROOT / "build", help="the folder, by default build")
    parser.add_argument("--quick", action="store_true", help="run no chapter of the course for its pictures")
    asked = parser.parse_args(arguments)
    folder = asked.to
    folder.mkdir(parents=True, exist_ok=True)
    waiting = [] if asked.quick else _chapters(ran=False)
    if waiting:
        course.main([chapter.stem for chapter in waiting])
    print(build(folder.resolve(), Reference()))


if __name__ == "__main__":
    main()
