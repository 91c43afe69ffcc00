"""The table of learned positions, and the sinusoidal matrix against its formula, by math loops."""

import copy
import math
from typing import Any

import pytest
import torch
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

from regard.core.errors import InputError
from regard.positions import LearnedPositions, SinusoidalPositions, sinusoidal_encoding
from tolerances import FP64


@pytest.mark.parametrize("kind", [LearnedPositions, SinusoidalPositions])
def test_looks_rows_up_in_any_shape(kind: Any) -> None:
    positions = kind(11, 7)
    asked = torch.tensor([[10, 0, 3], [3, 3, 7]])
    assert torch.equal(positions(asked), positions.table[asked])
    assert positions(asked).shape == (2, 3, 7)


@pytest.mark.parametrize("kind", [LearnedPositions, SinusoidalPositions])
@pytest.mark.parametrize("position", [-1, 11])
def test_there_is_no_position_beyond_the_table(kind: Any, position: int) -> None:
    with pytest.raises(IndexError, match="out of range"):
        kind(11, 7)(torch.tensor([position]))


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


@pytest.mark.parametrize("d_model", [1, 2, 3, 7, 64])
@pytest.mark.parametrize("max_seq_len", [1, 13])
@pytest.mark.parametrize("base", [10_000.0, 500.0])
def test_the_formula(max_seq_len: int, d_model: int, base: float) -> None:
    table = sinusoidal_encoding(max_seq_len, d_model, base=base)
    assert table.shape == (max_seq_len, d_model)
    assert table.dtype == torch.float64
    assert table.is_contiguous()
    for position in range(max_seq_len):
        for column in range(d_model):
            angle = position / base ** ((column - column % 2) / d_model)
            wanted = math.cos(angle) if column % 2 else math.sin(angle)
            assert table[position, column].item() == pytest.approx(wanted, abs=FP64)


def test_an_odd_size_leaves_the_last_cosine_out() -> None:
    # Column 2i depends on d_model, so the last column of 7 is not that of 8; it is the sine of 2i = 6.
    table = sinusoidal_encoding(11, 7)
    assert table[5, 6].item() == pytest.approx(math.sin(5 / 10_000 ** (6 / 7)), abs=FP64)


def test_bounded_periodic_and_linear() -> None:
    # PE[pos + k] is a rotation of PE[pos] that does not depend on pos: what "linear functions" can learn.
    table = sinusoidal_encoding(101, 14)
    assert table.abs().max().item() <= 1.0
    for pair in range(7):
        speed = 10_000 ** (-2 * pair / 14)
        cos, sin = math.cos(13 * speed), math.sin(13 * speed)
        rotation = torch.tensor([[cos, -sin], [sin, cos]], dtype=torch.float64)
        columns = table[:, 2 * pair : 2 * pair + 2]
        assert (columns[:-13] @ rotation - columns[13:]).abs().max().item() <= 1e-11
    assert (table[:, :2].norm(dim=1) - 1).abs().max().item() <= FP64


@pytest.mark.parametrize("make", [LearnedPositions, sinusoidal_encoding, SinusoidalPositions])
def test_what_is_refused(make: Any) -> None:
    for sizes, options, message in (
        ((0, 3), {}, "max_seq_len must be at least 1; got 0"),
        ((5, 0), {}, "d_model must be at least 1; got 0"),
        *(((5, 3), {"base": base}, "base must be greater than 0") for base in (0.0, -1.0, math.nan)),
        ((5, 3), {"layout": "halves"}, "layout must be 'interleaved' or 'half'; got 'halves'"),
    ):
        if make is LearnedPositions and options:
            continue
        with pytest.raises(InputError, match=message):
            make(*sizes, **options)


@pytest.mark.parametrize("d_model", [1, 2, 7, 22])
def test_half_has_the_same_columns_sines_first(d_model: int) -> None:
    interleaved = sinusoidal_encoding(13, d_model, base=500.0)
    half = sinusoidal_encoding(13, d_model, base=500.0, layout="half")
    assert torch.equal(half, torch.cat((interleaved[:, 0::2], interleaved[:, 1::2]), dim=1))


class TestModule:
    def test_stores_and_learns_nothing(self) -> None:
        positions = SinusoidalPositions(11, 7)
        assert positions.state_dict() == {}
        assert list(positions.parameters()) == []

    def test_single_precision_whatever_the_rest_is_in(self) -> None:
        # rounded once, from the table in double precision
        wanted = sinusoidal_encoding(11, 7).float()
        assert torch.equal(SinusoidalPositions(11, 7).table, wanted)
        assert torch.equal(SinusoidalPositions(11, 7).double()(torch.arange(11)), wanted)
        assert torch.equal(SinusoidalPositions(11, 7).bfloat16()(torch.arange(11)), wanted)

    def test_another_device_s_table_may_come_in_between(self) -> None:
        class Raced(SinusoidalPositions):
            @property
            def _table(self) -> torch.Tensor:  # whatever is set, another thread has set it anew since
                return torch.zeros(5, 3, device="meta")

            @_table.setter
            def _table(self, table: object) -> None:
                del table

        positions = torch.tensor([4, 1])
        assert torch.equal(Raced(5, 3)(positions), SinusoidalPositions(5, 3)(positions))

    def test_built_on_the_meta_device(self) -> None:
        with torch.device("meta"):
            positions = SinusoidalPositions(11, 7)
            assert not positions.table.is_meta
            blank = copy.deepcopy(SinusoidalPositions(11, 7))
        assert torch.equal(blank(torch.arange(11)), sinusoidal_encoding(11, 7).float())
        assert blank(torch.arange(3, device="meta")).is_meta
        assert torch.equal(blank.table, sinusoidal_encoding(11, 7).float())

    @pytest.mark.parametrize("d_model", [1, 7, 22])
    def test_the_table_of_marian(self, d_model: int) -> None:
        theirs = MarianSinusoidalPositionalEmbedding(11, d_model).create_weight()
        assert torch.equal(SinusoidalPositions(11, d_model, layout="half").table, theirs)


def test_a_matrix_that_is_made_in_inference_mode_serves_outside_of_it() -> None:
    positions = SinusoidalPositions(5, 4)
    with torch.inference_mode():
        positions(torch.tensor([1]))
    scale = torch.ones(4, requires_grad=True)
    (positions(torch.tensor([1])) * scale).sum().backward()
    assert scale.grad is not None
    torch.testing.assert_close(scale.grad, sinusoidal_encoding(5, 4)[1].float())
