"""What DeBERTa is made of: disentangled attention, and a projection, a convolution and a head of its own.

The attention scores content with content, plus a bias of content with distance. With c(i - j) the row of the
table R of relative positions for query i and key j,

    score_ij = scale (q_i . k_j  +  q_i . Kr_c(i-j)  +  k_j . Qr_c(i-j)),   Kr = W_kr R,  Qr = W_qr R

where either of the last two ("c2p", content to position, and "p2c") may be absent, and scale is
1 / sqrt(terms head_dim). The last two are what `AttentionInputs` calls the bias.
"""

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.blocks import (
    FeedForward,
    LayerState,
    Linear,
    MultiHeadAttention,
    PostNorm,
    SelfAttentionLayer,
    activation_named,
)
from regard.core import Bias, Mask, Segments, Taps, padding_of
from regard.core.errors import InputError
from regard.models._heads import Head, LastState, MaskedLMHead
from regard.positions import Rotation

C2P, P2C = "c2p", "p2c"
"""Content to position, and position to content: the names that config.json has."""


def log_buckets(distances: Tensor, *, num_buckets: int, max_distance: int) -> Tensor:
    """The bucket of each distance: itself for the near ones, wider and wider ones for the far.

    With n = |distance| and m = num_buckets // 2:

        distance                                                                        for n <= m
        sign(distance) (m + ceil(ln(n / m) / ln((max_distance - 1) / m) (m - 1)))       else

    Source: He et al. 2021, arXiv 2006.03654, section 5.1 ("Scale up to 1.5 billion parameters") says that
    positions are encoded in buckets; the formula is in their code. In float32, as in `transformers`: a
    distance on the border of two buckets falls on the same side.
    """
    # Half of the buckets for near distances, one each; the other half for the far ones.
    near = num_buckets // 2
    if near < 1:
        raise InputError(f"num_buckets must be at least 2; got {num_buckets}.")
    if max_distance - 1 <= near:
        raise InputError(
            f"max_distance must be greater than {near + 1}, where {num_buckets} buckets stop to be one "
            f"distance each; got {max_distance}."
        )
    n = distances.abs().clamp(min=near)  # the near ones are not read off the logarithm
    # In float32: where the buckets end depends on its rounding.
    whole = torch.full_like(n, (max_distance - 1) / near, dtype=torch.float32)
    ratio = torch.log(n.float() / near) / torch.log(whole)
    # near + ceil(log(n / near) / log((max - 1) / near) * (near - 1)), with the sign of the distance.
    far = (torch.ceil(ratio * (near - 1)) + near).to(torch.int64) * distances.sign()
    return torch.where(n <= near, distances, far)


def table_rows(length: int, *, span: int, num_buckets: int | None, max_distance: int) -> Tensor:
    """The row of the table for every distance in a text: int64 (2 length - 1,), that of 1 - length first."""
    distances = torch.arange(1 - length, length, device="cpu")
    if num_buckets is not None:
        distances = log_buckets(distances, num_buckets=num_buckets, max_distance=max_distance)
    # Row `span` is distance 0; what is further away shares the rows at the ends.
    return (distances + span).clamp_(0, 2 * span - 1)


