"""Put every architecture of transformers, tiny and random, under the lens; what came goes into docs/howto/.

    .venv/bin/python scripts/sweep.py           all; writes lens.csv there, and the counts in lens.md
    .venv/bin/python scripts/sweep.py bert t5   some, and print what came

Each architecture runs in a worker process with a time limit, so that one that crashes or hangs is a row of
the file and no more.
"""

import argparse
import csv
import io
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent.parent / "docs"
BEGIN, END = "<!-- sweep: begin (scripts/sweep.py writes this) -->", "<!-- sweep: end -->"
SECONDS = 120.0


class Worker:
    """A process that looks at one architecture after the other, started again when it is lost."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None

    def look(self, model_type: str, seconds: float) -> dict[str, Any]:
        """What came of one architecture."""
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "ignore", str(Path(__file__).with_name("sweep_worker.py"))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env={**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"},
            )
            assert self.process.stdout is not None
            self.process.stdout.readline()  # it has imported everything: the time limit begins
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        answers: queue.Queue[str] = queue.Queue()
        stdout = self.process.stdout
        threading.Thread(target=lambda: answers.put(stdout.readline()), daemon=True).start()
        self.process.stdin.write(model_type + "\n")
        self.process.stdin.flush()
        try:
            line = answers.get(timeout=seconds)
        except queue.Empty:
            self.stop()
            return {"model_type": model_type, "result": "not built", "why": f"took more than {seconds:.0f} s"}
        if not line:
            code = self.process.wait()
            self.process = None
            return {"model_type": model_type, "result": "not built", "why": f"the process ended with {code}"}
        answer: dict[str, Any] = json.loads(line)
        return answer

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def sweep(model_types: list[str], seconds: float = SECONDS) -> list[dict[str, Any]]:
    """Look at each; progress on stderr."""
    worker, rows = Worker(), []
    start = time.monotonic()
    for number, model_type in enumerate(model_types, start=1):
        rows.append(worker.look(model_type, seconds))
        row = rows[-1]
        print(
            f"{number}/{len(model_types)} {time.monotonic() - start:.0f} s  {model_type}: {row['result']}"
            f"{' - ' + row['why'] if row.get('why') else ''}",
            file=sys.stderr,
        )
    worker.stop()
    return rows


_ORDER = ("seen", "seen, text only", "refused", "fails", "not built", "no text")
_MEANING = {
    "seen": "traced: output bit for bit the untouched model's, weights those of eager attention, every tap "
    "written changes the output",
    "seen, text only": "the same, but without the images or the sound that it also reads",
    "refused": "`regard.lens` raises, and names the reason",
    "fails": "a check of this sweep does not hold",
    "not built": "no tiny model could be built from its configuration, so nothing is known",
    "no text": "reads images, sound or numbers; or is a part of another, with no class of its own that takes "
    "token ids",
}


def counts(rows: list[dict[str, Any]], version: str) -> str:
    """The Markdown between the markers: how many of each result."""
    found = Counter(row["result"] for row in rows)
    lines = [
        f"transformers {version}: {len(rows)} architectures.",
        "",
        "| result | number | meaning |",
        "|---|---:|---|",
        *(f"| {each} | {found[each]} | {_MEANING[each]} |" for each in _ORDER if found[each]),
    ]
    return "\n".join(lines)


_FIELDS = ("result", "architecture", "class", "kernel", "layers", "context", "weights", "reason")


def table(rows: list[dict[str, Any]]) -> str:
    """The CSV: a row for each architecture, in the order of the results."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(_FIELDS)
    for row in sorted(rows, key=lambda row: _ORDER.index(row["result"])):
        errors = [f"{row[name]:.0e}" if row.get(name) is not None else "" for name in ("context", "eager")]
        told = [row.get(name) or "" for name in ("class", "kernel", "layers")]
        why = " ".join((row.get("why") or "").split())
        writer.writerow([row["result"], row["model_type"], *told, *errors, why])
    return file.getvalue()


def write(block: str, path: Path) -> None:
    """Put the block between the page's markers."""
    before, rest = path.read_text("utf-8").split(BEGIN, 1)
    path.write_text(f"{before}{BEGIN}\n{block}\n{END}{rest.split(END, 1)[1]}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model_type", nargs="*", help="by default every one that transformers knows")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="time limit for one architecture")
    parser.add_argument("--json", type=Path, help="also write the rows there")
    arguments = parser.parse_args()
    import transformers
    from transformers import CONFIG_MAPPING

    chosen = arguments.model_type or sorted(CONFIG_MAPPING)
    rows = sweep(chosen, arguments.seconds)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    if arguments.model_type:
        print(table(rows), end="")
    else:
        (DOCS / "howto/lens.csv").write_text(table(rows), encoding="utf-8")
        write(counts(rows, transformers.__version__), DOCS / "howto/lens.md")


if __name__ == "__main__":
    main()
