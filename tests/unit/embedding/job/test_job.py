"""A job from beginning to end, from where it was left, and where it is refused."""

from __future__ import annotations

import hashlib
import io
import json
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from regard.core.errors import InputError, OutputError
from regard.embedding.job import Columns, Inputs, JobState, Piece, Summary, run
from regard.embedding.job._job import ahead, behind
from unit.embedding.job.works import Hashed, Worded, vector
from unit.on_disk import Disk

ROWS = 101
SHARD = 16


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """A hundred rows, some of which cannot be embedded."""
    path = tmp_path / "texts.jsonl"
    rows = [{"text": f"text {n} of the river", "id": n, "year": 1900 + n} for n in range(ROWS)]
    rows[7]["text"] = None  # type: ignore[assignment]
    rows[40]["text"] = "refuse this"
    rows[100]["text"] = ""
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def embed(texts: Path, out: Path, work: Any = None, **options: Any) -> Summary:
    columns = Columns(id="id", keep=("year",))
    options = {"shard_rows": SHARD} | options
    return run(Inputs([texts], columns), out, lambda earlier: work or Hashed(earlier), **options)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def interrupted(texts: Path, out: Path, after: int, **options: Any) -> None:
    """Runs until so many rows are done."""

    class Stopped(Exception):
        pass

    def stop(progress: JobState) -> None:
        if progress.here >= after:
            raise Stopped

    with pytest.raises(Stopped):
        embed(texts, out, on_progress=stop, **options)


def test_the_result(texts: Path, tmp_path: Path) -> None:
    told: list[JobState] = []
    summary = embed(texts, tmp_path / "out", on_progress=told.append)
    assert (summary.rows, summary.texts, summary.vectors, summary.rejected) == (ROWS, ROWS - 3, ROWS - 3, 3)
    assert (summary.shards, summary.before) == (7, 0)
    assert summary.bytes == sum(path.stat().st_size for path in (tmp_path / "out").glob("*.parquet"))
    assert [each.rows for each in told] == [16, 32, 48, 64, 80, 96, 101]
    assert told[-1].of == ROWS
    table = pq.read_table(tmp_path / "out")  # what stands beside the shards is passed over
    assert table.schema.names == ["row", "id", "year", "vector"]
    good = [n for n in range(ROWS) if n not in (7, 40, 100)]
    assert table.column("row").to_pylist() == table.column("id").to_pylist() == good
    assert table.column("year").to_pylist() == [1900 + n for n in good]
    vectors = np.array(table.column("vector").to_pylist(), np.float32)
    for n, found in zip(good, vectors, strict=True):
        assert (found[1:] == vector(f"text {n} of the river")[1:]).all()
    quarantine = [json.loads(line) for line in (tmp_path / "out/_quarantine.jsonl").read_text().splitlines()]
    assert quarantine == [
        {"row": 7, "id": 7, "input": "texts.jsonl", "input_row": 8, "reason": "the text is null"},
        {"row": 40, "id": 40, "input": "texts.jsonl", "input_row": 41, "reason": "no token is left"},
        {"row": 100, "id": 100, "input": "texts.jsonl", "input_row": 101, "reason": "the text is empty"},
    ]


def test_the_manifest(texts: Path, tmp_path: Path) -> None:
    embed(texts, tmp_path / "out")
    manifest = json.loads((tmp_path / "out/_manifest.json").read_text())
    assert manifest["settings"]["embedding"] == Hashed().settled
    assert manifest["settings"]["types"] == {"id": "int64", "year": "int64"}
    [stated] = manifest["inputs"]
    assert stated["sha256"] == hashlib.sha256(texts.read_bytes()).hexdigest()
    assert manifest["complete"]
    assert (manifest["rows"], manifest["rejected"]) == (ROWS, 3)
    for shard in manifest["shards"]:
        data = (tmp_path / "out" / shard["name"]).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (shard["bytes"], shard["sha256"])


@pytest.mark.parametrize(("after", "characters"), [(1, 500), (17, 60), (33, 500), (96, 60), (101, 500)])
def test_what_was_interrupted_goes_on(texts: Path, tmp_path: Path, after: int, characters: int) -> None:
    work = Hashed(characters=characters)
    embed(texts, tmp_path / "whole", work)
    interrupted(texts, tmp_path / "out", after, work=work)
    assert not (tmp_path / "out/.lock").exists()
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.parquet")}
    summary = embed(texts, tmp_path / "out", work)
    assert content(tmp_path / "out") == content(tmp_path / "whole")
    for name, written in before.items():
        assert (tmp_path / "out" / name).stat().st_mtime_ns == written
    assert summary.before == len(before) * SHARD - (11 if len(before) == 7 else 0)


