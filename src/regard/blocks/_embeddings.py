"""Linear maps in the dtypes of checkpoints; and from token ids to the vectors that enter the first layer."""

import platform
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.core import Taps
from regard.core.errors import InputError

# What a processor of the x86 kind needs for products of such numbers; one of them is enough.
_NATIVE = {
    torch.bfloat16: ("avx512_bf16", "amx_bf16", "amx_tile", "avx10_2"),
    torch.float16: ("avx512_fp16", "amx_fp16", "avx10_2"),
}

# One or two rows read the weights and hardly compute: a copy of them costs more than it saves.
_FEWEST_ROWS = 3

# Weights are converted so many at a time, 8 MB in float32: larger pieces go through the system every time.
_ENTRIES = 2**21


class Linear(nn.Linear):
    """y = x W^T + b, for the last axis of x.

    In bfloat16 or float16 on a processor without arithmetic for it, torch's product takes eight times as long
    as in float32. There it is worked out in float32 from the same weights, and rounded once, at the end; so a
    checkpoint that is stored in half precision keeps its size in memory and runs at nearly the speed of
    float32. Only where no gradient is asked for, which would keep the converted weights.

    Example:
        >>> layer = Linear(6, 11).to(torch.bfloat16).requires_grad_(False)
        >>> layer(torch.randn(5, 6).to(torch.bfloat16)).dtype
        torch.bfloat16
    """

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features), in the type of x."""
        # Only half precision on the CPU has two ways; all else is torch's own product.
        if x.dtype in _NATIVE and x.device.type == "cpu" and self._pays(x):
            return self._in_float32(x)
        return F.linear(x, self.weight, self.bias)

    def _pays(self, x: Tensor) -> bool:
        # Torch converts mixed types itself; a native product needs no help.
        if x.dtype != self.weight.dtype or is_native(x.dtype):
            return False
        # Under autograd the float32 copies would be kept for the backward pass.
        if torch.is_grad_enabled() and (x.requires_grad or self.weight.requires_grad):
            return False
        return x.numel() >= _FEWEST_ROWS * self.in_features

    def _in_float32(self, x: Tensor) -> Tensor:
        wide = x.float()
        bias = None if self.bias is None else self.bias.float()
        # Rows of the weight at a time: _ENTRIES numbers in float32.
        step = max(1, _ENTRIES // self.in_features)
        # The whole weight fits in one piece.
        if step >= self.out_features:
            return F.linear(wide, self.weight.float(), bias).to(x.dtype)
        # Piece by piece: each fills its own columns of the result, rounded to x's type.
        result = x.new_empty(*x.shape[:-1], self.out_features)
        for start in range(0, self.out_features, step):
            part = slice(start, start + step)
            result[..., part] = F.linear(
                wide, self.weight[part].float(), None if bias is None else bias[part]
            )
        return result


class Identity(Linear):
    """y = x, with nothing to learn: a linear map whose matrix is the identity.

    As the projections of `MultiHeadAttention` it gives attention without parameters, q = k = v = x: each
    token becomes the mean of all tokens, weighted by how alike they are to it.

    Args:
        in_features, out_features: the same number.
        bias: False.

    Raises:
        InputError: two sizes, or a bias.

    Example:
        >>> import torch
        >>> from regard.blocks import Identity
        >>> Identity(3, 3, bias=False)(torch.tensor([1.0, 2.0, 3.0]))
        tensor([1., 2., 3.])
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        if bias or in_features != out_features:
            raise InputError(
                "the identity has no bias (use_bias must be False) and gives as many numbers as it reads; "
                f"got bias={bias}, {in_features} and {out_features}."
            )
        # Past nn.Linear's own, which would make a weight.
        nn.Module.__init__(self)
        self.in_features, self.out_features = in_features, out_features
        self.register_parameter("bias", None)

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """The identity matrix, float32 on the CPU."""
        return torch.eye(self.in_features, device="cpu")

    def forward(self, x: Tensor) -> Tensor:
        """x."""
        return x


@cache
def is_native(dtype: torch.dtype) -> bool:
    """Whether the processor has arithmetic for this type, as far as torch can tell."""
    # Other types, and other processors than x86, are taken to be fast: torch can tell of x86 only.
    if dtype not in _NATIVE or platform.machine().lower() not in ("x86_64", "amd64"):
        return True
    tell = getattr(torch.cpu, "get_capabilities", None)
    # An older torch cannot tell: then its own product is used.
    if tell is None:
        return True
    has = tell()
    return any(has.get(feature, False) for feature in _NATIVE[dtype])


