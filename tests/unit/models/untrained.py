"""Models before training, with a tokenizer of plain words: nothing may be claimed of what they look at."""

from dataclasses import replace
from typing import Any

from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, processors

import regard
from regard.models import new_network
from regard.positions import Rotary
from regard.text import Tokenizer
from unit.models import tiny
from unit.models.folders import CONFIGS

SENTENCES = (
    "The trophy does not fit into the suitcase because it is too big.",
    "Write a poem about a man fishing on a river bank.",
    "fit into it",
    "bank bank bank bank bank",
)
FAMILIES = {"bert": "encoder", "gpt2": "decoder", "llama": "decoder"}

_SPLIT = pre_tokenizers.Whitespace()
_WORDS = sorted({word for text in SENTENCES for word, _ in _SPLIT.pre_tokenize_str(text)})
_ENDS = ["[CLS]", "[SEP]"]


def untrained(family: str, seed: int, *, d_model: int = 48, num_heads: int = 6) -> regard.Model:
    """As `new_network` draws it, which is as `transformers` does (tests/parity/test_init.py)."""
    words = [*_ENDS, "[UNK]", *_WORDS]
    backend = Backend(models.WordLevel({word: id for id, word in enumerate(words)}, unk_token="[UNK]"))
    backend.pre_tokenizer = _SPLIT
    if FAMILIES[family] == "encoder":
        backend.post_processor = processors.BertProcessing(("[SEP]", 1), ("[CLS]", 0))
        backend.add_special_tokens(_ENDS)
    sizes: dict[str, Any] = {
        "vocab_size": len(words),
        "d_model": d_model,
        "num_heads": num_heads,
        "num_layers": 3,
        "d_ff": 2 * d_model,
        "max_seq_len": 32,
    }
    if family == "llama":
        head_dim = d_model // num_heads
        layers = ("full_attention",) * 3
        sizes |= {"num_kv_heads": num_heads, "head_dim": head_dim, "layer_types": layers}
        sizes["rotary"] = Rotary(head_dim, base=10_000.0)
    network = new_network(replace(CONFIGS[family], **sizes), seed=seed).eval()
    return regard.Model(tiny.loaded(network, tokenizer=Tokenizer.from_str(backend.to_str()), family=family))
