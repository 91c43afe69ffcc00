"""From hidden states to logits: the last norm and the head, by themselves or inside the whole model."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from regard.core import Taps
from regard.core.errors import InputError
from regard.models import Network, StackKind
from regard.tracing.measures._needed import hidden_of
from regard.tracing.record import Trace
from regard.tracing.run import rerun


def logits_of_layers(trace: Trace, layers: Sequence[int], rows: Sequence[int]) -> Iterator[Tensor]:
    """What the model's last norm and head make of the states after each of the layers: (rows, vocab_size)."""
    edited = trace.require_model().network
    network, kind = edited.plain, outermost(edited)
    hidden = hidden_of(trace, kind)
    check_head(trace)
    dtype = next(network.parameters()).dtype
    for layer in layers:
        is_last = layer == len(hidden) - 1
        with torch.no_grad():
            # A trace may have kept the states in another type than the model's.
            logits = network.readout(hidden[layer][list(rows)][None].to(dtype), normed=is_last)
            if logits is not None and not (is_last and "logits" in edited.written):
                yield logits[0]
            elif is_last:  # what the model says, with its edits
                yield _by_pass(trace, edited, kind, None, rows)
            else:
                yield _by_pass(trace, network, kind, hidden[layer], rows)


def outermost(network: Network) -> StackKind:
    """The stack that the head reads: the decoder where there is one."""
    return list(network.prefixes)[-1]


def check_head(trace: Trace) -> None:
    """Refuse a model without a head that gives every position a logit for each token; a table of learned
    embeddings is not taken for one.
    """
    if not trace.require_model().network.has_vocabulary_head:
        raise InputError(
            f"{trace.model} has no head that gives every position a logit for each token: load a checkpoint "
            "with its language-model or masked-language-model head (through the lens, hand in that model)."
        )


def vocabulary_ids(name: str, trace: Trace, tokens: object, count: int) -> list[int]:
    """The ids of tokens of the vocabulary: one that stands for all positions, or a list with one for each."""
    loaded = trace.require_model()
    config = loaded.network.config
    size = config.vocab_size
    if outermost(loaded.network) == "decoder":
        size = getattr(config, "decoder_vocab_size", size)
    if isinstance(tokens, list) and len(tokens) != count:
        raise InputError(f"{name} must have a token for each of the {count} positions; got {len(tokens)}.")
    found = []
    for token in tokens if isinstance(tokens, list) else [tokens] * count:
        if isinstance(token, str):
            token = loaded.require_tokenizer().id_of(token)
        if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < size:
            raise InputError(f"{name} must be a token, an id from 0 to {size - 1}; got {token!r}.")
        found.append(token)
    return found


def _by_pass(
    trace: Trace, network: Network, kind: StackKind, hidden: Tensor | None, rows: Sequence[int]
) -> Tensor:
    """The model runs, and its last layer hands on these states in the place of its own."""
    point = f"{network.prefixes[kind]}layers.{network.depth(kind) - 1}.output"
    if point not in network.tap_names():
        raise InputError(
            f"this needs the output of the last layer, which {trace.model} does not show through the lens."
        )

    def put(value: Tensor) -> Tensor | None:
        return None if hidden is None else hidden[None].to(value.dtype)

    logits = rerun(trace, network, logits=True, taps=Taps({point: put})).logits
    assert logits is not None
    return logits[0, list(rows)]
