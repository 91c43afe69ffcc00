"""Running a model on a text while listening: the fused forward pass, with what a trace keeps read off it."""

from collections.abc import Callable

import torch
from torch import Tensor

from regard.core import AttentionInputs, Taps
from regard.core.errors import InputError, RegardError
from regard.models import Loaded
from regard.text import Encoding
from regard.tracing._trace import Trace


def trace_text(loaded: Loaded, text: str, pair: str | None = None) -> Trace:
    """Trace a text, or a pair of texts, through a model.

    Args:
        loaded: the model.
        text: any text.
        pair: a second text, where the tokenizer knows pairs.

    Returns:
        The trace; its numbers are those of the model's own forward pass, on the fused kernel.

    Raises:
        InputError: empty text, or more tokens than the model takes: nothing is ever cut off; or a network in
            training mode.
        RegardError: a query, key or value that is not finite.
        CheckpointError: the model has no tokenizer.
    """
    if loaded.network.training:
        raise InputError(
            "the network must be in evaluation mode: in training, dropout makes every pass another; "
            "call model.network.eval()."
        )
    encoding = loaded.require_tokenizer().encode(text, pair)
    _check_length(encoding, loaded)
    device = next(loaded.network.parameters()).device
    token_ids = torch.tensor([encoding.token_ids], device=device)
    token_types = None
    if loaded.network.config.num_token_types:
        token_types = torch.tensor([encoding.type_ids], device=device)
    num_layers = loaded.network.config.num_layers
    inputs: dict[int, AttentionInputs] = {}
    hidden: dict[int, Tensor] = {}
    outputs: dict[int, Tensor] = {}
    embedded: dict[str, Tensor] = {}
    taps: dict[str, Callable[[object], None]] = {
        "embeddings.tokens": _keep(embedded, "tokens"),
        "embeddings.positions": _keep(embedded, "positions"),
    }
    if token_types is not None:
        taps["embeddings.token_types"] = _keep(embedded, "token_types")
    for layer in range(num_layers):
        taps[f"layers.{layer}.input"] = _keep(hidden, layer)
        taps[f"layers.{layer}.attention.inputs"] = _keep(inputs, layer)
        taps[f"layers.{layer}.attention.output"] = _keep(outputs, layer)
    with torch.no_grad():
        result = loaded.network(token_ids, token_types=token_types, taps=Taps(taps))
    for layer, record in inputs.items():
        # Some fused kernels turn a NaN into a zero, and the layers after it would look healthy.
        if not all(bool(tensor.isfinite().all()) for tensor in (record.q, record.k, record.v)):
            raise RegardError(
                f"layer {layer} has queries, keys or values that are not finite: the weights are damaged, or "
                f"too large for {record.q.dtype}; load the model again, or with dtype=torch.float32."
            )
    return Trace(
        model=loaded.source.name,
        encoding=encoding,
        attention=tuple(inputs[layer] for layer in range(num_layers)),
        learned=embedded["tokens"][0],
        positions=embedded["positions"][0],
        token_types=embedded["token_types"][0] if token_types is not None else None,
        hidden=(*(hidden[layer][0] for layer in range(num_layers)), result.last_hidden_state[0]),
        outputs=tuple(outputs[layer][0] for layer in range(num_layers)),
    )


def _keep(store: dict, key: object) -> Callable[[object], None]:  # type: ignore[type-arg]
    # A closure, not a loop variable: each listener writes to its own key.
    def keep(value: object) -> None:
        store[key] = value

    return keep


def _check_length(encoding: Encoding, loaded: Loaded) -> None:
    count, limit = len(encoding.tokens), loaded.network.config.max_seq_len
    if count > limit:
        raise InputError(
            f"text has {count} tokens with the special ones, but {loaded.source.name} takes at most {limit}; "
            "shorten it, or give its parts one by one."
        )
