"""BERT's kind of encoder without gradients: the same sums as the network's, with fewer passes over memory.

On a processor the time that is not spent in matrix products is spent in moving vectors. So here

* the three projections of a layer are one product;
* what a sublayer gives is added to the residual stream by the product itself (beta = 1), into the same
  memory. Its bias is added one step earlier, by the norm before it, and what reads the norm's output takes it
  off again: with z' = z + b, W z + c = W z' + (c - W b). The bias of the values is part of that of the
  attention's output, since weights sum to 1; the keys' adds the same number to a whole row of scores, and
  is left out;
* the scale of the scores is in the queries' projection;
* texts of different lengths share the products, which need some hundred rows, and only attention tells them
  apart.

The folded weights are computed in float64 and rounded once. In bfloat16 the biases in the residual stream
cost a little: 0.99990 is the smallest cosine of 150 sentences, 0.99992 unfolded, at less than half the speed.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.blocks import FeedForward, MultiHeadAttention, PostNorm, Residual, SelfAttentionLayer, Stack
from regard.core import ScaledDot
from regard.embedding._engine import (
    AttentionBackend,
    MakeProduct,
    Product,
    Projection,
    SideBySide,
    TorchProduct,
)
from regard.models import Network, Transformer


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    qkv: Projection
    output: Product
    attention_norm: nn.LayerNorm
    attention_shift: Tensor
    hidden: Product
    activation: Callable[[Tensor], Tensor] | None  # None: GELU, which products know
    ffn_output: Product
    ffn_norm: nn.LayerNorm
    ffn_shift: Tensor
    ahead: Tensor  # what ffn_shift adds that is not this layer's
    num_heads: int


class PostNormEngine:
    """The encoders of BERT, DistilBERT, RoBERTa and ELECTRA in float32 or bfloat16 on the CPU.

    Args:
        network: one that `takes` takes.
        layers: embedding layers, 0 to L.
        product: what makes the linear maps.
        of_values: what makes that of the values in the upper half of the layers, if it is another.
        arithmetic: what works attention out.
    """

    mixed = True

    def __init__(
        self,
        network: Network,
        layers: Sequence[int],
        product: MakeProduct = TorchProduct,
        of_values: MakeProduct | None = None,
        arithmetic: AttentionBackend | None = None,
    ) -> None:
        stack = _stack(network)
        assert stack is not None, "asked for a network that it takes"
        self._asked = tuple(layers)
        self._scratch, self._arithmetic = _Scratch(), arithmetic or AttentionBackend()
        # None after the highest that is asked for.
        kept = [layer for layer in stack.layers if isinstance(layer, SelfAttentionLayer)][: max(layers)]
        # Each is added before its layer, in the norm that comes first.
        biases = [_output_bias(attention_of(layer)) for layer in kept]
        self._entrance = PackedEmbeddings(stack, biases[0] if biases else None)
        # A layer gets its own bias, and hands on that of the next.
        self._layers = [
            _folded(layer, bias, following, product, of_values if number >= len(kept) // 2 else None)
            for number, (layer, bias, following) in enumerate(
                zip(kept, biases, [*biases[1:], None][: len(kept)], strict=True)
            )
        ]

    @staticmethod
    def takes(network: Network) -> bool:
        """Whether this computes what the network computes."""
        return _stack(network) is not None

    @torch.inference_mode()
    def hidden(self, token_ids: Tensor, shape: Sequence[tuple[int, int]]) -> list[Tensor]:
        """See `Engine.hidden`."""
        states: dict[int, Tensor] = {}
        # Layer 0 is the table itself.
        if 0 in self._asked:
            states[0] = self._entrance.learned(token_ids)
        if self._layers:
            x = self._entrance(token_ids, shape)
            for number, layer in enumerate(self._layers, start=1):
                x = _run(layer, x, shape, self._arithmetic, self._scratch)
                if number in self._asked:
                    # Without what was added for the layer after it.
                    states[number] = x - layer.ahead
        return [states[layer] for layer in self._asked]


def _stack(network: Network) -> Stack | None:
    """The network's encoder, if it is made of nothing but what is folded here."""
    if type(network) is not Transformer or network.encoder is None or network.decoder is not None:
        return None
    stack = network.encoder
    # What the folding does not know: masks, rotations, other norms, other types.
    plain = stack.norm is None and stack.bias is None and stack.dropout is None
    open_to_all = all(pattern.mask is None and pattern.rotary is None for pattern in stack.patterns)
    parameters = list(network.parameters())
    on_cpu = all(p.device.type == "cpu" for p in parameters)
    one_type = {p.dtype for p in parameters} in ({torch.float32}, {torch.bfloat16})
    known = PackedEmbeddings.takes(stack) and all(is_plain(layer) for layer in stack.layers)
    return stack if plain and open_to_all and on_cpu and one_type and known and not network.training else None


