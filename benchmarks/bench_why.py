"""Why one head looks where it looks, beside one pass of the model: time, and memory over a trace.

    python benchmarks/bench_why.py [--tokens 128 512 1024] [--repeats 5] [--keep]

The regime: a model of GPT-2 small's shape (12 layers of 12 heads, random weights), batch 1, float32, all
cores. `why` is `trace.why` of one pair of tokens in a head of the last layer, over the mean of the row, and
`heads` `trace.why_heads` of that head over the whole text; `forward` is the model's own pass, without a head
over the vocabulary. The trace is there before. `grows` is what the process's peak grows by during `why`.

The answer is checked first: the parts sum to the score of `trace.scores`. The last line is the result, as
JSON.
"""

import argparse
import ctypes
import gc
from typing import Any

import torch
from _gpt2 import regard_model, token_ids
from _harness import finish, machine, seconds
from _trace_child import kilobytes

LAYER, HEAD = 11, 3
EXACT = 1e-5


def grown(work: Any) -> int:
    """What the peak grows by while something is done, in KB. Linux."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")  # forgets the peak
    before = kilobytes("VmRSS")
    work()
    return kilobytes("VmHWM") - before


def measure(tokens: int, repeats: int) -> dict[str, Any]:
    """One length's row."""
    model, ids = regard_model(tokens), token_ids(tokens)
    trace = model.trace(token_ids=ids[0].tolist())
    query, key = tokens - 2, tokens // 2
    found = trace.why(LAYER, HEAD, query, key)
    row_of = trace.scores(LAYER, HEAD, query=query)[0].double()
    wanted = float(row_of[key] - row_of[row_of.isfinite()].mean())
    assert abs(found.total - wanted) < EXACT * max(1.0, float(row_of[key].abs())), (found.total, wanted)
    assert abs(trace.why_heads(LAYER, HEAD).error) < EXACT
    took = seconds(
        {
            "why": lambda: trace.why(LAYER, HEAD, query, key),
            "heads": lambda: trace.why_heads(LAYER, HEAD),
            "forward": lambda: model.network(ids),
        },
        repeats,
    )
    row: dict[str, Any] = {"tokens": tokens, "parts": len(found.key_parts)}
    row |= {f"{name}_s": round(value, 4) for name, value in took.items()}
    row["over_forward"] = round(took["why"] / took["forward"], 3)
    row["heads_over_forward"] = round(took["heads"] / took["forward"], 3)
    row["grows_mb"] = round(grown(lambda: trace.why(LAYER, HEAD, query, key)) / 1024, 1)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[128, 512, 1024])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--keep", action="store_true", help="keep the result in benchmarks/results/")
    options = parser.parse_args()
    rows = []
    print(f"{'tokens':>6} {'why':>8} {'heads':>8} {'forward':>8}   over forward   grows")
    with torch.inference_mode():
        for tokens in options.tokens:
            row = measure(tokens, options.repeats)
            rows.append(row)
            times = " ".join(f"{row[f'{name}_s']:7.2f}s" for name in ("why", "heads", "forward"))
            ratios = f"{row['over_forward']:.2f}, {row['heads_over_forward']:.2f}"
            print(f"{tokens:>6} {times}   {ratios:>12}   {row['grows_mb']} MB", flush=True)
    finish("why", machine(), rows, keep=options.keep)


if __name__ == "__main__":
    main()
