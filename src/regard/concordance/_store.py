"""The index on disk: one SQLite file with documents, texts, forms, where they stand, and vectors."""

import json
import math
import os
import sqlite3
import threading
import time
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from regard.concordance._tokens import Tokens
from regard.concordance._values import bare, fits, holds, iso_date
from regard.core.errors import InputError, OutputError
from regard.core.files import locked
from regard.text import fold

VERSION: Final = 2
"""The version of what the file holds; an index of another version is refused."""

FILE: Final = "index.sqlite"

_STEPS: Final = 10_000  # of SQLite, after which the time is looked at

# A use is a word at a place. Uses are numbered in the order of the corpus, so that what stands beside one has
# the numbers beside its own; a block has the numbers of their forms, packed (`Tokens`). A part is a word
# within a form, as "zu" is within "zum". Vectors come later, when somebody asks for them.
_SCHEMA: Final = """
CREATE TABLE manifest (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE doc (id INTEGER PRIMARY KEY, source TEXT NOT NULL, place TEXT NOT NULL, date TEXT,
                  meta TEXT NOT NULL, words INTEGER NOT NULL);
CREATE TABLE text (id INTEGER PRIMARY KEY, doc INTEGER NOT NULL, start INTEGER NOT NULL, body TEXT NOT NULL);
CREATE TABLE form (id INTEGER PRIMARY KEY, form TEXT NOT NULL, key TEXT NOT NULL, lemma TEXT NOT NULL,
                   pos TEXT NOT NULL, is_word INTEGER NOT NULL, n INTEGER NOT NULL DEFAULT 0);
CREATE TABLE part (id INTEGER PRIMARY KEY, form INTEGER NOT NULL, word TEXT NOT NULL, key TEXT NOT NULL,
                   lemma TEXT NOT NULL, pos TEXT NOT NULL);
CREATE TABLE block (id INTEGER PRIMARY KEY, docs BLOB NOT NULL, texts BLOB NOT NULL, forms BLOB NOT NULL,
                    gaps BLOB NOT NULL);
CREATE TABLE vector (use INTEGER, size INTEGER, v BLOB NOT NULL, PRIMARY KEY (use, size)) WITHOUT ROWID;
CREATE TABLE subcorpus (name TEXT PRIMARY KEY, conditions TEXT NOT NULL) WITHOUT ROWID;
"""
_INDEXES: Final = """
CREATE INDEX IF NOT EXISTS form_key ON form (key);
CREATE INDEX IF NOT EXISTS form_lemma ON form (lemma);
"""


class Store:
    """An index that is there, of this version."""

    def __init__(self, folder: Path) -> None:
        if not (folder / FILE).is_file():
            raise InputError(
                f"index must be a folder that `regard index` has made; {str(folder)!r} is not one."
            )
        self.folder = folder
        self._tokens: Tokens | None = None
        # Of two threads at one connection, one would wait for SQLite and the other for Python, for ever.
        self._turn = threading.RLock()
        # Without a limit, unless `within` sets one.
        self._most = self._ends = math.inf  # seconds of a query, and when it ends
        # A folder that can only be read is served as it is, without locks.
        self.read_only = not all(os.access(each, os.W_OK) for each in (folder, folder / FILE))
        try:
            self.db = _connected(folder / FILE, read_only=self.read_only)
            weakref.finalize(self, self.db.close)  # whoever lets go of an index may remove its folder
        except sqlite3.DatabaseError as error:
            raise self.damaged(error) from error
        version = self.manifest.get("version")
        if version != VERSION:
            raise InputError(
                f"index must be of version {VERSION}; {str(folder)!r} is of {version}. Make it again."
            )

    def damaged(self, error: object) -> InputError:
        """The error for a file that does not hold what it should."""
        return InputError(f"{str(self.folder / FILE)!r} is damaged ({error}); make the index again.")

    @property
    def manifest(self) -> dict[str, Any]:
        """What is noted about the index; read each time, since another process may write to it."""
        rows = self.rows("SELECT name, value FROM manifest")
        try:
            return {name: json.loads(value) for name, value in rows}
        except json.JSONDecodeError as error:
            raise self.damaged(error) from error

    @property
    def tokens(self) -> Tokens:
        """The corpus as numbers, read again where texts were added."""
        # Another process may have added texts since.
        if self._tokens is None or self._tokens.blocks != self.one("SELECT count(*) FROM block"):
            own = weakref.proxy(self)  # both would otherwise outlive their last user
            try:
                self._tokens = Tokens(lambda query, values=(): own.rows(query, values))
                # Every text must have its words, or the blocks are not those of the texts.
                if len(self._tokens.text_first) - 1 != self.one("SELECT coalesce(max(id), 0) FROM text"):
                    raise ValueError("texts have no words")
            except (zlib.error, ValueError) as error:
                raise self.damaged(error) from error
        return self._tokens

    def check_finished(self) -> None:
        """Raise InputError for an index that is half made."""
        if not self.manifest.get("finished"):
            raise InputError(
                f"{str(self.folder)!r} is not finished: run the same `regard index` again, which goes on."
            )

    def note(self, **values: Any) -> None:
        """Write to the manifest, in the transaction that is open."""
        rows = [(name, json.dumps(value)) for name, value in values.items()]
        self.db.executemany("INSERT OR REPLACE INTO manifest VALUES (?, ?)", rows)

    def finish(self) -> None:
        """Make what is searched by, once all uses are there."""
        # By form, once for the whole corpus: counts are asked for often.
        counts = np.bincount(self.tokens.forms)
        self.db.executescript(_INDEXES)
        # The fields that documents have, in all of their metadata.
        fields = self.rows("SELECT DISTINCT j.key FROM doc, json_each(doc.meta) j ORDER BY j.key")
        with self.writing():
            rows = ((count, form) for form, count in enumerate(counts.tolist()))
            self.db.executemany("UPDATE form SET n = ? WHERE id = ?", rows)
            # A quotation mark in a name would end the JSON path.
            self.note(finished=True, fields=[name for (name,) in fields if '"' not in name])

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A transaction: all of it is there afterwards, or nothing."""
        if self.read_only:
            raise OutputError(f"{str(self.folder)!r} can only be read.")
        with self._turn:
            try:
                # IMMEDIATE: the lock is taken now, not at the first write.
                self.db.execute("BEGIN IMMEDIATE")
                yield
                self.db.execute("COMMIT")
            # Whatever happens, Ctrl-C too, nothing half written stays.
            except BaseException as error:
                if self.db.in_transaction:
                    self.db.execute("ROLLBACK")
                if isinstance(error, sqlite3.OperationalError):
                    raise OutputError(f"{str(self.folder)!r} cannot be written to ({error}).") from error
                if isinstance(error, sqlite3.DatabaseError):
                    raise self.damaged(error) from error
                raise

    def rows(self, query: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query.

        Raises:
            InputError: the query, or a regular expression in it, takes too long; or the file is damaged.
            OutputError: the file cannot be read now.
        """
        with self._turn:
            # Read by the handler that `within` sets; infinity without it.
            self._ends = time.monotonic() + self._most
            try:
                return self.db.execute(query, values).fetchall()
            except sqlite3.OperationalError as error:
                # Ended by the handler, or by the time limit of a regular expression.
                if "interrupted" in str(error) or "user-defined function" in str(error):
                    raise InputError("word or where must be simpler: the search takes too long.") from error
                # Busy or out of reach, not damaged.
                if any(each in str(error) for each in ("unable to open", "locked", "disk", "readonly")):
                    raise OutputError(f"{str(self.folder)!r} cannot be read ({error}).") from error
                raise self.damaged(error) from error
            except sqlite3.DatabaseError as error:
                raise self.damaged(error) from error
            finally:
                self._ends = math.inf

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """In it each query ends with an error when it has taken this long; other threads wait."""
        with self._turn:
            self._most = seconds
            # SQLite asks now and then whether to stop.
            self.db.set_progress_handler(lambda: time.monotonic() > self._ends, _STEPS)
            try:
                yield
            finally:
                self._most = math.inf
                self.db.set_progress_handler(None, _STEPS)

    def one(self, query: str, values: Sequence[Any] = ()) -> Any:
        """The first value of the first row; None where there is none."""
        return next((first for first, *_ in self.rows(query, values)), None)


