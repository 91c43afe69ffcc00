"""Texts of a corpus with their words and what is known of them, from files of every kind."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import unescape

from regard.core.arguments import one_of
from regard.core.errors import InputError
from regard.core.extras import missing
from regard.data import FORMATS, Csv, Source, TextSource, no_text, open_sources
from regard.text import split_words

ANNOTATED: Final = {".conllu": "conllu", ".conll": "conllu", ".vrt": "vrt", ".vert": "vrt"}
"""Formats with the words given, by the ends of file names."""

_TEI: Final = (".xml", ".tei")
_PACKED: Final = (".gz", ".zst", ".zstd", ".bz2", ".xz")
_COLUMNS: Final = ("word", "pos", "lemma", "_")


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
        csv, encoding: as of `regard.data.open_sources`.
    """

    text: str = "text"
    date: str | None = None
    meta: tuple[str, ...] = ()
    unit: str = "line"
    format: str | None = None
    columns: tuple[str, ...] = ("word", "pos", "lemma")
    lemmas: str | None = None
    csv: Csv = field(default_factory=Csv)
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        one_of("unit", self.unit, ("line", "paragraph", "file"))
        if self.format is not None:
            one_of("format", self.format, (*FORMATS, *dict.fromkeys(ANNOTATED.values())))
        for name in self.columns:
            one_of("columns", name, _COLUMNS)
        if self.columns.count("word") != 1:
            raise InputError(f"columns must name word once; got {','.join(self.columns)}.")

    def sources(self, paths: Sequence[str | Path]) -> list["tuple[Source, str]"]:
        """The files, each with its format.

        Raises:
            InputError: one cannot be read, or is of no format that is read.
        """
        given = self.format in ANNOTATED.values()
        opened = open_sources(
            paths,
            format="text" if given else self.format,
            csv=self.csv,
            encoding=self.encoding,
        )
        found = []
        for source in opened:
            ends = Path(source.opened.label.lower()).suffixes
            ending = next((each for each in reversed(ends) if each not in _PACKED), "")
            if ending in _TEI and self.format is None:
                raise InputError(
                    "corpus must be text, JSON lines, CSV, Parquet, CoNLL-U or VRT; "
                    f"{source.opened.name!r} is TEI or other XML. "
                    "Convert it: to text by the TEI stylesheets, or by a tagger to CoNLL-U."
                )
            kind = self.format or ANNOTATED.get(ending) or source.opened.format
            if kind in FORMATS:
                source.check(self._names)
            found.append((source, kind))
        return found

    @property
    def _names(self) -> list[str]:
        return [self.text, *([self.date] if self.date else []), *self.meta]

    def entries(self, source: Source, kind: str, put_aside: Callable[[str, str], object]) -> Iterator[Entry]:
        """The texts of a file; rows that are none go to `put_aside`, with their place and the reason."""
        if kind not in FORMATS:
            lines, date = _lines(source), self.date or "date"
            yield from conllu(lines, date) if kind == "conllu" else vrt(lines, self.columns, date)
            return
        if kind == "text" and self.unit == "paragraph":
            yield from _paragraphs(source, put_aside)
            return
        if isinstance(source, TextSource) and self.unit == "file":
            yield Entry(source.whole(), None, "line 1")
            return
        names = self._names
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
            when = known.pop(self.date, None) if self.date else None
            yield Entry(body, None, place, None if when is None else str(when), known)

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


def _paragraphs(source: Source, put_aside: Callable[[str, str], object]) -> Iterator[Entry]:
    held: list[str] = []
    first = 1
    for record in source.records(("text",)):
        if record.reason is not None:
            put_aside(f"line {record.line}", record.reason)
            continue
        line = str(record.values[0])
        if line.strip():
            first = first if held else record.line
            held.append(line)
        elif held:
            yield Entry("\n".join(held), None, f"line {first}")
            held = []
    if held:
        yield Entry("\n".join(held), None, f"line {first}")


def _lines(source: Source) -> Iterator[str]:
    for record in source.records(("text",)):
        if record.reason is not None:
            raise InputError(f"line {record.line} of {source.opened.name}: {record.reason}.")
        yield str(record.values[0])