class RelativePositions(nn.Module):
    """A trained vector for each distance, or bucket of distances, shared by all layers.

    Args:
        d_model: size of the vectors.
        span: half the rows of the table.
        max_distance: `log_buckets` says what it is for.
        num_buckets: likewise; None where every distance has a row, up to `span`.
        norm: of the rows; None for none.

    Attributes:
        table: nn.Embedding(2 span, d_model).

    Source: He et al. 2021, arXiv 2006.03654, section 3.1, equation 3.
    """

    def __init__(
        self,
        d_model: int,
        *,
        span: int,
        max_distance: int,
        num_buckets: int | None = None,
        norm: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.span, self.max_distance, self.num_buckets = span, max_distance, num_buckets
        self._rows(1)  # refuses what does not fit
        self.table = nn.Embedding(2 * span, d_model)
        self.norm = norm

    def forward(self) -> "TableOfPass":
        """What the layers' `bias_of` makes their own bias of; for one pass."""
        return TableOfPass(self)

    def of_length(self, length: int) -> tuple[Tensor, Tensor]:
        """The rows that a text of this length needs, (rows, d_model), and which of them each distance has.

        The latter is int64 (2 length - 1,), for the distances 1 - length .. length - 1.
        """
        # Rising with the distance, so that the rows needed lie together.
        rows = self._rows(length)
        first, last = int(rows[0]), int(rows[-1])
        vectors = self.table.weight[first : last + 1]
        # Normed once for a pass, not in each layer.
        if self.norm is not None:
            vectors = self.norm(vectors)
        return vectors, (rows - first).to(vectors.device)

    def _rows(self, length: int) -> Tensor:
        return table_rows(
            length, span=self.span, num_buckets=self.num_buckets, max_distance=self.max_distance
        )


@dataclass(frozen=True, eq=False)
class TableOfPass:
    """What all layers of one pass share: rows of the table, worked out once for each length."""

    positions: RelativePositions
    _found: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def of_length(self, length: int) -> tuple[Tensor, Tensor]:
        # All layers of a pass have one length.
        if length not in self._found:
            self._found[length] = self.positions.of_length(length)
        return self._found[length]


class DisentangledAttention(MultiHeadAttention):
    """Multi-head self-attention whose bias each layer makes from its queries, keys and the shared table.

    Where the projections of the table are the layer's own W_k and W_q, `pos_k` and `pos_q` are None.

    Source: He et al. 2021, arXiv 2006.03654, section 3.1, equation 4.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        terms: Collection[str] = (C2P, P2C),
        shares_projections: bool = True,
        dropout_p: float = 0.0,
        table_dropout_p: float = 0.0,
    ) -> None:
        head_dim = d_model // num_heads
        super().__init__(
            d_model,
            num_heads,
            # 1 / sqrt(3 d) with both terms: He et al. 2021, eq. 4.
            scale=1.0 / math.sqrt(head_dim * (1 + len(terms))) if head_dim else None,
            dropout_p=dropout_p,
        )
        self.terms, self.table_dropout_p = frozenset(terms), table_dropout_p
        # Shared, distances go through the queries' and keys' own matrices.
        own = set() if shares_projections else self.terms
        self.pos_k = Linear(d_model, d_model) if C2P in own else None
        self.pos_q = Linear(d_model, d_model) if P2C in own else None

    def bias_of(
        self, q: Tensor, k: Tensor, bias: "Bias | Tensor | TableOfPass | None"
    ) -> Bias | Tensor | None:
        """The terms that depend on distance, as an object; `bias` is the stack's table."""
        if bias is None or not self.terms:
            return None
        if not isinstance(bias, TableOfPass):
            raise InputError(
                f"bias must be what `RelativePositions` gives, or None; got {type(bias).__name__}."
            )
        # (rows, d_model), and for each distance its row.
        rows, index = bias.of_length(q.shape[2])
        rows = functional.dropout(rows, self.table_dropout_p, self.training)
        c2p = p2c = None
        if C2P in self.terms:
            # Seen from the query, the distance of a key that is m positions on is -m.
            # Queries times projected distances, and keys times projected distances.
            c2p = self._term(q, rows, self.k if self.pos_k is None else self.pos_k, index.flip(0))
        if P2C in self.terms:
            p2c = self._term(k, rows, self.q if self.pos_q is None else self.pos_q, index)
        return DisentangledBias(c2p, p2c)

    def by_query_head(self) -> list[nn.Linear]:
        """The projections of the queries, and of the table where it has its own."""
        return [self.q, *(own for own in (self.pos_k, self.pos_q) if own is not None)]

    def _term(self, vectors: Tensor, rows: Tensor, projection: nn.Module, index: Tensor) -> "DistanceTerm":
        assert self.scale is not None, "set from the start"
        batch, heads, _, head_dim = vectors.shape
        wide = torch.promote_types(vectors.dtype, torch.float32)
        # Scaled here, once: the scores are scaled by the same factor.
        table: Tensor = projection(rows).to(wide) * self.scale
        return DistanceTerm(
            # One text's is a view.
            vectors=vectors.permute(1, 2, 0, 3).reshape(heads, -1, head_dim),
            table=table.view(-1, heads, head_dim).transpose(0, 1),
            index=index,
            batch=batch,
        )


@dataclass(frozen=True, eq=False)
class DisentangledBias:
    """A `Bias`: c2p for queries over keys, p2c for keys over queries; at least one of them."""

    c2p: "DistanceTerm | None"
    p2c: "DistanceTerm | None"

    def block(self, queries: Tensor, keys: Tensor) -> Tensor:
        """(batch, heads, rows, columns), in float32 or wider."""
        # Generators: a tile lives until it is added.
        rows = [] if self.c2p is None else self.c2p.tiles(queries, keys)
        if self.p2c is None:
            return torch.cat(list(rows), dim=2)
        # p2c has keys as rows: turned around, to (.., queries, keys).
        total = torch.cat([tile.mT for tile in self.p2c.tiles(keys, queries)], dim=3)
        if self.c2p is None:
            return total
        if torch.is_grad_enabled():
            return total + torch.cat(list(rows), dim=2)
        start = 0
        for tile in rows:  # into its place: the sum would be one more pass over all of it
            total[:, :, start : start + tile.shape[2]] += tile
            start += tile.shape[2]
        return total

    def learned(self) -> tuple[Tensor, ...]:
        """The queries, the keys, and the projected tables."""
        terms = [term for term in (self.c2p, self.p2c) if term is not None]
        return tuple(tensor for term in terms for tensor in (term.vectors, term.table))


# So many positions at a time: n of them over m others take a product with n + m - 1 distances, of which n
# positions have m each.
_TILE, _SMALLEST_TILE = 64, 16


@dataclass(frozen=True, eq=False)
class DistanceTerm:
    """x_a . T_index(b - a) for positions a, which have vectors, and any other positions b.

    Args:
        vectors: (heads, positions * batch, head_dim), the batch innermost.
        table: (heads, rows, head_dim), scaled, in the type that the scores have.
        index: int64 (2 positions - 1,), the row for b - a = 1 - positions, .., positions - 1.
        batch: texts.
    """

    vectors: Tensor
    table: Tensor
    index: Tensor
    batch: int

    def tiles(self, own: Tensor, others: Tensor) -> Iterator[Tensor]:
        """int64 (rows,) and (columns,) -> (batch, heads, rows, columns), some rows at a time."""
        # Runs of positions, as blocks have them, take the quick way.
        first, start = _start_of_run(own), _start_of_run(others)
        if first is None or start is None:
            yield self._gathered(own, others)
            return
        # No larger than needed: the surplus grows with the tile.
        size = min(_TILE, max(_SMALLEST_TILE, len(others)))
        for at in range(0, len(own), size):
            yield self._shifted(first + at, min(size, len(own) - at), start, len(others))

    def _shifted(self, first: int, rows: int, start: int, columns: int) -> Tensor:
        """Positions in a run over others in a run, as a view of products with all distances between them."""
        # rows + columns - 1 different distances between a run and a run.
        heads, width = len(self.vectors), rows + columns - 1
        x = self.vectors[:, first * self.batch : (first + rows) * self.batch].to(self.table.dtype)
        # From the last row to the first column: the most negative distance.
        furthest = start - (first + rows - 1)
        middle = len(self.index) // 2
        index = self.index[furthest + middle : furthest + middle + width]
        # (heads, rows * batch, width)
        products = torch.bmm(x, self.table.index_select(1, index).mT)
        # Row a has its distances one place further to the left than row a - 1.
        strides = (width, rows * self.batch * width, self.batch * width - 1, 1)
        return products.as_strided((self.batch, heads, rows, columns), strides, rows - 1)

    def _gathered(self, own: Tensor, others: Tensor) -> Tensor:
        """Any positions, in any order: products with every row, of which each pair picks one."""
        heads, _, head_dim = self.vectors.shape
        # (heads, rows, batch, head_dim)
        x = self.vectors.view(heads, -1, self.batch, head_dim).index_select(1, own)
        products = torch.bmm(x.to(self.table.dtype).flatten(1, 2), self.table.mT)
        # (batch, heads, rows, all rows of the table)
        products = products.view(heads, len(own), self.batch, -1).permute(2, 0, 1, 3)
        # The row of the table for each pair.
        index = self.index[others[None, :] - own[:, None] + len(self.index) // 2]
        return products.gather(3, index.expand(self.batch, heads, -1, -1))


def _start_of_run(positions: Tensor) -> int | None:
    """The first of positions that follow one another; None where they do not, or a device had to be asked."""
    look = positions.is_cpu and not torch.compiler.is_compiling()
    if not look or not len(positions) or not bool((positions.diff() == 1).all()):
        return None
    return int(positions[0])


class ProjectedNorm(nn.LayerNorm):
    """norm(W x): embeddings of another size than the layers have are brought to it before their norm."""

    def __init__(self, d_embedding: int, d_model: int, *, eps: float) -> None:
        super().__init__(d_model, eps=eps)
        self.projection = Linear(d_embedding, d_model, bias=False)

    def forward(self, input: Tensor) -> Tensor:
        """(..., d_embedding) -> (..., d_model)."""
        # The norm is over d_model, after the projection.
        return super().forward(self.projection(input))


class ConvolvedLayer(SelfAttentionLayer):
    """norm(layer(x) + activation(convolution(x))): an encoder layer with a convolution beside it.

    Padding counts as zeros to the convolution, which sees the tokens around each, and comes out as zeros. Its
    taps are those of `SelfAttentionLayer`; output is after the convolution.

    Source: He et al. 2021, arXiv 2006.03654, section "Scale up to 1.5 billion parameters".
    """

    def __init__(
        self,
        attention: DisentangledAttention,
        ffn: FeedForward,
        *,
        attention_residual: PostNorm,
        ffn_residual: PostNorm,
        convolution: nn.Conv1d,
        activation: str,
        norm: nn.LayerNorm,
        dropout_p: float = 0.0,
    ) -> None:
        super().__init__(attention, ffn, attention_residual=attention_residual, ffn_residual=ffn_residual)
        self.convolution, self.convolution_norm = convolution, norm
        self.convolution_activation = activation_named(activation)
        self.dropout = nn.Dropout(dropout_p)

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
        """(batch, positions, d_model) -> the same; refuses rows of several texts, and a state."""
        if state is not None:
            raise InputError("state must be None: this layer's convolution sees the tokens that follow.")
        if mask is not None and any(isinstance(part, Segments) for part in mask.parts()):
            raise InputError(
                "mask must not hold Segments: this model's convolution sees the tokens around each, also "
                "those of the next text. Give the texts as rows of their own."
            )
        # (batch, positions, 1), True for a token.
        padding = padding_of(mask)
        real = None if padding is None else padding[:, :, None]
        # Beside the whole layer, of what enters it.
        convolved = self._convolve(x, real)
        x = super().sublayers(x, mask=mask, bias=bias, rotation=rotation, state=state, taps=taps)
        x = self.convolution_norm(x + convolved)
        # As in the published code: padding is 0 after this layer.
        return x if real is None else torch.where(real, x, 0.0)

    def _convolve(self, x: Tensor, real: Tensor | None) -> Tensor:
        if real is not None:
            # What padding holds would reach its neighbours.
            x = torch.where(real, x, 0.0)
        # Conv1d has (batch, d_model, positions).
        convolved = self.convolution(x.mT).mT
        return self.convolution_activation(self.dropout(convolved))


class TrainedHead(Head):
    """The masked-LM head that DeBERTa was trained with, whose output is always the table of embeddings.

    Its layers are those of the other one under other names on disk.
    """

    def __init__(self, predictions: MaskedLMHead) -> None:
        super().__init__()
        self.predictions = predictions

    def forward(self, read: LastState) -> Tensor:
        """(batch, N, d_model) -> (batch, N, vocab_size)."""
        logits: Tensor = self.predictions(read)
        return logits
