"""One trace in a process of its own: what the forecast tells, what the peak grows by over the model, and what
torch's profiler, which is told of every allocation, counts in another trace after it.

    python benchmarks/_forecast_child.py FAMILY WAY FOLDER N KEEP

FAMILY is one of `_families.RIVALS`, saved in FOLDER; WAY own or lens; N tokens, of both sides where there are
two. The last line is the result as JSON. Linux, for /proc.
"""

import ctypes
import gc
import itertools
import json
import sys
from pathlib import Path

import torch
from _families import RIVALS, VOCAB
from _trace_child import kilobytes

import regard


def main() -> None:
    family, way, folder, tokens, keep = sys.argv[1:]
    rival, length = RIVALS[family], int(tokens)
    if way == "own":
        model = regard.load(folder)
    else:
        model = regard.lens(rival.load(Path(folder), torch.float32), None)
    for parameter in model.network.parameters():
        parameter.sum()  # they lie in a file that is mapped: pages come in when they are read

    def ids(count: int) -> dict[str, torch.Tensor]:
        read = torch.randint(3, VOCAB, (1, count), generator=torch.Generator().manual_seed(0))
        return {"token_ids": read} | ({"target_ids": read} if rival.both else {})

    told = model.forecast(length, keep=keep, **({"target_tokens": length} if rival.both else {}))
    model.trace(**ids(min(64, length)), keep=keep)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what loading has freed goes back first
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts anew
    before = kilobytes("VmRSS")
    trace = model.trace(**ids(length), keep=keep)
    grew = (kilobytes("VmHWM") - before) * 1024
    assert trace.num_layers
    del trace
    with torch.profiler.profile(profile_memory=True) as profiler:
        model.trace(**ids(length), keep=keep)
    events = [each for each in profiler.profiler.kineto_results.events() if each.name() == "[memory]"]
    alive = itertools.accumulate(each.nbytes() for each in sorted(events, key=lambda each: each.start_ns()))
    sizes = {"told": told.total, "grew": grew, "allocated_told": told.allocated, "allocated": max(alive)}
    print(json.dumps({f"{name}_mb": round(size / 1e6, 1) for name, size in sizes.items()}))


if __name__ == "__main__":
    main()
