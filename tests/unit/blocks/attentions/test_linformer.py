"""Linformer against a loop in float64, and what it refuses."""

import math

import pytest
import torch

from regard.blocks import MultiHeadAttention
from regard.blocks.attentions import Linformer
from regard.core import AttentionInputs, Causal, Padding, attention_weights
from regard.core.errors import InputError
from tolerances import FP64, assert_close_to_largest

BATCH, HEADS, N, DIM, RANK, MOST = 2, 3, 7, 5, 4, 11


def inputs_of(mask: Padding | None = None) -> AttentionInputs:
    q, k, v = torch.randn(3, BATCH, HEADS, N, DIM, dtype=torch.float64)
    return AttentionInputs(q=q, k=k, v=v, mask=mask)


@pytest.mark.parametrize("shares", [True, False])
def test_contexts_are_those_of_a_loop(shares: bool) -> None:
    keys, values = torch.randn(2, RANK, MOST, dtype=torch.float64)
    real = torch.ones(BATCH, N, dtype=torch.bool)
    real[1, 5:] = False
    inputs = inputs_of(Padding(real))
    kernel = Linformer(keys, None if shares else values)
    found = kernel(inputs).detach()
    of_values = keys if shares else values
    for b in range(BATCH):
        length = int(real[b].sum())
        for h in range(HEADS):
            mixed = [
                [sum(float(matrix[r, j] * x[b, h, j, c]) for j in range(length)) for c in range(DIM)]
                for matrix, x in ((keys, inputs.k), (of_values, inputs.v))
                for r in range(RANK)
            ]
            for i in range(N):
                scores = [
                    math.exp(sum(float(inputs.q[b, h, i, c]) * mixed[r][c] for c in range(DIM)) / DIM**0.5)
                    for r in range(RANK)
                ]
                for c in range(DIM):
                    wanted = sum(s * mixed[RANK + r][c] for r, s in enumerate(scores)) / sum(scores)
                    assert float(found[b, h, i, c]) == pytest.approx(wanted, abs=1e-10)


def test_gradients_reach_both_matrices() -> None:
    shapes = (*((1, 1, 3, 2),) * 3, *((RANK, 3),) * 2)
    leaves = tuple(torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes)

    def context(*tensors: torch.Tensor) -> torch.Tensor:
        q, k, v, keys, values = tensors
        kernel = Linformer(keys, values)
        return torch.func.functional_call(
            kernel, {"keys": keys, "values": values}, (AttentionInputs(q=q, k=k, v=v),)
        )

    assert torch.autograd.gradcheck(context, leaves)


def test_matrices_of_ones_at_the_diagonal_are_softmax_attention() -> None:
    attention = MultiHeadAttention(12, HEADS).double()
    x = torch.randn(BATCH, N, 12, dtype=torch.float64)
    exact = attention(x)
    attention.kernel = Linformer(torch.eye(N, MOST, dtype=torch.float64))
    assert_close_to_largest(attention(x), exact, FP64)


def test_what_it_cannot_do_is_refused() -> None:
    kernel = Linformer(torch.randn(RANK, N - 1, dtype=torch.float64))
    with pytest.raises(InputError, match="at most 6 keys for this Linformer; got 7"):
        kernel(inputs_of())
    with pytest.raises(InputError, match="got Causal; causal attention that is cheap"):
        kernel(inputs_of().changed(mask=Causal()))
    with pytest.raises(InputError, match="is Linformer, which has no weight for each query and key"):
        attention_weights(inputs_of().changed(kernel=kernel))
    with pytest.raises(InputError, match=r"keys and values must be \(r, N\)"):
        Linformer(torch.zeros(2, 3), torch.zeros(3, 2))
