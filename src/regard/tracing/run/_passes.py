"""Passes of a network over texts, and again over the text of a trace, with what passes some of its taps."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from regard.core import (
    Taps,
)
from regard.core.arguments import check_function
from regard.core.errors import InputError
from regard.models import Network, Output, StackKind
from regard.models.families.deberta import RelativePositions
from regard.text import Encoding
from regard.tracing.record import Trace

Given = tuple[Encoding, Encoding | None]
"""What the model reads of one text: with a decoder beside an encoder also the target."""


def run(
    network: Network, given: Sequence[Given], *, logits: bool = False, taps: Taps | None = None
) -> Output:
    """One pass over one text or several, of a network in evaluation mode."""
    device = next(network.parameters()).device
    encodings = [encoding for encoding, _ in given]
    ids, types, real = _padded(encodings, device)
    arguments: dict[str, Tensor] = {}
    # Ids alone come without types, which some networks take for something else than types of 0.
    # Types of 0 are left out for ids alone.
    if network.config.num_token_types and (all(each.texts for each in encodings) or bool(types.any())):
        arguments["token_types"] = types
    # A decoder needs none: padding follows the text, and its queries only see what is before them.
    if real is not None and "encoder" in network.prefixes:
        arguments["mask"] = real
    targets = [target for _, target in given if target is not None]
    # Padding at the end does no harm to a decoder.
    if targets:
        arguments["decoder_token_ids"], _, _ = _padded(targets, device)
    output: Output = network(ids, logits=logits, taps=taps, **arguments)
    return output


def rerun(
    trace: Trace,
    network: Network,
    *,
    batch: int = 1,
    logits: bool = False,
    taps: Taps | None = None,
    instead: Mapping[StackKind, Encoding] | None = None,
) -> Output:
    """The forward pass that a trace is of.

    Args:
        trace: whose tokens.
        network: what runs.
        batch: how many copies of them.
        logits, taps: as in `Network.forward`.
        instead: other tokens for some stacks to read, as many as theirs.
    """
    # The texts of the trace, or others in their place.
    encodings = {kind: trace.stack(kind).encoding for kind in network.prefixes}
    source, *targets = (encodings | dict(instead or {})).values()
    pair = (source, targets[0] if targets else None)
    # Edits that name words are those of this text.
    return run(network.for_texts(encodings), [pair] * batch, logits=logits, taps=taps)


def check_traced(network: Network) -> None:
    """Raise InputError if a network cannot be traced, with the reason."""
    if network.untraced is not None:
        raise InputError(f"model must be one that can be traced; of this one {network.untraced}.")


def check_mode(network: Network) -> None:
    """Raise InputError if a network is in training mode, or cannot be traced at all."""
    check_traced(network)
    if network.training:
        raise InputError(
            "the network must be in evaluation mode: in training mode, dropout changes every pass; "
            "call model.network.eval()."
        )


# Tokens of one pass, padding counted: enough to keep the processor busy, and few beside a long text.
_TOKENS = 2048
# How much longer the longest text of a pass may be than the shortest.
_LONGER = 1.5


def batches(network: Network, given: Sequence[Given]) -> Iterator[list[int]]:
    """Which texts run together: those of similar length; through the lens, of the same length.

    A model with edits, which may name words and positions, and DeBERTa, whose bias holds the queries of all
    texts, run on one text at a time.
    """
    # DeBERTa's tables depend on the longest text: a batch would change the numbers of the shorter.
    relative = any(isinstance(each, RelativePositions) for each in network.modules())
    batch: list[int] = []
    # From short to long: then a pass has little padding, which costs as much as tokens do.
    for number in sorted(range(len(given)), key=lambda each: _lengths(given[each])):
        longest = _lengths(given[number])
        shortest = _lengths(given[batch[0]]) if batch else longest
        like = not relative and network.shares_a_pass(shortest, longest)
        like = like and max(longest) <= _LONGER * max(shortest)
        # Padding counts as tokens do.
        most = max(sum(_lengths(given[each])) for each in (*batch, number))
        if batch and (not like or (len(batch) + 1) * most > _TOKENS):
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


def _lengths(given: Given) -> tuple[int, ...]:
    return tuple(len(each.tokens) for each in given if each is not None)


def _padded(encodings: Sequence[Encoding], device: torch.device) -> tuple[Tensor, Tensor, Tensor | None]:
    """Token ids and token types, (texts, longest), and True for what is no padding; None without padding."""
    counts = torch.tensor([[len(each.tokens)] for each in encodings], device=device)
    longest = int(counts.max())

    def rows(values: Sequence[Sequence[int]]) -> Tensor:
        # Padding is id 0: any id that exists will do.
        return torch.tensor([[*each, *[0] * (longest - len(each))] for each in values], device=device)

    real = torch.arange(longest, device=device) < counts
    ids, types = rows([each.token_ids for each in encodings]), rows([each.type_ids for each in encodings])
    return ids, types, None if bool(real.all()) else real


Metric = Callable[[Output], "Tensor | float"]
"""From what a network returns (of one text: batch 1, with logits) to one number."""


def seen_at(
    taps: Iterable[str], trace: Trace, network: Network, *, logits: bool = False
) -> tuple[Output, dict[str, Tensor]]:
    """What a network gives on a trace's text, and what passes some of its taps."""
    seen: dict[str, Tensor] = {}
    # A tap that gives back nothing leaves the value as it is.
    keepers = {tap: partial(seen.__setitem__, tap) for tap in taps}
    return rerun(trace, network, taps=Taps(keepers), logits=logits), seen


