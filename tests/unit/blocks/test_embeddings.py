"""From token ids to the input of layer 0, by hand."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.blocks import Embeddings, Linear, _embeddings
from regard.blocks._embeddings import is_native
from regard.core import Taps
from regard.positions import LearnedPositions, SinusoidalPositions
from tolerances import FP64, assert_close_to_largest
from unit.blocks.by_hand import norm_by_hand, project, read_and_written, shaken

NUMBERS = torch.arange(3)[None]


def embeddings(num_token_types: int = 3, dropout_p: float = 0.0) -> Embeddings:
    made = Embeddings(
        vocab_size=13,
        d_model=6,
        positions=LearnedPositions(7, 6),
        num_token_types=num_token_types,
        norm=nn.LayerNorm(6, eps=1e-3),
        dropout_p=dropout_p,
    )
    shaken(made)
    return made


@pytest.mark.parametrize("numbers", [[[0, 1, 2]], [[6, 2, 2], [0, 3, 1]]], ids=["one-row", "rows"])
@pytest.mark.parametrize("types", [None, [[0, 2, 1], [1, 1, 0]]])
def test_embeddings(types: list[list[int]] | None, numbers: list[list[int]]) -> None:
    made = embeddings()
    ids = [[3, 12, 0], [7, 7, 1]]
    assert made.token_types is not None
    tables = (made.tokens.weight.tolist(), made.positions.weight.tolist(), made.token_types.weight.tolist())
    rows = []
    for b in range(2):
        for i in range(3):
            kind = 0 if types is None else types[b][i]
            number = numbers[b % len(numbers)][i]
            summands = (tables[0][ids[b][i]], tables[1][number], tables[2][kind])
            total = [math.fsum(parts) for parts in zip(*summands, strict=True)]
            rows.append(norm_by_hand(total, made.norm.weight.tolist(), made.norm.bias.tolist(), 1e-3))
    given = None if types is None else torch.tensor(types)
    output = made(torch.tensor(ids), positions=torch.tensor(numbers), token_types=given)
    assert_close_to_largest(output, torch.tensor(rows, dtype=torch.float64).view(2, 3, 6), FP64)


def test_embeddings_without_token_types() -> None:
    made = embeddings(num_token_types=0)
    assert made.token_types is None
    ids = torch.tensor([[3, 12, 0]])
    wanted = made.norm(made.tokens.weight[ids] + made.positions.weight[:3])
    assert_close_to_largest(made(ids, positions=NUMBERS), wanted, FP64)
    seen: list[Tensor] = []
    made(ids, positions=NUMBERS, taps=Taps({"token_types": seen.append}))
    assert seen == []
    assert made.tap_names() == ["tokens", "positions", "output"]


def test_embeddings_of_tokens_alone() -> None:
    made = Embeddings(13, 6)
    ids = torch.tensor([[3, 12, 0]])
    assert torch.equal(made(ids, positions=NUMBERS), made.tokens.weight[ids])
    assert made.tap_names() == ["tokens", "output"]
    assert set(made.state_dict()) == {"tokens.weight"}
    assert torch.equal(
        made(ids, positions=NUMBERS, token_types=torch.ones_like(ids)), made.tokens.weight[ids]
    )


def test_any_positions_can_be_handed_in() -> None:
    made = Embeddings(13, 6, positions=SinusoidalPositions(7, 6))
    ids = torch.tensor([[3, 12, 0]])
    wanted = made.tokens.weight[ids] + made.positions.table[[5, 0, 2]]
    assert torch.equal(made(ids, positions=torch.tensor([[5, 0, 2]])), wanted)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_a_fixed_table_takes_the_model_s_type(dtype: torch.dtype) -> None:
    # It is float32 itself, and would widen what it is added to.
    made = Embeddings(13, 6, positions=SinusoidalPositions(7, 6)).to(dtype)
    seen: list[Tensor] = []
    output = made(torch.tensor([[3, 12, 0]]), positions=NUMBERS, taps=Taps({"positions": seen.append}))
    assert output.dtype == seen[0].dtype == dtype
    assert torch.equal(seen[0], made.positions.table[:3].to(dtype)[None])


def test_names_of_the_parameters() -> None:
    made = Embeddings(
        13, 6, positions=LearnedPositions(7, 5), num_token_types=2, norm=nn.LayerNorm(5), d_embedding=5
    )
    assert {name: tuple(value.shape) for name, value in made.state_dict().items()} == {
        "tokens.weight": (13, 5),
        "positions.weight": (7, 5),
        "token_types.weight": (2, 5),
        "norm.weight": (5,),
        "norm.bias": (5,),
        "projection.weight": (6, 5),
        "projection.bias": (6,),
    }


# --- scale


def test_the_scale_is_on_the_rows_of_the_table_alone() -> None:
    made = Embeddings(13, 6, positions=LearnedPositions(7, 6), num_token_types=2, scale=1.75)
    shaken(made)
    ids = torch.tensor([[3, 12, 0]])
    assert made.token_types is not None
    wanted = 1.75 * made.tokens.weight[ids] + made.positions.weight[:3] + made.token_types.weight[0]
    seen: list[Tensor] = []
    output = made(ids, positions=NUMBERS, taps=Taps({"tokens": seen.append, "scaled": seen.append}))
    assert_close_to_largest(output, wanted, FP64)
    assert torch.equal(seen[0], made.tokens.weight[ids])  # the row of the table itself
    assert_close_to_largest(seen[1], 1.75 * made.tokens.weight[ids], FP64)
    assert "scaled" in made.tap_names()
    assert "scaled" not in Embeddings(13, 6).tap_names()


def test_the_scale_is_rounded_to_the_model_s_type() -> None:
    # sqrt(3072) = 55.4256..; Gemma's code casts it to bfloat16 first, which makes it 55.5.
    scale = 3072**0.5
    made = Embeddings(13, 6, scale=scale).to(torch.bfloat16)
    ids = torch.tensor([[3, 12, 0]])
    output = made(ids, positions=NUMBERS)
    assert output.dtype == torch.bfloat16
    assert torch.equal(output, (made.tokens.weight[ids].float() * 55.5).to(torch.bfloat16))
    assert not torch.equal(output, (made.tokens.weight[ids].float() * scale).to(torch.bfloat16))
    assert_close_to_largest(made.double()(ids, positions=NUMBERS), made.tokens.weight[ids] * scale, FP64)


# --- tables of another size, and shared ones


def test_the_projection_leads_to_d_model() -> None:
    made = Embeddings(
        13, 6, positions=LearnedPositions(7, 5), num_token_types=2, norm=nn.LayerNorm(5), d_embedding=5
    )
    shaken(made)
    ids = torch.tensor([[3, 12, 0]])
    assert made.projection is not None
    assert made.token_types is not None
    summed = made.tokens.weight[ids[0]] + made.positions.weight[:3] + made.token_types.weight[0]
    wanted = [
        project(made.projection, norm_by_hand(row, made.norm.weight.tolist(), made.norm.bias.tolist(), 1e-5))
        for row in summed.tolist()
    ]
    assert_close_to_largest(made(ids, positions=NUMBERS)[0], wanted, FP64)


def test_a_projection_is_there_only_where_it_is_asked_for() -> None:
    assert Embeddings(13, 6).projection is None
    assert Embeddings(13, 6, d_embedding=6).projection is not None


def test_a_shared_table_is_the_same_parameter() -> None:
    first = Embeddings(13, 6)
    second = Embeddings(13, 6, tokens=first.tokens, positions=LearnedPositions(7, 6))
    assert second.tokens is first.tokens
    with torch.no_grad():
        first.tokens.weight[3] = 7.0
    ids = torch.tensor([[3]])
    assert torch.equal(second(ids, positions=ids) - second.positions.weight[3], torch.full((1, 1, 6), 7.0))


# --- taps and dropout


@pytest.mark.parametrize(
    ("point", "shape"),
    [("tokens", (2, 3, 6)), ("positions", (1, 3, 6)), ("token_types", (2, 3, 6)), ("output", (2, 3, 6))],
)
def test_taps_of_the_embeddings(point: str, shape: tuple[int, ...]) -> None:
    made = embeddings()
    ids = torch.tensor([[3, 12, 0], [7, 7, 1]])
    seen = read_and_written(point, lambda taps: made(ids, positions=NUMBERS, taps=taps), moves=1e-2, close=0)
    assert seen.shape == shape


def test_points_are_offered_in_their_order() -> None:
    made = Embeddings(13, 6, positions=LearnedPositions(7, 5), num_token_types=2, d_embedding=5)
    seen: list[str] = []
    sizes: list[int] = []

    def listen(name: str) -> object:
        def heard(value: Tensor) -> None:
            seen.append(name)
            sizes.append(value.shape[-1])

        return heard

    names = made.tap_names()
    made(torch.tensor([[3, 12, 0]]), positions=NUMBERS, taps=Taps({name: listen(name) for name in names}))
    assert seen == names == ["tokens", "positions", "token_types", "output"]
    assert sizes == [5, 5, 5, 6]


def test_dropout_of_the_embeddings() -> None:
    made = embeddings(dropout_p=0.5)
    ids, numbers = torch.tensor([[3, 12, 0, 5, 6, 1, 2]]), torch.arange(7)[None]
    torch.manual_seed(3)
    trained = made(ids, positions=numbers)
    torch.manual_seed(3)
    assert torch.equal(made(ids, positions=numbers), trained)
    whole = made.eval()(ids, positions=numbers)
    kept = trained != 0
    assert 0 < int(kept.sum()) < kept.numel()
    assert_close_to_largest(trained, torch.where(kept, 2 * whole, 0.0), FP64)


def test_dropout_is_before_the_projection() -> None:
    made = Embeddings(13, 997, d_embedding=997, dropout_p=0.5).double()
    assert made.projection is not None
    with torch.no_grad():
        made.projection.weight.copy_(torch.eye(997))
        made.projection.bias.fill_(5.0)
    ids = torch.tensor([[3]])
    dropped = (made(ids, positions=ids) - 5.0)[0, 0]
    zero = dropped.abs() < FP64
    assert 400 < int(zero.sum()) < 600
    assert_close_to_largest(dropped[~zero], 2 * made.tokens.weight[3][~zero], FP64)


HALVES = (torch.bfloat16, torch.float16)


def layer(dtype: torch.dtype, *, bias: bool = True) -> Linear:
    torch.manual_seed(3)
    return Linear(11, 29, bias=bias).to(dtype).requires_grad_(False)


def rounded_once(of: Linear, x: torch.Tensor) -> torch.Tensor:
    """The product in double precision, rounded to the layer's type at the end."""
    bias = 0.0 if of.bias is None else of.bias.double()
    return (x.double() @ of.weight.double().T + bias).to(x.dtype)


