"""Making an index: every word of a corpus with its place, in one pass that goes on where it was stopped."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import file_digest
from itertools import islice
from pathlib import Path
from typing import Any, Final

from regard.concordance._corpus import Reading
from regard.concordance._store import Store, writer
from regard.core.errors import InputError
from regard.data import Source, Tagged, Word
from regard.text import fold

# A transaction; what is lost where the process is killed.
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
    """

    texts: int = 0
    words: int = 0
    put_aside: list[tuple[str, str]] = field(default_factory=list)


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
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "a.txt").write_text("She sat on the bank of the river.\\nThe bank lent money.\\n")
        >>> build_index([folder / "a.txt"], folder / "index")
        Indexed(texts=2, words=12, put_aside=[])
    """
    reading = Reading() if reading is None else reading
    found = Indexed()
    sources = _identified(reading.sources(paths))
    with writer(Path(folder)) as store:
        known = _check_same(store, reading, sources)
        for mark, (label, source, kind) in sources.items():
            state = known.setdefault(mark, {"name": label, "sha256": mark, "entries": 0, "whole": False})
            if state["whole"]:
                continue
            if store.manifest["finished"]:
                with store.writing():
                    store.note(finished=False)

            def put_aside(place: str, why: str, file: str = label) -> None:
                found.put_aside.append((f"{place} of {file}", why))

            entries = islice(reading.entries(source, kind, put_aside), state["entries"], None)
            for texts in _added(store, entries, reading, state, known):
                if progress is not None:
                    progress(texts, label)
        if not store.manifest["finished"]:
            store.finish()
        found.texts = store.one("SELECT count(*) FROM text")
        found.words = store.one("SELECT coalesce(sum(words), 0) FROM doc")
        if not found.words:
            raise InputError("corpus must have a word; these files have none.")
    return found


def _identified(sources: Sequence[tuple[Source, str]]) -> dict[str, tuple[str, Source, str]]:
    """The files by what they hold, each with its name: with folders, where names alone are not enough."""
    parts = [(*(each.opened.path or Path()).absolute().parts[:-1], each.opened.label) for each, _ in sources]
    labels: list[str] = []
    for depth in range(1, max(map(len, parts)) + 1):
        labels = ["/".join(each[-depth:]) for each in parts]
        if len(set(labels)) == len(labels):
            break
    found: dict[str, tuple[str, Source, str]] = {}
    for label, (source, kind) in zip(labels, sources, strict=True):
        with source.opened.reading(raw=True) as file:
            mark = file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
        first = found.setdefault(mark, (label, source, kind))
        if first[1] is not source:
            raise InputError(f"corpus must name a file once; {label!r} and {first[0]!r} hold the same.")
    return found


def _check_same(
    store: Store, reading: Reading, sources: dict[str, tuple[str, Source, str]]
) -> dict[str, dict[str, Any]]:
    """The files that the index knows, by what they hold."""
    made = json.loads(json.dumps(asdict(reading)))
    earlier = store.manifest.get("reading")
    if earlier is None:
        with store.writing():
            store.note(reading=made, finished=False, sources=[])
    elif odd := [name for name in made if made[name] != earlier.get(name)]:
        was, now = earlier.get(odd[0]), made[odd[0]]
        raise InputError(f"{odd[0]} must be what the index was made with, {was!r}; got {now!r}.")
    known = {each["sha256"]: each for each in store.manifest["sources"]}
    names = {each["name"] for each in known.values()}
    if changed := [label for mark, (label, *_) in sources.items() if mark not in known and label in names]:
        raise InputError(
            f"corpus must be what it was when the index was begun; {changed[0]!r} has changed. "
            "Make a new index."
        )
    return known


class _Forms(dict[tuple[str, str, str], tuple[int, bool]]):
    """Of forms with their lemma and part of speech: the number, and whether it is a word."""

    def __init__(self, store: Store) -> None:
        rows = store.rows("SELECT form, lemma, pos, id, is_word FROM form")
        super().__init__({(*key,): (number, bool(is_word)) for *key, number, is_word in rows})
        self.new: list[tuple[Any, ...]] = []

    def __missing__(self, key: tuple[str, str, str]) -> tuple[int, bool]:
        found = self[key] = len(self) + 1, any(map(str.isalnum, key[0]))
        self.new.append((found[0], key[0], fold(key[0]), *key[1:], found[1]))
        return found


def _added(
    store: Store, entries: Iterator[Tagged], reading: Reading, state: dict[str, Any], known: dict[str, Any]
) -> Iterator[int]:
    """Add the texts of a file, a transaction at a time, each with how far it is read: how many there are."""
    forms, split = _Forms(store), reading.splitter()
    doc, text, use = (
        store.one(f"SELECT coalesce(max(id), 0) FROM {table}") for table in ("doc", "text", "use")
    )
    while not state["whole"]:
        block = list(islice(entries, _TEXTS_AT_ONCE))
        docs, texts, uses = [], [], []
        for entry in block:
            doc += 1
            words = split(entry.body) if entry.words is None else entry.words
            start, at, count = 0, 0, 0
            for end in _parts(entry.body, words):
                text += 1
                texts.append((text, doc, start, entry.body[start:end]))
                while at < len(words) and (word := words[at]).start < end:
                    form, is_word = forms[entry.body[word.start : word.stop], fold(word.lemma), word.pos]
                    use, at, count = use + 1, at + 1, count + is_word
                    uses.append((use, text, word.start - start, word.stop - start, form))
                start = end
            meta = json.dumps({name: value for name, value in entry.meta.items() if value is not None})
            docs.append((doc, state["name"], entry.place, entry.date, meta, count))
        state |= {"entries": state["entries"] + len(block), "whole": len(block) < _TEXTS_AT_ONCE}
        with store.writing():
            store.db.executemany("INSERT INTO doc VALUES (?, ?, ?, ?, ?, ?)", docs)
            store.db.executemany("INSERT INTO text VALUES (?, ?, ?, ?)", texts)
            store.db.executemany("INSERT INTO form VALUES (?, ?, ?, ?, ?, ?, 0)", forms.new)
            store.db.executemany("INSERT INTO use VALUES (?, ?, ?, ?, ?)", uses)
            store.note(sources=[*known.values()])
        forms.new.clear()
        yield text


def _parts(body: str, words: Sequence[Word]) -> Iterator[int]:
    """Where the parts of a text end: behind a sentence or a line if there is one, else between two words."""
    start, at = 0, 0
    while len(body) - start > LONGEST:
        window = body[start : start + LONGEST]
        ends = (window.rfind(mark, LONGEST // 2) for mark in ("\n", ". ", "? ", "! ", "。", " "))
        cut = start + next((end + 1 for end in ends if end >= 0), LONGEST)
        while at < len(words) and words[at].stop <= cut:
            at += 1
        if at < len(words) and words[at].start < cut:  # not within a word
            cut = words[at].start if words[at].start > start else words[at].stop
        start = cut
        if start < len(body):
            yield start
    yield len(body)
