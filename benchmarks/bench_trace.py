"""A trace of the default model beside transformers' two forward passes, in one run.

    python benchmarks/bench_trace.py [--tokens 32 128 512] [--repeats 15]

The regime: batch 1, float32, all cores. regard's time is that of `model.trace(text)`, from the text to the
record of q, k, v and the residual stream; the rivals are given token ids. `eager` returns every attention
matrix, `fused` returns none. `all weights` computes every weight of every layer and head from the trace.

The answer is checked first: the trace's weights against eager's. The last line is the result as JSON.
"""

import argparse
from typing import Any

import torch
from _harness import finish, machine, seconds, text_of
from transformers import AutoModel

import regard


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--tokens", type=int, nargs="+", default=[32, 128, 512])
    arguments.add_argument("--repeats", type=int, default=15)
    arguments.add_argument("--keep", action="store_true", help="keep the result in benchmarks/results/")
    options = arguments.parse_args()
    model = regard.load()
    folder = str(model.loaded.source.folder)
    eager, fused = (
        AutoModel.from_pretrained(folder, attn_implementation=kind, dtype=torch.float32).eval()
        for kind in ("eager", "sdpa")
    )
    rows: list[dict[str, Any]] = []
    print(
        f"{'tokens':>6} {'trace':>9} {'+ all weights':>14} {'eager':>9} {'fused':>9}   trace / eager, / fused"
    )
    for tokens in options.tokens:
        text = text_of(tokens, lambda text: len(model.tokenizer.encode(text).tokens))
        trace = model.trace(text)
        ids = torch.tensor([trace.token_ids])

        def all_weights(text: str = text) -> None:
            traced = model.trace(text)
            for layer in range(traced.num_layers):
                traced.weights(layer)

        with torch.inference_mode():
            attentions = eager(ids, output_attentions=True).attentions
            difference = max(
                (trace.weights(layer) - attention[0]).abs().max().item()
                for layer, attention in enumerate(attentions)
            )
            assert difference < 1e-5, f"the weights differ from eager's by {difference}"
            took = seconds(
                {
                    "trace": lambda text=text: model.trace(text),
                    "all_weights": all_weights,
                    "eager": lambda ids=ids: eager(ids, output_attentions=True),
                    "fused": lambda ids=ids: fused(ids),
                },
                options.repeats,
            )
        rows.append(
            {
                "tokens": tokens,
                **{f"{name}_ms": round(1000 * value, 3) for name, value in took.items()},
                "trace_over_eager": round(took["trace"] / took["eager"], 3),
                "trace_over_fused": round(took["trace"] / took["fused"], 3),
                "largest_difference_from_eager": difference,
            }
        )
        print(
            f"{tokens:>6} {1000 * took['trace']:>7.1f}ms {1000 * took['all_weights']:>12.1f}ms "
            f"{1000 * took['eager']:>7.1f}ms {1000 * took['fused']:>7.1f}ms   "
            f"{took['trace'] / took['eager']:.2f}, {took['trace'] / took['fused']:.2f}"
        )
    finish("trace", machine("transformers"), rows, keep=options.keep)


if __name__ == "__main__":
    main()
