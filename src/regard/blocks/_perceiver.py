"""The Perceiver: a few latent vectors read a long input, think, and are asked for outputs."""

from collections.abc import Sequence
from functools import partial
from typing import NoReturn

import torch
from torch import Tensor, nn

from regard.blocks._embeddings import Embeddings
from regard.blocks._feed_forward import FeedForward, GatedFeedForward
from regard.blocks._layers import Attention, LayerState, Residual, SelfAttentionLayer, inner_taps, offer
from regard.blocks._stack import Stack
from regard.core import Mask, Padding, Taps
from regard.core.errors import InputError
from regard.positions import FourierPositions, LearnedPositions


class CrossAttentionLayer(nn.Module):
    """Cross-attention, then feed-forward: x reads another sequence, and never itself.

    Args:
        attention, ffn: the two sublayers.
        source_norm: of the other sequence.
        attention_residual, ffn_residual: what surrounds each.

    Taps:
        input, middle (between the two sublayers), output (batch, queries, d_model); those of the sublayers
        under `attention.` and `ffn.`.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from regard.blocks import CrossAttentionLayer
        >>> from regard.blocks import FeedForward, MultiHeadAttention, PreNorm
        >>> layer = CrossAttentionLayer(
        ...     MultiHeadAttention(6, 2, d_source=4), FeedForward(6, 11), source_norm=nn.LayerNorm(4),
        ...     attention_residual=PreNorm(nn.LayerNorm(6)), ffn_residual=PreNorm(nn.LayerNorm(6)))
        >>> layer(torch.randn(1, 3, 6), torch.randn(1, 50, 4)).shape
        torch.Size([1, 3, 6])

    Source: Jaegle et al. 2021 (Perceiver IO), arXiv 2107.14795, section 3.1 and appendix E.2.
    """

    def __init__(
        self,
        attention: Attention,
        ffn: FeedForward | GatedFeedForward,
        *,
        source_norm: nn.Module,
        attention_residual: Residual,
        ffn_residual: Residual,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.source_norm = source_norm
        self.attention_residual = attention_residual
        self.ffn = ffn
        self.ffn_residual = ffn_residual

    def tap_names(self) -> list[str]:
        """Every point of the layer, in the order of the forward pass."""
        attention = [f"attention.{point}" for point in self.attention.TAPS]
        return ["input", *attention, "middle", *(f"ffn.{point}" for point in self.ffn.TAPS), "output"]

    def forward(
        self, x: Tensor, source: Tensor, *, mask: Mask | None = None, taps: Taps | None = None
    ) -> Tensor:
        """Read.

        Args:
            x: (batch, queries, d_model).
            source: (batch, keys, d_source).
            mask: which of the keys may be attended to.
            taps: listeners, or None.

        Returns:
            (batch, queries, d_model).
        """
        x = offer(taps, "input", x)
        # The source has a norm of its own: its width, and its numbers, are others than x's.
        read = partial(
            self.attention, source=self.source_norm(source), mask=mask, taps=inner_taps(taps, "attention")
        )
        x = offer(taps, "middle", self.attention_residual(x, read))
        x = self.ffn_residual(x, partial(self.ffn, taps=inner_taps(taps, "ffn")))
        return offer(taps, "output", x)


class ConcatenatedEmbeddings(Embeddings):
    """tokens[token_ids] with the features of the position behind them: (batch, N, d_embedding + size).

    Args:
        vocab_size, d_embedding: rows and columns of the table of learned embeddings.
        positions: from position numbers to features.
        pad_id: a row that looking it up does not train; None for none.

    Taps:
        tokens (batch, N, d_embedding); positions (batch or 1, N, size); output, both.

    Example:
        >>> embeddings = ConcatenatedEmbeddings(13, 6, positions=FourierPositions(5, num_bands=2))
        >>> embeddings(torch.tensor([[3, 1, 4]]), positions=torch.tensor([[0, 1, 2]])).shape
        torch.Size([1, 3, 11])

    Source: Jaegle et al. 2021 (Perceiver), arXiv 2103.03206, section 3.2.
    """

    positions: FourierPositions

    def __init__(
        self, vocab_size: int, d_embedding: int, *, positions: FourierPositions, pad_id: int | None = None
    ) -> None:
        super().__init__(vocab_size, d_embedding, positions=positions, pad_id=pad_id)

    def forward(
        self,
        token_ids: Tensor,
        *,
        positions: Tensor,
        token_types: Tensor | None = None,
        taps: Taps | None = None,
    ) -> Tensor:
        """Embed token ids; arguments as of `Embeddings`."""
        del token_types
        # (batch, N, d_embedding)
        tokens = offer(taps, "tokens", self.tokens(token_ids))
        # (1 or batch, N, size)
        at = offer(taps, "positions", self.positions(positions).to(tokens.dtype))
        return offer(taps, "output", torch.cat((tokens, at.expand(len(tokens), -1, -1)), dim=-1))


class LatentStack(Stack):
    """A Perceiver IO: M latent vectors read N inputs, attend to themselves in L layers, and are read.

        z = read(latents, inputs)              cross-attention, O(N M)
        z = layer_L-1(.. layer_0(z))           self-attention, O(L M^2), whatever N
        outputs = write(queries, z)            cross-attention, O(N M) for N queries

    The queries are a table with a row for each position.

    Args:
        embeddings: from token ids to the inputs.
        layers: `SelfAttentionLayer`s over the latents.
        read, write: the layers that read the inputs, and that the queries read the latents by.
        num_latents, d_latents: M, and the size of a latent vector.
        queries: the table of output queries.

    Taps:
        those of the embeddings under `embeddings.`, of the layers under `read.`, `layers.i.` and `write.`;
        output (batch, N, d_model). Traces are not made of them: queries and keys are latents, not tokens.

    Source: Jaegle et al. 2021, arXiv 2107.14795, section 3.1.
    """

    def __init__(
        self,
        embeddings: Embeddings,
        layers: Sequence[SelfAttentionLayer],
        *,
        read: CrossAttentionLayer,
        write: CrossAttentionLayer,
        num_latents: int,
        d_latents: int,
        queries: LearnedPositions,
    ) -> None:
        super().__init__(embeddings, layers)
        if num_latents < 1:
            raise InputError(f"num_latents must be at least 1; got {num_latents}.")
        self.read, self.write, self.queries = read, write, queries
        self.latents = nn.Parameter(torch.randn(num_latents, d_latents))

    def tap_names(self) -> list[str]:
        """Every point, in the order of the forward pass."""
        names = [f"embeddings.{name}" for name in self.embeddings.tap_names()]
        # The order of the forward pass: read, the layers, write.
        layers = {"read": self.read, **{f"layers.{n}": each for n, each in enumerate(self.layers)}}
        for prefix, layer in {**layers, "write": self.write}.items():
            names += [f"{prefix}.{name}" for name in layer.tap_names()]  # type: ignore[operator]
        return [*names, "output"]

    def new_states(self, *, back: int = 0) -> NoReturn:
        """Refused: a latent vector reads the whole input."""
        raise InputError("the latent vectors read the whole text, so no cache can be kept.")

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
        """Run the stack on token ids; arguments as of `Stack`, of which it takes no other sequence or state.

        Raises:
            InputError: a mask that is more than padding: the latents read all of a row.
        """
        del token_types, encoded, encoded_mask, states
        # A causal or local mask is of inputs by inputs, and the latents are neither.
        if mask is not None and not all(isinstance(part, Padding) for part in mask.parts()):
            raise InputError("mask must be padding: the latent vectors of a Perceiver read all of a row.")
        positions = (self.numbering(token_ids) if positions is None else positions).long()
        x = self.embeddings(token_ids, positions=positions, taps=inner_taps(taps, "embeddings"))
        # One query for each position, so that every token gets an answer.
        return self.ask(x, self.queries(positions).expand(len(x), -1, -1), mask=mask, taps=taps)

    def ask(
        self, inputs: Tensor, queries: Tensor, *, mask: Mask | None = None, taps: Taps | None = None
    ) -> Tensor:
        """What the latents have to say of any inputs, which need not be tokens: patches, samples, points.

        Args:
            inputs: (batch, N, d_input), what they read, positions included.
            queries: (batch, outputs, d_model), what they are asked.
            mask: which of the inputs may be attended to.
            taps: listeners, or None.

        Returns:
            (batch, outputs, d_model).
        """
        # The same latents for every row: (batch, M, d_latents).
        z = self.latents.expand(len(inputs), -1, -1)
        # Encode: the latents are the queries, the inputs keys and values.
        z = self.read(z, inputs, mask=mask, taps=inner_taps(taps, "read"))
        # Process: the latents read each other; no mask, since none of them is padding.
        for number, layer in enumerate(self.layers):
            z = layer(z, taps=inner_taps(taps, f"layers.{number}"))
        # Decode: the queries asked for read the latents.
        return offer(taps, "output", self.write(queries, z, taps=inner_taps(taps, "write")))
