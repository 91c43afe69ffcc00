"""A layer of SRU++ against its equations as loops over floats."""

import math

import pytest
import torch

from regard.blocks import SruAttention, SruLayer
from regard.core import Causal, Predicate, Taps
from regard.core.errors import InputError
from tolerances import FP64, assert_close_to_largest

D_MODEL, D_ATTENTION, LENGTH = 5, 3, 7


def made() -> SruLayer:
    layer = SruLayer(SruAttention(D_MODEL, D_ATTENTION), D_MODEL).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn_like(parameter))
    return layer


def sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x))


@torch.no_grad()
def test_it_is_the_papers_layer() -> None:
    layer, x = made(), torch.randn(LENGTH, D_MODEL, dtype=torch.float64)
    attention = layer.attention
    q = [attention.q.weight @ x[t] for t in range(LENGTH)]
    k, v = ([linear.weight @ each for each in q] for linear in (attention.k, attention.v))
    u = []
    for t in range(LENGTH):
        powers = [math.exp(float(q[t] @ k[i]) / math.sqrt(D_ATTENTION)) for i in range(t + 1)]
        a = sum(power / math.fsum(powers) * v[i] for i, power in enumerate(powers))
        z = q[t] + float(attention.alpha) * a
        deviation = math.sqrt(float(z.var(unbiased=False)) + attention.norm.eps)
        normed = (z - z.mean()) / deviation * attention.norm.weight + attention.norm.bias
        u.append((attention.output.weight @ normed).view(3, D_MODEL))
    expected = torch.zeros(LENGTH, D_MODEL, dtype=torch.float64)
    for d in range(D_MODEL):
        c = 0.0
        for t in range(LENGTH):
            f = sigmoid(float(u[t][0, d] + layer.weight[0, d] * c + layer.bias[0, d]))
            r = sigmoid(float(u[t][1, d] + layer.weight[1, d] * c + layer.bias[1, d]))
            c = f * c + (1.0 - f) * float(u[t][2, d])
            expected[t, d] = r * c + (1.0 - r) * float(x[t, d])
    assert_close_to_largest(layer(x[None], mask=Causal())[0], expected, FP64)
    # Listeners change nothing, and are shown what the paper names.
    seen: dict[str, torch.Tensor] = {}
    taps = Taps({"attention.weights": lambda each: seen.update(weights=each), "state": lambda each: None})
    assert_close_to_largest(layer(x[None], mask=Causal(), taps=taps)[0], expected, FP64)
    assert_close_to_largest(
        seen["weights"][0, 0, -1], torch.tensor(powers, dtype=torch.float64) / math.fsum(powers), FP64
    )


def test_its_gradients() -> None:
    layer, x = made(), torch.randn(1, 3, D_MODEL, dtype=torch.float64)
    names = [name for name, _ in layer.named_parameters()]
    values = [each.detach().clone().requires_grad_() for each in layer.parameters()]

    def run(*given: torch.Tensor) -> torch.Tensor:
        parameters = dict(zip(names, given, strict=True))
        return torch.func.functional_call(layer, parameters, (x,), {"mask": Causal()})

    assert torch.autograd.gradcheck(run, values)


def test_refused() -> None:
    layer, x = made(), torch.randn(1, 3, D_MODEL).double()
    with pytest.raises(InputError, match=r"mask must be made of Causal, .* got Predicate"):
        layer(x, mask=Predicate(lambda query, key: query >= key))
    with pytest.raises(InputError, match="source and rotation must be None"):
        layer.attention(x, source=x)
    with pytest.raises(InputError, match="num_heads must divide d_attention; got 2 and 3"):
        SruAttention(D_MODEL, 3, num_heads=2)
