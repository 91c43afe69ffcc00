"""The reference as Markdown: every public name from its docstring, every command from its `--help`.

None of it is in a commit: `make docs` writes it from the code, so it says what the code says.
"""

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import typer

import regard
from regard.cli._app import app

LARGE = 20
"""A class with so many methods has a page of its own."""

_HEADING = re.compile(r"([A-Z]\w+):")
_ENTRY = re.compile(r"([\w*][\w*., ]*?)(?: \(([^)]*)\))?: (.*)")
_NAME = re.compile(r"(?<![\[`])(?<!^\* )`([A-Za-z_][\w.]*)(?:\([^`]*\))?`(?![`\]])")
_BULLET = re.compile(r"\s*(?:[*-]|\d+\.) ")
_LONG_NAMES = re.compile(r"\b(?:regard(?:\.\w+)*|collections\.abc|typing|pathlib(?:\._local)?)\.(?=\w)")
_LIMIT = re.compile(r'Annotated\[(\w+), "([^"]*)"\]')
"""A type with a limit, as `regard.core.arguments.Limit` prints itself."""


class Reference:
    """All pages, and where each name is on them.

    A name that several packages give is described in the first: `regard` before `regard.core`.

    Attributes:
        pages: the name of a file to its Markdown.
        contents: a list of the packages, with what each is for.
        places: a name with its package, such as `regard.core.Mask`, to its file and anchor.
    """

    def __init__(self) -> None:
        self.places: dict[str, str] = {}
        self.pages: dict[str, str] = {}
        packages = {package: _names(package) for package in _packages()}
        homes: dict[object, str] = {}
        for package, names in packages.items():
            for name, value in names.items():
                full = f"{package}.{name}"
                home = homes.setdefault(id(value) if _documents_itself(value) else full, full)
                if home == full:
                    self._place(full, value)
                self.places[full] = self.places[home]
        for package, names in packages.items():
            self._write(package, names)
        self.pages["command-line.md"] = command_line()
        self.contents = "\n".join(
            f"* [`{package}`]({_file(package)}): {_first_line(package)}"
            for package in packages
            if _file(package) in self.pages
        )

    def linked(self, text: str, home: str = "regard", folder: str = "") -> str:
        """The Markdown with a link from each `name` to where it is described.

        Args:
            text: Markdown. Code blocks, headings and what is a link already stay as they are.
            home: the package or class whose names are meant first.
            folder: the way from the page to the reference, with a slash at its end.
        """

        def link(found: re.Match[str]) -> str:
            name = re.sub(r"^(trace|model)\.", lambda thing: thing[0].capitalize(), found[1])
            tried = (f"{home}.{name}", f"{home.rpartition('.')[0]}.{name}", f"regard.{name}", name)
            place = next((self.places[each] for each in tried if each in self.places), None)
            # In a docstring, `of`, `k` or `kind` is an argument rather than the method of this name.
            is_meant = place is not None and (len(name) > 4 or not name.islower())
            return f"[{found[0]}]({folder}{place})" if is_meant else found[0]

        lines, in_code = [], False
        for line in text.split("\n"):
            in_code ^= line.lstrip().startswith("```")
            is_prose = not in_code and not line.startswith(("#", "    "))
            lines.append(_NAME.sub(link, line) if is_prose else line)
        return "\n".join(lines)

    def _place(self, full: str, value: Any) -> None:
        members = _members(value)
        file = _file(full if len(members) >= LARGE else full.rpartition(".")[0])
        self.places[full] = f"{file}#{full}"
        self.places |= {f"{full}.{member}": f"{file}#{full}.{member}" for member in members}

    def _write(self, package: str, names: Mapping[str, Any]) -> None:
        notes = _notes(package)
        own = {f"{package}.{name}": value for name, value in names.items()}
        here = {full: value for full, value in own.items() if self.places[full].endswith(f"#{full}")}
        if not here:
            return
        parts = [f"# {package}", markdown(importlib.import_module(package).__doc__ or "")]
        others = [self.places[full] for full in own if self.places[full].partition("#")[0] != _file(package)]
        if others:
            named = ", ".join(f"[`{place.partition('#')[2]}`]({place})" for place in sorted(others))
            parts.append(f"On pages of their own: {named}.")
        for full, value in here.items():
            name = full.rpartition(".")[2]
            if self.places[full].startswith(f"{_file(package)}#"):
                parts += _described(full, name, value, notes.get(name, ""), "##")
            else:
                page = "\n\n".join(_described(full, full, value, "", "#"))
                self.pages[_file(full)] = self.linked(page, full)
        self.pages[_file(package)] = self.linked("\n\n".join(parts), package)


