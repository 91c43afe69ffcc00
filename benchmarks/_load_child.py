"""Loads a folder in a process of its own, and prints what that took; run by bench_models.

    python _load_child.py regard|transformers FOLDER

`load_s` is from the call to the model, `first_s` to the first answer, which reads every weight; `mib` is what
the process's memory (its proportional share) has grown by at that point, without the library's own import.
"""

import gc
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

KIND, FOLDER = sys.argv[1:]


def memory() -> float:
    """MiB, the proportional set size."""
    gc.collect()
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise SystemExit("smaps_rollup: wanted a line of Pss, got none")


def _regard() -> Callable[[str], Any]:
    from regard.models import load_checkpoint  # what regard.load is, with the import already done

    return lambda folder: load_checkpoint(folder).network


def _transformers() -> Callable[[str], Any]:
    from transformers import BertModel

    return lambda folder: BertModel.from_pretrained(folder).eval()


def main() -> None:
    load = _regard() if KIND == "regard" else _transformers()
    ids = torch.arange(1, 9)[None]
    before = memory()
    start = time.perf_counter()
    model = load(FOLDER)
    loaded = time.perf_counter()
    with torch.inference_mode():
        state = model(ids).last_hidden_state
    first = time.perf_counter()
    print(
        json.dumps(
            {
                "load_s": loaded - start,
                "first_s": first - start,
                "mib": memory() - before,
                "answer": float(state.double().abs().mean()),
            }
        )
    )


if __name__ == "__main__":
    main()