def is_plain(layer: nn.Module) -> bool:
    if type(layer) is not SelfAttentionLayer:
        return False
    attention, ffn = layer.attention, layer.ffn
    residuals = (layer.attention_residual, layer.ffn_residual)
    return (
        type(attention) is MultiHeadAttention
        and type(ffn) is FeedForward
        and all(type(each) is PostNorm and type(each.norm) is nn.LayerNorm for each in residuals)
        and all(norm_of(each).bias is not None for each in residuals)
        and attention.num_heads == attention.num_kv_heads
        and attention.q.out_features == attention.v.out_features
        and attention.softcap is None
        and attention.kernel is None
        and attention.scorer == ScaledDot()
        and attention.q_norm is None
        and attention.k_norm is None
        and all(linear.bias is not None for linear in (attention.q, attention.v, attention.output))
        and all(linear.bias is not None for linear in (ffn.hidden, ffn.output))
    )


def attention_of(layer: SelfAttentionLayer) -> MultiHeadAttention:
    assert isinstance(layer.attention, MultiHeadAttention), "only such are taken"
    return layer.attention


def norm_of(residual: Residual) -> nn.LayerNorm:
    assert isinstance(residual, PostNorm), "only such are taken"
    assert isinstance(residual.norm, nn.LayerNorm), "only such are taken"
    return residual.norm


def _wide(tensor: Tensor) -> Tensor:
    return tensor.detach().double()


def _output_bias(attention: MultiHeadAttention) -> Tensor:
    # softmax rows sum to 1, so that every context has the values' bias in full.
    return _wide(attention.output.bias) + _wide(attention.output.weight) @ _wide(attention.v.bias)


def _folded(
    layer: SelfAttentionLayer,
    bias: Tensor,
    following: Tensor | None,
    product: MakeProduct,
    of_values: MakeProduct | None,
) -> _Layer:
    """A layer whose input has `bias` added, and whose output has that of the layer after it."""
    attention, ffn = attention_of(layer), layer.ffn
    assert isinstance(ffn, FeedForward)
    head_dim = attention.q.out_features // attention.num_heads
    # Put into the queries' weights: then scores need no scaling.
    scale = head_dim**-0.5 if attention.scale is None else attention.scale
    # (3 d, d), in float64 until all is folded.
    qkv = torch.cat([_wide(attention.q.weight) * scale, _wide(attention.k.weight), _wide(attention.v.weight)])
    # W (x + b) + c = W x + (W b + c): what x has more is taken off here.
    of_q = _wide(attention.q.bias) * scale - qkv[: attention.q.out_features] @ bias
    others = torch.zeros(2 * attention.q.out_features, dtype=torch.float64)
    others -= qkv[attention.q.out_features :] @ bias
    # The keys' share is a number for each row of scores; the values' is needed: their own bias is folded.
    # q . (k + c) = q . k + q . c, the same for all keys: the softmax does not see it.
    others[: attention.q.out_features] = 0.0
    ffn_bias = _wide(ffn.output.bias)
    norms = norm_of(layer.attention_residual), norm_of(layer.ffn_residual)
    ahead = torch.zeros_like(bias) if following is None else following
    dtype = attention.q.weight.dtype
    return _Layer(
        qkv=_joined(qkv.to(dtype), torch.cat([of_q, others]).to(dtype), product, of_values),
        output=product(attention.output.weight.detach(), None),
        attention_norm=norms[0],
        # The second linear map's bias is added here, with the norm's.
        attention_shift=(_wide(norms[0].bias) + ffn_bias).to(dtype),
        hidden=product(
            ffn.hidden.weight.detach(),
            (_wide(ffn.hidden.bias) - _wide(ffn.hidden.weight) @ ffn_bias).to(dtype),
        ),
        activation=None if ffn.activation is F.gelu else ffn.activation,
        ffn_output=product(ffn.output.weight.detach(), None),
        ffn_norm=norms[1],
        ffn_shift=(_wide(norms[1].bias) + ahead).to(dtype),
        ahead=ahead.to(dtype),
        num_heads=attention.num_heads,
    )


