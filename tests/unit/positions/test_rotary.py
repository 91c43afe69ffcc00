"""Rotations against `transformers` and against 2 x 2 rotations by math loops."""

from __future__ import annotations

import copy
import math
import pickle

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig
from transformers.models.gpt_neox.modeling_gpt_neox import apply_rotary_pos_emb as gpt_neox
from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb as gptj
from transformers.models.gptj.modeling_gptj import create_sinusoidal_positions
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb as llama

from regard.core.errors import InputError
from regard.positions import DynamicNTKScaling, LinearScaling, NoScaling, Rotary, Rotation, YaRNScaling
from tolerances import BF16, FP32_OF_LARGEST, FP64, assert_close_to_largest

BATCH, HEADS, N, HEAD_DIM, BASE = 3, 5, 7, 2 * 11, 1234.5


def projected(dtype: torch.dtype = torch.float32, dim: int = HEAD_DIM) -> Tensor:
    """As a projection leaves it: the heads of a position lie beside each other."""
    return torch.randn(BATCH, N, HEADS, dim, dtype=dtype).transpose(1, 2)


def position_ids() -> Tensor:
    return torch.stack([torch.arange(start, start + N) for start in (0, 5, 4093)])


def by_hand(x: Tensor, rotary: Rotary, positions: Tensor) -> Tensor:
    """Each pair through its own 2 x 2 matrix, in float64."""
    dim = rotary.rotary_dim or rotary.head_dim
    turned = x.double().clone()
    for b, h, n in torch.cartesian_prod(torch.arange(BATCH), torch.arange(HEADS), torch.arange(N)).tolist():
        for i in range(dim // 2):
            angle = positions[b if len(positions) > 1 else 0, n].item() * rotary.base ** (-2 * i / dim)
            a, other = (i, i + dim // 2) if rotary.layout == "half" else (2 * i, 2 * i + 1)
            x_a, x_b = x[b, h, n, a].item(), x[b, h, n, other].item()
            turned[b, h, n, a] = math.cos(angle) * x_a - math.sin(angle) * x_b
            turned[b, h, n, other] = math.sin(angle) * x_a + math.cos(angle) * x_b
    return turned


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("rotary_dim", [None, 2 * 3])
@pytest.mark.parametrize("rows", [1, BATCH])
def test_the_matrix(layout: str, rotary_dim: int | None, rows: int) -> None:
    rotary = Rotary(HEAD_DIM, base=BASE, rotary_dim=rotary_dim, layout=layout)  # type: ignore[arg-type]
    positions = torch.stack([torch.arange(start, start + N) for start in (0, 2, 11)])[:rows]
    x = projected()
    turned = rotary.rotation(positions, dtype=torch.float32).apply(x)
    assert_close_to_largest(turned, by_hand(x, rotary, positions), FP32_OF_LARGEST)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("scaling", "rope"),
    [
        pytest.param(NoScaling(), {"rope_type": "default"}, id="none"),
        pytest.param(LinearScaling(3.0), {"rope_type": "linear", "factor": 3.0}, id="linear"),
        pytest.param(DynamicNTKScaling(3.0, 19), {"rope_type": "dynamic", "factor": 3.0}, id="dynamic"),
        pytest.param(
            YaRNScaling(3.0, 19),
            {"rope_type": "yarn", "factor": 3.0, "original_max_position_embeddings": 19},
            id="yarn",
        ),
    ],
)
def test_the_numbers_of_llama(dtype: torch.dtype, scaling: NoScaling, rope: dict[str, object]) -> None:
    config = LlamaConfig(
        hidden_size=HEADS * HEAD_DIM,
        num_attention_heads=HEADS,
        max_position_embeddings=19,
        rope_parameters={"rope_theta": BASE, **rope},
    )
    q, k = projected(dtype), projected(dtype)
    cos, sin = LlamaRotaryEmbedding(config)(q, position_ids())
    rotation = Rotary(HEAD_DIM, base=BASE, scaling=scaling).rotation(position_ids(), dtype=dtype)
    assert torch.equal(rotation.cos[:, 0], cos)
    assert torch.equal(rotation.sin[:, 0], sin[..., : HEAD_DIM // 2])
    tol = {torch.float32: FP32_OF_LARGEST, torch.float64: FP64}.get(dtype, BF16)
    for x, wanted in zip((q, k), llama(q, k, cos, sin), strict=True):
        turned = rotation.apply(x)
        assert turned.dtype == dtype
        assert turned.stride() == x.stride()
        assert_close_to_largest(turned, wanted, tol)


def test_the_numbers_of_gpt_neox_which_rotates_a_part() -> None:
    q, k = projected(), projected()
    rotation = Rotary(HEAD_DIM, base=BASE, rotary_dim=6).rotation(position_ids(), dtype=torch.float32)
    half = Rotary(6, base=BASE).rotation(position_ids(), dtype=torch.float32)
    # They take the rotated part off, turn it, and put the rest back.
    for x, wanted in zip((q, k), gpt_neox(q, k, half.cos[:, 0], half.sin[:, 0].repeat(1, 1, 2)), strict=True):
        assert_close_to_largest(rotation.apply(x), wanted, FP32_OF_LARGEST)
        assert torch.equal(rotation.apply(x)[..., 6:], x[..., 6:])


def test_the_numbers_of_gptj_which_interleaves() -> None:
    x, positions = projected(), torch.arange(N)[None]
    sin, cos = create_sinusoidal_positions(N, HEAD_DIM)[None].chunk(2, dim=-1)
    wanted = gptj(x.transpose(1, 2), sin, cos).transpose(1, 2)
    rotary = Rotary(HEAD_DIM, base=10_000.0, layout="interleaved")
    assert_close_to_largest(rotary.rotation(positions, dtype=torch.float32).apply(x), wanted, FP32_OF_LARGEST)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_scores_depend_on_the_distance_only(layout: str) -> None:
    rotary = Rotary(HEAD_DIM, base=BASE, layout=layout)  # type: ignore[arg-type]
    q, k = torch.randn(2, 1, 1, 1, HEAD_DIM, dtype=torch.float64)

    def score(of_query: int, of_key: int) -> float:
        turned = [
            rotary.rotation(torch.tensor([[at]]), dtype=torch.float64).apply(x)
            for x, at in ((q, of_query), (k, of_key))
        ]
        return float((turned[0] * turned[1]).sum())

    assert score(3, 1) == pytest.approx(score(19, 17), abs=1e-5)  # angles are float32
    assert score(3, 1) != pytest.approx(score(3, 2), abs=1e-2)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("rotary_dim", [None, 6])
def test_gradients(layout: str, rotary_dim: int | None) -> None:
    rotary = Rotary(HEAD_DIM, base=BASE, rotary_dim=rotary_dim, layout=layout)  # type: ignore[arg-type]
    x = projected(torch.float64)[:1, :2, :3].requires_grad_()
    rotation = rotary.rotation(position_ids()[:1, :3], dtype=torch.float64)
    assert torch.autograd.gradcheck(rotation.apply, (x,))
    assert torch.autograd.gradgradcheck(rotation.apply, (x,))
    with torch.no_grad():
        silent = rotation.apply(x)
    assert not silent.requires_grad
    assert torch.equal(silent, rotation.apply(x))


def test_an_amplitude_reaches_the_gradient() -> None:
    rotary = Rotary(HEAD_DIM, base=BASE, scaling=YaRNScaling(3.0, 19, attention_factor=1.7))
    x = projected(torch.float64)[:1, :2].requires_grad_()
    rotation = rotary.rotation(position_ids()[:1], dtype=torch.float64)
    assert torch.autograd.gradcheck(rotation.apply, (x,))
    assert rotation.apply(x).norm().item() == pytest.approx(1.7 * x.norm().item(), rel=1e-5)


def test_x_is_left_as_it_is() -> None:
    x = projected()
    before = x.clone()
    Rotary(HEAD_DIM, base=BASE).rotation(position_ids(), dtype=torch.float32).apply(x)
    assert torch.equal(x, before)


def test_a_plain_value() -> None:
    rotary = Rotary(HEAD_DIM, base=BASE, scaling=LinearScaling(3.0))
    same = Rotary(HEAD_DIM, base=BASE, scaling=LinearScaling(3.0))
    assert rotary == same
    assert hash(rotary) == hash(same)
    others = [
        Rotary(HEAD_DIM, base=BASE),
        Rotary(HEAD_DIM, base=BASE, scaling=LinearScaling(5.0)),
        Rotary(HEAD_DIM, base=BASE + 1, scaling=LinearScaling(3.0)),
        Rotary(HEAD_DIM, base=BASE, scaling=LinearScaling(3.0), rotary_dim=6),
        Rotary(HEAD_DIM, base=BASE, scaling=LinearScaling(3.0), layout="interleaved"),
    ]
    assert len({rotary, *others}) == 6
    assert pickle.loads(pickle.dumps(rotary)) == copy.deepcopy(rotary) == rotary


def test_it_is_usable_where_it_was_made_on_the_meta_device() -> None:
    positions = position_ids()
    with torch.device("meta"):
        rotary = Rotary(HEAD_DIM, base=BASE, scaling=YaRNScaling(3.0, 19))
        inside = rotary.rotation(positions, dtype=torch.float32)
    outside = rotary.rotation(positions, dtype=torch.float32)
    assert torch.equal(inside.cos, outside.cos)
    on_meta = rotary.rotation(positions, dtype=torch.float32, device=torch.device("meta"))
    assert on_meta.apply(projected().to("meta")).shape == (BATCH, HEADS, N, HEAD_DIM)


def test_a_head_of_one_pair_turns() -> None:
    q = torch.tensor([[[[1.0, 0.0]] * 2]])
    rotation = Rotary(2, base=10.0).rotation(torch.arange(2)[None], dtype=torch.float32)
    assert torch.allclose(rotation.apply(q)[0, 0, 1], torch.tensor([math.cos(1.0), math.sin(1.0)]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"head_dim": 7}, "head_dim must be even and at least 2.*got 7"),
        ({"head_dim": 0}, "head_dim must be even and at least 2.*got 0"),
        ({"rotary_dim": 3}, "rotary_dim must be even, from 2 to .* got 3"),
        ({"rotary_dim": 10}, "rotary_dim must be even, from 2 to head_dim = 8"),
        ({"rotary_dim": 0}, "rotary_dim must be even, from 2 to head_dim = 8"),
        ({"base": 0.0}, "base must be above 0; got 0.0"),
        ({"layout": "pairs"}, "layout must be one of half, interleaved; got 'pairs'"),
    ],
)
def test_sizes(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Rotary(**{"head_dim": 8, "base": 10.0} | arguments)  # type: ignore[arg-type]


def test_an_odd_head_may_rotate_a_part() -> None:
    x = projected(dim=7)
    rotation = Rotary(7, base=BASE, rotary_dim=4).rotation(position_ids(), dtype=torch.float32)
    assert torch.equal(rotation.apply(x)[..., 4:], x[..., 4:])


@pytest.mark.parametrize(
    "positions", [torch.arange(N), torch.arange(N)[None].float(), torch.arange(N, dtype=torch.int32)[None]]
)
def test_positions_of_another_shape_or_type(positions: Tensor) -> None:
    with pytest.raises(InputError, match=r"position_ids must be int64 of shape \(batch or 1, N\)"):
        Rotary(HEAD_DIM, base=BASE).rotation(positions, dtype=torch.float32)


def test_x_of_another_size() -> None:
    rotation: Rotation = Rotary(HEAD_DIM, base=BASE).rotation(position_ids(), dtype=torch.float32)
    with pytest.raises(InputError, match="x must have head_dim 22, as the rotation"):
        rotation.apply(torch.zeros(1, 1, N, 8))


def test_x_of_another_type_is_turned_in_the_wider_and_rounded_once() -> None:
    rotation = Rotary(HEAD_DIM, base=BASE).rotation(position_ids(), dtype=torch.float32)
    x = torch.randn(1, 1, N, HEAD_DIM).bfloat16()
    assert torch.equal(rotation.apply(x), rotation.apply(x.float()).bfloat16())
