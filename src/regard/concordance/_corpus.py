"""Texts of a corpus with their words and what is known of them, from files of every kind."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import unescape

from regard.core.errors import InputError
from regard.core.extras import missing
from regard.data import Source, TextSource, no_text, open_sources
from regard.text import split_words

ANNOTATED: Final = {".conllu": "conllu", ".conll": "conllu", ".vrt": "vrt", ".vert": "vrt"}
"""Formats with the words given, by the ends of file names."""

_TEI: Final = (".xml", ".tei")


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a text: where it is, and what the corpus says of it; "" where it says nothing."""

    start: int
    stop: int
    lemma: str = ""
    pos: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """A text of a corpus.

    Attributes:
        body: the text.
        words: those that it has, in order; None where the corpus does not say.
        place: where it stands in its source, as "line 7".
        date: as the corpus has it, None where it has none.
        meta: whatever else is known of it, by name.
    """

    body: str
    words: list[Word] | None
    place: str
    date: str | None = None
    meta: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How the files of a corpus are read.

    Args:
        text, date, meta: the columns of the text, of its date, and of what else is kept.
        unit: what is a text of plain text: "line", "paragraph" or "file".
        format: of all files; None goes by their names. "conllu" and "vrt" beside those of `regard.data`.
        columns: of VRT, what its columns are, of word, pos, lemma and _.
        lemmas: the language of the texts ("en"), whose lemmas are looked up where the corpus has none.
        delimiter, encoding: as of `regard.data.open_sources`.
    """

    text: str = "text"
    date: str | None = None
    meta: tuple[str, ...] = ()
    unit: str = "line"
    format: str | None = None
    columns: tuple[str, ...] = ("word", "pos", "lemma")
    lemmas: str | None = None
    delimiter: str | None = None
    encoding: str = "utf-8"

    def sources(self, paths: Sequence[Path]) -> list["tuple[Source, str]"]:
        """The files, each with its format.

        Raises:
            InputError: one cannot be read, or is of no format that is read.
        """
        found = []
        for path in paths:
            ending = path.suffix.lower()
            if ending in _TEI and self.format is None:
                raise InputError(
                    f"corpus must be text, JSON lines, CSV, Parquet, CoNLL-U or VRT; {str(path)!r} is "
                    "TEI or other XML. Convert it: to text by the TEI stylesheets, or by a tagger to CoNLL-U."
                )
            kind = ANNOTATED.get(ending) if self.format is None else self.format
            plain = "text" if kind in ("conllu", "vrt") else kind
            opened = open_sources([path], format=plain, delimiter=self.delimiter, encoding=self.encoding)
            found += [(source, kind or source.opened.format) for source in opened]
        return found

    def entries(self, source: Source, kind: str, put_aside: Callable[[str, str], object]) -> Iterator[Entry]:
        """The texts of a file; rows that are none go to `put_aside`, with their place and the reason."""
        if kind in ("conllu", "vrt"):
            lines = (str(record.values[0] or "") for record in source.records(("text",)))
            yield from conllu(lines) if kind == "conllu" else vrt(lines, self.columns)
            return
        if isinstance(source, TextSource) and self.unit != "line":
            for place, body in (
                _paragraphs(source) if self.unit == "paragraph" else [("line 1", source.whole())]
            ):
                yield Entry(body, None, place)
            return
        names = [self.text, *([self.date] if self.date else []), *self.meta]
        source.check(names)
        for record in source.records((self.text,), names[1:]):
            place = f"{source.unit} {record.line}"
            reason = record.reason or no_text(f"column {self.text!r}", record.values[0])
            if reason is None and not str(record.values[0]).strip():
                continue
            if reason is not None:
                put_aside(place, reason)
                continue
            body = str(record.values[0])
            known = dict(zip(names[1:], record.values[1:], strict=True))
            date = known.pop(self.date, None) if self.date else None
            yield Entry(body, None, place, None if date is None else str(date), known)

    def splitter(self) -> Callable[[str], list[Word]]:
        """How the words of a text are found where the corpus does not give them."""
        if self.lemmas is None:
            return lambda body: [Word(start, stop) for start, stop in split_words(body)]
        return _lemmatised(self.lemmas)


def _lemmatised(language: str) -> Callable[[str], list[Word]]:
    try:
        from simplemma import Lemmatizer  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise missing("lemmas need", error, "simplemma") from error
    lemmatizer = Lemmatizer()
    try:
        lemmatizer.lemmatize("a", lang=language)
    except ValueError as error:
        raise InputError(
            f"lemmas must be a language that simplemma knows, such as en; got {language!r}."
        ) from error
    known: dict[str, str] = {}

    def split(body: str) -> list[Word]:
        words = []
        for start, stop in split_words(body):
            form = body[start:stop]
            if form not in known:
                known[form] = lemmatizer.lemmatize(form, lang=language).lower()
            words.append(Word(start, stop, known[form]))
        return words

    return split


def _paragraphs(source: TextSource) -> Iterator[tuple[str, str]]:
    held: list[str] = []
    first = 1
    for record in source.records(("text",)):
        line = str(record.values[0] or "")
        if line.strip():
            first = first if held else record.line
            held.append(line)
        elif held:
            yield f"line {first}", "\n".join(held)
            held = []
    if held:
        yield f"line {first}", "\n".join(held)


def conllu(lines: Iterator[str]) -> Iterator[Entry]:
    """The sentences of CoNLL-U: words as they stand in the text, with lemma and universal part of speech.

    Words of a multiword token ("del" for "de el") are one, as written, and their lemmas are joined by "+".

    Source: https://universaldependencies.org/format.html
    """
    about: dict[str, str] = {}
    of_document: dict[str, str] = {}
    tokens: list[list[str]] = []
    first = 0
    for number, line in enumerate((*lines, ""), 1):
        if line.startswith("#"):
            name, _, value = (part.strip() for part in line[1:].partition("="))
            if name.startswith(("newdoc", "newpar")):
                of_document = {} if name.startswith("newdoc") else of_document
                name = "document" if name.startswith("newdoc") else "paragraph"
                of_document |= {name: value}
            elif value:
                about[name] = value
        elif line.strip():
            first = first or number
            fields = line.split("\t")
            if len(fields) < 4:
                raise InputError(
                    f"line {number} must have the columns of CoNLL-U, with tabs; got {line[:60]!r}."
                )
            tokens.append(fields)
        elif tokens:
            body, words = _sentence(tokens, about.pop("text", None))
            date = about.get("date") or of_document.get("date")
            yield Entry(body, words, f"line {first}", date, {**of_document, **about})
            about, tokens, first = {}, [], 0


def _sentence(tokens: list[list[str]], text: str | None) -> tuple[str, list[Word]]:
    surface: list[tuple[str, str, str, bool]] = []  # form, lemma, pos, whether a blank follows
    inside = 0  # the last number that a multiword token covers
    for fields in tokens:
        number, form, lemma, pos = fields[:4]
        glued = len(fields) > 9 and "SpaceAfter=No" in fields[9]
        if "." in number:
            continue
        if "-" in number:
            inside = int(number.partition("-")[2])
            surface.append((form, "", "", not glued))
        elif int(number) <= inside:
            whole, lemmas, kinds, after = surface[-1]
            surface[-1] = whole, f"{lemmas}+{lemma}".strip("+"), f"{kinds}+{pos}".strip("+"), after
        else:
            surface.append((form, "" if lemma == "_" and form != "_" else lemma, pos, not glued))
    rebuilt = "".join(form + " " * after for form, _, _, after in surface).rstrip()
    words, at, body = [], 0, rebuilt if text is None else text
    for form, lemma, pos, _ in surface:
        start = body.find(form, at)
        if start < 0:  # the text is not what the words say: the words are
            return _sentence(tokens, rebuilt)
        at = start + len(form)
        words.append(Word(start, at, lemma, pos))
    return body, words


_TAG: Final = re.compile(r"<(/?)(\w+)([^>]*)>\s*$")
_ATTRIBUTE: Final = re.compile(r'([\w:-]+)\s*=\s*"([^"]*)"')


def vrt(lines: Iterator[str], columns: Sequence[str]) -> Iterator[Entry]:
    """The sentences of vertical text: a word a line with its columns, between tags; `<g/>` glues two words.

    Source: https://cwb.sourceforge.io/files/CWB_Encoding_Tutorial.pdf, section 2
    """
    if "word" not in columns:
        raise InputError(f"columns must name word; got {', '.join(columns)}.")
    open_tags: dict[str, dict[str, str]] = {}
    body, glue, first = "", False, 0
    words: list[Word] = []

    def made() -> Entry:
        known = {name: value for tags in open_tags.values() for name, value in tags.items()}
        return Entry(body, words, f"line {first}", known.pop("date", None), known)

    for number, line in enumerate(lines, 1):
        tag = _TAG.fullmatch(line.strip())
        if tag is None:
            if not line.strip():
                continue
            fields = dict(zip(columns, map(_entities, line.rstrip("\n").split("\t")), strict=False))
            form = fields["word"]
            body += form if glue or not body else f" {form}"
            first = first or number
            words.append(
                Word(len(body) - len(form), len(body), fields.get("lemma", ""), fields.get("pos", ""))
            )
            glue = False
            continue
        closes, name, rest = tag.groups()
        if name == "g":
            glue = True
        elif words and name in ("s", "p", "text", "doc"):
            yield made()
            body, words, first = "", [], 0
        if closes:
            open_tags.pop(name, None)
        elif not rest.rstrip().endswith("/"):
            open_tags[name] = {key: _entities(value) for key, value in _ATTRIBUTE.findall(rest)}
    if words:
        yield made()


def _entities(value: str) -> str:
    return unescape(value, {"&quot;": '"', "&apos;": "'"})