def _joined(weight: Tensor, bias: Tensor, product: MakeProduct, of_values: MakeProduct | None) -> Projection:
    """Queries, keys and values: one product, or two where the values have their own kind."""
    if of_values is None:
        return product(weight, bias)
    # Behind queries and keys.
    values = len(weight) // 3 * 2
    return SideBySide(product(weight[:values], bias[:values]), of_values(weight[values:], bias[values:]))


class _Scratch(threading.local):
    """Memory of a thread that is written again and again: mapping new memory, page by page, takes time."""

    def __init__(self) -> None:
        self._held: dict[str, Tensor] = {}

    def __call__(self, name: str, rows: int, width: int, like: Tensor) -> Tensor:
        """(rows, width) of a type, with anything in it."""
        held = self._held.get(name)
        # It only grows.
        if held is None or held.numel() < rows * width:
            held = self._held[name] = like.new_empty(rows * width)
        return held[: rows * width].view(rows, width)


def _run(
    layer: _Layer,
    x: Tensor,
    shape: Sequence[tuple[int, int]],
    arithmetic: AttentionBackend,
    scratch: _Scratch,
) -> Tensor:
    """x is (tokens, d_model) and is written over."""
    tokens = len(x)
    # (tokens, 3, heads, head_dim)
    qkv = layer.qkv.into(scratch("wide", tokens, layer.qkv.width, x), x).view(tokens, 3, layer.num_heads, -1)
    context = arithmetic.attend(qkv, scratch("context", tokens, layer.qkv.width // 3, x), shape)
    # x is the residual stream: the sum is made in its memory.
    layer.output.add_to(x, context)
    norm = layer.attention_norm
    # Normed, with the bias of the feed-forward network in it.
    x = F.layer_norm(x, x.shape[-1:], norm.weight, layer.attention_shift, norm.eps)
    hidden = scratch("wide", tokens, layer.hidden.width, x)  # over q, k and v, which are no longer needed
    if layer.activation is None:
        layer.hidden.gelu_into(hidden, x)
    else:
        hidden = layer.activation(layer.hidden.into(hidden, x))
    layer.ffn_output.add_to(x, hidden)
    norm = layer.ffn_norm
    return F.layer_norm(x, x.shape[-1:], norm.weight, layer.ffn_shift, norm.eps)


class PackedEmbeddings:
    """Learned embedding + position + type of token, normed: what `regard.blocks.Embeddings` gives.

    `added` (d_model,) is added to every row that comes out.
    """

    def __init__(self, stack: Stack, added: Tensor | None) -> None:
        own = stack.embeddings
        self.learned, self._positions, self._numbering = own.tokens, own.positions, stack.numbering
        # The sentence of a pair is always the first.
        self._type = None if own.token_types is None else own.token_types.weight[0].detach()
        assert isinstance(own.norm, nn.LayerNorm), "only such are taken"
        self._norm, self._projection = own.norm, own.projection
        shift = own.norm.bias.detach()
        # Before a projection nothing can be added for the layers: it comes after.
        self._shift = shift if added is None or own.projection else (shift.double() + added).to(shift.dtype)
        self._added = added.to(shift.dtype) if added is not None and own.projection else None

    @staticmethod
    def takes(stack: Stack) -> bool:
        """Whether this computes what the stack's own embeddings do."""
        own = stack.embeddings
        return own.scale == 1.0 and type(own.norm) is nn.LayerNorm and own.norm.bias is not None

    def __call__(self, token_ids: Tensor, shape: Sequence[tuple[int, int]]) -> Tensor:
        """(tokens, d_model), of rows as `Engine.hidden` gets them."""
        x: Tensor = self.learned(token_ids)
        if self._positions is not None:
            # Positions of rows of several lengths, end to end.
            x += self._positions(self._numbers(token_ids, shape))
        if self._type is not None:
            x += self._type
        x = F.layer_norm(x, x.shape[-1:], self._norm.weight, self._shift, self._norm.eps)
        if self._projection is not None:
            x = self._projection(x)
        return x if self._added is None else x.add_(self._added)

    def _numbers(self, token_ids: Tensor, shape: Sequence[tuple[int, int]]) -> Tensor:
        numbers, start = [], 0
        # Numbered as the network numbers a batch of its own.
        for rows, length in shape:
            ids = token_ids[start : start + rows * length].view(rows, length)
            numbers.append(self._numbering(ids).expand(rows, length).reshape(-1))
            start += rows * length
        return torch.cat(numbers)
