"""A job: all rows of the inputs, embedded shard by shard into a folder, from wherever it was left."""

import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from regard._version import __version__
from regard.core.arguments import whole
from regard.core.errors import InputError, OutputError
from regard.embedding.job._folder import MANIFEST, Folder, check_inputs, check_same
from regard.embedding.job._inputs import BLOCK_ROWS, Block, Inputs
from regard.embedding.job._shards import Form, Parquet, Shard
from regard.embedding.job._work import Piece, Work

T = TypeVar("T")


@contextmanager
def ahead(items: Generator[T], depth: int) -> Iterator[Iterator[T]]:
    """An iterator that runs in a thread, a few items ahead of its reader.

    What it raises is raised where the item would have been taken. It is closed at the end.
    """

    def taken() -> Iterator[T]:
        # Lists, the last one empty: a StopIteration from `result()` would be an error in this generator.
        # `depth` items under way, always.
        waiting = deque(pool.submit(list, islice(items, 1)) for _ in range(depth))
        while single := waiting.popleft().result():
            waiting.append(pool.submit(list, islice(items, 1)))
            yield single[0]

    # One thread: a generator cannot be asked by two.
    with ThreadPoolExecutor(1, "regard-reader") as pool:
        try:
            yield taken()
        finally:
            pool.shutdown(cancel_futures=True)
            items.close()  # and with it the file that it reads


@contextmanager
def behind(call: Callable[[T], object], depth: int) -> Iterator[Callable[[T], None]]:
    """A function that is called in a thread, a few items behind its caller.

    What it raises is raised by a later call, or at the end. After that, or after an error of the caller, it
    is not called again.
    """
    waiting: deque[Future[None]] = deque()
    failed = False

    def guarded(item: T) -> None:
        nonlocal failed
        # After an error nothing more is written.
        if not failed:
            failed = True  # and stays so where the call raises
            call(item)
            failed = False

    def put(item: T) -> None:
        waiting.append(pool.submit(guarded, item))
        # No more than `depth` wait: the caller is held back.
        while waiting and (len(waiting) > depth or waiting[0].done()):  # an error is raised soon
            waiting.popleft().result()

    with ThreadPoolExecutor(1, "regard-writer") as pool:
        try:
            yield put
            while waiting:
                waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


OpenWork = Callable[[Mapping[str, Any] | None], Work]
"""Makes the work ready. It is handed what was settled when the folder was begun, and obeys it; None for a new
folder."""

SHARD_ROWS = 8192
"""Rows a shard, unless asked for otherwise."""

Spread = Callable[[Work, Iterable[Block]], Iterator[tuple[Block, Piece | None]]]
"""Embeds blocks, wherever, and gives each with its piece, in order; None for one with no texts."""

# The manifest's format: another number says that older folders cannot be gone on with.
_FORMAT = 1
# Blocks on the way between two threads.
_DEPTH = 2


