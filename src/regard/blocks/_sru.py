"""SRU++: a simple recurrent unit whose input projection is an attention."""

import torch
from torch import Tensor, nn

from regard.blocks._embeddings import Linear
from regard.blocks._layers import LayerState, inner_taps, offer
from regard.blocks._multi_head import MultiHeadAttention, context_of, drawn_dropout, split_heads
from regard.core import (
    AttentionInputs,
    Bias,
    Causal,
    KeyValueCache,
    Mask,
    Padding,
    RecurrentState,
    Segments,
    Taps,
    Window,
    padding_of,
    simple_recurrence,
)
from regard.core.errors import InputError
from regard.positions import Rotation


class SruAttention(nn.Module):
    """The projection of a recurrent unit, with attention in it; keys and values are made of the queries.

        Q = W_q X,   K = W_k Q,   V = W_v Q
        A = softmax(Q^T K / sqrt(d')) V
        U = W_o norm(Q + alpha A)                 alpha is learned, and 0 before training

    Args:
        d_model: d, the size of the input; U has three vectors of that size.
        d_attention: d', the size of a query; in the paper a quarter or an eighth of d.
        num_heads: into how many heads Q is split; one in most of the paper.
        norm_eps: added to the variance by the norm.
        dropout_p: probability of dropping an entry before W_o, in training.
        attention_dropout_p: probability of dropping a weight in training.

    Taps:
        those of `MultiHeadAttention`, of which `output` is U, (batch, positions, 3 d_model).

    Example:
        >>> SruAttention(8, 4)(torch.randn(1, 5, 8), mask=Causal()).shape
        torch.Size([1, 5, 24])

    Source: Lei 2021 (SRU++), arXiv 2102.12459, the part "SRU++"; the norm is its last form of U.
    """

    TAPS: tuple[str, ...] = MultiHeadAttention.TAPS

    def __init__(
        self,
        d_model: int,
        d_attention: int,
        *,
        num_heads: int = 1,
        norm_eps: float = 1e-5,
        dropout_p: float = 0.0,
        attention_dropout_p: float = 0.0,
    ) -> None:
        super().__init__()
        if d_attention < 1 or num_heads < 1 or d_attention % num_heads:
            raise InputError(f"num_heads must divide d_attention; got {num_heads} and {d_attention}.")
        self.num_heads, self.dropout_p = num_heads, attention_dropout_p
        # W^q, W^k, W^v and W^o; alpha starts at 0, so that attention adds nothing at first.
        self.q = Linear(d_model, d_attention, bias=False)
        self.k = Linear(d_attention, d_attention, bias=False)
        self.v = Linear(d_attention, d_attention, bias=False)
        self.alpha = nn.Parameter(torch.zeros(1))
        self.norm = nn.LayerNorm(d_attention, eps=norm_eps)
        self.dropout = nn.Dropout(dropout_p)
        self.output = Linear(d_attention, 3 * d_model, bias=False)

    def forward(
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
        """(batch, positions, d_model) -> (batch, positions, 3 d_model); arguments as of `MultiHeadAttention`.

        Raises:
            InputError: another sequence, or a rotation, of which the paper has none.
        """
        if source is not None or rotation is not None:
            raise InputError("source and rotation must be None: a recurrent unit reads one sequence.")
        # Q = W^q X^T, (batch, positions, d_attention); K = W^k Q and V = W^v Q.
        joined = self.q(x)
        q, k, v = (split_heads(each, self.num_heads) for each in (joined, self.k(joined), self.v(joined)))
        if taps is not None:
            q, k, v = taps.offer("q", q), taps.offer("k", k), taps.offer("v", v)
        if cache is not None:
            k, v = cache.append(k, v)
        inputs = AttentionInputs(q=q, k=k, v=v, mask=mask, bias=bias, dropout=drawn_dropout(self))
        # (batch, positions, d_attention), the heads side by side again.
        context = context_of(inputs, taps).transpose(1, 2).flatten(2)
        # U^T = W^o layernorm(Q + alpha A)
        projected: Tensor = self.output(self.dropout(self.norm(joined + self.alpha * context)))
        return projected if taps is None else taps.offer("output", projected)

    def new_cache(self, *, window: int | None = None, back: int = 0) -> KeyValueCache:
        """What it keeps of the positions that it reads, empty; arguments as of `KeyValueCache`."""
        return KeyValueCache(window=window, back=back)


class SruLayer(nn.Module):
    """A layer of SRU++: attention makes U, and a recurrence of products entry by entry reads it.

        f[t] = sigmoid(U[t, 0] + v  * c[t-1] + b)
        r[t] = sigmoid(U[t, 1] + v' * c[t-1] + b')
        c[t] = f[t] * c[t-1] + (1 - f[t]) * U[t, 2]
        h[t] = r[t] * c[t] + (1 - r[t]) * x[t]

    It needs no encoding of positions, nor a feed-forward network. Padding leaves c as it is; a text that
    shares a row with others begins with c = 0.

    Args:
        attention: what makes U.
        d_model: d.

    Taps:
        input; those of the attention under `attention.`; state, c; output, h; (batch, positions, d_model).

    Example:
        >>> import torch
        >>> from regard.blocks import SruAttention, SruLayer
        >>> from regard.core import Causal
        >>> SruLayer(SruAttention(8, 4), 8)(torch.randn(1, 5, 8), mask=Causal()).shape
        torch.Size([1, 5, 8])

    Source: Lei 2021, arXiv 2102.12459, the part "Background: SRU".
    """

    def __init__(self, attention: SruAttention, d_model: int) -> None:
        super().__init__()
        self.attention = attention
        self.weight = nn.Parameter(torch.zeros(2, d_model))  # v and v'
        # b and b', for the forget gate and the reset gate.
        self.bias = nn.Parameter(torch.zeros(2, d_model))

    def tap_names(self) -> list[str]:
        """Every point of the layer, in the order of the forward pass."""
        return ["input", *(f"attention.{point}" for point in self.attention.TAPS), "state", "output"]

    def new_state(self, *, window: int | None = None, back: int = 0) -> LayerState:
        """What it keeps of the positions that it reads, empty; arguments as of `KeyValueCache`."""
        cache = self.attention.new_cache(window=window, back=back)
        return LayerState(attention=cache, recurrent=RecurrentState(back=back))

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
        """(batch, positions, d_model) -> the same shape; `state` is what it read before, and grows.

        Raises:
            InputError: a mask of another kind than `Causal`, `Window`, `Padding` and `Segments`: the
                recurrence could not obey it.
        """
        x = offer(taps, "input", x)
        # Two masks: which positions are tokens, and which continue the text of the one before.
        real, carried = _of_recurrence(mask, x.shape[1])
        recurrent = None if state is None else state.recurrent
        cache = None if state is None else state.attention
        # U of all positions: the only step that is a product of matrices.
        projected = self.attention(
            x, mask=mask, bias=bias, rotation=rotation, cache=cache, taps=inner_taps(taps, "attention")
        )
        # In float32 or wider: half precision would round the state at every position.
        wide = torch.promote_types(x.dtype, torch.float32)
        # U[t, 0], U[t, 1] and U[t, 2], (batch, positions, d_model) each
        forget, reset, candidate = projected.to(wide).chunk(3, dim=-1)
        weight, added = self.weight.to(wide), self.bias.to(wide)
        forget = forget + added[0]
        if real is not None:
            forget = forget.masked_fill(~real[..., None], torch.inf)  # sigmoid makes 1 of it: c stays
        # c[-1]: the last state of the call before, or zeros.
        start = None if recurrent is None else recurrent.last()
        start = x.new_zeros(x.shape[0], x.shape[2], dtype=wide) if start is None else start
        # f = sigmoid(U[0] + v * c[t-1] + b), c[t] = f * c[t-1] + (1 - f) * U[2]
        states = simple_recurrence(forget, candidate, weight[0], start, carried)
        if recurrent is not None:
            recurrent.extend(states)
        before = torch.cat((start[:, None], states[:, :-1]), dim=1)  # c[t-1]
        # A new text begins from zeros, for the reset gate too.
        if carried is not None:
            before = before * carried[..., None]
        states = offer(taps, "state", states)
        # r = sigmoid(U[1] + v' * c[t-1] + b'), h = r * c + (1 - r) * x
        gate = torch.sigmoid(reset + weight[1] * before + added[1])
        return offer(taps, "output", torch.lerp(x.to(wide), states, gate).to(x.dtype))


def _of_recurrence(mask: Mask | None, length: int) -> tuple[Tensor | None, Tensor | None]:
    """Which of the last positions hold a token, and which go on from the one before; None for all."""
    carried: Tensor | None = None
    # Causal and Window need nothing: the attention obeys them, and a recurrence sees only the past.
    for part in () if mask is None else mask.parts():
        if isinstance(part, Segments) and part.keys is None:
            # Whether a position is in the segment of the one before it.
            same = part.queries[:, 1:] == part.queries[:, :-1]
            # The first goes on from the start state, whatever that is.
            same = torch.cat((torch.ones_like(same[:, :1]), same), dim=1)
            carried = same if carried is None else carried & same
        elif not isinstance(part, Causal | Window | Padding):
            raise InputError(
                f"mask must be made of Causal, Window, Padding and Segments, which a recurrence can obey; "
                f"got {type(part).__name__}."
            )
    real = padding_of(mask)
    return None if real is None else real[:, -length:], carried