class Embeddings(nn.Module):
    """norm(scale * tokens[token_ids] + positions(0..N-1) + token_types[token_types]), then dropout.

    Args:
        vocab_size: rows of the table of learned embeddings.
        d_model: size of the vectors that enter the first layer.
        positions: from position numbers (batch or 1, N) to vectors, as `LearnedPositions`; None where the
            layers know positions otherwise (rotary, relative bias).
        num_token_types: rows of the table of token types (which sentence of a pair); 0 for none.
        norm: of the sum; None for none.
        scale: of the rows of the table (sqrt(d_model) in the original Transformer, section 3.4).
        d_embedding: size of the tables where it is not d_model; a linear layer then leads to d_model.
        tokens: a table to share with another stack; by default a new one.
        pad_id: a row of a new table that looking it up does not train; None for none.
        dropout_p: probability of dropping an entry in training.

    Taps:
        tokens (batch, N, d_embedding), the rows of the table; scaled, the same times `scale`, where that is
        not 1; positions (batch or 1, N, d_embedding) and token_types, what is added; output (batch, N,
        d_model), what enters layer 0.

    Example:
        >>> import torch
        >>> from regard.blocks import Embeddings
        >>> from regard.positions import LearnedPositions
        >>> embeddings = Embeddings(vocab_size=13, d_model=6, positions=LearnedPositions(5, 6))
        >>> embeddings(torch.tensor([[3, 1, 4]]), positions=torch.tensor([[0, 1, 2]])).shape
        torch.Size([1, 3, 6])

    Source: Vaswani et al. 2017, arXiv 1706.03762, sections 3.4 and 3.5; Devlin et al. 2019, arXiv 1810.04805,
    figure 2, for token types. The norm is in BERT's code, not in the paper.
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        *,
        positions: nn.Module | None = None,
        num_token_types: int = 0,
        norm: nn.Module | None = None,
        scale: float = 1.0,
        d_embedding: int | None = None,
        tokens: nn.Embedding | None = None,
        pad_id: int | None = None,
        dropout_p: float = 0.0,
    ) -> None:
        super().__init__()
        # ALBERT and ELECTRA have tables that are narrower than the layers.
        width = d_model if d_embedding is None else d_embedding
        self.tokens = nn.Embedding(vocab_size, width, padding_idx=pad_id) if tokens is None else tokens
        self.positions = positions
        self.token_types = nn.Embedding(num_token_types, width) if num_token_types else None
        self.norm = norm
        self.projection = None if d_embedding is None else Linear(width, d_model)
        self.dropout = nn.Dropout(dropout_p)
        self.scale = scale

    def tap_names(self) -> list[str]:
        """Every point, in the order of the forward pass."""
        optional = [name for name in ("positions", "token_types") if getattr(self, name) is not None]
        # A point that this model has no part for is not offered.
        return ["tokens", *(["scaled"] if self.scale != 1.0 else []), *optional, "output"]

    def forward(
        self,
        token_ids: Tensor,
        *,
        positions: Tensor,
        token_types: Tensor | None = None,
        taps: Taps | None = None,
    ) -> Tensor:
        """Embed token ids.

        Args:
            token_ids: int64 (batch, N).
            positions: int64 (batch or 1, N), the positions' numbers.
            token_types: int64 (batch, N); by default all 0. Ignored by a table of none.
            taps: listeners, or None.

        Returns:
            (batch, N, d_model).
        """
        # (batch, N, d_embedding)
        total: Tensor = self.tokens(token_ids)
        if taps is not None:
            total = taps.offer("tokens", total)
        if self.scale != 1.0:
            # Rounded to the model's own type first, as the models that scale were trained.
            total = total * torch.tensor(self.scale, dtype=total.dtype, device="cpu")
            if taps is not None:
                total = taps.offer("scaled", total)
        if self.positions is not None:
            at = self.positions(positions).to(total.dtype)  # a fixed table is float32
            total = total + (at if taps is None else taps.offer("positions", at))
        if self.token_types is not None:
            # A text without types is all of type 0, as in BERT.
            types = self.token_types(torch.zeros_like(token_ids) if token_types is None else token_types)
            total = total + (types if taps is None else taps.offer("token_types", types))
        if self.norm is not None:
            # The norm comes before the projection: it is as wide as the tables.
            total = self.norm(total)
        total = self.dropout(total)
        if self.projection is not None:
            # (batch, N, d_embedding) -> (batch, N, d_model)
            total = self.projection(total)
        return total if taps is None else taps.offer("output", total)
