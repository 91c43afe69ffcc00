"""Multi-head attention: project to queries, keys and values, attend in every head, join the heads."""

import math
from collections.abc import Sequence
from dataclasses import fields, replace

import torch
from torch import Tensor, nn

from regard.blocks._embeddings import Linear
from regard.core import (
    AttentionInputs,
    Bias,
    BiasOfHeads,
    DenseBias,
    Kernel,
    KeyValueCache,
    Mask,
    ScaledDot,
    Scorer,
    SeededDropout,
    Taps,
    attention_by_weights,
    fused_attention,
    reference_attention,
)
from regard.core.errors import InputError
from regard.positions import Rotation

# Shared by all layers: it holds no state.
_SCALED_DOT = ScaledDot()


class MultiHeadAttention(nn.Module):
    """Self-attention over one sequence, or cross-attention from one sequence to another.

        q = W_q x,  k = W_k s,  v = W_v s          split into heads; s = x, or the other sequence
        context_h = softmax(scale * score(q_h, k_h)) v_h          score(q, k) = q k^T, or a scorer's
                                                        (a kernel makes context_h of q_h, k_h, v_h)
        output = W_o concat(context_1 .. context_H)

    Args:
        d_model: size of the input and of the output.
        num_heads: heads of q.
        num_kv_heads: heads of k and v, a divisor of num_heads; by default num_heads.
        head_dim: size of a query and a key; by default d_model / num_heads.
        v_dim: size of a value; by default head_dim.
        d_source: size of the other sequence's vectors; by default d_model.
        use_bias: whether the projections to q, k and v have a bias.
        output_bias: whether the one to the output has; by default as `use_bias`.
        scorer, scale, softcap: as in `regard.core.AttentionInputs`. The tensors of a scorer become
            parameters: `scorer_v` of `Additive`, `scorer_weight` of `Bilinear`.
        dropout_p: probability of dropping a weight in training.
        q_norm, k_norm: norms over the head_dim of every query and key (Qwen 3, Gemma 3); None for none.
        kernel: makes the contexts, as those of `regard.blocks.attentions` do; None for the softmax.
        projection: the class of the four maps: `Identity` for attention without parameters.

    Raises:
        InputError: sizes that do not divide, or a `dropout_p` that is no probability below 1.

    Attributes:
        kept: which of the `num_built` heads that it was built with are left, in order; see `keep_heads`.

    Taps:
        q (batch, num_heads, queries, head_dim); k, v (batch, num_kv_heads, keys, ...): as they enter the
        scores, after norms and rotation; inputs, the `AttentionInputs`, read-only; scores, weights (batch,
        num_heads, queries, keys), which make the pass take O(N^2) memory, and which a kernel refuses that has
        none; context (batch, num_heads, queries, v_dim); output (batch, queries, d_model).

    Example:
        >>> import torch
        >>> from regard.blocks import MultiHeadAttention
        >>> attention = MultiHeadAttention(d_model=6, num_heads=2)
        >>> attention(torch.randn(1, 5, 6)).shape
        torch.Size([1, 5, 6])
        >>> attention(torch.randn(1, 5, 6), source=torch.randn(1, 7, 6)).shape
        torch.Size([1, 5, 6])
        >>> import torch
        >>> from regard.blocks import Identity
        >>> from regard.core import Additive
        >>> bahdanau = MultiHeadAttention(6, 2, scorer=Additive(torch.zeros(2, 3)))
        >>> bahdanau.scorer_v.shape
        torch.Size([2, 3])
        >>> bare, x = MultiHeadAttention(6, 1, use_bias=False, projection=Identity), torch.randn(1, 5, 6)
        >>> torch.allclose(bare(x), torch.softmax(x @ x.mT / 6**0.5, dim=-1) @ x, atol=1e-6)
        True

    Source: Vaswani et al. 2017, arXiv 1706.03762, section 3.2.2; the scorers name theirs.
    """

    # In the order of the forward pass; "inputs" is what `reference_attention` takes, as one record.
    TAPS: tuple[str, ...] = ("q", "k", "v", "inputs", "scores", "weights", "context", "output")

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        v_dim: int | None = None,
        d_source: int | None = None,
        use_bias: bool = True,
        output_bias: bool | None = None,
        scorer: Scorer = _SCALED_DOT,
        scale: float | None = None,
        softcap: float | None = None,
        dropout_p: float = 0.0,
        q_norm: nn.Module | None = None,
        k_norm: nn.Module | None = None,
        kernel: Kernel | None = None,
        projection: type[Linear] = Linear,
    ) -> None:
        super().__init__()
        # As many key heads as query heads, but for grouped-query attention.
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if num_heads < 1 or num_kv_heads < 1 or num_heads % num_kv_heads:
            raise InputError(f"num_kv_heads must divide num_heads; got {num_kv_heads} and {num_heads}.")
        # d_k = d_v = d_model / h (Vaswani et al. 2017, section 3.2.2), where nothing else is asked for.
        if head_dim is None:
            if d_model % num_heads:
                raise InputError(
                    f"num_heads must divide d_model; got {num_heads} and {d_model}. Otherwise give head_dim."
                )
            head_dim = d_model // num_heads
        if not 0.0 <= dropout_p < 1.0:
            raise InputError(f"dropout_p must be a probability with 0 <= dropout_p < 1; got {dropout_p}.")
        if softcap is not None and not 0.0 < softcap < math.inf:
            raise InputError(f"softcap must be greater than 0, or None for no cap; got {softcap}.")
        # Values as wide as keys, and a source as wide as x, unless given.
        v_dim = head_dim if v_dim is None else v_dim
        d_source = d_model if d_source is None else d_source
        self.num_heads, self.num_kv_heads = num_heads, num_kv_heads
        self.scale, self.softcap, self.dropout_p = scale, softcap, dropout_p
        # W^Q, W^K and W^V of all heads, one head after the other in the rows.
        self.q = projection(d_model, num_heads * head_dim, bias=use_bias)
        self.k = projection(d_source, num_kv_heads * head_dim, bias=use_bias)
        self.v = projection(d_source, num_kv_heads * v_dim, bias=use_bias)
        output_bias = use_bias if output_bias is None else output_bias
        # W^O, which reads the heads side by side.
        self.output = projection(num_heads * v_dim, d_model, bias=output_bias)
        # A scorer's tensors have a shape for these heads; they become parameters, so that they train.
        scorer.check(num_heads, head_dim)
        self._scorer = scorer
        self._of_scorer = [
            each.name for each in fields(scorer) if isinstance(getattr(scorer, each.name), Tensor)
        ]
        for name in self._of_scorer:
            # A copy: several layers may be made with one scorer.
            self.register_parameter(f"scorer_{name}", nn.Parameter(getattr(scorer, name).detach().clone()))
        self.q_norm, self.k_norm = q_norm, k_norm
        self.kernel = kernel
        # A bias may be one for all layers: what it adds to heads that are cut out is passed over.
        self.kept, self.num_built = tuple(range(num_heads)), num_heads

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
        """Attend from x to itself, or to `source`.

        Args:
            x: (batch, queries, d_model).
            source: (batch, keys, d_source), where keys and values come from; by default x.
            mask, bias: as in `regard.core.AttentionInputs`.
            rotation: rotates queries and keys by their positions.
            cache: what was read before, to which x attends as well and is added: mask and bias are then of
                the keys from `cache.first` on, the last of them those of x. Of a `source` it keeps the keys
                and values, which are made in the first call only. None for nothing before.
            taps: listeners, or None; of a cache they see what is added to it.

        Returns:
            (batch, queries, d_model).
        """
        # (batch, heads, queries, head_dim)
        q = split_heads(self.q(x), self.num_heads)
        if self.q_norm is not None:  # before the rotation, as in Qwen 3 and Gemma 3
            q = self.q_norm(q)
        if rotation is not None:
            q = rotation.apply(q)
        if cache is not None and source is not None and cache.length:  # the source was read before
            q = q if taps is None else taps.offer("q", q)
            # All keys and values of the source, projected when it was read.
            k, v = cache.since(0)
        else:
            # (batch, kv_heads, keys, head_dim), (batch, kv_heads, keys, v_dim)
            k, v = self._keys_and_values(x if source is None else source, rotation)
            q, k = q.to(v.dtype), k.to(v.dtype)  # under autocast, norms give float32
            if taps is not None:
                q, k, v = taps.offer("q", q), taps.offer("k", k), taps.offer("v", v)
            if cache is not None:
                # After the taps: the cache keeps what listeners put in place of the keys.
                k, v = cache.append(k, v)
        inputs = AttentionInputs(
            q=q,
            k=k,
            v=v,
            mask=mask,
            bias=self.bias_of(q, k, bias),
            scorer=self.scorer,
            scale=self.scale,
            softcap=self.softcap,
            dropout=drawn_dropout(self),
            kernel=self.kernel if self.kernel is None or cache is None else self.kernel.after(cache),
        )
        # The context is (batch, heads, queries, v_dim).
        output = self._join(context_of(inputs, taps))
        return output if taps is None else taps.offer("output", output)

    def new_cache(self, *, window: int | None = None, back: int = 0) -> KeyValueCache:
        """What it keeps of the positions that it reads, empty; arguments as of `KeyValueCache`."""
        # A kernel may keep more than keys: summaries of blocks, say.
        if self.kernel is not None:
            return self.kernel.new_cache(window=window, back=back)
        return KeyValueCache(window=window, back=back)

    def _keys_and_values(self, source: Tensor, rotation: Rotation | None) -> tuple[Tensor, Tensor]:
        k = split_heads(self.k(source), self.num_kv_heads)
        v = split_heads(self.v(source), self.num_kv_heads)
        if self.k_norm is not None:
            k = self.k_norm(k)
        # Values are not rotated: positions shape the scores only.
        return k if rotation is None else rotation.apply(k), v

    @property
    def scorer(self) -> Scorer:
        """What makes its scores, with what it has learned."""
        if not self._of_scorer:
            return self._scorer
        # The scorer is frozen: this one holds the parameters in their present state.
        return replace(self._scorer, **{name: getattr(self, f"scorer_{name}") for name in self._of_scorer})

    def bias_of(self, q: Tensor, k: Tensor, bias: Bias | Tensor | None) -> Bias | Tensor | None:
        """What is added to the scaled scores; an architecture whose bias depends on q and k says so here."""
        del q, k
        # No head was cut out.
        if bias is None or len(self.kept) == self.num_built:
            return bias
        return BiasOfHeads(DenseBias(bias) if isinstance(bias, Tensor) else bias, self.kept)

    def keep_heads(self, heads: Sequence[int]) -> None:
        """Cut all query heads but these out of the weights: what is left computes what it did.

        The output is that of all heads with the contexts of the others set to zero; its bias stays. A key and
        value head goes with the last of the query heads that read it. The parameters are replaced, by copies
        of the rows and columns that stay.

        Args:
            heads: numbers of the heads as they are counted now, rising, that leave each key and value head
                as many query heads as the others, or none; `regard.models.check_heads` refuses others.

        Example:
            >>> from regard.blocks import MultiHeadAttention
            >>> attention = MultiHeadAttention(d_model=6, num_heads=3)
            >>> attention.keep_heads([0, 2])
            >>> attention.q.weight.shape, attention.output.weight.shape, attention.kept
            (torch.Size([4, 6]), torch.Size([6, 4]), (0, 2))
        """
        # Query heads for each key head; a key head stays while one of its query heads does.
        size = self.num_heads // self.num_kv_heads
        groups = sorted({head // size for head in heads})
        q_dim, k_dim = self.q.out_features // self.num_heads, self.k.out_features // self.num_kv_heads
        v_dim = self.v.out_features // self.num_kv_heads
        # Rows of the projections in, columns of the projection out.
        for linear in self.by_query_head():
            _keep_rows(linear, _entries(heads, q_dim))
        _keep_rows(self.k, _entries(groups, k_dim))
        _keep_rows(self.v, _entries(groups, v_dim))
        _keep_columns(self.output, _entries(heads, v_dim))
        # A scorer has its tensors by head, on the first axis.
        for name in self._of_scorer:
            setattr(self, f"scorer_{name}", _picked(getattr(self, f"scorer_{name}"), 0, heads))
        # `kept` has the numbers that the heads had when the layer was built.
        self.num_heads, self.num_kv_heads = len(heads), len(groups)
        self.kept = tuple(self.kept[head] for head in heads)

    def by_query_head(self) -> list[nn.Linear]:
        """The linear maps whose rows are those of the query heads, one head after the other."""
        return [self.q]

    def _join(self, context: Tensor) -> Tensor:
        # (batch, heads, queries, v_dim) -> (batch, queries, heads * v_dim) -> (batch, queries, d_model)
        joined: Tensor = self.output(context.transpose(1, 2).flatten(2))
        return joined


def drawn_dropout(attention: nn.Module) -> SeededDropout | None:
    """Which weights of a module's pass survive, by its `dropout_p`; None where it does not train."""
    dropout_p: float = getattr(attention, "dropout_p", 0.0)
    if not attention.training or dropout_p <= 0:
        return None
    # A number for the pass, not a matrix: every block draws its own part, and in the backward pass again.
    return SeededDropout(dropout_p, seed=int(torch.randint(2**62, ())))


def context_of(inputs: AttentionInputs, taps: Taps | None) -> Tensor:
    """The context, offered with all that leads to it; what is not listened to is not written out."""
    # The fast way, unless the architecture has a kernel of its own.
    attend = fused_attention if inputs.kernel is None else inputs.kernel
    if taps is None:
        return attend(inputs)
    taps.offer_readonly("inputs", inputs)
    # Scores and weights are (batch, heads, queries, keys): only a listener makes it worth writing them
    # out.
    if not (taps.wants("scores") or taps.wants("weights")):
        context = attend(inputs)
    elif inputs.kernel is None:
        context = reference_attention(inputs, taps).context
    else:
        context = attention_by_weights(inputs, taps)
    return taps.offer("context", context)


def _entries(heads: Sequence[int], size: int) -> list[int]:
    # Rows or columns of these heads, `size` of them each.
    return [head * size + entry for head in heads for entry in range(size)]


def _keep_rows(linear: nn.Linear, rows: Sequence[int]) -> None:
    linear.weight = _picked(linear.weight, 0, rows)
    if linear.bias is not None:
        linear.bias = _picked(linear.bias, 0, rows)
    linear.out_features = len(rows)


def _keep_columns(linear: nn.Linear, columns: Sequence[int]) -> None:
    linear.weight = _picked(linear.weight, 1, columns)
    linear.in_features = len(columns)


def _picked(parameter: Tensor, axis: int, entries: Sequence[int]) -> nn.Parameter:
    index = torch.tensor(entries, device=parameter.device)
    # A parameter of its own: the old matrix can be freed.
    picked = parameter.detach().index_select(axis, index).contiguous()
    return nn.Parameter(picked, requires_grad=parameter.requires_grad)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(batch, positions, heads * dim) -> (batch, heads, positions, dim), a view."""
    return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)
