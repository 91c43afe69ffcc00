"""Attention by kernels, and as it is."""

import math

import torch
from torch import Tensor

from regard.embedding._quantized import KernelAttention
from regard.kernels._attention import Attention


def made(qkv: Tensor, rows: int, attention: Attention) -> Tensor:
    """The contexts of so many texts of equal length, one after the other."""
    tokens, _, heads, head_dim = qkv.shape
    context = torch.full((tokens, heads * head_dim), math.nan)
    return KernelAttention(attention).attend(qkv, context, [(rows, tokens // rows)])


def exact(qkv: Tensor, rows: int) -> Tensor:
    """The same in float64."""
    q, k, v = qkv.double().view(rows, -1, *qkv.shape[1:]).permute(2, 0, 3, 1, 4)
    weights = (q @ k.transpose(-1, -2)).softmax(-1)
    return (weights @ v).transpose(1, 2).reshape(len(qkv), -1)
