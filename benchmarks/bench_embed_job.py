"""From Parquet to Parquet: the rate of a job, its memory, and how long a process takes to its first vector.

    python benchmarks/bench_embed_job.py TEXTS [--parts rate memory start] [--limit 4000] [--repeats 5]
        [--rows 10000 40000] [--keep]

TEXTS has one text a line. *Rate*: the job of `regard embed` on so many of them, in turns with the same model
on the same texts in memory; the vectors of both are compared. *Memory*: the largest resident size of a
process that embeds so many rows of a few words, repeated from TEXTS. *Start*: seconds from the start of a
process to the first vector of one text, beside sentence-transformers and a process that only imports torch.
The last line is the result as JSON.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from _harness import finish, machine

from regard.embedding import Embedder, Request
from regard.embedding.job import Columns, Inputs, ModelWork, run
from regard.models import load_checkpoint

_FIRST_VECTOR = {
    "regard": "import regard; vectors = regard.load().embed(['a river bank'])",
    "sentence-transformers": (
        "from sentence_transformers import SentenceTransformer; "
        "vectors = SentenceTransformer({folder!r}).encode(['a river bank'])"
    ),
    "import torch": "import torch; vectors = torch.ones(1, 384)",
}


def rate(lines: list[str], options: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """The job over the same in memory."""
    texts = (lines * (1 + options.limit // len(lines)))[: options.limit]
    source, out = scratch / "texts.parquet", scratch / "out"
    pq.write_table(pa.table({"text": texts}), source)
    loaded = load_checkpoint()
    embedder = Embedder(loaded, Request())
    vectors = embedder.sentences(texts).vectors
    in_memory, as_job = [], []
    for _ in range(options.repeats):
        start = time.perf_counter()
        embedder.sentences(texts)
        in_memory.append(time.perf_counter() - start)
        start = time.perf_counter()
        run(Inputs([source], Columns()), out, lambda earlier: ModelWork(loaded, Request(), earlier))
        as_job.append(time.perf_counter() - start)
        written = pq.read_table(out, columns=["vector"])["vector"].combine_chunks()
        stored = np.stack([chunk.as_py() for chunk in written])
        apart = float(np.abs(stored - vectors).max() / np.abs(vectors).max())
        assert apart <= 2e-6, f"the job's vectors are {apart:g} of the largest entry away"
        shutil.rmtree(out)
    ratio = median(in_memory) / median(as_job)
    print(
        f"{len(texts)} texts: in memory {median(in_memory):.2f} s, from Parquet to Parquet "
        f"{median(as_job):.2f} s: {ratio:.2f} of the rate"
    )
    return {
        "texts": len(texts),
        "precision": embedder.settled["precision"],
        "memory_s": round(median(in_memory), 3),
        "job_s": round(median(as_job), 3),
        "rate_of_memory": round(ratio, 3),
    }


def memory(lines: list[str], options: argparse.Namespace, scratch: Path) -> list[dict[str, Any]]:
    """The largest resident size by rows."""
    words = [" ".join(line.split()[:3]) for line in lines]
    found = []
    for rows in options.rows:
        source, out = scratch / f"{rows}.parquet", scratch / f"out-{rows}"
        pq.write_table(pa.table({"text": (words * (1 + rows // len(words)))[:rows]}), source)
        command = [sys.executable, "-m", "regard", "embed", str(source), "-o", str(out), "--json"]
        start = time.perf_counter()
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        peak = 0
        while child.poll() is None:
            peak = max(peak, _largest(child.pid))
            time.sleep(0.02)
        seconds = time.perf_counter() - start
        assert child.returncode == 0, f"regard embed ended with {child.returncode}"
        assert sum(pq.read_metadata(each).num_rows for each in out.glob("*.parquet")) == rows
        found.append({"rows": rows, "peak_mb": round(peak / 1000), "seconds": round(seconds, 1)})
        print(f"{rows} rows of a few words: {found[-1]['peak_mb']} MB at most, {seconds:.0f} s", flush=True)
        shutil.rmtree(out)
    return found


def _largest(pid: int) -> int:
    """The largest resident size so far, in KB; not that of wait4, which begins with the parent's."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    return 0


def start_up(options: argparse.Namespace) -> dict[str, float]:
    """Seconds to the first vector, in turns."""
    folder = str(load_checkpoint().source.folder)
    taken: dict[str, list[float]] = {name: [] for name in _FIRST_VECTOR}
    for _ in range(options.repeats + 1):
        for name, code in _FIRST_VECTOR.items():
            begun = time.time()
            tell = f"{code.format(folder=folder)}; import time; print(time.time(), vectors.shape)"
            told = subprocess.run([sys.executable, "-c", tell], capture_output=True, text=True, check=True)
            ended, shape = told.stdout.splitlines()[-1].split(" ", 1)
            assert "1, 384" in shape, f"{name} gave {shape}"
            taken[name].append(float(ended) - begun)
    # The first turn reads the files from disk.
    seconds = {name: round(median(each[1:]), 2) for name, each in taken.items()}
    print("to the first vector:", ", ".join(f"{name} {each:.2f} s" for name, each in seconds.items()))
    print(f"  sentence-transformers / regard = {seconds['sentence-transformers'] / seconds['regard']:.2f}")
    return seconds


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("texts", type=Path)
    parts = ["rate", "memory", "start"]
    parser.add_argument("--parts", nargs="+", default=parts, choices=parts)
    parser.add_argument("--limit", type=int, default=4000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rows", nargs="+", type=int, default=[10_000, 40_000])
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = [line for line in options.texts.read_text().split("\n") if line]
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        if "start" in options.parts:
            results.append({"start_s": start_up(options)})
        if "rate" in options.parts:
            results.append({"rate": rate(lines, options, Path(scratch))})
        if "memory" in options.parts:
            results.append({"memory": memory(lines, options, Path(scratch))})
    finish("embed_job", machine("sentence-transformers", "pyarrow"), results, keep=options.keep)


if __name__ == "__main__":
    main()
