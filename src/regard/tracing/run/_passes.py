"""Passes of a network over texts: one or several at a time, and again over the text of a trace."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard.core import (
    AttentionInputs,
    Causal,
    Conjunction,
    DenseBias,
    Mask,
    Padding,
    Ramp,
    Taps,
    TensorMask,
    Unexpired,
    Window,
)
from regard.core.errors import InputError, RegardError
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
    ids, types, real = padded(encodings, device)
    arguments: dict[str, Tensor] = {}
    # Of ids alone nothing is said, which is not for every network the same as types that are all 0.
    if network.config.num_token_types and (all(each.texts for each in encodings) or bool(types.any())):
        arguments["token_types"] = types
    # What follows a text is no key of a decoder's queries, which see what is before them.
    if real is not None and "encoder" in network.prefixes:
        arguments["mask"] = real
    targets = [target for _, target in given if target is not None]
    if targets:
        arguments["decoder_token_ids"], _, _ = padded(targets, device)
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
        instead: what stacks read in the place of their tokens, as many.
    """
    encodings = {kind: trace.stack(kind).encoding for kind in network.prefixes}
    source, *targets = (encodings | dict(instead or {})).values()
    given = (source, targets[0] if targets else None)
    return run(network.for_texts(encodings), [given] * batch, logits=logits, taps=taps)


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
    relative = any(isinstance(each, RelativePositions) for each in network.modules())
    batch: list[int] = []
    # From short to long: then a pass has little padding, which costs as much as tokens do.
    for number in sorted(range(len(given)), key=lambda each: _lengths(given[each])):
        longest = _lengths(given[number])
        shortest = _lengths(given[batch[0]]) if batch else longest
        like = not relative and network.shares_a_pass(shortest, longest)
        like = like and max(longest) <= _LONGER * max(shortest)
        most = max(sum(longest), *(sum(_lengths(given[each])) for each in batch), 0)
        if batch and (not like or (len(batch) + 1) * most > _TOKENS):
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


def _lengths(given: Given) -> tuple[int, ...]:
    return tuple(len(each.tokens) for each in given if each is not None)


def padded(encodings: Sequence[Encoding], device: torch.device) -> tuple[Tensor, Tensor, Tensor | None]:
    """Token ids and token types, (texts, longest), and True for what is no padding; None without padding."""
    counts = torch.tensor([[len(each.tokens)] for each in encodings], device=device)
    longest = int(counts.max())

    def rows(values: Sequence[Sequence[int]]) -> Tensor:
        return torch.tensor([[*each, *[0] * (longest - len(each))] for each in values], device=device)

    real = torch.arange(longest, device=device) < counts
    ids, types = rows([each.token_ids for each in encodings]), rows([each.type_ids for each in encodings])
    return ids, types, None if bool(real.all()) else real


def of_one(kept: Mapping[str, Any], item: int, length_at: Callable[[str], tuple[int, int]]) -> dict[str, Any]:
    """What a pass over several texts kept, of one of them: copies, so that the others can be let go.

    `kept` is by the names of taps; `length_at` gives the text's queries (or tokens) and its keys at a tap.
    """
    copies = _Copies(item)
    found: dict[str, Any] = {}
    for name, value in kept.items():
        queries, keys = length_at(name)
        if isinstance(value, AttentionInputs):
            sizes = {"q": queries, "k": keys, "v": keys}
            there = {each: (vars(value)[each], size) for each, size in sizes.items() if each in vars(value)}
            own = {each: copies.take(tensor, (None, size)) for each, (tensor, size) in there.items()}
            mask, bias = copies.mask(value.mask, queries, keys), copies.bias(value.bias, queries, keys)
            found[name] = value.changed(**own, mask=mask, bias=bias)
        else:  # (texts, tokens, ..) or, of contexts, (texts, heads, tokens, ..)
            found[name] = copies.take(value, (None, queries) if value.ndim == 4 else (queries,))
    return found


class _Copies:
    """Tensors of one text, copied out of those of several; what layers share stays shared."""

    def __init__(self, item: int) -> None:
        self._item = item
        self._made: dict[tuple[object, ...], Any] = {}

    def take(self, value: Tensor, sizes: tuple[int | None, ...]) -> Tensor:
        """The text's part: of each axis after the first so many entries, None for all."""
        key = value.data_ptr(), value.shape, value.stride(), sizes
        if key not in self._made:
            one = value[self._item : self._item + 1] if len(value) > 1 else value
            self._made[key] = one[:, *(slice(size) for size in sizes)].clone()
        made: Tensor = self._made[key]
        return made

    def mask(self, mask: Mask | None, queries: int, keys: int) -> Mask | None:
        """The mask without its padding, of which a text by itself has none."""
        key = id(mask), queries, keys
        if key not in self._made:
            parts = () if mask is None else mask.parts()
            kept = tuple(self._part(each, queries, keys) for each in parts if not isinstance(each, Padding))
            self._made[key] = Conjunction(kept) if len(kept) > 1 else kept[0] if kept else None
        made: Mask | None = self._made[key]
        return made

    def _part(self, part: Mask, queries: int, keys: int) -> Mask:
        if isinstance(part, Causal | Window):
            return part
        if isinstance(part, Unexpired):
            return replace(part, spans=self.take(part.spans, (keys,)))
        if isinstance(part, TensorMask):
            return TensorMask(self.take(part.values, (None, queries, keys)))
        raise RegardError(f"a {type(part).__name__} of several texts is none of one; trace them one by one.")

    def bias(self, bias: Any, queries: int, keys: int) -> Any:
        """A bias that is a rule is that of every text; one that is made of tensors has a part for each."""
        if isinstance(bias, Ramp):
            return replace(bias, spans=self.take(bias.spans, (keys,)))
        if not isinstance(bias, DenseBias):
            return bias
        return DenseBias(self.take(bias.values, (None, queries, keys)))