def numbers(ids: Iterable[int]) -> str:
    """Numbers as `json_each(?)` takes them, whose `value` they are, with their place as `key`."""
    return json.dumps([int(each) for each in ids])


@lru_cache(1 << 16)
def _iso(value: Any) -> str | None:
    return None if value is None else iso_date(str(value))


@contextmanager
def writer(folder: Path) -> Iterator[Store]:
    """The index to write to, made where it is not there; nobody else writes texts to it meanwhile."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{str(folder)!r} cannot be made ({error.strerror or error}).") from error
    # One process writes texts; others may read.
    with locked(folder, ".writing"):
        if not (folder / FILE).is_file():
            fresh = folder / f"{FILE}.new"
            for entry in folder.iterdir():
                # Left by a process that was killed while it made the index.
                if entry.name.startswith(fresh.name):
                    entry.unlink()
                elif entry.name != ".writing":
                    raise InputError(
                        f"output must be a new folder or an index; {str(folder)!r} holds something else."
                    )
            with closing(_connected(fresh)) as db:
                db.executescript(_SCHEMA)
                db.execute("INSERT INTO manifest VALUES ('version', ?)", (json.dumps(VERSION),))
                # The journal is emptied, so that the one file is all of it, and renamed.
                db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                db.execute("PRAGMA journal_mode = DELETE")
            fresh.rename(folder / FILE)
        store = Store(folder)
        with closing(store.db):
            yield store


def _connected(file: Path, *, read_only: bool = False) -> sqlite3.Connection:
    name = str(file)
    if read_only:
        # What another process is writing lies beside the file. Without that nobody writes, and SQLite needs
        # no files of its own there.
        beside = file.with_name(f"{file.name}-wal")
        writes = beside.exists() and beside.stat().st_size
        name = f"{file.absolute().as_uri()}?mode=ro" + ("" if writes else "&immutable=1")
    # isolation_level None: transactions begin where `writing` says. A write of another process is waited
    # for.
    db = sqlite3.connect(name, isolation_level=None, timeout=60, check_same_thread=False, uri=read_only)
    try:
        if not read_only:
            # A write-ahead log: readers go on while somebody writes.
            db.execute("PRAGMA journal_mode = WAL")
            # After a crash of the machine the last transactions may be lost, but the file is whole.
            db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA temp_store = MEMORY")
    except BaseException:  # it is no database
        db.close()
        raise
    # What SQL lacks: regular expressions, conditions, and spellings made equal.
    functions: tuple[Callable[..., Any], ...] = (fits, holds, holds.__wrapped__, bare, fold, _iso)
    for name, function in zip(("regexp", "holds", "says", "bare", "fold", "iso"), functions, strict=True):
        db.create_function(name, -1, function, deterministic=True)
    return db