def test_a_result_that_is_there_is_left_alone(texts: Path, tmp_path: Path) -> None:
    embed(texts, tmp_path / "out")
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}

    class Idle(Hashed):
        def embed(self, texts: Sequence[str]) -> Piece:
            raise AssertionError("nothing is to be done")

    summary = embed(texts, tmp_path / "out", Idle())
    assert summary.before == summary.rows == ROWS
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()} == before


def test_shards_that_are_lost_are_made_again(texts: Path, tmp_path: Path) -> None:
    embed(texts, tmp_path / "out")
    before = content(tmp_path / "out")
    (tmp_path / "out/part-00000.parquet").unlink()
    (tmp_path / "out/part-00003.parquet").write_bytes(b"cut off")
    (tmp_path / "out/part-00006.parquet").unlink()
    summary = embed(texts, tmp_path / "out")
    assert summary.before == ROWS - 16 - 16 - 5
    assert content(tmp_path / "out") == before


def test_what_was_settled_is_obeyed(texts: Path, tmp_path: Path) -> None:
    handed: list[Any] = []

    def open_work(earlier: Any) -> Hashed:
        handed.append(earlier)
        return Hashed(earlier or {"threads": 2, "engine": {"dtype": "bfloat16"}})

    for _ in range(2):
        run(Inputs([texts], Columns()), tmp_path / "out", open_work, shard_rows=SHARD)
    assert handed == [None, {"engine": {"dtype": "bfloat16"}}]  # threads are no setting


