"""Texts of a corpus with their words and what is known of them, from files of every kind."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from regard.core.arguments import one_of
from regard.core.errors import InputError
from regard.core.extras import optional
from regard.data import (
    FORMATS,
    Csv,
    Source,
    Tagged,
    TextSource,
    Word,
    conllu,
    no_text,
    open_sources,
    paragraphs,
    vrt,
)
from regard.text import split_words

ANNOTATED: Final = {".conllu": "conllu", ".conll": "conllu", ".vrt": "vrt", ".vert": "vrt"}
"""Formats with the words given, by the ends of file names."""

_XML: Final = (".xml", ".tei")
_TEI: Final = (b"<TEI", b"<teiCorpus", b"http://www.tei-c.org/ns/")
_BEGINS: Final = 4096  # bytes that are looked at
_PACKED: Final = (".gz", ".zst", ".zstd", ".bz2", ".xz")
_COLUMNS: Final = ("word", "pos", "lemma", "_")


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
        format = "text" if self.format in ANNOTATED.values() else self.format
        found = []
        for source in open_sources(paths, format=format, csv=self.csv, encoding=self.encoding):
            ends = Path(source.opened.label.lower()).suffixes
            ending = next((each for each in reversed(ends) if each not in _PACKED), "")
            kind = self.format or ANNOTATED.get(ending) or source.opened.format
            begins = source.opened.head[:_BEGINS].removeprefix(b"\xef\xbb\xbf").lstrip()
            is_tei = kind == "text" and begins[:1] == b"<" and any(mark in begins for mark in _TEI)
            if self.format is None and (is_tei or ending in _XML):
                raise InputError(
                    "corpus must be text, JSON lines, CSV, Parquet, CoNLL-U or VRT; "
                    f"{source.opened.name!r} is TEI or other XML. "
                    "Convert it: to text by the TEI stylesheets, or by a tagger to CoNLL-U."
                )
            if kind in FORMATS:
                source.check(self._names)
            found.append((source, kind))
        return found

    @property
    def _names(self) -> list[str]:
        return [self.text, *([self.date] if self.date else []), *self.meta]

    def entries(self, source: Source, kind: str, put_aside: Callable[[str, str], object]) -> Iterator[Tagged]:
        """The texts of a file; rows that are none go to `put_aside`, with their place and the reason."""
        if kind not in FORMATS:
            lines, date = _lines(source), self.date or "date"
            yield from conllu(lines, date) if kind == "conllu" else vrt(lines, self.columns, date)
            return
        if isinstance(source, TextSource) and self.unit == "file":
            yield Tagged(source.whole(), None, "line 1")
            return
        names = self._names
        records = source.records((self.text,), names[1:])
        for record in paragraphs(records) if kind == "text" and self.unit == "paragraph" else records:
            place = f"{source.unit} {record.line}"
            reason = record.reason or no_text(f"column {self.text!r}", record.values[0])
            body = str(record.values[0])
            if reason is not None:
                put_aside(place, reason)
            elif body.strip():
                known = dict(zip(names[1:], record.values[1:], strict=True))
                when = known.pop(self.date, None) if self.date else None
                yield Tagged(body, None, place, None if when is None else str(when), known)

    def splitter(self) -> Callable[[str], list[Word]]:
        """How the words of a text are found where the corpus does not give them."""
        if self.lemmas is None:
            return lambda body: [Word(start, stop) for start, stop in split_words(body)]
        return _lemmatised(self.lemmas)


def _lemmatised(language: str) -> Callable[[str], list[Word]]:
    lemmatizer = optional("lemmas need", "simplemma", "simplemma")[0].Lemmatizer()
    try:
        lemmatizer.lemmatize("a", lang=language)
    except ValueError as error:
        raise InputError(
            f"lemmas must be a language that simplemma knows, such as en; got {language!r}."
        ) from error
    lemma = cache(lambda form: lemmatizer.lemmatize(form, lang=language).lower())
    return lambda body: [Word(start, stop, lemma(body[start:stop])) for start, stop in split_words(body)]


def _lines(source: Source) -> Iterator[str]:
    for record in source.records(("text",)):
        if record.reason is not None:
            raise InputError(f"line {record.line} of {source.opened.name}: {record.reason}.")
        yield str(record.values[0])
