"""From hidden states to logits: the last norm and the head, by themselves or inside the whole model."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from regard._lens import LensNetwork
from regard.core import Taps
from regard.core.errors import InputError
from regard.models import LastState, Network, StackKind, Transformer
from regard.tracing.measures._needed import hidden_of
from regard.tracing.record import Trace
from regard.tracing.run import run_again


def logits_of_layers(trace: Trace, layers: Sequence[int], rows: Sequence[int]) -> Iterator[Tensor]:
    """What the model's last norm and head make of the states after each number of layers.

    Args:
        trace: whose states.
        layers: 0 is what layer 0 reads, L what the model itself reads its logits from.
        rows: positions.

    Yields:
        For each of the layers (rows, vocab_size), in the model's type.

    Raises:
        InputError: no hidden states, or no head that gives each position logits of the vocabulary.
    """
    network = trace.require_model().network.plain
    kind = outermost(network)
    hidden = hidden_of(trace, kind)
    check_head(trace)
    for layer in layers:
        is_last = layer == len(hidden) - 1
        with torch.no_grad():
            if isinstance(network, Transformer):
                yield _by_head(network, kind, hidden[layer], is_last, rows)
            else:
                # What the model says is that of its own pass, with its edits.
                runs = trace.require_model().network if is_last else network
                yield _by_pass(trace, runs, kind, None if is_last else hidden[layer], rows)


def outermost(network: Network) -> StackKind:
    """The stack that the head reads: the decoder where there is one."""
    return list(network.prefixes)[-1]


def check_head(trace: Trace) -> None:
    """Refuse a model without a head that gives every position a logit for each token.

    Raises:
        InputError: there is none; a table of learned embeddings is not taken for one.
    """
    network = trace.require_model().network.plain
    if isinstance(network, Transformer):
        output = output_layer_of(network)
    else:
        output = network.hf_model.get_output_embeddings() if isinstance(network, LensNetwork) else None
    if output is None or "logits" not in network.tap_names():
        raise InputError(
            f"{trace.model} has no head that gives every position a logit for each token: load a checkpoint "
            "with its language-model or masked-language-model head (through the lens, hand in that model)."
        )


def output_layer_of(network: Transformer) -> nn.Linear | None:
    """The last layer of a head over the vocabulary; None where the head is another, or there is none."""
    head = network.head
    output = getattr(getattr(head, "predictions", head), "output", None)
    return output if isinstance(output, nn.Linear) else None


def _by_head(
    network: Transformer, kind: StackKind, hidden: Tensor, is_last: bool, rows: Sequence[int]
) -> Tensor:
    assert network.head is not None
    # A trace may have kept the states in another type than the model's.
    norm, state = network.stack(kind).norm, hidden[list(rows)][None].to(next(network.parameters()).dtype)
    if norm is not None and not is_last:
        state = norm(state)
    ids = torch.zeros(state.shape[:2], dtype=torch.int64, device=state.device)
    logits: Tensor = network.head(LastState(state=state, token_ids=ids))
    return logits[0]


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

    logits = run_again(trace, network, logits=True, taps=Taps({point: put})).logits
    assert logits is not None
    return logits[0, list(rows)]