@pytest.fixture
def without_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor that has none for half precision."""
    monkeypatch.setattr(_embeddings, "is_native", lambda dtype: False)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("entries", [2**21, 5 * 11])
@pytest.mark.usefixtures("without_arithmetic")
def test_rounds_once_and_in_pieces(
    dtype: torch.dtype, bias: bool, entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the weights are converted whole or five rows at a time: the exact product, rounded once."""
    monkeypatch.setattr(_embeddings, "_ENTRIES", entries)
    linear, x = layer(dtype, bias=bias), torch.randn(2, 7, 11).to(dtype)
    result = linear(x)
    assert result.dtype == dtype
    assert result.shape == (2, 7, 29)
    # Float32's own rounding may tip a tie, by one unit in the last place of the half type.
    exact = rounded_once(linear, x)
    assert (result == exact).float().mean() > 0.99
    assert torch.allclose(result.double(), exact.double(), rtol=torch.finfo(dtype).eps, atol=1e-6)


@pytest.mark.usefixtures("without_arithmetic")
def test_a_row_or_two_and_gradients_take_torchs_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Converting pays for neither."""
    linear, x = layer(torch.bfloat16), torch.randn(3, 11).to(torch.bfloat16)
    wide: list[int] = []
    monkeypatch.setattr(Linear, "_in_float32", lambda self, x: wide.append(len(x)) or x)
    linear(x[:2])
    linear(x.requires_grad_())
    assert wide == []
    with torch.no_grad():
        linear(x)
    assert wide == [3]


def test_float32_is_torchs_own_bit_for_bit() -> None:
    """Nothing changes for other types."""
    linear, x = layer(torch.float32), torch.randn(5, 11)
    assert torch.equal(linear(x), F.linear(x, linear.weight, linear.bias))


def test_a_layer_of_another_type_than_its_input_is_refused_as_torch_does() -> None:
    """No silent conversion."""
    with pytest.raises(RuntimeError, match="dtype"):
        layer(torch.float32)(torch.randn(5, 11).to(torch.bfloat16))


@pytest.mark.parametrize(
    ("machine", "has", "native"),
    [
        ("x86_64", {}, False),
        ("AMD64", {"avx2": True}, False),
        ("x86_64", {"avx512_bf16": True}, True),
        ("x86_64", {"amx_bf16": True}, True),
        ("aarch64", {}, True),
    ],
)
def test_reads_what_the_processor_has(
    machine: str, has: dict[str, bool], native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of processors that are not x86 nothing is known: torch's own way."""
    monkeypatch.setattr(_embeddings.platform, "machine", lambda: machine)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: has)
    assert is_native.__wrapped__(torch.bfloat16) is native
    assert is_native.__wrapped__(torch.float32) is True
