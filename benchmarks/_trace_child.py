"""One pass in a process of its own: how long it takes, and what its peak grows by over the loaded model.

    python benchmarks/_trace_child.py WHAT N

WHAT is one of all, qkv, qk, residual, own-forward, fused, fused-no-cache, eager, transformer-lens; N tokens.
The last line is the result as JSON. Linux, for /proc.
"""

import ctypes
import gc
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


def _kilobytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    raise LookupError(field)


def _work(what: str, tokens: int) -> tuple[Callable[[Tensor], Any], Any]:
    """What is measured, and the forecast of it where there is one."""
    if what == "transformer-lens":
        return _transformer_lens(tokens), None
    from _gpt2 import regard_model, transformers_model

    if what in ("fused", "fused-no-cache"):
        fused = transformers_model(tokens)
        return lambda ids: fused(ids, use_cache=what == "fused"), None
    if what == "eager":
        eager = transformers_model(tokens, "eager")
        return lambda ids: eager(ids, output_attentions=True), None
    model = regard_model(tokens)
    if what == "own-forward":
        return lambda ids: model(ids, logits=False), model.forecast(tokens).forward
    return lambda ids: model.trace(token_ids=ids, keep=what), model.forecast(tokens, keep=what).total


def _transformer_lens(tokens: int) -> Callable[[Tensor], Any]:
    from transformer_lens import HookedTransformer, HookedTransformerConfig

    config = HookedTransformerConfig(
        n_layers=12,
        d_model=768,
        n_ctx=max(1024, tokens),
        d_head=64,
        n_heads=12,
        d_mlp=3072,
        d_vocab=50257,
        act_fn="gelu_new",
        normalization_type="LN",
        seed=0,
    )
    model = HookedTransformer(config).eval()
    return lambda ids: model.run_with_cache(ids, return_type=None)


def main() -> None:
    what, tokens = sys.argv[1], int(sys.argv[2])
    run, forecast = _work(what, tokens)
    ids = torch.randint(0, 50257, (1, tokens), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        run(ids[:, :64])
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # what loading has freed goes back first
        Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts anew
        before = _kilobytes("VmRSS")
        start = time.perf_counter()
        result = run(ids)
        took = time.perf_counter() - start
        del result
    told: dict[str, Any] = {
        "grew_mb": round((_kilobytes("VmHWM") - before) * 1024 / 1e6, 1),
        "seconds": round(took, 2),
    }
    if forecast is not None:
        told["forecast_mb"] = round(forecast / 1e6, 1)
    print(json.dumps(told))


if __name__ == "__main__":
    main()
