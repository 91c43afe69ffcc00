"""Other words that are used so: a vector of every word, and LanceDB's index over them."""

import json
import shutil
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import regex  # type: ignore[import-untyped, unused-ignore]

from regard.concordance._query import One, read_query
from regard.concordance._store import Store, writer
from regard.concordance._uses import Found, fitting, single
from regard.concordance._vectors import Uses, VectorCache, Vectors
from regard.core.errors import InputError
from regard.core.extras import optional
from regard.core.progress import OnProgress
from regard.text import fold, split_words

_FOLDER: Final = "any"
_TABLE: Final = "uses"
_BATCH: Final = 65_536  # rows; each batch becomes a file, and many small ones are slow
_FEWEST: Final = 5_000  # fewer are searched one by one, without an index

# So many partitions are looked into, of about as many as the root of the rows. What is found there by codes
# of one bit a number is compared by its vectors, so many times k of it.
_PROBES: Final = 40
_REFINE: Final = 20


def _lancedb() -> Any:
    return optional("other words (any_word) need", "lancedb", "lancedb", "lancedb.index", "pyarrow")


def make_any(store: Store, cache: VectorCache, progress: OnProgress = None) -> None:
    """Embed every word of an index, and build what finds the nearest; goes on where it was stopped."""
    # lancedb, the kinds of its indexes, and Arrow.
    lancedb, kinds, pa = _lancedb()
    # Nobody else writes texts meanwhile: their vectors would be missing.
    with writer(store.folder):
        cache.all(progress)
        # The table is up to date where it was made after the last vector.
        if store.manifest.get("any") == store.manifest["embedded"] and _opened(store) is not None:
            return
        # Without the note a table that was built in part is built again, and nobody searches it.
        with store.writing():
            store.note(any=None)
        folder = store.folder / _FOLDER
        shutil.rmtree(folder, ignore_errors=True)
        # A vector is stored in float16: two bytes a number.
        width = len(store.one("SELECT v FROM vector LIMIT 1")) // 2
        schema = pa.schema([("use", pa.int64()), ("form", pa.int32()), ("v", pa.list_(pa.float16(), width))])
        reader = pa.RecordBatchReader.from_batches(schema, _batches(store, pa, schema, width))
        # Where a reader has a file open, Windows does not remove it.
        mode = "overwrite" if folder.exists() else "create"
        table = lancedb.connect(folder).create_table(_TABLE, reader, mode=mode)
        if table.count_rows() >= _FEWEST:
            # One bit a number finds candidates, which are then compared by their vectors (`_REFINE`).
            table.create_index("v", config=kinds.IvfRq(distance_type="cosine", num_bits=1))
        # By forms, so that those of the word itself are left out before the search.
        table.create_index("form", config=kinds.Bitmap())
        table.optimize()
        with store.writing():
            store.note(any=store.manifest["embedded"])


def _opened(store: Store) -> Any:
    """The table; None where it is not there, or damaged."""
    try:
        table = _lancedb()[0].connect(store.folder / _FOLDER).open_table(_TABLE)
        # A search, since a damaged table may open all the same.
        table.search().select(["use", "v"]).limit(1).to_arrow()
        return table if table.count_rows() else None
    except (OSError, RuntimeError, ValueError):
        return None


def _batches(store: Store, pa: Any, schema: Any, width: int) -> Iterator[Any]:
    last = 0
    # Words alone; phrases have vectors of their own size, which are not searched.
    query = "SELECT use, v FROM vector WHERE size = 1 AND use > ? ORDER BY use LIMIT ?"
    while rows := store.rows(query, [last, _BATCH]):
        uses, blobs = np.array([use for use, _ in rows]), b"".join(blob for _, blob in rows)
        last, forms = int(uses[-1]), store.tokens.forms[uses].astype(np.int32)
        vectors = np.frombuffer(blobs, np.float16)
        columns = {"use": uses, "form": forms, "v": pa.FixedSizeListArray.from_arrays(vectors, width)}
        # Where the tokenizer leaves nothing of a word, its vector is zeros; marks are no words.
        there = vectors.reshape(-1, width).any(axis=1) & store.tokens.is_word[forms]
        yield pa.RecordBatch.from_pydict(columns, schema=schema).filter(pa.array(there))


class AnyWord:
    """What finds other words, in an index whose words all have vectors."""

    def __init__(self, store: Store) -> None:
        _lancedb()
        # Vectors of texts that were added later are missing in an older table.
        covered, wanted = store.manifest.get("any"), len(store.tokens)
        table = _opened(store) if covered == wanted else None
        if covered == wanted and table is None:
            raise InputError(
                "any_word must have its folder whole, which is damaged: run `regard index --all`."
            )
        if table is None:
            what = "the vectors of all words" if covered is None else "those of the texts that were added"
            raise InputError(f"any_word must have {what}: run `regard index --all` first, or embed_all().")
        self._store, self._table = store, table

    def find(self, query: Vectors, word: str, where: Sequence[str], k: int) -> tuple[Found, int]:
        """The nearest k uses of other words under conditions, and how many uses other words have."""
        # Conditions are checked after the search: so more is searched for, and still more until there
        # are enough.
        own, total, wanted = self.own(word), self._table.count_rows(), 16 * k if where else k
        nearest = self.nearest(query, own, wanted)
        while len(kept := nearest[fitting(self._store, nearest, where)]) < k and len(nearest) == wanted:
            wanted *= 8
            nearest = self.nearest(query, own, wanted)
        if not len(kept):
            raise InputError(f"the corpus has no other word with {', '.join(where)}.")
        words = self._store.tokens.forms[self._store.tokens.words]
        return single(kept[:k]), min(total, int((~np.isin(words, own)).sum()))

    def own(self, word: str) -> list[int]:
        """All forms of the words of a phrase: with their spelling, without regard to case, or their lemma."""
        # What only a pattern has; a word may have an apostrophe or a hyphen.
        if regex.search(r'[/\["*?|]', word):
            pattern = read_query(self._store, word)
            if not isinstance(pattern, One) or pattern.forms is None:
                raise InputError(f"any_word goes with a word or a pattern of one; got {word!r}.")
            return list(map(int, np.flatnonzero(pattern.forms)))
        # All forms of the words, and all forms that share their lemma.
        rows = self._store.rows(
            "WITH asked AS (SELECT value FROM json_each(?)) SELECT id FROM form WHERE key IN asked "
            "OR lemma IN asked OR lemma IN (SELECT lemma FROM form WHERE key IN asked AND lemma != '')",
            [json.dumps([fold(word[start:stop]) for start, stop in split_words(word)])],
        )
        return [id for (id,) in rows]

    def nearest(self, query: Vectors, barred: Sequence[int], k: int) -> Uses:
        """The numbers of the nearest k uses whose forms are none of these."""
        search = self._table.search(query, vector_column_name="v").distance_type("cosine")
        if len(barred):
            search = search.where(f"form NOT IN ({','.join(map(str, barred))})", prefilter=True)
        search = search.nprobes(_PROBES).refine_factor(_REFINE).select(["use", "_distance"])
        return np.asarray(search.limit(k).to_arrow()["use"], np.int64)
