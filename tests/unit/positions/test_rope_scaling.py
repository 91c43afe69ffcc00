"""Frequencies against `transformers`' own functions, bit for bit, and against float64 loops by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from regard.core.errors import InputError
from regard.positions import (
    DynamicNTKScaling,
    LinearScaling,
    Llama3Scaling,
    LongRoPEScaling,
    NoScaling,
    RotaryScaling,
    YaRNScaling,
)
from unit.positions.rope_fields import LLAMA3, LONGROPE, YARN

BASE, DIM, MAX_SEQ_LEN = 1234.5, 2 * 11, 97
POSITIONS = torch.arange(13)[None]
SHORT, LONG = (tuple(map(float, LONGROPE[f"{name}_factor"])) for name in ("short", "long"))  # type: ignore[arg-type]


def theirs(rope: dict[str, Any], *, length: Any = None) -> tuple[torch.Tensor, float]:
    config = LlamaConfig(
        hidden_size=3 * DIM,
        num_attention_heads=3,
        head_dim=DIM,
        max_position_embeddings=MAX_SEQ_LEN,
        rope_parameters={"rope_theta": BASE, **rope},
    )
    frequencies, amplitude = ROPE_INIT_FUNCTIONS[rope["rope_type"]](config, seq_len=length)
    return frequencies, amplitude


@pytest.mark.parametrize(
    ("scaling", "rope"),
    [
        pytest.param(LinearScaling(3.5), {"rope_type": "linear", "factor": 3.5}, id="linear"),
        pytest.param(DynamicNTKScaling(2.5, 97), {"rope_type": "dynamic", "factor": 2.5}, id="dynamic"),
        pytest.param(YaRNScaling(5.0, 19), YARN, id="yarn"),
        pytest.param(
            YaRNScaling(5.0, 19, beta_fast=3.0, beta_slow=0.7),
            YARN | {"beta_fast": 3.0, "beta_slow": 0.7},
            id="yarn-betas",
        ),
        pytest.param(
            YaRNScaling(5.0, 19, beta_fast=2.0, beta_slow=2.0),
            YARN | {"beta_fast": 2.0, "beta_slow": 2.0},
            id="yarn-step",
        ),
        pytest.param(
            YaRNScaling(5.0, 19, attention_factor=0.6), YARN | {"attention_factor": 0.6}, id="yarn-amplitude"
        ),
        pytest.param(YaRNScaling(0.5, 19), YARN | {"factor": 0.5}, id="yarn-shrinks"),
        pytest.param(Llama3Scaling(7.0, 1.5, 4.5, 53), LLAMA3, id="llama3"),
        pytest.param(LongRoPEScaling(SHORT, LONG, 19, 97 / 19), LONGROPE, id="longrope"),
        pytest.param(LongRoPEScaling(SHORT, LONG, 19, 2.5), LONGROPE | {"factor": 2.5}, id="longrope-factor"),
        pytest.param(LongRoPEScaling(SHORT, LONG, 19, 1.0), LONGROPE | {"factor": 1.0}, id="longrope-one"),
        pytest.param(
            LongRoPEScaling(SHORT, LONG, 19, 2.5, 0.6),
            LONGROPE | {"factor": 2.5, "attention_factor": 0.6},
            id="longrope-amplitude",
        ),
    ],
)
def test_bits_of_transformers(scaling: RotaryScaling, rope: dict[str, Any]) -> None:
    frequencies, amplitude = theirs(rope)
    ours = scaling.frequencies(BASE, DIM, POSITIONS)
    assert ours.dtype == torch.float32
    assert torch.equal(ours, frequencies)
    assert scaling.amplitude == amplitude


def test_bits_of_transformers_without_scaling() -> None:
    config = LlamaConfig(hidden_size=DIM, num_attention_heads=1, rope_parameters={"rope_theta": BASE})
    frequencies, amplitude = LlamaRotaryEmbedding.compute_default_rope_parameters(config)
    assert torch.equal(NoScaling().frequencies(BASE, DIM, POSITIONS), frequencies)
    assert NoScaling().amplitude == amplitude


@pytest.mark.parametrize("length", [1, 96, 97, 98, 211, 4099])
def test_dynamic_ntk_follows_the_length_of_the_call(length: int) -> None:
    # As their forward pass calls it: the length is a tensor there.
    frequencies, _ = theirs({"rope_type": "dynamic", "factor": 2.5}, length=torch.tensor(length))
    start = theirs({"rope_type": "dynamic", "factor": 2.5})[0]
    wanted = frequencies if length > 97 else start
    scaling = DynamicNTKScaling(2.5, 97)
    assert torch.equal(scaling.frequencies(BASE, DIM, torch.tensor([[0, length - 1], [3, 5]])), wanted)
    # The largest position decides, not how many there are.
    assert torch.equal(scaling.frequencies(BASE, DIM, torch.tensor([[length - 1]])), wanted)
    assert torch.equal(wanted, start) == (length <= 97)


@pytest.mark.parametrize("length", [1, 18, 19, 20, 97, 211])
def test_longrope_has_other_divisors_for_long_texts(length: int) -> None:
    frequencies, _ = theirs(LONGROPE, length=length)
    scaling = LongRoPEScaling(SHORT, LONG, 19, 5.0)
    assert torch.equal(scaling.frequencies(BASE, DIM, torch.tensor([[0, length - 1], [0, 0]])), frequencies)
    for i, divisor in enumerate(LONG if length > 19 else SHORT):
        assert frequencies[i].item() == pytest.approx(plain(i) / divisor, rel=1e-6)


def plain(i: int) -> float:
    return BASE ** (-2 * i / DIM)


def by_yarn(i: int) -> float:
    low, high = (DIM * math.log(19 / (turns * 2 * math.pi)) / (2 * math.log(BASE)) for turns in (32.0, 1.0))
    low, high = max(math.floor(low), 0), min(math.ceil(high), DIM - 1)
    keep = 1 - min(max((i - low) / (high - low), 0.0), 1.0)
    return keep * plain(i) + (1 - keep) * plain(i) / 5.0


def by_llama3(i: int) -> float:
    wavelength = 2 * math.pi / plain(i)
    if wavelength > 53 / 1.5:
        return plain(i) / 7.0
    if wavelength < 53 / 4.5:
        return plain(i)
    smooth = (53 / wavelength - 1.5) / (4.5 - 1.5)
    return (1 - smooth) * plain(i) / 7.0 + smooth * plain(i)


@pytest.mark.parametrize(
    ("scaling", "by_hand"),
    [
        pytest.param(NoScaling(), plain, id="none"),
        pytest.param(LinearScaling(3.5), lambda i: plain(i) / 3.5, id="linear"),
        pytest.param(
            DynamicNTKScaling(2.5, 7),  # POSITIONS holds 13, so the base has grown
            lambda i: (BASE * (2.5 * 13 / 7 - 1.5) ** (DIM / (DIM - 2))) ** (-2 * i / DIM),
            id="dynamic",
        ),
        pytest.param(YaRNScaling(5.0, 19), by_yarn, id="yarn"),
        pytest.param(Llama3Scaling(7.0, 1.5, 4.5, 53), by_llama3, id="llama3"),
    ],
)
def test_the_formula(scaling: RotaryScaling, by_hand: Callable[[int], float]) -> None:
    ours = scaling.frequencies(BASE, DIM, POSITIONS)
    assert ours.shape == (DIM // 2,)
    for i in range(DIM // 2):
        assert ours[i].item() == pytest.approx(by_hand(i), rel=1e-6)


def test_the_bands_of_llama3_and_yarn_are_all_there() -> None:
    # Otherwise the formulas above would not have been tested.
    for scaling, factor in ((Llama3Scaling(7.0, 1.5, 4.5, 53), 7.0), (YaRNScaling(5.0, 19), 5.0)):
        ratio = NoScaling().frequencies(BASE, DIM, POSITIONS) / scaling.frequencies(BASE, DIM, POSITIONS)
        assert ratio.min() == 1.0
        assert ratio.max().item() == pytest.approx(factor)
        assert ((ratio > 1.01) & (ratio < factor - 0.01)).any()


def test_amplitude_of_the_paper() -> None:
    assert YaRNScaling(5.0, 19).amplitude == pytest.approx(0.1 * math.log(5.0) + 1.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LinearScaling(0.0), "factor must be above 0; got 0.0"),
        (lambda: DynamicNTKScaling(2.0, 0), "max_seq_len must be a whole number, at least 1; got 0"),
        (
            lambda: DynamicNTKScaling(2.0, 8).frequencies(BASE, 2, POSITIONS),
            "at least 4 entries of a head; got 2",
        ),
        (lambda: YaRNScaling(2.0, -1), "original_max_seq_len must be .* got -1"),
        (lambda: YaRNScaling(2.0, 8, beta_slow=0.0), "beta_slow must be .* got 0.0"),
        (lambda: Llama3Scaling(2.0, 3.0, 3.0, 8), "must differ; got 3.0 for both"),
        (lambda: LongRoPEScaling((1.0,), (0.0,), 8, 2.0), "long_factor must be above 0; got 0.0"),
        (
            lambda: LongRoPEScaling((1.0,), (1.0,), 1, 2.0),
            "original_max_seq_len must be .* at least 2; got 1",
        ),
        (
            lambda: LongRoPEScaling((1.0,), (1.0,), 13, 2.0).frequencies(BASE, DIM, POSITIONS),
            "short_factor must have 11 numbers, one for each pair; got 1",
        ),
    ],
)
def test_what_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()
