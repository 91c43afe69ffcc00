"""Traces of tiny networks in float64 for the tests of measures, and loops over what they hold."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from regard.blocks import Linear
from regard.core import Taps
from regard.models import LanguageModelHead, Network, Transformer
from regard.tracing import Trace, trace_ids
from unit.models import folders, tiny

IDS, TARGET_IDS = [3, 1, 4, 1, 5, 9, 2], [4, 7, 1, 28, 2]
"""Seven tokens, and five that a decoder beside an encoder reads."""

Array = npt.NDArray[np.float64]


def traced(network: Network) -> Trace:
    """`IDS`, and `TARGET_IDS` beside an encoder, traced."""
    return trace_ids(tiny.loaded(network), IDS, TARGET_IDS if len(network.prefixes) == 2 else None)


def of_family(name: str, **changes: Any) -> Network:
    """A family's tiny network in float64, every parameter drawn anew."""
    return tiny.shaken(folders.network(name, **changes))  # type: ignore[arg-type]


def with_head(make: Callable[..., Transformer]) -> Transformer:
    """One of `unit.models.tiny`, with a language-model head that has a bias."""
    rows = tiny.TARGET_VOCAB if make is tiny.both else tiny.VOCAB
    return make(head=LanguageModelHead(Linear(tiny.D_MODEL, rows)))


NETWORKS: dict[str, Callable[[], Network]] = {
    "encoder": lambda: with_head(tiny.encoder),  # post-norm
    "decoder": lambda: with_head(tiny.decoder),  # pre-norm, grouped heads
    "both": lambda: with_head(tiny.both),
    "bart": lambda: of_family("bart", head="language-model"),  # post-norm with cross-attention
    "gemma2": lambda: of_family("gemma2", head="language-model"),  # norms before and after, soft caps
    "gemma3_text": lambda: of_family("gemma3_text", head="language-model"),
    "deberta-v2": lambda: of_family("deberta-v2"),
}
"""By name, a function that makes the network."""


def kinds(*names: str) -> list[tuple[str, Any]]:
    """Each of these networks with each kind of attention it has."""
    found: list[tuple[str, Any]] = []
    for name in names:
        prefixes = list(NETWORKS[name]().prefixes)
        found += [(name, kind) for kind in (*prefixes, *(["cross"] if len(prefixes) == 2 else []))]
    return found


def seen(trace: Trace, names: list[str], writes: dict[str, Any] | None = None) -> dict[str, Tensor]:
    """What passes by at some taps when the model runs on the trace's tokens, with what is written."""
    network, values = trace.require_model().network, {}

    def listener(name: str) -> Callable[[Tensor], Tensor | None]:
        def listen(value: Tensor) -> Tensor | None:
            written = None if writes is None or name not in writes else writes[name](value)
            values[name] = value if written is None else written
            return written

        return listen

    arguments = {}
    if len(network.prefixes) == 2:
        arguments["decoder_token_ids"] = torch.tensor([TARGET_IDS])
    with torch.no_grad():
        output = network(
            torch.tensor([IDS]),
            taps=Taps({name: listener(name) for name in {*names, *(writes or {})}}),
            **arguments,
        )
    values["last_hidden_state"] = output.last_hidden_state
    if output.logits is not None:
        values["logits"] = output.logits
    return values


def prefix(trace: Trace, kind: str) -> str:
    """What stands before the names of the taps of the stack that holds a kind of attention."""
    stack = "decoder" if kind == "cross" else kind
    return trace.require_model().network.prefixes[stack]  # type: ignore[index]


def attention(trace: Trace, kind: str, layer: int) -> str:
    """The name of an attention layer's taps."""
    return f"{prefix(trace, kind)}layers.{layer}.{'cross_attention' if kind == 'cross' else 'attention'}"


def module(trace: Trace, kind: str, layer: int) -> Any:
    """The layer that holds an attention."""
    stack: Any = "decoder" if kind == "cross" else kind
    return trace.require_model().network.stack(stack).layers[layer]  # type: ignore[attr-defined]


def weights(trace: Trace, kind: Any, layer: int) -> Array:
    """(heads, queries, keys), by a loop over rows of q k^T: without the code under test."""
    inputs = trace.attention_of(layer, kind).inputs
    from regard.core import reference_attention

    with torch.no_grad():
        found: Array = reference_attention(inputs).weights[0].double().numpy()
    return found
