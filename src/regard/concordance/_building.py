"""Making an index: every word of a corpus with its place, in one pass that goes on where it was stopped."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
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
        made = json.loads(json.dumps(asdict(reading)))
        known = _check_same(store, made, sources)
        for mark, (label, source, kind) in sources.items():
            state = known.setdefault(mark, {"name": label, "sha256": mark, "entries": 0, "whole": False})
            if state["whole"]:
                continue
            if store.manifest["finished"]:
                with store.writing():
                    store.note(finished=False)

            def put_aside(place: str, why: str, file: str = label) -> None:
                found.put_aside.append((f"{place} of {file}", why))

            entries = reading.entries(source, kind, put_aside)
            _add(store, islice(entries, state["entries"], None), reading, state, known, progress)
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
        first = found.setdefault(_mark(source), (label, source, kind))
        if first[1] is not source:
            raise InputError(f"corpus must name a file once; {label!r} and {first[0]!r} hold the same.")
    return found


def _check_same(
    store: Store, made: dict[str, Any], sources: dict[str, tuple[str, Source, str]]
) -> dict[str, dict[str, Any]]:
    """The files that the index knows, by what they hold."""
    earlier = store.manifest.get("reading")
    if earlier is None:
        with store.writing():
            store.note(reading=made, finished=False, sources=[])
    elif earlier != made:
        name = next(name for name in made if made[name] != earlier.get(name))
        raise InputError(
            f"{name} must be what the index was made with, {earlier.get(name)!r}; got {made[name]!r}."
        )
    known = {each["sha256"]: each for each in store.manifest["sources"]}
    names = {each["name"] for each in known.values()}
    if changed := [label for mark, (label, *_) in sources.items() if mark not in known and label in names]:
        raise InputError(
            f"corpus must be what it was when the index was begun; {changed[0]!r} has changed. "
            "Make a new index."
        )
    return known


def _mark(source: Source) -> str:
    digest = hashlib.sha256()
    with source.opened.reading(raw=True) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


class _Numbers:
    """The next free numbers, and the number of each form."""

    def __init__(self, store: Store) -> None:
        self.doc, self.text, self.use, self.form = (
            store.one(f"SELECT coalesce(max(id), 0) + 1 FROM {table}")
            for table in ("doc", "text", "use", "form")
        )
        self.of_form = {
            (form, lemma, pos): (number, bool(is_word))
            for number, form, lemma, pos, is_word in store.rows(
                "SELECT id, form, lemma, pos, is_word FROM form"
            )
        }
        self.new_forms: list[tuple[Any, ...]] = []

    def of(self, form: str, word: Word) -> tuple[int, bool]:
        key = form, fold(word.lemma), word.pos
        found = self.of_form.get(key)
        if found is None:
            found = self.of_form[key] = self.form, any(map(str.isalnum, form))
            self.new_forms.append((self.form, form, fold(form), *key[1:], found[1]))
            self.form += 1
        return found


def _add(
    store: Store,
    entries: Iterator[Tagged],
    reading: Reading,
    state: dict[str, Any],
    sources: dict[str, Any],
    progress: Callable[[int, str], object] | None,
) -> None:
    """The texts of a file, a transaction at a time, each with how far the file is read."""
    numbers, split = _Numbers(store), reading.splitter()
    while True:
        block = list(islice(entries, _TEXTS_AT_ONCE))
        docs, texts, uses = [], [], []
        for entry in block:
            words = split(entry.body) if entry.words is None else entry.words
            count = 0
            start, at = 0, 0
            for end in _parts(entry.body, words):
                texts.append((numbers.text, numbers.doc, start, entry.body[start:end]))
                while at < len(words) and words[at].start < end:
                    word = words[at]
                    form, is_word = numbers.of(entry.body[word.start : word.stop], word)
                    uses.append((numbers.use, numbers.text, word.start - start, word.stop - start, form))
                    numbers.use += 1
                    count += is_word
                    at += 1
                numbers.text += 1
                start = end
            meta = json.dumps({name: value for name, value in entry.meta.items() if value is not None})
            docs.append((numbers.doc, state["name"], entry.place, entry.date, meta, count))
            numbers.doc += 1
        state |= {"entries": state["entries"] + len(block), "whole": len(block) < _TEXTS_AT_ONCE}
        with store.writing():
            store.db.executemany("INSERT INTO doc VALUES (?, ?, ?, ?, ?, ?)", docs)
            store.db.executemany("INSERT INTO text VALUES (?, ?, ?, ?)", texts)
            store.db.executemany("INSERT INTO form VALUES (?, ?, ?, ?, ?, ?, 0)", numbers.new_forms)
            store.db.executemany("INSERT INTO use VALUES (?, ?, ?, ?, ?)", uses)
            store.note(sources=[*sources.values()])
        numbers.new_forms.clear()
        if progress is not None:
            progress(numbers.text - 1, state["name"])
        if state["whole"]:
            return


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
