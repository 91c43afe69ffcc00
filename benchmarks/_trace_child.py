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


def kilobytes(field: str) -> int:
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
    for parameter in model.network.parameters():
        parameter.sum()  # they lie in a file that is mapped: pages come in when they are read
    if what == "own-forward":
        return lambda ids: model(ids, logits=False), None
    return lambda ids: model.trace(token_ids=ids, keep=what), model.forecast(tokens, keep=what).peak


def _transformer_lens(tokens: int) -> Callable[[Tensor], Any]:
    """TransformerLens 4, whose bridge wraps a model of transformers and wants a tokenizer all the same."""
    from tokenizers import Tokenizer, models
    from transformer_lens.model_bridge import TransformerBridge
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    torch.manual_seed(0)
    config = GPT2Config(n_positions=max(1024, tokens))
    model = GPT2LMHeadModel._from_config(config, attn_implementation="eager").eval()
    words = Tokenizer(models.WordLevel({"<|endoftext|>": 0}, unk_token="<|endoftext|>"))
    names = dict.fromkeys(("bos_token", "eos_token", "unk_token", "pad_token"), "<|endoftext|>")
    # With name_or_path and add_bos_token it is taken as it is, instead of being fetched again by its name.
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, name_or_path="", **names)
    tokenizer.add_bos_token = True
    bridge = TransformerBridge.boot_transformers("gpt2", hf_model=model, tokenizer=tokenizer)
    return lambda ids: bridge.run_with_cache(ids, return_type=None)


def main() -> None:
    what, tokens = sys.argv[1], int(sys.argv[2])
    run, forecast = _work(what, tokens)
    ids = torch.randint(0, 50257, (1, tokens), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        run(ids[:, :64])
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # what loading has freed goes back first
        Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts anew
        before = kilobytes("VmRSS")
        start = time.perf_counter()
        result = run(ids)
        took = time.perf_counter() - start
        del result
    told: dict[str, Any] = {
        "grew_mb": round((kilobytes("VmHWM") - before) * 1024 / 1e6, 1),
        "seconds": round(took, 2),
    }
    if forecast is not None:
        told["forecast_mb"] = round(forecast / 1e6, 1)
    print(json.dumps(told))


if __name__ == "__main__":
    main()
