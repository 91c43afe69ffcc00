"""What `model.forecast` tells beside what is then allocated, and what the process grows by.

    python benchmarks/bench_forecast.py [--families gpt2 bert ..] [--ways own lens] [--processes 3]

Each trace runs in a process of its own, whose heap is as loading left it; the sizes are those of
bench_models, with --layers layers and random weights. There is no rival: no other tool tells. The last line
is the result as JSON.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from _families import RIVALS
from _harness import finish, machine

FAMILIES = ["gpt2", "bert", "llama", "t5", "modernbert"]
CHILD = Path(__file__).parent / "_forecast_child.py"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--families", nargs="+", choices=RIVALS, default=FAMILIES)
    arguments.add_argument("--ways", nargs="+", choices=("own", "lens"), default=["own", "lens"])
    arguments.add_argument("--tokens", type=int, nargs="+", default=[128, 256, 512, 1024])
    arguments.add_argument("--what", nargs="+", default=["qk"], help="what is kept")
    arguments.add_argument("--layers", type=int, default=12)
    arguments.add_argument("--processes", type=int, default=3)
    arguments.add_argument("--keep", action="store_true", help="keep the result in benchmarks/results/")
    options = arguments.parse_args()
    print("told / allocated, and told / grown of each process, in MB")
    rows = []
    for family in options.families:
        with tempfile.TemporaryDirectory() as folder:
            rows += _family(family, folder, options)
    finish("forecast", machine("transformers"), rows, keep=options.keep)


def _family(family: str, folder: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    rival = RIVALS[family]
    if hasattr(rival.config(), "max_position_embeddings"):
        # RoBERTa's kind begins to count positions at 2.
        sizes = {**rival.sizes, "max_position_embeddings": max(options.tokens) + 2}
        rival = replace(rival, sizes=sizes)
    rival.save(Path(folder), options.layers)
    rows = []
    for way in options.ways:
        for tokens in options.tokens:
            for keep in options.what:
                each = [_child(family, way, folder, tokens, keep) for _ in range(options.processes)]
                ratios = [round(one["told_mb"] / one["grew_mb"], 2) for one in each]
                rows.append({"family": family, "way": way, "tokens": tokens, "keep": keep, "each": each})
                told = ", ".join(f"{one['told_mb']:.0f} / {one['grew_mb']:.0f}" for one in each)
                allocated = f"{each[0]['allocated_told_mb']:.1f} / {each[0]['allocated_mb']:.1f}"
                print(
                    f"{family:<10} {way:<5} {tokens:>6} {keep:<9} {allocated:<16} {told:<40} {ratios}",
                    flush=True,
                )
    return rows


def _child(*arguments: object) -> dict[str, float]:
    command = [sys.executable, str(CHILD), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    result: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


if __name__ == "__main__":
    main()
