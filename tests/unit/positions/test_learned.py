"""The table of learned positions."""

import pytest
import torch

from regard.core.errors import InputError
from regard.positions import LearnedPositions


def test_looks_rows_up_in_any_shape() -> None:
    positions = LearnedPositions(11, 7)
    asked = torch.tensor([[10, 0, 3], [3, 3, 7]])
    assert torch.equal(positions(asked), positions.weight[asked])
    assert positions(asked).shape == (2, 3, 7)


def test_the_rows_that_were_asked_for_are_trained() -> None:
    positions = LearnedPositions(11, 7)
    positions(torch.tensor([4, 4, 9])).sum().backward()
    wanted = torch.zeros(11, 7)
    wanted[4], wanted[9] = 2.0, 1.0
    assert positions.weight.grad is not None
    assert torch.equal(positions.weight.grad, wanted)


def test_the_table_to_plot_is_detached_and_the_parameter_s_own() -> None:
    positions = LearnedPositions(11, 7)
    assert not positions.table.requires_grad
    assert positions.table.data_ptr() == positions.weight.data_ptr()
    assert list(positions.state_dict()) == ["weight"]


def test_initialisation() -> None:
    torch.manual_seed(3)
    weight = LearnedPositions(499, 401).weight
    # As nn.Embedding's table, to which it is added; 200,000 numbers know their mean to 0.01.
    assert weight.std().item() == pytest.approx(1.0, rel=0.01)
    assert abs(weight.mean().item()) < 0.01


@pytest.mark.parametrize("position", [-1, 11])
def test_there_is_no_position_beyond_the_table(position: int) -> None:
    with pytest.raises(IndexError, match="out of range"):
        LearnedPositions(11, 7)(torch.tensor([position]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((0, 3), "max_seq_len must be at least 1; got 0"), ((5, -2), "d_model must be at least 1; got -2")],
)
def test_sizes(arguments: tuple[int, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        LearnedPositions(*arguments)
