"""A stack: embeddings, layers, and the last norm. An encoder is one, a decoder is one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.blocks._embeddings import Embeddings
from regard.blocks._layers import LayerState
from regard.core import Bias, Causal, DenseBias, Mask, Taps, Window
from regard.core.errors import InputError
from regard.positions import Rotary, Rotation


@dataclass(frozen=True, slots=True)
class CountFrom:
    """Positions first, first + 1, ...: (1, N). BART starts at 2.

    Example:
        >>> CountFrom(2)(torch.tensor([[5, 7, 6]]))
        tensor([[2, 3, 4]])
    """

    first: int = 0

    def __call__(self, token_ids: Tensor) -> Tensor:
        start = self.first
        return torch.arange(start, start + token_ids.shape[1], device=token_ids.device)[None]


@dataclass(frozen=True, slots=True)
class CountTokens:
    """RoBERTa's numbers, (batch, N): tokens count on from pad_id, padding stays at it.

    Example:
        >>> CountTokens(1)(torch.tensor([[1, 0, 7, 2, 1]]))
        tensor([[1, 2, 3, 4, 1]])

    Source: Liu et al. 2019, arXiv 1907.11692; the numbering is in fairseq's `make_positions`.
    """

    pad_id: int

    @property
    def first(self) -> int:
        """The number of a text's first token."""
        return self.pad_id + 1

    def __call__(self, token_ids: Tensor) -> Tensor:
        # cumsum counts tokens only: padding in between does not raise the number of what follows.
        is_token = token_ids != self.pad_id
        return is_token.cumsum(dim=1) * is_token + self.pad_id


Numbering = CountFrom | CountTokens
"""From token ids (batch, N) to the numbers of their positions (batch or 1, N)."""


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """What the attention layers of one kind share: local or global, causal or not.

    Args:
        mask: who may attend to whom, whatever the input: `Causal()`, `Window(64, 64)`; None for all to all.
        rotary: rotates queries and keys by their positions; None for none.
    """

    mask: Mask | None = None
    rotary: Rotary | None = None