@dataclass(frozen=True, kw_only=True)
class JobState:
    """How far a job is.

    Args:
        rows: that are done, those of earlier runs too.
        of: how many there are; None where that is not known before they are read.
        here: rows done by this run.
        tokens: of this run.
        seconds: since this run's first row was asked for.
    """

    rows: int
    of: int | None
    here: int
    tokens: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The outcome of a job.

    Args:
        folder: of the result.
        rows: that were read.
        texts: that were embedded.
        vectors: rows of the result: one a text, or one a word.
        rejected: rows in the quarantine file.
        shards: files.
        bytes: of the shards.
        counts: what the work counted, such as tokens.
        before: rows that earlier runs had done.
        seconds: of this run, without making ready.
    """

    folder: str
    rows: int
    texts: int
    vectors: int
    rejected: int
    shards: int
    bytes: int
    counts: dict[str, int]
    before: int
    seconds: float


def run(
    inputs: Inputs,
    out: Path,
    open_work: OpenWork,
    *,
    shard_rows: int = SHARD_ROWS,
    share: tuple[int, int] = (0, 1),
    on_progress: Callable[[JobState], object] | None = None,
    spread: Spread | None = None,
    form: Form | None = None,
) -> Summary:
    """Embeds all rows into a folder of Parquet shards; goes on where an earlier run was left.

    A shard is a fixed range of rows, and its bytes follow from these and from the settings alone, which are
    written to the manifest before the first shard and compared ever after. So whenever a run ends, killed or
    not, the same call goes on, and the result is byte for byte that of one run.

    Args:
        inputs: the rows.
        out: the folder; made where there is none.
        open_work: makes the model ready.
        shard_rows: rows a shard.
        share: (i, n) for every n-th shard from number i on, of a job that n processes do, each into a folder
            of its own; their shards together are those of one process.
        on_progress: called after every few thousand rows.
        spread: where blocks are embedded, such as `RayWorkers`; None is here, one after the other.
        form: what shards are files of; None for Parquet.

    Returns:
        The counts, of all runs together.

    Raises:
        InputError: the folder holds something else, was made with other settings or of other inputs; an
            input cannot be read on; there are no rows.
        OutputError: another job holds the folder, or a file cannot be written. What was done is kept.
    """
    shard_rows = whole("rows per shard", shard_rows, least=1)
    # Process n of m takes the shards that leave n when divided by m.
    whole("share", share[0], least=0, most=share[1] - 1)
    form = Parquet() if form is None else form
    with _system_memory(), Folder.locked(out, form.ending) as folder:
        # From here: what the folder holds, what is asked for, and whether both agree.
        manifest = folder.manifest()
        if manifest is not None and manifest.get("vectors") == 0 < manifest["rows"]:
            folder.remove()  # nobody has any use for it: the corrected command may have its place
            manifest = None
        # An earlier run has settled precision and kernel.
        work = open_work(None if manifest is None else _earlier(manifest, folder))
        # What the inputs hold, by hash: other inputs are refused.
        stated, rows = inputs.fingerprint()
        settings = {**_settings(inputs, work, shard_rows, form), "share": list(share)}
        # Columns that cannot be written are refused before the first row.
        form.prepare(inputs, work)
        begun = manifest is not None
        if manifest is None:
            manifest = {
                "format": _FORMAT,
                "about": dict(work.about),
                "settings": settings,
                "inputs": stated,
                "complete": False,
            }
            folder.write_manifest(manifest)
        else:
            # Settings first: they explain more than a hash does.
            check_same(str(out), manifest["settings"], settings)
            check_inputs(str(out), manifest["inputs"], stated)
        job = _Job(
            inputs=inputs,
            folder=folder,
            work=work,
            form=form,
            manifest=manifest,
            shard_rows=shard_rows,
            share=share,
            # How many rows a share of the shards has is not known.
            of=rows if share == (0, 1) else None,
            on_progress=on_progress,
            spread=spread or _here,
        )
        try:
            return job.run()
        except InputError:
            if not begun and not folder.records():
                folder.remove()  # what is refused leaves nothing that would refuse the corrected command
            raise


@contextmanager
def _system_memory() -> Iterator[None]:
    """Lets Arrow, if it is there, use the system's allocator: its own keeps tens of MB that nobody uses."""
    pa: Any = sys.modules.get("pyarrow")
    if pa is None:
        yield
        return
    # Put back afterwards: it is of the whole process.
    before = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(before)


def _earlier(manifest: Mapping[str, Any], folder: Folder) -> Mapping[str, Any]:
    if manifest.get("format") != _FORMAT or not isinstance(manifest.get("settings"), dict):
        raise InputError(
            f"{str(folder.path / MANIFEST)!r} is of another version of regard; choose a new folder."
        )
    settled: Mapping[str, Any] = manifest["settings"]["embedding"]
    return settled


def _settings(inputs: Inputs, work: Work, shard_rows: int, form: Form) -> dict[str, Any]:
    columns = inputs.columns
    return {
        "embedding": dict(work.settled),
        "rows_per_shard": shard_rows,
        "rows_per_block": BLOCK_ROWS,
        "text_columns": list(columns.texts),
        "id_column": columns.id,
        "kept_columns": list(columns.keep),
        "encoding": inputs.encoding,
        "csv": asdict(inputs.csv),
        **({} if inputs.unit == "line" else {"unit": inputs.unit}),
        "types": {field.name: field.stated for field in inputs.fields},
        "versions": {"regard": __version__, **dict([form.library])},
    }


