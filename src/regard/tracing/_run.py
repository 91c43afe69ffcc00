"""Running a model on a text while listening: the fused forward pass, with what a trace keeps read off it."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from regard.core import Taps
from regard.core.errors import InputError, RegardError
from regard.models import Loaded, Network, StackKind
from regard.text import Encoding
from regard.tracing._passage import AttentionTrace, Passage
from regard.tracing._trace import Trace


def trace_text(loaded: Loaded, text: str, pair: str | None = None, *, target: str | None = None) -> Trace:
    """Trace a text, or a pair of texts, through a model.

    Args:
        loaded: the model.
        text: any text.
        pair: a second text, where the tokenizer knows pairs.
        target: what the decoder of an encoder-decoder reads, after its start token; by default nothing.

    Returns:
        The trace; its numbers are those of the model's own forward pass, on the fused kernel.

    Raises:
        InputError: empty text, or more tokens than the model takes: nothing is ever cut off; a target where
            there is no second stack; or a network in training mode.
        RegardError: a query, key or value that is not finite.
        CheckpointError: the model has no tokenizer.
    """
    tokenizer = loaded.require_tokenizer()
    encoding = tokenizer.encode(text, pair)
    if len(loaded.network.prefixes) == 1:
        if target is not None:
            raise InputError("target must be None: this model has no decoder beside its encoder.")
        return _trace(loaded, encoding, None)
    return _trace(loaded, encoding, tokenizer.encode_target(target, _start_id(loaded)))


def trace_ids(
    loaded: Loaded, token_ids: Sequence[int] | Tensor, target_ids: Sequence[int] | Tensor | None = None
) -> Trace:
    """Trace token ids, which need no tokenizer.

    Args:
        loaded: the model.
        token_ids: what the model reads, (N,) or (1, N).
        target_ids: what the decoder of an encoder-decoder reads, its start token first; by default only that.

    Returns:
        As `trace_text`; the tokens have no words.

    Raises:
        InputError: ids that the model does not have, more than it takes, or none; or a network in training
            mode.
        RegardError: a query, key or value that is not finite.
    """
    encoding = Encoding.from_ids(_as_list("token_ids", token_ids), loaded.tokenizer)
    if len(loaded.network.prefixes) == 1:
        if target_ids is not None:
            raise InputError("target_ids must be None: this model has no decoder beside its encoder.")
        return _trace(loaded, encoding, None)
    read = [_start(loaded)] if target_ids is None else _as_list("target_ids", target_ids)
    return _trace(loaded, encoding, Encoding.from_ids(read, loaded.tokenizer))


def _start(loaded: Loaded) -> int:
    start = _start_id(loaded)
    if start is None:
        raise InputError(
            "target_ids must be given: the checkpoint does not say which token its decoder starts with."
        )
    return start


def _start_id(loaded: Loaded) -> int | None:
    """What the decoder reads first; configs are met whose token is beyond a table that was cut."""
    start, config = loaded.network.start_id, loaded.network.config
    rows = getattr(config, "decoder_vocab_size", config.vocab_size)
    if start is not None and not 0 <= start < rows:
        raise InputError(
            f"target_ids must be given: decoder_start_token_id of {loaded.source.name} is {start}, which is "
            f"no row of its table of {rows}."
        )
    return start


def _as_list(name: str, ids: Sequence[int] | Tensor) -> list[int]:
    try:
        values = torch.as_tensor(ids)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:  # words, rows of several lengths
        raise InputError(
            f"{name} must be whole numbers, (N,) or (1, N); got {type(ids).__name__}."
        ) from error
    if values.ndim == 2 and values.shape[0] == 1:
        values = values[0]
    if values.ndim != 1 or not len(values) or values.dtype not in (torch.int64, torch.int32):
        raise InputError(
            f"{name} must be whole numbers, (N,) or (1, N), at least one; "
            f"got {values.dtype} of shape {tuple(values.shape)}."
        )
    listed: list[int] = values.tolist()
    return listed


def _trace(loaded: Loaded, encoding: Encoding, target: Encoding | None) -> Trace:
    network = loaded.network
    if network.training:
        raise InputError(
            "the network must be in evaluation mode: in training, dropout makes every pass another; "
            "call model.network.eval()."
        )
    given: dict[StackKind, Encoding] = dict(zip(network.prefixes, (encoding, target), strict=False))  # type: ignore[arg-type]
    for (kind, each), name in zip(given.items(), ("text", "target"), strict=False):
        _check_length(name if each.texts else _IDS_OF[name], each, network.limit(kind), loaded.source.name)
    device = next(network.parameters()).device
    arguments: dict[str, Any] = {}
    if network.config.num_token_types and encoding.texts:
        arguments["token_types"] = torch.tensor([encoding.type_ids], device=device)
    if target is not None:
        arguments["decoder_token_ids"] = torch.tensor([target.token_ids], device=device)
    kept: dict[str, Any] = {}
    taps = Taps({name: _keep(kept, name) for name in _points(network)})
    with torch.no_grad():
        network(torch.tensor([encoding.token_ids], device=device), logits=False, taps=taps, **arguments)
    passages = {
        kind: _passage(kept, prefix, network.depth(kind), given[kind])
        for kind, prefix in network.prefixes.items()
    }
    return Trace(model=loaded.source.name, loaded=loaded, **passages)


_OF_ATTENTION = ("inputs", "context", "output")
_OF_EMBEDDINGS = ("tokens", "scaled", "positions", "token_types")


def _points(network: Network) -> list[str]:
    """The points that a trace listens at, as far as the network has them."""
    names = frozenset(network.tap_names())
    wanted = []
    for kind, prefix in network.prefixes.items():
        wanted += [f"{prefix}embeddings.{name}" for name in _OF_EMBEDDINGS]
        for layer in range(network.depth(kind)):
            at = f"{prefix}layers.{layer}"
            wanted.append(f"{at}.input")
            wanted += [f"{at}.{each}.{name}" for each in _ATTENTIONS for name in _OF_ATTENTION]
        wanted.append(f"{prefix}output")
    return [name for name in wanted if name in names]


_ATTENTIONS = ("attention", "cross_attention")


def _keep(store: dict[str, Any], name: str) -> Callable[[object], None]:
    # A closure, not a loop variable: each listener writes to its own key.
    def keep(value: object) -> None:
        store[name] = value

    return keep


def _passage(kept: Mapping[str, Any], prefix: str, depth: int, encoding: Encoding) -> Passage:
    hidden = [f"{prefix}layers.{layer}.input" for layer in range(depth)] + [f"{prefix}output"]
    embedded = {name: kept.get(f"{prefix}embeddings.{name}") for name in _OF_EMBEDDINGS}
    layers = {
        each: [layer for layer in range(depth) if f"{prefix}layers.{layer}.{each}.inputs" in kept]
        for each in _ATTENTIONS
    }
    of_layers = {
        each: tuple(_attention(kept, f"{prefix}layers.{layer}.{each}") for layer in found)
        for each, found in layers.items()
    }
    crossed = tuple(layers["cross_attention"])
    return Passage(
        encoding=encoding,
        attention=of_layers["attention"],
        cross_attention=of_layers["cross_attention"],
        cross_layers=crossed if 0 < len(crossed) < depth else None,
        hidden=tuple(kept[name][0] for name in hidden) if _all_in(kept, hidden) else (),
        learned=_row(embedded["tokens"]),
        scaled=_row(embedded["scaled"]),
        positions=_row(embedded["positions"]),
        token_types=_row(embedded["token_types"]),
    )


def _all_in(kept: Mapping[str, Any], names: Collection[str]) -> bool:
    return all(name in kept for name in names)


def _row(value: Tensor | None) -> Tensor | None:
    return None if value is None else value[0]


def _attention(kept: Mapping[str, Any], at: str) -> AttentionTrace:
    inputs = kept[f"{at}.inputs"]
    # Some fused kernels turn a NaN into a zero, and the layers after it would look healthy.
    if not _are_finite(inputs.q, inputs.k, inputs.v):
        raise RegardError(
            f"{at} has queries, keys or values that are not finite: the weights are damaged, or too large "
            f"for {inputs.q.dtype}; load the model again, or with dtype=torch.float32."
        )
    return AttentionTrace(
        inputs=inputs, context=kept[f"{at}.context"][0], output=_row(kept.get(f"{at}.output"))
    )


def _are_finite(*tensors: Tensor) -> bool:
    # A sum with a NaN or an infinity in it is none that is finite, and one pass finds it. The sum of finite
    # numbers may still overflow: only then is each looked at.
    if math.isfinite(sum(float(tensor.sum()) for tensor in tensors)):
        return True
    return all(bool(tensor.isfinite().all()) for tensor in tensors)


_IDS_OF = {"text": "token_ids", "target": "target_ids"}


def _check_length(argument: str, encoding: Encoding, limit: int | None, name: str) -> None:
    count = len(encoding.tokens)
    if limit is not None and count > limit:
        raise InputError(
            f"{argument} has {count} tokens with the special ones, but {name} takes at most {limit}; shorten "
            "it, or give its parts one by one."
        )
