"""Other words that are used so: a vector of every word, and LanceDB's index over them."""

import json
import shutil
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from regard.concordance._store import Store, numbers, writer
from regard.concordance._uses import JOINED, Found, Uses, conditions, forms_of, listed
from regard.concordance._vectors import Progress, VectorCache, Vectors
from regard.core.errors import InputError
from regard.core.extras import optional
from regard.text import fold, split_words

_FOLDER: Final = "any"
_TABLE: Final = "uses"
_BATCH: Final = 65_536  # rows; each batch becomes a file, and many small ones are slow
_FEWEST: Final = 5_000  # fewer are searched one by one, without an index

# Of the partitions, whose number is about the root of the rows, so many are looked into; and of what is found
# there by codes of one bit a number, so many times k are compared by their vectors.
_PROBES: Final = 40
_REFINE: Final = 20


def _lancedb() -> Any:
    return optional("other words (any_word) need", "lancedb", "lancedb", "lancedb.index", "pyarrow")


def make_any(store: Store, cache: VectorCache, progress: Progress = None) -> None:
    """Embed every word of an index, and build what finds the nearest; goes on where it was stopped."""
    lancedb, kinds, pa = _lancedb()
    with writer(store.folder):
        cache.all(progress)
        if store.manifest.get("any") == store.manifest["embedded"] and (store.folder / _FOLDER).is_dir():
            return
        folder, fresh = (store.folder / name for name in (_FOLDER, f"{_FOLDER}.new"))
        shutil.rmtree(fresh, ignore_errors=True)
        width = len(store.one("SELECT v FROM vector LIMIT 1")) // 2
        schema = pa.schema([("use", pa.int64()), ("form", pa.int32()), ("v", pa.list_(pa.float16(), width))])
        reader = pa.RecordBatchReader.from_batches(schema, _batches(store, pa, schema, width))
        table = lancedb.connect(fresh).create_table(_TABLE, reader)
        if table.count_rows() >= _FEWEST:
            table.create_index("v", config=kinds.IvfRq(distance_type="cosine", num_bits=1))
        table.create_index("form", config=kinds.Bitmap())
        table.optimize()
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)
        with store.writing():
            store.note(any=store.manifest["embedded"])


def _batches(store: Store, pa: Any, schema: Any, width: int) -> Iterator[Any]:
    last = 0
    while rows := store.rows(
        "SELECT v.use, u.form, v.v FROM vector v JOIN use u ON u.id = v.use WHERE v.size = 1 AND v.use > ? "
        "AND u.form IN (SELECT id FROM form WHERE is_word) ORDER BY v.use LIMIT ?",
        [last, _BATCH],
    ):
        uses, forms, blobs = zip(*rows, strict=True)
        last = uses[-1]
        vectors = np.frombuffer(b"".join(blobs), np.float16)
        columns = {"use": uses, "form": forms, "v": pa.FixedSizeListArray.from_arrays(vectors, width)}
        there = vectors.reshape(-1, width).any(axis=1)  # where the tokenizer leaves nothing there is none
        yield pa.RecordBatch.from_pydict(columns, schema=schema).filter(pa.array(there))


class AnyWord:
    """What finds other words, in an index whose words all have vectors."""

    def __init__(self, store: Store) -> None:
        lancedb, _, _ = _lancedb()
        made, wanted = store.manifest.get("any"), store.one("SELECT max(id) FROM use")
        if made != wanted or not (store.folder / _FOLDER).is_dir():
            what = "the vectors of all words" if made is None else "those of the texts that were added"
            raise InputError(f"any_word must have {what}: run `regard index --all` first, or embed_all().")
        self._store, self._table = store, lancedb.connect(store.folder / _FOLDER).open_table(_TABLE)

    def find(self, query: Vectors, word: str, where: Sequence[str], k: int) -> tuple[Found, int]:
        """The nearest k uses of other words under conditions, and how many uses other words have."""
        own, total, wanted = self.own(word), self._table.count_rows(), 16 * k if where else k
        found = self.nearest(query, own, wanted)
        while len(kept := self._under(found, where)) < k and len(found) == wanted:
            wanted *= 8
            found = self.nearest(query, own, wanted)
        if not len(kept):
            raise InputError(f"the corpus has no other word with {', '.join(where)}.")
        others = self._store.one(f"SELECT sum(n) FROM form WHERE is_word AND id NOT IN ({listed(own)})")
        return Found(kept[:k]), min(total, others or 0)

    def _under(self, found: Uses, where: Sequence[str]) -> Uses:
        condition, values = conditions(self._store, where)
        query = f"SELECT u.id FROM json_each(?) w CROSS JOIN {JOINED} WHERE u.id = w.value AND {condition}"
        rows = self._store.rows(f"{query} ORDER BY w.key", [numbers(found), *values])
        return np.array([use for (use,) in rows], np.int64)

    def own(self, word: str) -> list[int]:
        """All forms of the words of a phrase: with their spelling, without regard to case, or their lemma."""
        if word.startswith("/"):
            return list(forms_of(self._store, word)[0])
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
            search = search.where(f"form NOT IN ({listed(barred)})", prefilter=True)
        search = search.nprobes(_PROBES).refine_factor(_REFINE).select(["use", "_distance"])
        return np.asarray(search.limit(k).to_arrow()["use"], np.int64)