def conllu(lines: Iterator[str], date: str = "date") -> Iterator[Entry]:
    """The sentences of CoNLL-U: words as they stand in the text, with lemma and universal part of speech.

    Words of a multiword token ("del" for "de el") are one, as written, and their lemmas are joined by "+".
    What a comment `# meta::NAME = VALUE` says holds for all of its document.

    Source: https://universaldependencies.org/format.html
    """
    about: dict[str, str] = {}
    of_document: dict[str, str] = {}
    tokens: list[list[str]] = []
    first = 0
    for number, line in enumerate(chain(lines, [""]), 1):
        if line.startswith("#"):
            name, _, value = (part.strip() for part in line[1:].partition("="))
            if name.startswith("newdoc"):
                of_document = {"document": value}
            elif name.startswith("newpar"):
                of_document["paragraph"] = value
            elif name.startswith("meta::"):
                of_document[name.removeprefix("meta::")] = value
            elif value:
                about[name] = value
        elif line.strip():
            first = first or number
            fields = line.split("\t")
            if len(fields) < 4 or not _NUMBER.fullmatch(fields[0]):
                raise InputError(
                    f"line {number} must have the columns of CoNLL-U, by tabs; got {line[:60]!r}."
                )
            tokens.append(fields)
        elif tokens:
            text = about.pop("text", None)
            known = {**of_document, **about}
            yield Entry(*_sentence(tokens, text), f"line {first}", known.pop(date, None), known)
            about, tokens, first = {}, [], 0


_NUMBER: Final = re.compile(r"\d+([-.]\d+)?")


def _sentence(tokens: list[list[str]], text: str | None) -> tuple[str, list[Word]]:
    surface: list[tuple[str, str, str, bool]] = []  # form, lemma, pos, whether a blank follows
    inside = 0  # the last number that a multiword token covers
    for fields in tokens:
        number, form, lemma, pos = fields[:4]
        glued = len(fields) > 9 and "SpaceAfter=No" in fields[9]
        lemma, pos = ("" if value == "_" and form != "_" else value for value in (lemma, pos))
        if "." in number:
            continue
        if "-" in number:
            inside = int(number.partition("-")[2])
            surface.append((form, "", "", not glued))
        elif int(number) <= inside:
            whole, lemmas, kinds, after = surface[-1]
            surface[-1] = whole, f"{lemmas}+{lemma}".strip("+"), f"{kinds}+{pos}".strip("+"), after
        else:
            surface.append((form, lemma, pos, not glued))
    words, at, blank = [], 0, False
    body, agrees = "" if text is None else text, text is not None
    if agrees:
        for form, lemma, pos, _ in surface:
            start = body.find(form, at)
            if start < 0 or body[at:start].strip():
                agrees = False  # the text is not what the words say: the words are
                break
            at = start + len(form)
            words.append(Word(start, at, lemma, pos))
    if not agrees:
        body, words = "", []
        for form, lemma, pos, after in surface:
            body += " " * blank + form
            words.append(Word(len(body) - len(form), len(body), lemma, pos))
            blank = after
    return body, words


_TAG: Final = re.compile(r"<(/?)([A-Za-z][\w:.-]*)((?:\s[^\t]*)?)>")
_ATTRIBUTE: Final = re.compile(r"""([\w:.-]+)\s*=\s*(?:"([^"]*)"|'([^']*)')""")


def vrt(lines: Iterator[str], columns: Sequence[str], date: str = "date") -> Iterator[Entry]:
    """The sentences of vertical text: a word a line with its columns, between tags; `<g/>` glues two words.

    The attributes of tags are what is known. Where an inner tag has a name that an outer one has, it is
    called TAG_NAME: the `id` of `<s>` within a `<text id="...">` is `s_id`.

    Source: https://cwb.sourceforge.io/files/CWB_Encoding_Tutorial.pdf, section 2
    """
    open_tags: dict[str, dict[str, str]] = {}
    body, glue, first = "", False, 0
    words: list[Word] = []

    def made() -> Entry:
        known: dict[str, str] = {}
        for tag, attributes in open_tags.items():
            known |= {f"{tag}_{name}" if name in known else name: each for name, each in attributes.items()}
        return Entry(body, words, f"line {first}", known.pop(date, None), known)

    for number, line in enumerate(lines, 1):
        bare = line.strip()
        if not bare or bare.startswith(("<?", "<!--")):
            continue
        empty = bare.endswith("/>")
        tag = _TAG.fullmatch(f"{bare[:-2]}>" if empty else bare)
        if tag is None:
            fields = dict(zip(columns, map(_entities, line.rstrip("\r\n").split("\t")), strict=False))
            form = fields.get("word", "")
            if not form:
                raise InputError(f"line {number} must have a word in its columns; got {line[:60]!r}.")
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
        elif not empty:
            attributes = _ATTRIBUTE.findall(rest)
            open_tags[name] = {key: _entities(double or single) for key, double, single in attributes}
    if words:
        yield made()


def _entities(value: str) -> str:
    return unescape(value, {"&quot;": '"', "&apos;": "'"})
