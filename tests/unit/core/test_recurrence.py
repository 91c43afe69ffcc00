"""The recurrence against a loop over floats, forward and backward, and its kept states."""

import math

import pytest
import torch

from regard.core import RecurrentState, simple_recurrence
from regard.core.errors import InputError
from tolerances import FP64, assert_close_to_largest

BATCH, LENGTH, SIZE = 2, 7, 3


def test_it_is_the_papers_loop() -> None:
    forget, candidate = (torch.randn(BATCH, LENGTH, SIZE, dtype=torch.float64) for _ in range(2))
    weight, start = torch.randn(SIZE, dtype=torch.float64), torch.randn(BATCH, SIZE, dtype=torch.float64)
    forget[1, 4] = torch.inf  # padding
    carried = torch.ones(BATCH, LENGTH, dtype=torch.bool)
    carried[0, 3] = False  # another text
    got = simple_recurrence(forget, candidate, weight, start, carried)
    for b in range(BATCH):
        for d in range(SIZE):
            c = float(start[b, d])
            for t in range(LENGTH):
                c = c if carried[b, t] else 0.0
                f = 1.0 / (1.0 + math.exp(-(float(forget[b, t, d]) + float(weight[d]) * c)))
                c = f * c + (1.0 - f) * float(candidate[b, t, d])
                assert math.isclose(float(got[b, t, d]), c, rel_tol=FP64)
    assert torch.equal(got[1, 4], got[1, 3])


def test_its_gradients() -> None:
    shapes = [(BATCH, LENGTH, SIZE), (BATCH, LENGTH, SIZE), (SIZE,), (BATCH, SIZE)]
    given = [torch.randn(shape, dtype=torch.float64).requires_grad_() for shape in shapes]
    carried = torch.arange(LENGTH).expand(BATCH, -1) != 3
    assert torch.autograd.gradcheck(lambda *each: simple_recurrence(*each, carried), given)
    assert torch.autograd.gradcheck(simple_recurrence, given)


def test_states_go_on_move_and_are_taken_back() -> None:
    states, kept = torch.randn(BATCH, 9, SIZE), RecurrentState(back=2)
    assert kept.last() is None
    for piece in states.split([1, 5, 3], dim=1):
        kept.extend(piece)
    kept.cut(7)
    kept.pick(torch.tensor([1, 1, 0]))
    last = kept.last()
    assert last is not None
    assert_close_to_largest(last, states[[1, 1, 0], 6], 0.0)
    with pytest.raises(InputError, match="length must be from 7 to 7; got 6"):
        kept.cut(6)
    short = RecurrentState(back=4)
    short.extend(states[:, :3])
    short.cut(0)
    assert short.last() is None


def test_refused() -> None:
    with pytest.raises(InputError, match=r"candidate, weight and start must have the shapes"):
        simple_recurrence(torch.zeros(1, 2, 3), torch.zeros(1, 2, 3), torch.zeros(2), torch.zeros(1, 3))
