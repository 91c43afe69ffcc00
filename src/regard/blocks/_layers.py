"""Encoder and decoder layers: attention and feed-forward, each inside its residual connection and norm."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.blocks._feed_forward import FeedForward, GatedFeedForward
from regard.core import Bias, KeyValueCache, Mask, RecurrentState, Taps
from regard.positions import Rotation


def _dropped(dropout: nn.Dropout, x: Tensor) -> Tensor:
    # To call a module costs time even where it does nothing, which a decoder feels in every token.
    return dropout(x) if dropout.training and dropout.p else x


class PostNorm(nn.Module):
    """norm(x + dropout(sublayer(x))): the original Transformer, BERT.

    Args:
        norm: the norm, such as `nn.LayerNorm(d_model)`.
        dropout_p: probability of dropping an entry of the sublayer's output in training.

    Example:
        >>> from torch import nn
        >>> from regard.blocks import PostNorm
        >>> import torch
        >>> residual = PostNorm(nn.LayerNorm(4))
        >>> residual(torch.ones(1, 4), lambda x: torch.tensor([[0.0, 2.0, 0.0, 2.0]])).round().tolist()
        [[-1.0, 1.0, -1.0, 1.0]]

    Source: Vaswani et al. 2017, arXiv 1706.03762, section 3.1.
    """

    def __init__(self, norm: nn.Module, *, dropout_p: float = 0.0) -> None:
        super().__init__()
        self.norm = norm
        self.dropout = nn.Dropout(dropout_p)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """(..., d_model) -> the same shape."""
        # LayerNorm(x + Sublayer(x)), as in Vaswani et al. 2017, section 3.1.
        normed: Tensor = self.norm(x + _dropped(self.dropout, sublayer(x)))
        return normed


class PreNorm(nn.Module):
    """x + dropout(sublayer(norm(x))): GPT-2 and later; the stack needs a norm after its last layer.

    Args:
        norm, dropout_p: as in `PostNorm`; `RMSNorm` is a norm without a mean.

    Example:
        >>> from torch import nn
        >>> from regard.blocks import PreNorm
        >>> import torch
        >>> PreNorm(nn.LayerNorm(4))(torch.ones(1, 4), lambda x: x).tolist()
        [[1.0, 1.0, 1.0, 1.0]]

    Source: Xiong et al. 2020, arXiv 2002.04745, figure 1(b).
    """

    def __init__(self, norm: nn.Module, *, dropout_p: float = 0.0) -> None:
        super().__init__()
        self.norm = norm
        self.dropout = nn.Dropout(dropout_p)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """(..., d_model) -> the same shape."""
        output: Tensor = x + _dropped(self.dropout, sublayer(self.norm(x)))
        return output


class SandwichNorm(nn.Module):
    """x + dropout(after(sublayer(before(x)))): Gemma 2 and 3.

    Args:
        before, after: the two norms.
        dropout_p: as in `PostNorm`.

    Example:
        >>> from torch import nn
        >>> from regard.blocks import SandwichNorm
        >>> import torch
        >>> SandwichNorm(nn.Identity(), nn.LayerNorm(2))(torch.ones(1, 2), lambda x: x).tolist()
        [[1.0, 1.0]]

    Source: Ding et al. 2021 (CogView), arXiv 2105.13290, section 2.4, "Sandwich-LN".
    """

    def __init__(self, before: nn.Module, after: nn.Module, *, dropout_p: float = 0.0) -> None:
        super().__init__()
        self.before = before
        self.after = after
        self.dropout = nn.Dropout(dropout_p)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """(..., d_model) -> the same shape."""
        output: Tensor = x + _dropped(self.dropout, self.after(sublayer(self.before(x))))
        return output


Residual = PostNorm | PreNorm | SandwichNorm
"""What can surround a sublayer."""


class RMSNorm(nn.Module):
    """y = x / sqrt(mean(x^2) + eps) * (offset + weight), the mean over the last axis in float32.

    Args:
        d_model: size of the last axis.
        eps: added to the mean of the squares.
        offset: 0 for T5 and Llama; 1 for Gemma, whose stored weights are the distance from 1.

    Example:
        >>> import torch
        >>> from regard.blocks import RMSNorm
        >>> RMSNorm(2, eps=0.0)(torch.tensor([[3.0, 4.0]])) * 12.5**0.5
        tensor([[3., 4.]], grad_fn=<MulBackward0>)

    Source: Zhang and Sennrich 2019, arXiv 1910.07467, equation 4.
    """

    def __init__(self, d_model: int, *, eps: float = 1e-6, offset: float = 0.0) -> None:
        super().__init__()
        self.eps, self.offset = eps, offset
        # offset + weight is 1 at first: the norm starts without a scale of its own.
        self.weight = nn.Parameter(torch.full((d_model,), 1.0 - offset))

    def forward(self, x: Tensor) -> Tensor:
        """(..., d_model) -> the same shape."""
        size = (self.weight.shape[0],)
        # All but Gemma: weight is the whole factor.
        if not self.offset:
            # float32 and float64: nothing is rounded in between, so the order does not matter.
            if x.dtype.itemsize >= 4:
                return functional.rms_norm(x, size, self.weight, self.eps)
            # In half precision the models that have this norm round before they multiply.
            return self.weight * functional.rms_norm(x, size, None, self.eps)
        # Gemma multiplies before it rounds, the others after.
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        normed = functional.rms_norm(wide, size, None, self.eps)
        return (normed * (self.offset + self.weight.to(normed.dtype))).to(x.dtype)

    def extra_repr(self) -> str:
        return f"{self.weight.shape[0]}, eps={self.eps}, offset={self.offset}"


class Attention(Protocol):
    """An attention sublayer, an `nn.Module`: `MultiHeadAttention`, or another with these.

    A layer takes any. Heads can be cut out of a `MultiHeadAttention` alone, with whatever kernel: surgery and
    pruning refuse others.

    """

    @property
    def TAPS(self) -> tuple[str, ...]:
        """The points at which it offers values, in the order of the forward pass.

        A trace is made of `inputs`, an `AttentionInputs`, with `context` and `output`; without `inputs` it
        shows nothing of this attention.
        """
        ...

    def __call__(
        self,
        x: Tensor,
        source: Tensor | None = None,
        *,
        mask: Mask | None = None,
        bias: Bias | Tensor | None = None,
        rotation: Rotation | None = None,
        cache: KeyValueCache | None = None,
        taps: Taps | None = None,
    ) -> Tensor:
        """(batch, queries, d_model) -> the same shape; see `MultiHeadAttention.forward`."""
        ...

    def new_cache(self, *, window: int | None = None, back: int = 0) -> KeyValueCache:
        """A cache of nothing read, for `cache`; the arguments as of `KeyValueCache`.

        Raises:
            InputError: what it reads cannot be kept.
        """
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerState:
    """What one layer keeps of the positions that it has read.

    Args:
        attention: of its own sequence.
        cross_attention: of the encoder's output, for a `DecoderLayer`.
        recurrent: the state of a layer that has one, such as `SruLayer`.
    """

    attention: KeyValueCache
    cross_attention: KeyValueCache = field(default_factory=KeyValueCache)
    # Only SRU++ has one, beside its attention.
    recurrent: RecurrentState | None = None

    def pick(self, rows: Tensor, sources: Tensor | None) -> None:
        """Put other rows of the batch in the places of these, as `KeyValueCache.pick`; and other sources.

        Args:
            rows: int64 (new batch,).
            sources: int64, the same of what is kept of the encoder's output; None to leave that as it is.
        """
        self.attention.pick(rows)
        # None where the sources stay in their places: beams of one source.
        if sources is not None:
            self.cross_attention.pick(sources)
        if self.recurrent is not None:
            self.recurrent.pick(rows)

    def cut(self, length: int) -> None:
        """Forget the last positions, as `KeyValueCache.cut`."""
        # The source's keys stay: cutting the target changes nothing about the source.
        self.attention.cut(length)
        if self.recurrent is not None:
            self.recurrent.cut(length)


def inner_taps(taps: Taps | None, name: str) -> Taps | None:
    """The listeners, seen from inside the part of that name."""
    return None if taps is None else taps.at(name)


def _within(name: str, part: Attention | FeedForward | GatedFeedForward) -> list[str]:
    return [f"{name}.{point}" for point in part.TAPS]


def offer(taps: Taps | None, name: str, value: Tensor) -> Tensor:
    """The value, or what listeners put in its place."""
    return value if taps is None else taps.offer(name, value)


class SelfAttentionLayer(nn.Module):
    """Self-attention, then feed-forward: the layer of an encoder, and of a decoder that reads no encoder.

    Args:
        attention, ffn: the two sublayers.
        attention_residual, ffn_residual: what surrounds each: `PostNorm`, `PreNorm` or `SandwichNorm`.

    Taps:
        input, middle (between the two sublayers), output (batch, positions, d_model); those of the sublayers
        under `attention.` and `ffn.`.

    Example:
        >>> from torch import nn
        >>> from regard.blocks import SelfAttentionLayer
        >>> import torch
        >>> from regard.blocks import FeedForward, MultiHeadAttention, PreNorm
        >>> layer = SelfAttentionLayer(MultiHeadAttention(6, 2), FeedForward(6, 11),
        ...                      attention_residual=PreNorm(nn.LayerNorm(6)),
        ...                      ffn_residual=PreNorm(nn.LayerNorm(6)))
        >>> layer(torch.randn(1, 5, 6)).shape
        torch.Size([1, 5, 6])

    Source: Vaswani et al. 2017, arXiv 1706.03762, section 3.1, figure 1 (left).
    """

    def __init__(
        self,
        attention: Attention,
        ffn: FeedForward | GatedFeedForward,
        *,
        attention_residual: Residual,
        ffn_residual: Residual,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.attention_residual = attention_residual
        self.ffn = ffn
        self.ffn_residual = ffn_residual

    def tap_names(self) -> list[str]:
        """Every point of the layer, in the order of the forward pass."""
        # "middle" is the residual stream between the two sublayers.
        attention, ffn = _within("attention", self.attention), _within("ffn", self.ffn)
        return ["input", *attention, "middle", *ffn, "output"]

    def new_state(self, *, window: int | None = None, back: int = 0) -> LayerState:
        """What it keeps of the positions that it reads, empty; arguments as of `KeyValueCache`."""
        return LayerState(attention=self.attention.new_cache(window=window, back=back))

    def forward(
        self,
        x: Tensor,
        *,
        mask: Mask | None = None,
        bias: Bias | Tensor | None = None,
        rotation: Rotation | None = None,
        state: LayerState | None = None,
        taps: Taps | None = None,
    ) -> Tensor:
        """(batch, positions, d_model) -> the same shape; `state` is what it read before, and grows."""
        x = offer(taps, "input", x)
        # The taps around it are the same for every layer that overrides `sublayers`.
        x = self.sublayers(x, mask=mask, bias=bias, rotation=rotation, state=state, taps=taps)
        return offer(taps, "output", x)

    def sublayers(
        self,
        x: Tensor,
        *,
        mask: Mask | None,
        bias: Bias | Tensor | None,
        rotation: Rotation | None,
        state: LayerState | None,
        taps: Taps | None,
    ) -> Tensor:
        """What lies between the taps `input` and `output`, for a layer with more in it to override."""
        # The residual decides what the attention reads: x, or the norm of x.
        attend = partial(
            self.attention,
            mask=mask,
            bias=bias,
            rotation=rotation,
            cache=None if state is None else state.attention,
            taps=inner_taps(taps, "attention"),
        )
        x = offer(taps, "middle", self.attention_residual(x, attend))
        output: Tensor = self.ffn_residual(x, partial(self.ffn, taps=inner_taps(taps, "ffn")))
        return output


class DecoderLayer(nn.Module):
    """Masked self-attention, cross-attention to the encoder's output, then feed-forward.

    Args:
        attention: over the decoder's own sequence; the caller's `mask` (`Causal()`) hides what follows.
        cross_attention: queries from the decoder, keys and values from the encoder.
        ffn: the feed-forward network.
        attention_residual, cross_attention_residual, ffn_residual: what surrounds each.

    Taps:
        input, middle (before the feed-forward network), output; those of the sublayers under `attention.`,
        `cross_attention.` and `ffn.`.

    Example:
        >>> from torch import nn
        >>> from regard.blocks import DecoderLayer
        >>> import torch
        >>> from regard.blocks import FeedForward, MultiHeadAttention, PostNorm
        >>> from regard.core import Causal
        >>> layer = DecoderLayer(
        ...     MultiHeadAttention(6, 2), MultiHeadAttention(6, 2), FeedForward(6, 11),
        ...     attention_residual=PostNorm(nn.LayerNorm(6)),
        ...     cross_attention_residual=PostNorm(nn.LayerNorm(6)),
        ...     ffn_residual=PostNorm(nn.LayerNorm(6)))
        >>> layer(torch.randn(1, 5, 6), torch.randn(1, 7, 6), mask=Causal()).shape
        torch.Size([1, 5, 6])

    Source: Vaswani et al. 2017, arXiv 1706.03762, section 3.1, figure 1 (right).
    """

    def __init__(
        self,
        attention: Attention,
        cross_attention: Attention,
        ffn: FeedForward | GatedFeedForward,
        *,
        attention_residual: Residual,
        cross_attention_residual: Residual,
        ffn_residual: Residual,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.attention_residual = attention_residual
        self.cross_attention = cross_attention
        self.cross_attention_residual = cross_attention_residual
        self.ffn = ffn
        self.ffn_residual = ffn_residual

    def tap_names(self) -> list[str]:
        """Every point of the layer, in the order of the forward pass."""
        return [
            "input",
            *_within("attention", self.attention),
            # "middle" comes after both attentions, right before the feed-forward network.
            *_within("cross_attention", self.cross_attention),
            "middle",
            *_within("ffn", self.ffn),
            "output",
        ]

    def new_state(self, *, window: int | None = None, back: int = 0) -> LayerState:
        """As of `SelfAttentionLayer`."""
        return LayerState(attention=self.attention.new_cache(window=window, back=back))

    def forward(
        self,
        x: Tensor,
        encoded: Tensor,
        *,
        mask: Mask | None = None,
        encoded_mask: Mask | None = None,
        bias: Bias | Tensor | None = None,
        rotation: Rotation | None = None,
        state: LayerState | None = None,
        taps: Taps | None = None,
    ) -> Tensor:
        """Decode one step deeper.

        Args:
            x: (batch, queries, d_model), the decoder's sequence.
            encoded: (batch, keys, d_model), the encoder's output; or (sources, keys, d_model), of which each
                is read by as many rows of x, side by side.
            mask: who may attend to whom within x.
            encoded_mask: which of the encoder's positions may be attended to.
            bias, rotation: of the attention within x.
            state: what it read before, and of `encoded` its keys and values; it grows. None for nothing.
            taps: listeners, or None.

        Returns:
            (batch, queries, d_model).
        """
        x = offer(taps, "input", x)
        # First the target's own past.
        attend = partial(
            self.attention,
            mask=mask,
            bias=bias,
            rotation=rotation,
            cache=None if state is None else state.attention,
            taps=inner_taps(taps, "attention"),
        )
        x = self.attention_residual(x, attend)

        # Then the source.
        def cross(x: Tensor) -> Tensor:
            # x is (sources * beams, queries, d_model): beams of one source become more queries of one
            # row.
            output: Tensor = self.cross_attention(
                x.reshape(len(encoded), -1, x.shape[2]),  # queries of one source know nothing of each other
                source=encoded,
                mask=encoded_mask,
                cache=None if state is None else state.cross_attention,
                taps=inner_taps(taps, "cross_attention"),
            )
            return output.view(x.shape)

        x = offer(taps, "middle", self.cross_attention_residual(x, cross))
        # Last the feed-forward network.
        x = self.ffn_residual(x, partial(self.ffn, taps=inner_taps(taps, "ffn")))
        return offer(taps, "output", x)