class Stack(nn.Module):
    """norm(layer_L-1(.. layer_0(embeddings(token_ids)))).

    Args:
        embeddings: from token ids to the input of layer 0.
        layers: `SelfAttentionLayer`s, `SruLayer`s, `RecurrentLayer`s; or those that read an encoder's output
            too, `DecoderLayer`s and `AlignedDecoderLayer`s. Others may stand there that are called as these
            are, with their `tap_names` and, to be read token by token, `new_state`.
        patterns: one for each layer; the same object for layers of one kind, so that its mask and rotation
            are worked out once a pass. None: every layer attends to everything.
        norm: after the last layer; None for none.
        bias: called without arguments, gives what is added to the scores of self-attention in every layer
            (T5's relative bias), or what the layers' own `bias_of` makes theirs of (DeBERTa's table), for
            one pass; None for none.
        numbering: from token ids to the numbers of their positions.
        dropout_p: probability of dropping an entry after the last norm, in training (T5).

    Taps:
        those of the embeddings under `embeddings.`, of the layers under `layers.i.`; output (batch, N,
        d_model), after the last norm.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from regard.blocks import Embeddings, FeedForward, MultiHeadAttention, PostNorm
        >>> from regard.blocks import SelfAttentionLayer, Stack
        >>> layer = SelfAttentionLayer(
        ...     MultiHeadAttention(6, 2), FeedForward(6, 11),
        ...     attention_residual=PostNorm(nn.LayerNorm(6)), ffn_residual=PostNorm(nn.LayerNorm(6)))
        >>> Stack(Embeddings(13, 6), [layer])(torch.tensor([[3, 1, 4]])).shape
        torch.Size([1, 3, 6])
    """

    def __init__(
        self,
        embeddings: Embeddings,
        layers: Sequence[nn.Module],
        *,
        patterns: Sequence[Pattern] | None = None,
        norm: nn.Module | None = None,
        bias: Callable[[], Bias] | None = None,
        numbering: Numbering | None = None,
        dropout_p: float = 0.0,
    ) -> None:
        super().__init__()
        self.embeddings = embeddings
        self.layers = nn.ModuleList(layers)
        self.norm = norm
        self.bias = bias
        self.dropout = nn.Dropout(dropout_p) if dropout_p else None
        # One pattern object for many layers: masks and rotations are made once for each.
        self.patterns = (Pattern(),) * len(layers) if patterns is None else tuple(patterns)
        self.numbering = CountFrom(0) if numbering is None else numbering

    def tap_names(self) -> list[str]:
        """Every point, in the order of the forward pass."""
        names = [f"embeddings.{name}" for name in self.embeddings.tap_names()]
        for index, layer in enumerate(self.layers):
            names += [f"layers.{index}.{name}" for name in layer.tap_names()]  # type: ignore[operator]
        return [*names, "output"]

    def new_states(self, *, back: int = 0) -> tuple[LayerState, ...]:
        """For each layer a state of nothing read, to hand to `forward` and again with the next tokens.

        Args:
            back: how many positions can be taken back at any time, as of `KeyValueCache`.

        Raises:
            InputError: a layer in which a token's vectors depend on what follows, so that they cannot be
                kept: without a causal mask, or with rotations that change as the text grows.
        """
        for pattern in self.patterns:
            # Only under a causal mask do the vectors of a token stay the same as text follows.
            if pattern.mask is None or not any(isinstance(part, Causal) for part in pattern.mask.parts()):
                raise InputError("a token's vectors depend on what follows it, so no cache can be kept.")
            if pattern.rotary is not None and pattern.rotary.scaling.by_length:
                raise InputError(
                    f"{type(pattern.rotary.scaling).__name__} turns all keys anew as the text grows, so no "
                    "cache can be kept."
                )
        # The bias is one for all layers, of all keys: where there is one, none may be let go.
        windows = [_window(pattern) if self.bias is None else None for pattern in self.patterns]
        each = zip(self.layers, windows, strict=True)
        return tuple(layer.new_state(window=window, back=back) for layer, window in each)  # type: ignore[operator]

    def forward(
        self,
        token_ids: Tensor,
        *,
        mask: Mask | None = None,
        positions: Tensor | None = None,
        token_types: Tensor | None = None,
        encoded: Tensor | None = None,
        encoded_mask: Mask | None = None,
        states: Sequence[LayerState] | None = None,
        taps: Taps | None = None,
    ) -> Tensor:
        """Run the stack.

        Args:
            token_ids: int64 (batch, N).
            mask: conjoined with every pattern's own; of the whole sequence, what was read before included.
            positions: int64 (batch or 1, N), the numbers of the positions; by default the stack's numbering,
                which counts on from what was read before.
            token_types: int64 (batch, N), or None.
            encoded: (batch, keys, d_source), an encoder's output, for layers with cross-attention.
            encoded_mask: which of its positions may be attended to.
            states: what each layer read before, from `new_states`; they grow. None for nothing.
            taps: listeners, or None.

        Returns:
            (batch, N, d_model).
        """
        # How many positions the states hold already.
        past = 0 if states is None else states[0].attention.length
        if positions is None:
            # Numbers go on from what was read.
            positions = self.numbering(token_ids)
            positions = positions + past if past else positions
        positions = positions.long()
        inner = None if taps is None else taps.at("embeddings")
        x: Tensor = self.embeddings(token_ids, positions=positions, token_types=token_types, taps=inner)
        # A fresh rule for each pass: its parameters are read now.
        bias = None if self.bias is None else self.bias()
        # Where nobody listens. Records keep the masks and rules as they are.
        if isinstance(bias, Bias) and (taps is None or past):
            bias = _written_out(bias, past, past + positions.shape[1], x)
        # What layers share, made by the first of them that needs it.
        masks: dict[Pattern, Mask | None] = {}
        rotations: dict[Rotary, Rotation] = {}
        # Layers without cross-attention do not take these arguments.
        cross = {} if encoded is None else {"encoded": encoded, "encoded_mask": encoded_mask}
        for index, (layer, pattern) in enumerate(zip(self.layers, self.patterns, strict=True)):
            state = None if states is None else states[index]
            if pattern not in masks:
                # The pattern of the layer, and the caller's padding.
                whole = _conjoined(pattern.mask, mask)
                # The first position that the cache still has: a window lets older keys go.
                first = 0 if state is None else state.attention.first
                if whole is not None and past:
                    # Rows of the new queries, columns of the keys that the cache holds.
                    whole = whole.since(past, first)
                if whole is not None and taps is None:
                    # Parts that hide nothing in this shape are left out; a record keeps them, to say
                    # what was asked.
                    whole = whole.simplified(x.shape[1], past + x.shape[1] - first)
                masks[pattern] = whole
            rotary = pattern.rotary
            if rotary is not None and rotary not in rotations:
                # cos and sin of these positions, (batch or 1, N, dim).
                rotations[rotary] = rotary.rotation(positions, dtype=x.dtype, device=x.device)
            rotation = None if rotary is None else rotations[rotary]
            inner = None if taps is None else taps.at(f"layers.{index}")
            # A layer that keeps no state (`RecurrentLayer`) is not given one.
            own = cross if state is None else cross | {"state": state}
            x = layer(x, mask=masks[pattern], bias=bias, rotation=rotation, taps=inner, **own)
        if self.norm is not None:
            x = self.norm(x)
        if self.dropout is not None:
            x = self.dropout(x)
        return x if taps is None else taps.offer("output", x)


# A bias is written out up to so many numbers, 64 MB in float32: beyond, each layer asks for blocks of it.
_MOST_ENTRIES = 2**24


def _written_out(bias: Bias, past: int, length: int, like: Tensor) -> Bias:
    """A bias as a tensor that all layers read, of the queries from `past` on and all keys.

    As it is where it is large, or where a gradient is wanted; never behind a cache, which wants none.
    """
    # All positions of keys; the queries are the last of them.
    at = torch.arange(length, device=like.device)
    # In a first pass, it depends on the size; a later one has few queries, and writes out.
    if not past:
        heads = bias.block(at[:1], at[:1]).shape[1]
        if torch.is_grad_enabled() or heads * length**2 > _MOST_ENTRIES:
            return bias
    return DenseBias(bias.block(at[past:], at))


def _window(pattern: Pattern) -> int | None:
    """How many positions before its own every query sees at most; None for all."""
    parts = () if pattern.mask is None else pattern.mask.parts()
    # Several windows may be joined: the narrowest decides.
    windows = [part.left for part in parts if isinstance(part, Window) and part.left is not None]
    return min(windows, default=None)


def _conjoined(one: Mask | None, other: Mask | None) -> Mask | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other
