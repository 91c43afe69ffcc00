"""Recurrent layers against plain loops over floats, which follow appendix A of Bahdanau et al. 2015."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.blocks import AlignedDecoderLayer, GatedUnit, RecurrentLayer
from regard.core import Causal, Padding, Segments, Taps
from regard.core.errors import InputError
from tolerances import FP64, assert_close_to_largest

BATCH, SOURCE, TARGET, SIZE, ALIGNMENT = 2, 5, 3, 4, 7
Vector = list[float]


def _times(linear: nn.Module, x: Vector) -> Vector:
    bias = [0.0] * linear.weight.shape[0] if linear.bias is None else linear.bias.tolist()
    pairs = zip(linear.weight.tolist(), bias, strict=True)
    return [math.fsum([b, *(w * each for w, each in zip(row, x, strict=True))]) for row, b in pairs]


def _sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x))


def _unit(unit: GatedUnit, x: Vector, s: Vector) -> Vector:
    n = len(s)
    both = _times(unit.gates, s)
    z = [_sigmoid(a + b) for a, b in zip(x[:n], both[:n], strict=True)]
    r = [_sigmoid(a + b) for a, b in zip(x[n : 2 * n], both[n:], strict=True)]
    inner = _times(unit.proposal, [a * b for a, b in zip(r, s, strict=True)])
    new = [math.tanh(a + b) for a, b in zip(x[2 * n :], inner, strict=True)]
    return [(1 - a) * old + a * each for a, old, each in zip(z, s, new, strict=True)]


def _sum(*vectors: Vector) -> Vector:
    return [math.fsum(each) for each in zip(*vectors, strict=True)]


def annotations(layer: RecurrentLayer, text: list[Vector]) -> list[Vector]:
    """Equation 7: what each direction knows when it has read a word."""
    found: list[list[Vector]] = []
    for side, words in enumerate((text, text[::-1])):
        state, states = [0.0] * (len(text[0]) // 2), []
        for word in words:
            state = _unit(layer.units[side], _times(layer.inputs[side], word), state)
            states.append(state)
        found.append(states[::-1] if side else states)
    return [forward + backward for forward, backward in zip(*found, strict=True)]


def told(layer: AlignedDecoderLayer, text: list[Vector], source: list[Vector]) -> tuple[list, list]:
    """Appendix A.2.2: t_i of every word, and its alignment."""
    attention = layer.cross_attention
    state = [math.tanh(each) for each in _times(layer.initial, source[0][len(source[0]) // 2 :])]
    outputs, alignments = [], []
    for word in text:
        asked = _times(attention.q, state)
        scores = []
        for annotation in source:
            hidden = _sum(asked, _times(attention.k, annotation))
            v = attention.scorer_v[0].tolist()
            scores.append(math.fsum(a * math.tanh(b) for a, b in zip(v, hidden, strict=True)))
        powers = [math.exp(each) for each in scores]
        alpha = [each / math.fsum(powers) for each in powers]
        pairs = list(zip(alpha, source, strict=True))
        context = [math.fsum(a * h[d] for a, h in pairs) for d in range(len(source[0]))]
        output = layer.output
        wide = _sum(
            _times(output["state"], state), _times(output["word"], word), _times(output["context"], context)
        )
        outputs.append([max(wide[2 * d], wide[2 * d + 1]) for d in range(len(wide) // 2)])
        alignments.append(alpha)
        read = _sum(_times(layer.of_word, word), _times(layer.of_context, context))
        state = _unit(layer.unit, read, state)
    return outputs, alignments


def _decoder() -> AlignedDecoderLayer:
    layer = AlignedDecoderLayer(SIZE, ALIGNMENT).double()
    nn.init.normal_(layer.cross_attention.scorer_v)
    return layer


def _random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


LENGTHS = [SOURCE, 3]
PADDED = Padding(torch.arange(SOURCE) < torch.tensor(LENGTHS)[:, None])


def test_annotations_know_what_is_before_and_after() -> None:
    layer, x = RecurrentLayer(SIZE).double(), _random(BATCH, SOURCE, SIZE)
    x[1, 3:] = 1e6  # padding
    found = layer(x, mask=PADDED)
    for row, length in enumerate(LENGTHS):
        assert_close_to_largest(
            found[row, :length].detach(), annotations(layer, x[row, :length].tolist()), FP64
        )


def test_each_word_is_told_by_state_word_and_context() -> None:
    layer, x, source = _decoder(), _random(BATCH, TARGET, SIZE), _random(BATCH, SOURCE, SIZE)
    shown: dict[str, Any] = {}
    names = ("inputs", "context", "output")
    taps = Taps(
        {f"cross_attention.{name}": lambda value, at=name: shown.update({at: value}) for name in names}
    )
    found = layer(x, source, mask=Causal(), encoded_mask=PADDED, taps=taps)
    inputs = shown["inputs"]
    hidden = torch.tanh(inputs.q[:, 0, :, None] + inputs.k[:, 0, None])
    weights = (
        (hidden @ layer.cross_attention.scorer_v[0]).masked_fill(~PADDED.real[:, None], -torch.inf).softmax(2)
    )
    for row, length in enumerate(LENGTHS):
        outputs, alignment = told(layer, x[row].tolist(), source[row, :length].tolist())
        assert_close_to_largest(found[row].detach(), outputs, FP64)
        assert_close_to_largest(weights[row, :, :length].detach(), alignment, FP64)
    assert_close_to_largest(shown["context"][:, 0].detach(), (weights @ source).detach(), FP64)
    assert torch.equal(shown["output"], shown["context"][:, 0])


def test_gradients() -> None:
    encoder, decoder = RecurrentLayer(SIZE).double(), _decoder()
    names = [*encoder.state_dict(), *decoder.state_dict()]
    learned = [*encoder.parameters(), *decoder.parameters()]
    assert len(names) == len(learned)

    def run(x: Tensor, source: Tensor, *_: Tensor) -> Tensor:
        encoded = encoder(source, mask=PADDED)
        return decoder(x, encoded, mask=Causal(), encoded_mask=PADDED)

    given = [_random(BATCH, TARGET, SIZE), _random(BATCH, SOURCE, SIZE)]
    assert torch.autograd.gradcheck(
        run, [*(each.requires_grad_() for each in given), *learned], fast_mode=True
    )


def test_what_a_recurrent_layer_cannot_take() -> None:
    layer, x = RecurrentLayer(SIZE), torch.randn(1, 4, SIZE)
    with pytest.raises(InputError, match=r"reads each row as one text, from end to end; got Segments\."):
        layer(x, mask=Segments(torch.zeros(1, 4, dtype=torch.int64)))
    with pytest.raises(InputError, match=r"got bias\."):
        _decoder()(x, x, bias=torch.zeros(1, 1, 4, 4))
    for make in (lambda: RecurrentLayer(5), lambda: AlignedDecoderLayer(5, 3)):
        with pytest.raises(InputError, match="d_model must be even, a half for each direction; got 5"):
            make()
