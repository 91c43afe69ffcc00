"""The families under test: every entry, by its id.

One entry a `model_type`, and one more for every variation of its configuration that changes a number. An
entry lists classes of transformers and fields as they stand in config.json, and gets every test in this
folder. Every field that changes a number is there, and differs from its default: one that is not read shows.

Sizes are distinct primes where the architecture lets them be. RoPE needs an even head_dim, grouped heads a
composite number of query heads: 2 x 5 and 2 x 3 then.
"""

from parity.families_both import ENCODER_DECODERS
from parity.families_decoders import DECODERS
from parity.families_encoders import ENCODERS
from regard.models import FAMILIES

ENTRIES = {str(entry): entry for entry in (*ENCODERS, *DECODERS, *ENCODER_DECODERS)}
"""Every entry by its id."""

UNDER_TEST = [name for name, entry in ENTRIES.items() if entry.name in FAMILIES]
"""The ids of the entries whose family regard has."""

PLAINLY = [name for name in UNDER_TEST if name == ENTRIES[name].name]
"""One entry a family: without those that set a field otherwise."""

_SAME_PARAMETERS = {
    "gpt2-scaled-by-layer",
    "llama-llama3",
    "llama-yarn",
    "llama-linear",
    "llama-dynamic",
    "llama-longrope",
    "phi3-longrope",
    "qwen2-windows",
    "qwen3-windows",
    "bart-unscaled",
}
OF_PARAMETERS = [name for name in UNDER_TEST if name not in _SAME_PARAMETERS]
"""For what concerns parameters alone: without the entries that only compute otherwise with a family's own."""

SOME = ("bert", "gpt2", "llama", "t5")
"""For what no family does in its own way: the plainest, fused and transposed tensors, rotary positions with
grouped heads, and two stacks."""
