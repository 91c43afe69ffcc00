"""`regard embed` as a process: signals, a reader that goes away, and the memory of long jobs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from unit.embedding.job.processes import SECONDS, TESTS, wait_for

REGARD = [sys.executable, "-m", "regard", "embed"]


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"Text {n} is of a river.\n" for n in range(900)))
    return path


def test_stopped_and_continued(texts: Path, tmp_path: Path) -> None:
    command = [*REGARD, str(texts), "--rows-per-shard", "64", "--threads", "1", "-o"]
    out = tmp_path / "out"
    for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        shards = len(list(out.glob("part-*")))
        process = subprocess.Popen(
            [*command, str(out)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        wait_for(lambda before=shards: len(list(out.glob("part-*"))) > before)
        process.send_signal(number)
        printed, err = process.communicate(timeout=SECONDS)
        assert (process.returncode, printed) == (code, "")
        assert err.splitlines()[-1] == "regard: stopped; the same command goes on where it was"
        assert not (out / ".lock").exists()
        assert not list(out.rglob("*.tmp")) + list((out / ".progress").glob("*.parquet"))
    for folder in (out, tmp_path / "whole"):
        done = subprocess.run([*command, str(folder)], capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode == 0, done.stderr
    assert {path.name: path.read_bytes() for path in out.iterdir()} == {
        path.name: path.read_bytes() for path in (tmp_path / "whole").iterdir()
    }


def test_a_reader_that_goes_away(texts: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*REGARD, str(texts), "-o", "-"], stdout=writer, stderr=subprocess.PIPE, timeout=SECONDS
    )
    os.close(writer)
    assert done.returncode in (0, 1)
    assert b"Traceback" not in done.stderr


PEAK = """
import sys
from pathlib import Path
from regard.embedding.job import Columns, Inputs, run
from unit.embedding.job.works import Hashed
path, out = map(Path, sys.argv[1:])
run(Inputs([path], Columns()), out, lambda earlier: Hashed(earlier, characters=100_000), shard_rows=4096)
# Not getrusage: it still knows the peak of the process that this one was forked from.
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_memory_does_not_grow_with_the_rows(tmp_path: Path, ending: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    peaks = []
    for rows in (10_000, 200_000):
        path = tmp_path / f"{rows}.{ending}"
        texts = [f"text {n} of the river and of its bank" for n in range(rows)]
        if ending == "parquet":
            pq.write_table(pa.table({"text": texts}), path, row_group_size=rows)
        else:
            path.write_text("".join(f'{{"text": "{text}"}}\n' for text in texts))
        done = subprocess.run(
            [sys.executable, "-c", PEAK, str(path), str(tmp_path / f"out-{rows}")],
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, sys.path)])},
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        assert done.returncode == 0, done.stderr
        peaks.append(int(done.stdout) / 1024)
    assert peaks[1] < peaks[0] + 10, peaks  # MB; all texts and vectors would be 90 more, Arrow's allocator 13