def _here(work: Work, blocks: Iterable[Block]) -> Iterator[tuple[Block, Piece | None]]:
    return ((block, work.embed(block.texts) if block.texts else None) for block in blocks)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Job:
    inputs: Inputs
    folder: Folder
    work: Work
    form: Form
    manifest: dict[str, Any]
    shard_rows: int
    share: tuple[int, int]
    of: int | None
    on_progress: Callable[[JobState], object] | None
    spread: Spread

    def run(self) -> Summary:
        began = time.perf_counter()
        records = self._records()
        # Recorded, and still there with its size.
        done = {
            shard: record for shard, record in records.items() if self.folder.is_there(shard, record["bytes"])
        }
        before = sum(record["rows"] for record in done.values())
        try:
            # A complete job has nothing to do, unless a shard was lost.
            if not self.manifest["complete"] or len(done) < len(records):
                self._embed(done, before, began)
        except OutputError as error:
            raise OutputError(
                f"{error} What is done stays: {len(self.folder.records())} shards of {self.shard_rows} "
                "rows. The same command goes on."
            ) from error
        return self._finish(before, time.perf_counter() - began)

    def _records(self) -> dict[int, dict[str, Any]]:
        """What is recorded of the shards: in the manifest at the end, before that in files of their own."""
        # Records of their own count more: they are younger.
        stated = {each["shard"]: each for each in self.manifest.get("shards", [])}
        return stated | self.folder.records()

    def _embed(self, done: Mapping[int, object], before: int, began: float) -> None:
        """Reads all rows, and embeds those of shards that are not done."""
        self.folder.go_on()
        here = tokens = 0
        rows = self.inputs.blocks(shard_rows=self.shard_rows, characters=self.work.characters)
        first, step = self.share
        # All rows are read, to know their numbers; only these are embedded.
        mine = (block for block in rows if block.shard % step == first)
        wanted = (block for block in mine if block.shard not in done)
        writer = _Writer(self.folder, self.form)
        try:
            # Reading, computing and writing at the same time, each in its thread.
            with ahead(wanted, _DEPTH) as blocks, behind(writer.take, _DEPTH) as write:
                for block, piece in self.spread(self.work, blocks):
                    write((block, piece))
                    here += len(block.rows.numbers)
                    tokens += 0 if piece is None else piece.counts.get("tokens", 0)
                    self._tell(before + here, here, tokens, began)
        finally:
            # A shard that is not whole is made again.
            writer.abandon()

    def _tell(self, rows: int, here: int, tokens: int, began: float) -> None:
        if self.on_progress is not None:
            seconds = time.perf_counter() - began
            self.on_progress(JobState(rows=rows, of=self.of, here=here, tokens=tokens, seconds=seconds))

    def _finish(self, before: int, seconds: float) -> Summary:
        records = list(self._records().values())
        # Written once, when all shards are there.
        if not self.manifest["complete"]:
            self.folder.write_quarantine()
        totals = _totals(records)
        manifest = {**self.manifest, "complete": True, **totals, "shards": records}
        # Nothing new: the file keeps its date.
        if manifest != self.manifest:
            self.folder.write_manifest(manifest)
        self.folder.finish()
        return Summary(
            folder=str(self.folder.path), shards=len(records), **totals, before=before, seconds=seconds
        )


def _totals(records: list[dict[str, Any]]) -> dict[str, Any]:
    counts: Counter[str] = Counter()
    for record in records:
        counts.update(record["counts"])
    names = ("rows", "texts", "vectors", "rejected", "bytes")
    return {**{name: sum(each[name] for each in records) for name in names}, "counts": dict(counts)}


class _Writer:
    """Writes blocks into shards, and records each shard that is whole. Runs in a thread of its own."""

    def __init__(self, folder: Folder, form: Form) -> None:
        self._folder, self._form = folder, form
        self._shard: Shard | None = None

    def take(self, item: tuple[Block, Piece | None]) -> None:
        block, piece = item
        if self._shard is None:
            unfinished, place = self._folder.unfinished(block.shard), self._folder.part(block.shard)
            self._shard = Shard(unfinished, place, self._form)
        self._shard.add(block, piece)
        # Its last block: the shard is whole.
        if block.closes:
            full, self._shard = self._shard, None
            self._folder.record(block.shard, {"shard": block.shard, **full.finish()})

    def abandon(self) -> None:
        """Drops a shard that is not whole."""
        if self._shard is not None:
            self._shard.abandon()
            self._shard = None