def test_other_settings_are_refused_by_name(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(texts, tmp_path / "out", 17)
    before = sorted((tmp_path / "out").rglob("*"))
    told = (
        r"made with other settings: layer is -1 there and 3 here; engine\.dtype is 'float32' there and not "
        r"stated here\. Give the same ones to go on, or choose a new folder\."
    )
    with pytest.raises(InputError, match=told):
        embed(texts, tmp_path / "out", Hashed({"layer": 3}))
    with pytest.raises(InputError, match=r"rows_per_shard is 16 there and 32 here\."):
        embed(texts, tmp_path / "out", shard_rows=32)
    with monkeypatch.context() as other_version:
        other_version.setattr("regard.embedding.job._job.BLOCK_ROWS", 7)
        with pytest.raises(InputError, match=r"rows_per_block is 2048 there and 7 here\."):
            embed(texts, tmp_path / "out")
    with pytest.raises(InputError, match=r"id_column is 'id' there and None here"):
        run(Inputs([texts], Columns()), tmp_path / "out", Hashed, shard_rows=SHARD)
    with pytest.raises(InputError, match=r"begin a new folder with --precision float32"):
        embed(texts, tmp_path / "out", Hashed({**Hashed().settled, "kernel": "of another processor"}))
    assert sorted((tmp_path / "out").rglob("*")) == before


@pytest.mark.parametrize("complete", [False, True])
def test_another_input_is_refused(texts: Path, tmp_path: Path, complete: bool) -> None:
    if complete:
        embed(texts, tmp_path / "out")
    else:
        interrupted(texts, tmp_path / "out", 17)
    renamed = texts.with_name("renamed.jsonl")
    renamed.write_bytes(texts.read_bytes().replace(b"text 90", b"TEXT 90"))
    with pytest.raises(InputError, match=r"renamed\.jsonl is not what it was when .* was begun: its sha256"):
        embed(renamed, tmp_path / "out")
    renamed.write_bytes(texts.read_bytes() + b'"more"\n')
    with pytest.raises(InputError, match="its bytes was"):
        embed(renamed, tmp_path / "out")
    twice = Inputs([texts, texts], Columns(id="id", keep=("year",)))
    with pytest.raises(InputError, match="begun with 1 input, and here are 2"):
        run(twice, tmp_path / "out", Hashed, shard_rows=SHARD)
    renamed.write_bytes(texts.read_bytes())
    assert embed(renamed, tmp_path / "out").rows == ROWS  # a name is no matter


def test_a_folder_with_something_else(texts: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.doc").write_text("x")
    with pytest.raises(InputError, match=r"holds 'thesis\.doc', which no job has written"):
        embed(texts, out)
    assert content(out) == {"thesis.doc": b"x"}
    (out / "thesis.doc").rename(out / "part-00000.parquet")
    with pytest.raises(InputError, match=r"holds part-00000\.parquet and no _manifest\.json"):
        embed(texts, out)
    (out / "_manifest.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        embed(texts, out)
    (out / "_manifest.json").write_text('{"format": 99}')
    with pytest.raises(InputError, match="of another version of regard"):
        embed(texts, out)
    with pytest.raises(InputError, match="must be a folder; it is a file"):
        embed(texts, texts)
    with pytest.raises(OutputError, match="cannot be written to"):
        embed(texts, tmp_path / "no" / "such")


def test_what_is_refused_leaves_no_new_folder(texts: Path, tmp_path: Path) -> None:
    def open_work(earlier: Any) -> Hashed:
        raise InputError("no such model")

    class Late(Hashed):
        def embed(self, texts: Sequence[str]) -> Piece:
            raise InputError("overlap must be less")

    with pytest.raises(InputError, match="no such model"):
        run(Inputs([texts], Columns()), tmp_path / "out", open_work)
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError, match="overlap must be less"):
        run(Inputs([texts], Columns()), tmp_path / "out", Late)
    assert not (tmp_path / "out").exists()


def test_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text\n")
    with pytest.raises(InputError, match="IN holds no rows"):
        run(Inputs([path], Columns()), tmp_path / "out", Hashed)
    assert not (tmp_path / "out").exists()


def test_only_bad_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("\n\n \n")
    summary = run(Inputs([path], Columns()), tmp_path / "out", Hashed, shard_rows=2)
    assert (summary.rows, summary.texts, summary.rejected, summary.shards) == (3, 0, 3, 2)
    assert pq.read_table(tmp_path / "out").num_rows == 0
    path.write_text("\nthe right file\n")  # may have the place of what is of no use
    summary = run(Inputs([path], Columns()), tmp_path / "out", Hashed, shard_rows=1)
    assert (summary.rows, summary.texts, summary.rejected, summary.shards) == (2, 1, 1, 2)


def test_shares_are_one_job(texts: Path, tmp_path: Path) -> None:
    embed(texts, tmp_path / "whole")
    summaries = [embed(texts, tmp_path / f"out-{n}", share=(n, 3)) for n in range(3)]
    assert [each.shards for each in summaries] == [3, 2, 2]
    assert sum(each.rows for each in summaries) == ROWS
    together = content(tmp_path / "out-0") | content(tmp_path / "out-1") | content(tmp_path / "out-2")
    for name, data in content(tmp_path / "whole").items():
        assert name[0] == "_" or together[name] == data
    assert embed(texts, tmp_path / "out-1", share=(1, 3)).before == summaries[1].rows
    assert embed(texts, tmp_path / "none", share=(8, 9)).rows == 0
    assert embed(texts, tmp_path / "none", share=(8, 9)).shards == 0
    with pytest.raises(InputError, match=r"share is \[1, 3\] there and \[0, 3\] here"):
        embed(texts, tmp_path / "out-1", share=(0, 3))
    with pytest.raises(InputError, match="share must be a whole number, from 0 to 2; got 3"):
        embed(texts, tmp_path / "more", share=(3, 3))


def test_a_row_a_word(texts: Path, tmp_path: Path) -> None:
    work = Worded(characters=200)
    summary = embed(texts, tmp_path / "out", work)
    table = pq.read_table(tmp_path / "out")
    assert table.schema.names == ["row", "id", "year", "text", "vector"]
    assert table.num_rows == summary.vectors == (ROWS - 3) * 5 + 2
    found = [row for row in table.select(["row", "id", "year", "text"]).to_pylist() if row["row"] == 33]
    assert [row["text"] for row in found] == ["text", "33", "of", "the", "river"]
    assert {(row["id"], row["year"]) for row in found} == {(33, 1933)}
    with pytest.raises(InputError, match="--keep 'text': the result has a column of this name of its own"):
        run(Inputs([texts], Columns(keep=("text",))), tmp_path / "other", lambda earlier: work)
    assert not (tmp_path / "other").exists()


class Stdin:
    def __init__(self, data: bytes) -> None:
        self.buffer = io.BytesIO(data)


def from_stdin(monkeypatch: pytest.MonkeyPatch, data: bytes, out: Path, **options: Any) -> Summary:
    monkeypatch.setattr(sys, "stdin", Stdin(data))
    return run(Inputs([Path("-")], Columns()), out, Hashed, shard_rows=SHARD, **options)


def test_stdin_has_to_come_again(texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = texts.read_bytes()
    from_stdin(monkeypatch, data, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        from_stdin(monkeypatch, data, tmp_path / "out", on_progress=_stop_after(40))
    assert list((tmp_path / "out").glob("*.parquet"))
    for other in (data.replace(b"text 3 ", b"TEXT 3 "), data[:500]):
        with pytest.raises(
            InputError, match=r"stdin is not what it was when .* was begun: its (sha256|bytes)"
        ):
            from_stdin(monkeypatch, other, tmp_path / "out")
    from_stdin(monkeypatch, data, tmp_path / "out")
    assert content(tmp_path / "out") == content(tmp_path / "whole")
    manifest = json.loads((tmp_path / "out/_manifest.json").read_text())
    assert manifest["inputs"][0]["sha256"] == hashlib.sha256(data).hexdigest()


def _stop_after(rows: int) -> Any:
    def stop(progress: JobState) -> None:
        if progress.here >= rows:
            raise KeyboardInterrupt

    return stop


def test_arrow_has_its_allocator_back_after_a_job(texts: Path, tmp_path: Path) -> None:
    before = pa.default_memory_pool().backend_name
    seen = []

    def opened(earlier: Any) -> Hashed:
        seen.append(pa.default_memory_pool().backend_name)
        return Hashed(earlier)

    run(Inputs([texts], Columns()), tmp_path / "out", opened)
    with pytest.raises(InputError):
        run(Inputs([texts], Columns()), tmp_path / "out", opened, shard_rows=7)
    assert seen == ["system", "system"]
    assert pa.default_memory_pool().backend_name == before


def numbers(log: list[int], *, stop: int = 100) -> Iterator[int]:
    try:
        for number in range(stop):
            log.append(number)
            yield number
    finally:
        log.append(-1)


def test_no_further_ahead_than_said() -> None:
    log: list[int] = []
    with ahead(numbers(log), 2) as items:
        assert next(items) == 0
        time.sleep(0.1)
        assert log == [0, 1, 2]  # one taken, two that wait
    assert log[-1] == -1  # closed, and with it what it reads
    assert not [each for each in threading.enumerate() if each.name.startswith("regard-reader")]


def test_an_error_comes_where_the_item_would() -> None:
    def failing() -> Iterator[int]:
        yield 1
        raise KeyError("broken")

    with ahead(failing(), 3) as items:
        assert next(items) == 1
        with pytest.raises(KeyError, match="broken"):
            next(items)


def test_writing_behind_in_order() -> None:
    done: list[int] = []

    def slowly(item: int) -> None:
        time.sleep(0.001)
        done.append(item)

    with behind(slowly, 1) as put:
        for number in range(20):
            put(number)
    assert done == list(range(20))


def test_an_error_behind_reaches_who_puts() -> None:
    def failing(item: int) -> None:
        raise OSError(28, "full")

    def user() -> None:
        with behind(failing, 1) as put:
            for number in range(1000):
                put(number)
                time.sleep(0.001)
        raise AssertionError("it was put long ago")

    with pytest.raises(OSError, match="full"):
        user()
    with pytest.raises(OSError, match="full"), behind(failing, 5) as put:
        put(1)


def test_nothing_more_is_written_after_an_error_in_front() -> None:
    done: list[int] = []
    begun, go = threading.Event(), threading.Event()

    def slowly(item: int) -> None:
        begun.set()
        go.wait(10)
        done.append(item)

    def user() -> None:
        with behind(slowly, 3) as put:
            put(1)
            put(2)
            begun.wait(10)
            threading.Timer(0.05, go.set).start()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        user()
    assert done == [1]


def test_a_shard_is_on_disk_before_it_has_its_name(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    embed(texts, tmp_path / "out")
    assert sum(name.endswith(".parquet") for name in disk.named) == 7
    assert disk.too_early == []
