"""Linformer: keys and values projected along the positions, to a few."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from regard.blocks.attentions._features import check_plain
from regard.core import AttentionInputs, Kernel, Padding, fused_attention, padding_of
from regard.core.errors import InputError


class Linformer(nn.Module, Kernel):
    """Softmax attention over r mixtures of the keys in place of N keys: O(N r).

        context = softmax(scale * q (E k)^T) (F v)

    E and F, (r, N), are learned, and shared by all heads of a layer; of a shorter text their first columns
    are read. Padding is left out of the mixtures. Each mixture is of all positions, so there is no causal
    form, and no weight for each key: the weights are over mixtures.

    Args:
        keys: E, (r, N).
        values: F, (r, N), by default E, as the paper's "key-value sharing".

    Raises:
        InputError: matrices of other shapes.

    Example:
        >>> import torch
        >>> from regard.blocks.attentions import Linformer
        >>> from regard.blocks import MultiHeadAttention
        >>> attention = MultiHeadAttention(6, 2, kernel=Linformer(torch.randn(4, 32)))
        >>> attention(torch.randn(1, 13, 6)).shape
        torch.Size([1, 13, 6])

    Source: Wang et al. 2020, arXiv 2006.04768, equation 7; sharing: section 4.
    """

    name: ClassVar[str] = "Linformer"

    def __init__(self, keys: Tensor, values: Tensor | None = None) -> None:
        super().__init__()
        if keys.ndim != 2 or (values is not None and values.shape != keys.shape):
            other = "" if values is None else f" and {tuple(values.shape)}"
            raise InputError(f"keys and values must be (r, N), of one shape; got {tuple(keys.shape)}{other}.")
        self.keys = nn.Parameter(keys)
        self.values = None if values is None else nn.Parameter(values)

    def __call__(self, inputs: AttentionInputs) -> Tensor:
        """See `regard.core.Kernel`."""
        context: Tensor = nn.Module.__call__(self, inputs)
        return context

    def forward(self, inputs: AttentionInputs) -> Tensor:
        """See `regard.core.Kernel`."""
        check_plain(inputs, self.name)
        mask = None if inputs.mask is None else inputs.mask.simplified(inputs.q_len, inputs.k_len)
        others = [part for part in (() if mask is None else mask.parts()) if not isinstance(part, Padding)]
        if others:
            raise InputError(
                f"mask must be Padding or None for {self.name}, whose mixtures are of all positions; got "
                f"{type(others[0]).__name__}; causal attention that is cheap: performer, linear, window."
            )
        length, most = inputs.k_len, self.keys.shape[1]
        if length > most:
            raise InputError(f"there must be at most {most} keys for this {self.name}; got {length}.")
        of_keys = self.keys[:, :length]
        of_values = of_keys if self.values is None else self.values[:, :length]
        real = padding_of(mask)
        k, v = inputs.k, inputs.v
        if real is not None:
            k, v = (torch.where(real[:, None, :, None], each, 0.0) for each in (k, v))
        k, v = of_keys.to(k.dtype) @ k, of_values.to(v.dtype) @ v
        return fused_attention(AttentionInputs(q=inputs.q, k=k, v=v, scale=inputs.scale))