def markdown(docstring: str) -> str:
    """A docstring in regard's style as Markdown: sections, their entries, formulas, examples."""
    lines = inspect.cleandoc(docstring).split("\n")
    parts: list[str] = []
    while lines:
        heading = _HEADING.fullmatch(lines[0])
        if heading and len(lines) > 1 and lines[1].startswith("    "):
            body = _taken(lines, 1, lambda line: not line or line.startswith("    "))
            parts += [f"**{heading[1]}**", _section(inspect.cleandoc("\n".join(["", *body])).split("\n"))]
        elif lines[0].startswith(">>>"):
            parts.append("```pycon\n" + "\n".join(_taken(lines, 0, bool)) + "\n```")
        elif lines[0].startswith("    "):
            body = _taken(lines, 0, lambda line: not line or line.startswith("    "))
            text = inspect.cleandoc("\n".join(["", *body]))
            parts.append(markdown(text) if text.startswith(">>>") else f"```text\n{text}\n```")
        elif lines[0]:
            parts.append("\n".join(map(_escaped, _taken(lines, 0, bool))))
        else:
            del lines[0]
    return "\n\n".join(parts)


def command_line() -> str:
    """What `--help` of every command prints."""
    parts = [
        "# The command line",
        "What `--help` prints, command by command. Results go to stdout and messages to stderr; `-` reads a "
        "text from stdin; most commands have `--json`.",
    ]
    command = typer.main.get_command(app)  # once: typer's own runner makes all commands anew for each
    for words in _commands(("regard",), command):
        with redirect_stdout(StringIO()) as printed:
            command.main([*words[1:], "--help"], "regard", standalone_mode=False, terminal_width=100)
        shown = printed.getvalue()
        assert shown, words
        level = "##" if len(words) < 3 else "###"
        parts.append(f"{level} {' '.join(words)}\n\n```text\n{shown.rstrip()}\n```")
    return "\n\n".join(parts)


def _commands(words: tuple[str, ...], command: Any) -> Iterator[tuple[str, ...]]:
    yield words
    for name, each in getattr(command, "commands", {}).items():
        yield from _commands((*words, name), each)


def _packages() -> list[str]:
    """The packages that promise names to users, in `__all__`, those above first."""
    found = [each.name for each in pkgutil.walk_packages(regard.__path__, "regard.") if each.ispkg]
    public = [name for name in found if hasattr(importlib.import_module(name), "__all__")]
    return ["regard", *sorted(public, key=lambda name: (name.count("."), name))]


def _names(package: str) -> dict[str, Any]:
    module = importlib.import_module(package)
    return {name: getattr(module, name) for name in module.__all__ if not name.startswith("_")}


def _first_line(package: str) -> str:
    return _escaped(str(importlib.import_module(package).__doc__).split("\n")[0].removeprefix("regard: "))


def _file(name: str) -> str:
    return f"{name.removeprefix('regard.')}.md"


def _documents_itself(value: Any) -> bool:
    return inspect.isclass(value) or inspect.isroutine(value)


def _members(value: Any) -> dict[str, Any]:
    """The methods and properties that regard gives a class, without those of a base that is described too.

    What a class leaves out of `dir` of its instances is for regard itself, and left out here.
    """
    if not inspect.isclass(value):
        return {}
    listed = value.__dir__(object.__new__(value)) if "__dir__" in vars(value) else dir(value)
    found: dict[str, Any] = {}
    for kind in value.__mro__:
        if kind is value or (kind.__module__.startswith("regard") and kind not in _public_bases()):
            for name, each in vars(kind).items():
                plain = each.__func__ if isinstance(each, classmethod | staticmethod) else each
                if not name.startswith("_") and (inspect.isroutine(plain) or isinstance(plain, property)):
                    found.setdefault(name, plain)
    return {name: found[name] for name in sorted(found) if name in listed}


@cache
def _public_bases() -> frozenset[type]:
    return frozenset(each for name in _packages() for each in _names(name).values() if inspect.isclass(each))


