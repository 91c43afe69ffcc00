"""Attention cheaper than O(N^2): kernels for `MultiHeadAttention(kernel=...)`, one file each.

A dilated window is a mask, `regard.core.DilatedWindow`: exact, with the softmax's own weights.
"""

from regard.blocks.attentions._features import FeatureKernel, SumsCache
from regard.blocks.attentions._linear import LinearAttention
from regard.blocks.attentions._linformer import Linformer
from regard.blocks.attentions._performer import Performer, random_rows

__all__ = [
    "LinearAttention",
    "Linformer",
    "Performer",
]
