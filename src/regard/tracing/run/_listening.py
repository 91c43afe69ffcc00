"""Listening to a pass: what enters and leaves every layer, held as it comes by, or let go."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
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
from regard.core.errors import RegardError
from regard.models import Network, StackKind
from regard.text import Encoding
from regard.tracing.record import (
    AttentionTrace,
    KeepPolicy,
    Partial,
    ScoreInputs,
    ScoreTrace,
    TracedStack,
    kept_inputs,
    kept_tensor,
)

_OF_EMBEDDINGS = ("tokens", "scaled", "positions", "token_types")
_ATTENTIONS = ("attention", "cross_attention")


class Listening:
    """Listeners for one pass, and what they have kept."""

    def __init__(self, network: Network, keeping: KeepPolicy) -> None:
        self._network, self._keeping = network, keeping
        self._kept: dict[str, Any] = {}
        self._names = frozenset(network.tap_names())

    def taps(self) -> Taps:
        """The listeners. They are not kept here, where they and what they hold would hold each other: a trace
        that nobody has any more would stay in memory until Python next looks for such circles."""
        return Taps(
            {name: partial(hold, name) for name, hold in self._wanted().items() if name in self._names}
        )

    def _wanted(self) -> Mapping[str, Callable[[str, Any], None]]:
        """What is kept at which point, as far as the network has it."""
        keeping = self._keeping
        wanted: dict[str, Callable[[str, Any], None]] = {}
        # Each stack has taps behind its prefix.
        for kind, prefix in self._network.prefixes.items():
            depth = self._network.depth(kind)
            if keeping.hidden:
                wanted |= {f"{prefix}embeddings.{name}": self._hold for name in _OF_EMBEDDINGS}
                points = _points_of_states(prefix, depth)
                # Hidden states are found at the inputs of layers and at the end of the stack.
                wanted |= {points[state]: self._hold for state in keeping.states(depth)}
            for layer in keeping.attention(depth):
                for attention in _ATTENTIONS:
                    at = f"{prefix}layers.{layer}.{attention}"
                    if keeping.queries:
                        # Records of inputs tell queries, keys, values and masks in one.
                        wanted[f"{at}.inputs"] = self._hold_inputs
                        # Where an edit wrote scores or weights, q and k do not tell them.
                        if not self._network.written.isdisjoint((f"{at}.scores", f"{at}.weights")):
                            wanted[f"{at}.weights"] = self._hold_weights
                    if keeping.values:
                        wanted[f"{at}.context"] = self._hold
                    if keeping.keep == "all":
                        wanted[f"{at}.output"] = self._hold
        return wanted

    def _hold(self, name: str, value: Tensor) -> None:
        kept = kept_tensor(value, self._keeping)
        if not _are_finite(kept):
            raise self._not_finite(f"{name} has numbers", kept.dtype)
        self._kept[name] = kept

    def _hold_inputs(self, name: str, inputs: AttentionInputs) -> None:
        # Some fused kernels turn a NaN into a zero, and the layers after it would look healthy. What is
        # converted is looked at afterwards: half precision may overflow.
        self._kept[name] = kept = kept_inputs(inputs, self._keeping)
        # Values that are not kept are looked at as they come by.
        values = kept.v if self._keeping.values else inputs.v
        if not _are_finite(kept.q, kept.k, values):
            at = name.removesuffix(".inputs")
            raise self._not_finite(f"{at} has queries, keys or values", kept.q.dtype)

    def _not_finite(self, what: str, dtype: torch.dtype) -> RegardError:
        written = ", ".join(sorted(self._network.written))
        edits = f"an edit wrote them, at {written}; or " if written else ""
        return RegardError(
            f"{what} that are not finite: {edits}the weights are damaged, or too large for {dtype}; "
            "load the model again, or with dtype=torch.float32."
        )

    def _hold_weights(self, name: str, weights: Tensor) -> None:
        at, count = name.removesuffix("weights"), weights.shape[1]
        # Heads that an edit has written to: their weights do not follow from q and k.
        of_both = (self._network.written_heads(f"{at}{each}", count) for each in ("scores", "weights"))
        heads = sorted(set().union(*of_both))
        some = (
            {"weights": weights}
            if len(heads) == count
            else {"weights": weights[:, heads], "written": tuple(heads)}
        )
        self._kept[f"{at}inputs"] = self._kept[f"{at}inputs"].changed(**some)

    def of_one(self, item: int, lengths: Mapping[StackKind, int]) -> "Listening":
        """What was kept of one text of several that ran together, as if it had run alone.

        Everything is copied, so that the others can be let go.
        """
        copies, alone = _Copies(item), Listening(self._network, self._keeping)
        for name, value in self._kept.items():
            kind = next(each for each, prefix in self._network.prefixes.items() if name.startswith(prefix))
            queries = lengths[kind]
            # Cross-attention has the encoder's tokens as keys.
            keys = lengths["encoder"] if ".cross_attention." in name else queries
            if isinstance(value, AttentionInputs):
                sizes = {"q": queries, "k": keys, "v": keys}
                own = {
                    each: copies.take(getattr(value, each), (None, size))
                    for each, size in sizes.items()
                    if each in vars(value)  # a record of scores has no v
                }
                # Padding goes: the text by itself has none.
                mask, bias = copies.mask(value.mask, queries, keys), copies.bias(value.bias, queries, keys)
                alone._kept[name] = value.changed(**own, mask=mask, bias=bias)
            else:  # (texts, tokens, ..) or, of contexts, (texts, heads, tokens, ..)
                alone._kept[name] = copies.take(value, (None, queries) if value.ndim == 4 else (queries,))
        return alone

    def stack(self, kind: StackKind, encoding: Encoding) -> TracedStack:
        """What was kept of a stack."""
        prefix, depth = self._network.prefixes[kind], self._network.depth(kind)
        # The first text of the batch, which is the only one here.
        embedded = {name: _row(self._kept.get(f"{prefix}embeddings.{name}")) for name in _OF_EMBEDDINGS}
        layers = {each: self._layers_with(f"{prefix}layers.{{}}.{each}", depth) for each in _ATTENTIONS}
        crossed = layers["cross_attention"]
        return TracedStack(
            encoding=encoding,
            attention=self._attention(f"{prefix}layers.{{}}.attention", layers["attention"]),
            cross_attention=self._attention(f"{prefix}layers.{{}}.cross_attention", crossed),
            # Only where some layers lack cross-attention: else the places are the numbers.
            cross_layers=crossed if 0 < len(crossed) < depth else None,
            hidden=self._hidden(prefix, depth),
            learned=embedded["tokens"],
            scaled=embedded["scaled"],
            positions=embedded["positions"],
            token_types=embedded["token_types"],
            keeping=self._keeping,
        )

    def _layers_with(self, at: str, depth: int) -> tuple[int, ...]:
        """The layers that have attention of a kind, kept or not."""
        return tuple(layer for layer in range(depth) if f"{at.format(layer)}.inputs" in self._names)

    def _attention(self, at: str, layers: tuple[int, ...]) -> Sequence[AttentionTrace]:
        kept = {
            place: self._layer(at.format(layer))
            for place, layer in enumerate(layers)
            if f"{at.format(layer)}.inputs" in self._kept
        }
        # All of them: a plain tuple.
        if len(kept) == len(layers):
            return tuple(kept.values())
        what = "attention layer" if at.endswith(".attention") else "cross-attention layer"
        return Partial(kept, len(layers), what=what, why=self._keeping.why(), numbers=layers)

    def _layer(self, at: str) -> AttentionTrace:
        inputs = self._kept[f"{at}.inputs"]
        if isinstance(inputs, ScoreInputs):
            return ScoreTrace(inputs)
        return AttentionTrace(
            inputs=inputs,
            context=self._kept[f"{at}.context"][0],
            output=_row(self._kept.get(f"{at}.output")),
            written_heads=self._network.written_heads(f"{at}.context", inputs.num_heads),
            output_written=f"{at}.output" in self._network.written,
        )

    def _hidden(self, prefix: str, depth: int) -> Sequence[Tensor]:
        points = _points_of_states(prefix, depth)
        # Models of the lens may not show all of them.
        if not all(name in self._names for name in points):
            return ()
        kept = {state: self._kept[name][0] for state, name in enumerate(points) if name in self._kept}
        if len(kept) == len(points):
            return tuple(kept.values())
        return Partial(kept, len(points), what="hidden state", why=self._keeping.why())


def _points_of_states(prefix: str, depth: int) -> list[str]:
    """Where hidden states 0 to L are: what each layer reads, and what the last norm hands on."""
    return [f"{prefix}layers.{layer}.input" for layer in range(depth)] + [f"{prefix}output"]


def _row(value: Tensor | None) -> Tensor | None:
    return None if value is None else value[0]


def _are_finite(*tensors: Tensor) -> bool:
    # A NaN or an infinity makes the whole sum one, which is found in one pass. The sum of finite numbers may
    # overflow too: only then is each looked at.
    if math.isfinite(sum(float(tensor.sum()) for tensor in tensors)):
        return True
    return all(bool(tensor.isfinite().all()) for tensor in tensors)


class _Copies:
    """Tensors of one text, copied out of those of several; what layers share stays shared."""

    def __init__(self, item: int) -> None:
        self._item = item
        self._made: dict[tuple[object, ...], Any] = {}

    def take(self, value: Tensor, sizes: tuple[int | None, ...]) -> Tensor:
        """The text's part: of each axis after the first so many entries, None for all."""
        key = value.data_ptr(), value.shape, value.stride(), sizes
        if key not in self._made:
            # A tensor that all texts share has one row.
            one = value[self._item : self._item + 1] if len(value) > 1 else value
            # Padding is cut off: of each axis so many entries.
            self._made[key] = one[:, *(slice(size) for size in sizes)].clone()
        part: Tensor = self._made[key]
        return part

    def mask(self, mask: Mask | None, queries: int, keys: int) -> Mask | None:
        """The mask without its padding, of which a text by itself has none."""
        key = id(mask), queries, keys
        if key not in self._made:
            parts = () if mask is None else mask.parts()
            # Conjunctions are taken apart: padding is one of their parts.
            kept = tuple(self._part(each, queries, keys) for each in parts if not isinstance(each, Padding))
            self._made[key] = Conjunction(kept) if len(kept) > 1 else kept[0] if kept else None
        unpadded: Mask | None = self._made[key]
        return unpadded

    def _part(self, part: Mask, queries: int, keys: int) -> Mask:
        if isinstance(part, Causal | Window):
            return part
        if isinstance(part, Unexpired):
            return replace(part, spans=self.take(part.spans, (keys,)))
        if isinstance(part, TensorMask):
            # A mask of numbers has a row for each text.
            return TensorMask(self.take(part.values, (None, queries, keys)))
        raise RegardError(f"a {type(part).__name__} of several texts cannot be split; trace them one by one.")

    def bias(self, bias: Any, queries: int, keys: int) -> Any:
        """A bias that is a rule is that of every text; one that is made of tensors has a part for each."""
        if isinstance(bias, Ramp):
            return replace(bias, spans=self.take(bias.spans, (keys,)))
        if not isinstance(bias, DenseBias):
            return bias
        return DenseBias(self.take(bias.values, (None, queries, keys)))