def _notes(package: str) -> dict[str, str]:
    """What stands below the constants and types of a package in its sources, as a string of its own."""
    found: dict[str, str] = {}
    for file in sorted(Path(next(iter(importlib.import_module(package).__path__))).rglob("*.py")):
        found = _notes_in(file) | found
    return found


@cache
def _notes_in(file: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for this, below in pairwise(ast.parse(file.read_text(encoding="utf-8")).body):
        target = this.targets[0] if isinstance(this, ast.Assign) else getattr(this, "target", None)
        if (
            isinstance(target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
        ):
            found.setdefault(target.id, str(below.value.value))
    return found


def _described(full: str, title: str, value: Any, note: str, level: str) -> list[str]:
    parts = [f"{level} {title} {{#{full}}}"]
    if not _documents_itself(value):
        shown = repr(value)
        return [
            *parts,
            f"```python\n{title} = {_short(shown)}\n```" if len(shown) < 300 else "",
            markdown(note),
        ]
    parts += [_signature(value, title.rpartition(".")[2]), markdown(inspect.getdoc(value) or "")]
    for name, each in _members(value).items():
        parts += [
            f"{level}# {name} {{#{full}.{name}}}",
            _signature(each, name, bound=not isinstance(inspect.getattr_static(value, name), staticmethod)),
            markdown(inspect.getdoc(each) or ""),
        ]
    return parts


def _signature(value: Any, name: str, *, bound: bool = False) -> str:
    """How it is called, in a code block: a bound method without its first parameter, a property not."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    parameters = []
    previous = None
    for each in list(signature.parameters.values())[bound:]:
        if each.kind is each.KEYWORD_ONLY and previous not in (each.KEYWORD_ONLY, each.VAR_POSITIONAL):
            parameters.append("*")
        previous = each.kind
        parameters.append(_short(str(each)))
    back = signature.return_annotation
    has_none = back is signature.empty or inspect.isclass(value)
    arrow = (
        "" if has_none else _short(f" -> {back if isinstance(back, str) else inspect.formatannotation(back)}")
    )
    if inspect.ismethod(value):  # a function that is a class's own way to make one
        arrow = arrow.replace("Self", value.__self__.__name__)
    limits = [{words for _, words in _LIMIT.findall(each)} for each in parameters]
    parameters = [re.sub(r"Optional\[(\w+)\]", r"\1 | None", _LIMIT.sub(r"\1", each)) for each in parameters]
    line = f"{name}({', '.join(parameters)}){arrow}"
    if len(line) > 88 or any(limits):
        rows = ["  # ".join([f"    {each},", *words]) for each, words in zip(parameters, limits, strict=True)]
        line = "\n".join([f"{name}(", *rows, f"){arrow}"])
    return f"```python\n{line}\n```"


def _short(code: str) -> str:
    code = re.sub(r"<[^<>]*>", "...", _LONG_NAMES.sub("", code)).replace("'", '"')
    return re.sub(r'(: |-> )"([^"]*)"', r"\1\2", code)


def _section(lines: list[str]) -> str:
    """Entries `name: text` as a list; anything else as it is."""
    if not _ENTRY.fullmatch(lines[0]) or any(line.startswith(">>>") for line in lines):
        return markdown("\n".join(lines))
    shown = []
    for line in lines:
        entry = _ENTRY.fullmatch(line)
        if entry:
            kind = f" ({_escaped(entry[2])})" if entry[2] else ""
            shown.append(f"* `{entry[1]}`{kind}: {_escaped(entry[3])}")
        else:
            shown.append(f"  {_escaped(line.strip())}")
    return "\n".join(shown)


def _taken(lines: list[str], first: int, goes_on: Callable[[str], object]) -> list[str]:
    """The lines from the first on that belong together, which are removed."""
    end = first
    while end < len(lines) and goes_on(lines[end]):
        end += 1
    taken = lines[first:end]
    del lines[:end]
    return taken


def _escaped(line: str) -> str:
    """A line of prose, without what Markdown would read into it; code in backticks stays."""
    bullet = _BULLET.match(line)
    start = bullet.end() if bullet else 0
    parts = line[start:].split("`")
    parts[::2] = [re.sub(r"([*_<])", r"\\\1", part) for part in parts[::2]]
    return line[:start] + "`".join(parts)