def watched_pass(
    trace: Trace,
    network: Network,
    of: Metric,
    names: Sequence[str],
    write: Callable[[str, Tensor], Tensor | None] | None = None,
    *,
    called: str = "of",
) -> tuple[dict[str, Tensor], Tensor]:
    """One pass with a graph: the tensors at the taps `names`, and the number `of` what came out.

    `write` may put another tensor in the place of one; where it returns None, the tensor stays. In messages
    `of` is `called` as the argument that it came by.
    """
    check_function(called, of, "from the model's output to one number")
    if torch.is_inference_mode_enabled():
        raise InputError(
            "gradients cannot be taken inside torch.inference_mode(): call this outside it. torch.no_grad() "
            "may stay."
        )
    values: dict[str, Tensor] = {}

    def listener(name: str) -> Callable[[Tensor], Tensor]:
        def watch(value: Tensor) -> Tensor:
            # An edit of the caller's, for what gradients are taken of.
            written = None if write is None else write(name, value)
            # A tensor of its own is handed on even where nothing changes: through the lens, weights that
            # nobody writes are looked at beside a kernel that does not go through them.
            own = value.view_as(value) if written is None else written
            # Where the parameters are frozen, the graph begins here.
            if not own.requires_grad:
                own = own.detach().requires_grad_()
            values[name] = own
            return own

        return watch

    # Also within no_grad of the caller's.
    with torch.enable_grad():
        output = rerun(trace, network, logits=True, taps=Taps({name: listener(name) for name in names}))
        value: Any = of(output)
    number_of(called, value, differentiable=True)
    return values, value


def gradients_at(
    trace: Trace, network: Network, names: Sequence[str], of: Metric, *, called: str = "of"
) -> tuple[dict[str, Tensor], dict[str, Tensor], float]:
    """What passes some taps, the gradients of a number there, and the number: one pass forward, one back."""
    values, value = watched_pass(trace, network, of, names, called=called)
    # Zeros where the number does not depend on a tap.
    found = torch.autograd.grad(value, list(values.values()), allow_unused=True, materialize_grads=True)
    passed = {name: each.detach() for name, each in values.items()}
    return passed, dict(zip(values, found, strict=True)), float(value.detach())


def number_of(called: str, value: Any, *, differentiable: bool = False) -> float:
    """What a function of an output gave, as a number; `called` is the argument that the function came by."""
    is_tensor = isinstance(value, Tensor)
    got = f"{value.dtype} of shape {tuple(value.shape)}" if is_tensor else type(value).__name__
    # One number may be a tensor of any shape with one entry.
    if is_tensor and value.numel() != 1:
        raise InputError(f"{called} must give one number; got {got}.")
    try:
        number = float(value.detach() if is_tensor else value)
    except (TypeError, ValueError) as error:
        raise InputError(f"{called} must give one number; got {got}.") from error
    if not math.isfinite(number):
        raise InputError(f"{called} must give a finite number; got {number}.")
    if differentiable and not (is_tensor and value.requires_grad):
        raise InputError(
            f"{called} must give a number that the model computed, with its graph (no .item(), .detach() or "
            f"numpy), and that depends on what is asked about; got {got}."
        )
    return number
