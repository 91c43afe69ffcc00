"""Attention cheaper than O(N^2): kernels for `MultiHeadAttention(kernel=...)`, one file each.

A dilated window is a mask, `regard.core.DilatedWindow`: exact, with the softmax's own weights.
"""

from regard.blocks.attentions._features import (
    FeatureKernel,
    LinearAttention,
    Performer,
    SumsCache,
    random_rows,
)
from regard.blocks.attentions._linformer import Linformer

__all__ = [
    "LinearAttention",
    "Linformer",
    "Performer",
]
