"""Making an index: every word of a corpus with its place, in one pass that goes on where it was stopped."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from hashlib import file_digest
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final

import regex  # type: ignore[import-untyped, unused-ignore]

from regard.concordance._store import Store, writer
from regard.concordance._tokens import COLUMNS, packed
from regard.concordance._values import ORDERS, SENTENCE_ENDS, iso_date
from regard.concordance._where import fields_of
from regard.core.arguments import check_fields, names, path_of, several
from regard.core.errors import InputError
from regard.core.extras import optional
from regard.data import (
    FORMATS,
    Csv,
    Files,
    Parts,
    Source,
    Tagged,
    TextSource,
    Unit,
    Word,
    conllu,
    no_text,
    open_sources,
    vrt,
)
from regard.text import fold, split_words

ANNOTATED: Final = {".conllu": "conllu", ".conll": "conllu", ".vrt": "vrt", ".vert": "vrt"}
"""Formats with the words given, by the ends of file names."""

# Files that other corpora come as; they are refused with a way out.
_XML: Final = (".xml", ".tei")
_TEI: Final = (b"<TEI", b"<teiCorpus", b"http://www.tei-c.org/ns/")
_BEGINS: Final = 4096  # bytes that are looked at
# What stands beside a corpus in its folder, by name.
_BESIDE: Final = re.compile(r"(?i)(readme|licen[cs]e|copying|changelog|citation)\b")
# Compression: the ending before it tells the format.
_PACKED: Final = (".gz", ".zst", ".zstd", ".bz2", ".xz")
_COLUMNS: Final = ("word", "pos", "lemma", "_")
# What comes before the point where a word is cut: "nation" of "nation's", "l'" of "l'homme".
_APART: Final = {
    "en": regex.compile(r"(?i).+?(?=(?:n['’ʼ]t|['’ʼ](?:s|re|ve|ll|d|m))$)"),
    "fr": regex.compile(r"(?i)(?:\p{L}{1,2}|jusqu|lorsqu|puisqu|quoiqu|quelqu|presqu)['’ʼ](?=\p{L})"),
    "it": regex.compile(r"\p{L}+['’ʼ](?=\p{L})"),
}
"""The first part of a word with an apostrophe."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How the files of a corpus are read.

    Args:
        text, date: the columns of the text and of its date.
        meta: the columns that are kept beside them. None keeps all, but for values of more than 1,000
            characters; added to an index that has chosen some, these.
        unit: what is a text of plain text: "line", "paragraph" or "file".
        format: of all files; None goes by their names. "conllu" and "vrt" beside those of `regard.data`.
        date_order: "dmy" or "mdy" where dates are as 31/12/1999 or 12/31/1999.
        document: the column that says which rows are of one document.
        columns: of VRT, what its columns are, of word, pos, lemma and _.
        lemmas: the language of the texts ("en"), whose lemmas are looked up where the corpus has none.
        apostrophes: the language, "en", "fr" or "it", by which words are parted there: *nation's*, *l'homme*.
        csv, encoding: as of `regard.data.Rows`.
    """

    text: str = "text"
    date: str | None = None
    date_order: Annotated[str, names(ORDERS)] | None = None
    meta: tuple[str, ...] | None = None
    document: str | None = None
    unit: Unit = "line"
    format: Annotated[str, names((*FORMATS, *dict.fromkeys(ANNOTATED.values())))] | None = None
    columns: tuple[Annotated[str, names(_COLUMNS)], ...] = ("word", "pos", "lemma")
    lemmas: str | None = None
    apostrophes: Annotated[str, names(_APART)] | None = None
    csv: Csv = field(default_factory=Csv)
    encoding: str = "utf-8"

    # Names are checked here, so that a mistake ends before a file is read.
    def __post_init__(self) -> None:
        check_fields(self)
        if self.columns.count("word") != 1:
            raise InputError(f"columns must name word once; got {','.join(self.columns)}.")

    def sources(
        self, paths: Sequence[str | Path], put_aside: Callable[[str, str], object] | None = None
    ) -> list["tuple[Source, str]"]:
        """The files, each with its format; what a folder has beside its corpus goes to `put_aside`."""
        named = list[Path]()
        # A folder is read as a whole, or file by file where something in it is no corpus.
        for path in [path_of("corpus", each) for each in several("corpus", paths, "files")]:
            here = sorted(path.iterdir()) if path.is_dir() else []
            beside = [each for each in here if _BESIDE.match(each.name)]
            if put_aside is not None:
                for each in beside:
                    put_aside(str(each), "by its name it is no text")
            texts = [
                each for each in here if each.is_file() and each.name[0] not in "._" and each not in beside
            ]
            named += texts if beside else [path]
        # Annotated formats are read as lines of text, and put together in `entries`.
        format = "text" if self.format in ANNOTATED.values() else self.format
        sources = []
        files = Files(named, format=format, csv=self.csv, encoding=self.encoding, unit=self.unit)
        for source in open_sources(files):
            # The last ending that is no compression.
            ends = Path(source.opened.label.lower()).suffixes
            ending = next((each for each in reversed(ends) if each not in _PACKED), "")
            kind = self.format or ANNOTATED.get(ending) or source.opened.format
            # Without the mark of byte order and blanks: XML begins with "<".
            begins = source.opened.head[:_BEGINS].removeprefix(b"\xef\xbb\xbf").lstrip()
            is_tei = kind == "text" and begins[:1] == b"<" and any(mark in begins for mark in _TEI)
            if self.format is None and (is_tei or ending in _XML):
                raise InputError(
                    "corpus must be text, JSON lines, CSV, Parquet, CoNLL-U or VRT; "
                    f"{source.opened.name!r} is TEI or other XML. "
                    "Convert it: to text by the TEI stylesheets, or by a tagger to CoNLL-U."
                )
            # Columns exist only in formats with columns.
            if kind in FORMATS:
                source.check([self.text], "Name the one of the text (--text-column).")
                source.check(self._names)
            sources.append((source, kind))
        return sources

    @property
    def _names(self) -> list[str]:
        columns = (self.text, self.date, *(self.meta or ()), self.document)
        return [*dict.fromkeys(name for name in columns if name)]

    def entries(self, source: Source, kind: str, put_aside: Callable[[str, str], object]) -> Iterator[Tagged]:
        """The texts of a file; rows that are none go to `put_aside`, with their place and the reason."""
        # Words are given: lines of the file in, texts with their words out.
        if kind not in FORMATS:
            lines, date = _lines(source), self.date or "date"
            yield from conllu(lines, date) if kind == "conllu" else vrt(lines, self.columns, date)
            return
        names = self._names
        for record in source.records((self.text,), names[1:], rest=self.meta is None):
            place = f"{source.unit} {record.line}"
            reason = record.reason or no_text(f"column {self.text!r}", record.values[0])
            body = str(record.values[0])
            if reason is not None:
                whole = kind == "text" and self.unit == "file"
                put_aside(*(("all", f"{place}: {reason}") if whole else (place, reason)))
            elif body.strip():
                # The first value is the text; the others are known of it.
                known = {**record.rest, **dict(zip(names[1:], record.values[1:], strict=True))}
                when = known.pop(self.date, None) if self.date else None
                yield Tagged(body, None, place, None if when is None else str(when), known)

    def splitter(self) -> Callable[[str], list[Word]]:
        """How the words of a text are found where the corpus does not give them."""
        # One splitter for all texts, made once: it may hold a lemmatizer.
        cut = split_words if self.apostrophes is None else partial(_apart, self.apostrophes)
        # A corpus without lemmas has the empty one.
        lemma = (lambda form: "") if self.lemmas is None else _lemmatised(self.lemmas)
        return lambda body: [Word(start, stop, lemma(body[start:stop])) for start, stop in cut(body)]


def _apart(language: str, body: str) -> list[tuple[int, int]]:
    """The words of a text, those with an apostrophe in two: "nation" and "'s", "l'" and "homme"."""
    parts = list[tuple[int, int]]()
    for start, stop in split_words(body):
        # Two characters or fewer cannot be cut.
        first = _APART[language].match(body[start:stop]) if stop - start > 2 else None
        middle = [start + first.end()] if first else []
        parts += zip([start, *middle], [*middle, stop], strict=True)
    return parts


def _lemmatised(language: str) -> Callable[[str], str]:
    lemmatizer = optional("lemmas need", "simplemma", "simplemma")[0].Lemmatizer()
    # A try, since simplemma looks a language up only when it is asked.
    try:
        lemmatizer.lemmatize("a", lang=language)
    except ValueError as error:
        raise InputError(
            f"lemmas must be a language that simplemma knows, such as en; got {language!r}."
        ) from error
    # Remembered by form: corpora repeat their words.
    return cache(lambda form: lemmatizer.lemmatize(form, lang=language).lower())


def _lines(source: Source) -> Iterator[str]:
    assert isinstance(source, TextSource)
    for text, reason, line in source.lines():
        if reason is not None:
            raise InputError(f"line {line} of {source.opened.name}: {reason}.")
        yield str(text)


# Texts of a transaction: so much is lost where the process is killed.
_TEXTS_AT_ONCE: Final = 4000

# Characters. A longer text is cut where a sentence ends, so that a use costs one short pass of the model.
LONGEST: Final = 1000


@dataclass
class Indexed:
    """What came of indexing.

    Attributes:
        texts: how many texts the index has.
        words: how many words, without punctuation.
        put_aside: the rows that are no text: where, and why.
        undated: the rows whose date has no form that is known, and so are without one: where, and why.
        left_out: the columns of which not all is kept: which, and why.
        fields: what is known of texts, beside their dates, by the names that conditions have.
    """

    texts: int = 0
    words: int = 0
    put_aside: list[tuple[str, str]] = field(default_factory=list)
    undated: list[tuple[str, str]] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    fields: list[str] = field(default_factory=list)


def build_index(
    paths: Sequence[str | Path],
    folder: str | Path,
    reading: Reading | None = None,
    *,
    progress: Callable[[int, str], object] | None = None,
) -> Indexed:
    """Index the words of a corpus: which stand where. Vectors come later, when a word is asked for.

    Stopped, by whatever, the same call goes on where it was. More files may be added to a finished index.

    Args:
        paths: the files.
        folder: of the index; a new one, or one of the same reading.
        reading: how files are read.
        progress: called now and then with the number of texts, and the file.

    Returns:
        How many texts and words the index has now.

    Raises:
        InputError: a file cannot be read or has changed since it was begun, or the index was made otherwise.
        OutputError: the folder cannot be written to, or another process writes to it.

    Example:
        >>> from pathlib import Path
        >>> from regard.concordance import build_index
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "a.txt").write_text("She sat on the bank of the river.\\nThe bank lent money.\\n")
        >>> build_index([folder / "a.txt"], folder / "index")
        Indexed(texts=2, words=12, put_aside=[], undated=[], left_out=[], fields=[])
    """
    reading = Reading() if reading is None else reading
    tally = Indexed()
    # Each file by the hash of what it holds: a changed file is another one.
    sources = _identified(reading.sources(paths, lambda *why: tally.put_aside.append(why)))
    shortened = Counter[tuple[str, str]]()
    with writer(path_of("folder", folder)) as store:
        reading, known = _check_same(store, reading, sources)
        for mark, (label, source, kind) in sources.items():
            state = known.setdefault(mark, {"name": label, "sha256": mark, "entries": 0, "whole": False})
            # Read to its end before: nothing to do.
            if state["whole"]:
                continue
            # From now on the index is half made, until `finish`.
            if store.manifest["finished"]:
                with store.writing():
                    store.note(finished=False)

            def put_aside(place: str, why: str, file: str = label) -> None:
                tally.put_aside.append((f"{place} of {file}", why))

            read = (
                _dated(each, reading, label, tally, shortened)
                for each in reading.entries(source, kind, put_aside)
            )
            # What an earlier run has read is skipped, not kept.
            entries = islice(read, state["entries"], None)
            for texts in _added(store, entries, reading, state, known):
                if progress is not None:
                    progress(texts, label)
        # Also where the last run was killed between the last text and `finish`.
        if not store.manifest["finished"]:
            store.finish()
        tally.texts = store.one("SELECT count(*) FROM text")
        tally.words = store.one("SELECT coalesce(sum(words), 0) FROM doc")
        tally.fields = fields_of(store)
        for (name, file), count in sorted(shortened.items()):
            many = f"{count:,} value{'s' * (count != 1)} of more than {LONGEST:,} characters"
            tally.left_out.append((f"column {name!r} of {file}", f"without {many}, unless --meta names it"))
        if not tally.words:
            why = "".join(f" {place} is put aside: {reason}." for place, reason in tally.put_aside[:1])
            raise InputError(f"corpus must have a word; these files have none.{why}")
    return tally


def _dated(
    entry: Tagged, reading: Reading, file: str, found: Indexed, shortened: Counter[tuple[str, str]]
) -> Tagged:
    """A text with its date in the one form, its fields as JSON has them, and without what is blank."""
    # Parquet has dates, decimals and bytes, which become texts. NaN and infinite numbers are no JSON: None.
    # Half of a surrogate pair, which JSON can escape and SQLite cannot hold, becomes a question mark.
    written = json.dumps(entry.meta, default=str, ensure_ascii=False).encode("utf-8", "replace")
    known = json.loads(written, parse_constant=lambda name: None)
    meta = {name: value for name, value in known.items() if value is not None and str(value).strip()}
    # Of a table whose columns nobody chose: one that holds a page, or a vector, is hardly asked for.
    if reading.meta is None and entry.words is None:
        for name in [name for name, value in meta.items() if len(str(value)) > LONGEST]:
            del meta[name]
            shortened[name, file] += 1
    # Of these the date is the one of that name, as of the formats that have words.
    named = reading.meta is None and entry.words is None and reading.date is None and "date" in meta
    if named:
        entry = replace(entry, date=str(meta["date"]))
    date = (entry.date or "").strip()
    iso = iso_date(date, reading.date_order) if date else None
    if date and iso is None:
        # Three numbers with the year last: the order is not known without being told.
        numbers = re.fullmatch(r"\d\d?([-/.])\d\d?\1\d{4}", date)
        way = "; say what comes first by --date-order" if numbers and reading.date_order is None else ""
        found.undated.append((f"{entry.place} of {file}", f"{date!r} is in no form that is known{way}"))
    # Once is enough.
    if named and iso == meta["date"]:
        del meta["date"]
    return replace(entry, date=iso, meta=meta)


def _identified(sources: Sequence[tuple[Source, str]]) -> dict[str, tuple[str, Source, str]]:
    """The files by what they hold, each with its name: with folders, where names alone are not enough."""
    # Folders and name of each file; as many of the last parts as tell all of them apart.
    parts = [(*(each.opened.path or Path()).absolute().parts[:-1], each.opened.label) for each, _ in sources]
    deepest = max(map(len, parts))
    depth = next((n for n in range(1, deepest) if len({each[-n:] for each in parts}) == len(parts)), deepest)
    files: dict[str, tuple[str, Source, str]] = {}
    for part, (source, kind) in zip(parts, sources, strict=True):
        label = "/".join(part[-depth:])
        with source.opened.reading(raw=True) as file:
            # By what is in the file as it lies, also packed.
            mark = file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
        # Two files with the same content would count every use twice.
        first = files.setdefault(mark, (label, source, kind))
        if first[1] is not source:
            raise InputError(f"corpus must name a file once; {label!r} and {first[0]!r} hold the same.")
    return files


def _check_same(
    store: Store, reading: Reading, sources: dict[str, tuple[str, Source, str]]
) -> tuple[Reading, dict[str, dict[str, Any]]]:
    """How the files are read, and those that the index knows, by what they hold."""
    earlier, begun = store.manifest.get("reading", {}), store.one("SELECT 1 FROM text LIMIT 1")
    # Who names no columns goes on with those that the index has.
    if begun and reading.meta is None and earlier["meta"] is not None:
        reading = replace(reading, meta=tuple(earlier["meta"]))
        for _, source, kind in sources.values():
            if kind in FORMATS:
                source.check(reading._names)
    # As JSON has it: tuples become lists there, and the two must be comparable.
    settings = json.loads(json.dumps(asdict(reading)))
    # A new index, or one of which nothing could be read.
    if not begun:
        with store.writing():
            store.note(reading=settings, finished=False, sources=[])
    # Read otherwise, the same file would have other words.
    elif odd := [name for name in settings if settings[name] != earlier.get(name)]:
        was, now = (
            ("all columns" if each is None and odd[0] == "meta" else repr(each))
            for each in (earlier.get(odd[0]), settings[odd[0]])
        )
        raise InputError(f"{odd[0]} must be what the index was made with, {was}; got {now}.")
    known = {each["sha256"]: each for each in store.manifest["sources"]}
    names = {each["name"] for each in known.values()}
    # A file of a known name with another content is a changed one.
    if changed := [label for mark, (label, *_) in sources.items() if mark not in known and label in names]:
        raise InputError(
            f"corpus must be what it was when the index was begun; {changed[0]!r} has changed. "
            "Make a new index."
        )
    return reading, known


class _Forms(dict[tuple[str, str, str, Parts], tuple[int, bool]]):
    """For each form, with its lemma, part of speech and words within: its number; is it a word?"""

    def __init__(self, store: Store) -> None:
        parts: dict[int, Parts] = {}
        # The words within forms, such as "zu" and "dem" within "zum".
        for form, *part in store.rows("SELECT form, word, lemma, pos FROM part ORDER BY id"):
            parts[form] = (*parts.get(form, ()), (*part,))
        rows = store.rows("SELECT id, is_word, form, lemma, pos FROM form")
        super().__init__({(*key, parts.get(id, ())): (id, bool(is_word)) for id, is_word, *key in rows})
        self.new, self.new_parts = list[tuple[Any, ...]](), list[tuple[Any, ...]]()

    def __missing__(self, key: tuple[str, str, str, Parts]) -> tuple[int, bool]:
        form, lemma, pos, parts = key
        # A number follows the last one; a form without a letter or a digit is a mark.
        found = self[key] = len(self) + 1, any(map(str.isalnum, form))
        self.new.append((found[0], form, fold(form), lemma, pos, found[1]))
        self.new_parts += ((found[0], word, fold(word), of, kind) for word, of, kind in parts)
        return found


def _added(
    store: Store, entries: Iterator[Tagged], reading: Reading, state: dict[str, Any], known: dict[str, Any]
) -> Iterator[int]:
    """Add the texts of a file, a transaction at a time, each with how far it is read: how many there are."""
    # Numbers go on behind those that the index has.
    forms, split = _Forms(store), reading.splitter()
    doc, text = (store.one(f"SELECT coalesce(max(id), 0) FROM {table}") for table in ("doc", "text"))
    while not state["whole"]:
        block = list(islice(entries, _TEXTS_AT_ONCE))
        docs, texts = list[Any](), list[Any]()
        # The columns of a block, as `Tokens` reads them.
        columns: dict[str, list[int]] = {name: [] for name in COLUMNS}
        for entry in block:
            doc += 1
            words = split(entry.body) if entry.words is None else entry.words
            # start: where the part begins in the text; at: its first word; count: words of the document.
            start, at, count, before = 0, 0, 0, text
            for end in _parts(entry.body, words):
                text += 1
                texts.append((text, doc, start, entry.body[start:end]))
                stop, first = start, at
                # At most LONGEST characters, so no more words than that.
                for begin, close, lemma, pos, within in words[at : at + LONGEST + 1]:
                    if begin >= end:
                        break
                    parts = within and tuple((form, fold(own), kind) for form, own, kind in within)
                    number, is_word = forms[entry.body[begin:close], lemma and fold(lemma), pos, parts]
                    columns["forms"].append(number)
                    # Characters since the word before, in the same part.
                    columns["gaps"].append(begin - stop)
                    stop, at, count = close, at + 1, count + is_word
                columns["texts"].append(at - first)
                start = end
            columns["docs"].append(text - before)
            docs.append((doc, state["name"], entry.place, entry.date, json.dumps(entry.meta), count))
        # Fewer than asked for: the file is at its end.
        state |= {"entries": state["entries"] + len(block), "whole": len(block) < _TEXTS_AT_ONCE}
        # All of a block, and how far the file is read, in one transaction.
        with store.writing():
            store.db.executemany("INSERT INTO doc VALUES (?, ?, ?, ?, ?, ?)", docs)
            store.db.executemany("INSERT INTO text VALUES (?, ?, ?, ?)", texts)
            store.db.executemany("INSERT INTO form VALUES (?, ?, ?, ?, ?, ?, 0)", forms.new)
            store.db.executemany("INSERT INTO part VALUES (NULL, ?, ?, ?, ?, ?)", forms.new_parts)
            store.db.execute("INSERT INTO block VALUES (NULL, ?, ?, ?, ?)", packed(columns.values()))
            store.note(sources=[*known.values()])
        forms.new.clear()
        forms.new_parts.clear()
        yield text


_ENDS: Final = (r"\n\s*\n", SENTENCE_ENDS.pattern, r"\n", r"\s")
"""Where a long text is cut: behind a paragraph, a sentence, a line, or a word."""


def _parts(body: str, words: Sequence[Word]) -> Iterator[int]:
    """Where the parts of a text end: in the second half of what a part may have, else between two words."""
    start, at = 0, 0
    while len(body) - start > LONGEST:
        middle, last = start + LONGEST // 2, start + LONGEST
        # From the end of the second half backwards: (?r) finds the last of such places.
        matches = (regex.search(f"(?r){mark}", body, pos=middle, endpos=last) for mark in _ENDS)
        cut = next((each.end() for each in matches if each), last)
        # Words that lie before the cut.
        while at < len(words) and words[at].stop <= cut:
            at += 1
        # A cut within a word goes before it, or behind it where the word is the first of the part.
        if at < len(words) and words[at].start < cut:
            cut = words[at].start if words[at].start > start else words[at].stop
        start = cut
        if start < len(body):
            yield start
    yield len(body)
