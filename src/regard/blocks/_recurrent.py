"""Recurrent layers, and the attention that was invented for them: Bahdanau, Cho and Bengio 2015, appendix A.

They stand in a `Stack` as others do. A row is one text that is read from one end to the other, so that a mask
may say where there is padding, and nothing else.
"""

import torch
from torch import Tensor, nn

from regard.blocks._embeddings import Identity, Linear
from regard.blocks._layers import LayerState, inner_taps, offer
from regard.blocks._multi_head import MultiHeadAttention
from regard.core import (
    Additive,
    AttentionInputs,
    Bias,
    Causal,
    KeyValueCache,
    Mask,
    Padding,
    Taps,
    fused_attention,
    padding_of,
)
from regard.core.errors import InputError
from regard.positions import Rotation


class GatedUnit(nn.Module):
    """A gated recurrent unit: what is read decides how much of the state stays.

        z = sigmoid(x_z + U_z s),  r = sigmoid(x_r + U_r s),  s~ = tanh(x_s + U (r s))
        s' = (1 - z) s + z s~

    (`torch.nn.GRU` multiplies by r after U, not before.)

    Args:
        size: n, of the state.

    Source: Cho et al. 2014, arXiv 1406.1078, equations 5 to 8; Bahdanau et al. 2015, arXiv 1409.0473,
    appendix A.1.1.

    Example:
        >>> GatedUnit(3)(torch.randn(2, 9), torch.zeros(2, 3)).shape
        torch.Size([2, 3])
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        # U_z and U_r, side by side, and U; what the word adds has the biases.
        self.gates = Linear(size, 2 * size, bias=False)
        self.proposal = Linear(size, size, bias=False)

    def forward(self, x: Tensor, state: Tensor) -> Tensor:
        """(batch, 3 n), what the inputs add to z, r and s~, and (batch, n) -> (batch, n)."""
        # z = sigmoid(W_z e + U_z s), r = sigmoid(W_r e + U_r s)
        gates = torch.sigmoid(x[:, : 2 * self.size] + self.gates(state))
        z, r = gates.chunk(2, dim=1)
        # s~ = tanh(W e + U (r * s))
        proposed = torch.tanh(x[:, 2 * self.size :] + self.proposal(r * state))
        # s' = (1 - z) * s + z * s~
        return state + z * (proposed - state)


class RecurrentLayer(nn.Module):
    """Gated units that read a text from both ends: annotation j is what each knows when it has read word j.

        h_j = [forward_j; backward_j]

    Args:
        d_model: of what is read, and of the annotations, of which each direction makes half.

    Taps:
        input, output (batch, positions, d_model).

    Raises:
        InputError: an odd d_model.

    Source: Bahdanau et al. 2015, arXiv 1409.0473, section 3.2 and appendix A.2.1, equation 7.

    Example:
        >>> RecurrentLayer(6)(torch.randn(1, 5, 6)).shape
        torch.Size([1, 5, 6])
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        if d_model % 2:
            raise InputError(f"d_model must be even, a half for each direction; got {d_model}.")
        # For each direction what two gates and the proposal get of a word, for all words at once.
        self.inputs = nn.ModuleList(Linear(d_model, 3 * d_model // 2) for _ in range(2))
        self.units = nn.ModuleList(GatedUnit(d_model // 2) for _ in range(2))

    def tap_names(self) -> list[str]:
        """Every point of the layer, in the order of the forward pass."""
        return ["input", "output"]

    def forward(
        self,
        x: Tensor,
        *,
        mask: Mask | None = None,
        bias: Bias | Tensor | None = None,
        rotation: Rotation | None = None,
        taps: Taps | None = None,
    ) -> Tensor:
        """(batch, positions, d_model) -> the same shape."""
        _refuse(mask, bias, rotation)
        x = offer(taps, "input", x)
        real = padding_of(mask)
        length = x.shape[1]
        annotations = []
        # The first direction reads from the left, the second from the right.
        orders = (range(length), range(length - 1, -1, -1))
        for linear, unit, order in zip(self.inputs, self.units, orders, strict=True):
            # What all words add, in one product; the loop has only the state left to multiply.
            read = linear(x).unbind(1)
            # Both directions start from zeros: (batch, d_model / 2).
            state = x.new_zeros(len(x), x.shape[2] // 2)
            states: dict[int, Tensor] = {}
            # Padding leaves the state as it is, at either end.
            for place in order:
                state = states[place] = _where_real(real, place, unit(read[place], state), state)
            # In the order of the text, whatever the order of reading.
            annotations.append(torch.stack([states[place] for place in range(length)], dim=1))
        # The annotation h_j = [forward; backward].
        return offer(taps, "output", torch.cat(annotations, dim=2))


class AlignedDecoderLayer(nn.Module):
    """A gated unit that looks at the source before each word: additive attention from its state.

        e_ij = v^T tanh(W_a s_(i-1) + U_a h_j),  alpha_i = softmax(e_i),  c_i = sum_j alpha_ij h_j
        s_i = unit(W y_(i-1) + C c_i, s_(i-1)),  s_0 = tanh(W_s h_1, of the backward direction)
        t_i = maxout(U_o s_(i-1) + V_o y_(i-1) + C_o c_i)

    Args:
        d_model: of the words y that it reads, of its state s, of the annotations h, and of what it gives, t.
        d_alignment: hidden units of the alignment model, the rows of W_a and U_a.

    Taps:
        input, output (batch, positions, d_model); of the attention, which cannot be written since each state
        depends on the one before: cross_attention.inputs, the `AttentionInputs` of all positions, with scorer
        `Additive`; cross_attention.context (batch, 1, positions, d_model); cross_attention.output, the same
        (batch, positions, d_model).

    Raises:
        InputError: an odd d_model.

    Source: Bahdanau et al. 2015, arXiv 1409.0473, section 3.1 and appendix A.2.2 (s_0 and t_i), A.1.2 (e_ij).

    Example:
        >>> import torch
        >>> from regard.blocks import AlignedDecoderLayer
        >>> AlignedDecoderLayer(6, 7)(torch.randn(1, 5, 6), torch.randn(1, 3, 6)).shape
        torch.Size([1, 5, 6])
    """

    def __init__(self, d_model: int, d_alignment: int) -> None:
        super().__init__()
        if d_model % 2:
            raise InputError(f"d_model must be even, a half for each direction; got {d_model}.")
        # One head whose scores are v^T tanh(W s + U h_j); it weighs the annotations themselves.
        self.cross_attention = MultiHeadAttention(
            d_model,
            1,
            head_dim=d_alignment,
            v_dim=d_model,
            use_bias=False,
            scorer=Additive(torch.zeros(1, d_alignment)),
        )
        self.cross_attention.v = Identity(d_model, d_model, bias=False)
        self.cross_attention.output = Identity(d_model, d_model, bias=False)
        # W_s of the first state, tanh(W_s h_1).
        self.initial = Linear(d_model // 2, d_model)
        # The decoder's unit reads the last word and the context: W and C beside its own U.
        self.unit = GatedUnit(d_model)
        self.of_word = Linear(d_model, 3 * d_model)
        self.of_context = Linear(d_model, 3 * d_model, bias=False)
        # The deep output: two numbers for each entry, of which maxout takes the larger.
        self.output = nn.ModuleDict(
            {
                "state": Linear(d_model, 2 * d_model),
                "word": Linear(d_model, 2 * d_model, bias=False),
                "context": Linear(d_model, 2 * d_model, bias=False),
            }
        )

    def tap_names(self) -> list[str]:
        """Every point of the layer, in the order of the forward pass."""
        # The projections are made once for the whole source, so that they have no points of their own.
        points = ("inputs", "context", "output")
        return ["input", *(f"cross_attention.{point}" for point in points), "output"]

    def new_state(self, *, window: int | None = None, back: int = 0) -> LayerState:
        """What it keeps, empty: its last states, where others have keys, and the source's keys and values."""
        del window
        return LayerState(attention=KeyValueCache(window=1, back=back))

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
        """Read the next words.

        Args:
            x: (batch, queries, d_model), the words before those that are to be told.
            encoded: (batch, keys, d_model), the annotations.
            mask: where x is padding.
            encoded_mask: where `encoded` is.
            bias, rotation: None.
            state: what it read before; it grows.
            taps: listeners, or None.

        Returns:
            t, (batch, queries, d_model).
        """
        _refuse(mask, bias, rotation)
        _refuse(encoded_mask, None, None)
        x = offer(taps, "input", x)
        # Padding is all that the mask can say here: (batch, positions), or None.
        real = padding_of(mask)
        real = None if real is None else real[:, -x.shape[1] :]  # a mask is of all that was read
        attend = _Alignment(self.cross_attention, encoded, encoded_mask, state)
        # s_0, or the state after the last word of the call before.
        before = self._before(encoded, encoded_mask, state)
        # W e of every word at once, (batch, 3 d_model) each.
        read = self.of_word(x).unbind(1)
        states, contexts, queries = [before], [], []
        # Each word's attention asks with the state before it, so that words cannot be read together.
        for place in range(x.shape[1]):
            # c_i from s_{i-1}
            query, context = attend(states[-1])
            # s_i from the word, c_i and s_{i-1}
            new = self.unit(read[place] + self.of_context(context), states[-1])
            states.append(_where_real(real, place, new, states[-1]))
            queries.append(query)
            contexts.append(context)
        context = torch.stack(contexts, dim=1)
        if state is not None:
            # (batch, 1, positions, d_model): one "head", as a cache of keys has it.
            kept = torch.stack(states[1:], dim=1)[:, None]
            state.attention.append(kept, kept)
        if taps is not None:
            attend.show(torch.stack(queries, dim=2), context, inner_taps(taps, "cross_attention"))
        # t~_i = U_o s_{i-1} + V_o y_{i-1} + C_o c_i
        deep: Tensor = self.output["state"](torch.stack(states[:-1], dim=1))
        deep = deep + self.output["word"](x) + self.output["context"](context)
        return offer(taps, "output", deep.view(*x.shape, 2).amax(dim=3))  # maxout: the larger of two

    def _before(self, encoded: Tensor, mask: Mask | None, state: LayerState | None) -> Tensor:
        """The state before the next word."""
        if state is not None and state.attention.length:
            return state.attention.since(state.attention.length - 1)[0][:, 0, 0]
        real = padding_of(mask)
        # The backward half at the first word has read the whole source.
        first = encoded[:, 0]
        if real is not None:
            # The first real token of each row, where padding is on the left.
            at = real.int().argmax(dim=1).expand(len(encoded))
            first = encoded[torch.arange(len(encoded), device=encoded.device), at]
        return torch.tanh(self.initial(first[:, encoded.shape[2] // 2 :]))  # the backward half


class _Alignment:
    """The attention to one source, query by query."""

    def __init__(
        self, attention: MultiHeadAttention, encoded: Tensor, mask: Mask | None, state: LayerState | None
    ) -> None:
        self._attention, self._mask, self._scorer = attention, mask, attention.scorer
        # The source was projected in an earlier call.
        if state is not None and state.cross_attention.length:
            self._k, self._v = state.cross_attention.since(0)
        else:
            k, self._v = attention._keys_and_values(encoded, None)
            self._k = k.to(self._v.dtype)  # under autocast, values keep the type of the annotations
            if state is not None:
                self._k, self._v = state.cross_attention.append(self._k, self._v)

    def __call__(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """The query (batch, 1, d_alignment) that a state asks, and the context (batch, d_model) it gets."""
        # (beams of all sources, 1, d_alignment)
        query = self._attention.q(state)[:, None].to(self._v.dtype)
        of_source = query.view(len(self._k), 1, -1, query.shape[2])  # as of `DecoderLayer`
        return query, fused_attention(self._inputs(of_source))[:, 0].reshape(len(state), -1)

    def show(self, queries: Tensor, context: Tensor, taps: Taps | None) -> None:
        """Offers all queries as one attention."""
        assert taps is not None
        # Read-only: the loop has used the contexts by now.
        taps.offer_readonly("inputs", self._inputs(queries))
        taps.offer_readonly("context", context[:, None])
        taps.offer_readonly("output", context)

    def _inputs(self, q: Tensor) -> AttentionInputs:
        return AttentionInputs(q=q, k=self._k, v=self._v, mask=self._mask, scorer=self._scorer)


def _where_real(real: Tensor | None, place: int, new: Tensor, old: Tensor) -> Tensor:
    """The new state where there is a token, the old one at padding."""
    return new if real is None else torch.where(real[:, place, None], new, old)


def _refuse(mask: Mask | None, bias: Bias | Tensor | None, rotation: Rotation | None) -> None:
    # Causal may stand in a mask, since a recurrence is causal by itself.
    refused = [type(part).__name__ for part in (() if mask is None else mask.parts())]
    refused = [name for name in refused if name not in (Padding.__name__, Causal.__name__)]
    refused += [name for name, each in (("bias", bias), ("rotation", rotation)) if each is not None]
    if refused:
        raise InputError(
            "mask must say no more than where padding is: a recurrent layer reads each row as one text, from "
            f"end to end; got {', '.join(refused)}."
        )
