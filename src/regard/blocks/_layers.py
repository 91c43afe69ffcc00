"""Encoder and decoder layers: attention and feed-forward, each inside its residual connection."""

from dataclasses import dataclass, field
from functools import partial

from torch import Tensor, nn

from regard.blocks._attention import Attention
from regard.blocks._feed_forward import FeedForward, GatedFeedForward
from regard.blocks._residual import Residual
from regard.core import Bias, KeyValueCache, Mask, RecurrentState, Taps
from regard.positions import Rotation


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
    recurrent: RecurrentState | None = None

    def pick(self, rows: Tensor, sources: Tensor | None) -> None:
        """Put other rows of the batch in the places of these, as `KeyValueCache.pick`; and other sources.

        Args:
            rows: int64 (new batch,).
            sources: int64, the same of what is kept of the encoder's output; None to leave that as it is.
        """
        self.attention.pick(rows)
        if sources is not None:
            self.cross_attention.pick(sources)
        if self.recurrent is not None:
            self.recurrent.pick(rows)

    def cut(self, length: int) -> None:
        """Forget the last positions, as `KeyValueCache.cut`."""
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
        attend = partial(
            self.attention,
            mask=mask,
            bias=bias,
            rotation=rotation,
            cache=None if state is None else state.attention,
            taps=inner_taps(taps, "attention"),
        )
        x = self.attention_residual(x, attend)

        def cross(x: Tensor) -> Tensor:
            output: Tensor = self.cross_attention(
                x.reshape(len(encoded), -1, x.shape[2]),  # queries of one source know nothing of each other
                source=encoded,
                mask=encoded_mask,
                cache=None if state is None else state.cross_attention,
                taps=inner_taps(taps, "cross_attention"),
            )
            return output.view(x.shape)

        x = offer(taps, "middle", self.cross_attention_residual(x, cross))
        x = self.ffn_residual(x, partial(self.ffn, taps=inner_taps(taps, "ffn")))
        return offer(taps, "output", x)
