"""Rotary embeddings from config.json, against the frequencies of `transformers`' own classes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Gemma3TextConfig, LlamaConfig, ModernBertConfig
from transformers.models.gemma3.modeling_gemma3 import Gemma3RotaryEmbedding
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.modernbert.modeling_modernbert import ModernBertRotaryEmbedding

from regard.checkpoints import Fields
from regard.core.errors import CheckpointError, InputError
from regard.models.families._rope import RopeSpelling, Theta, read_rope, write_rope
from regard.positions import LinearScaling, Llama3Scaling, LongRoPEScaling, NoScaling, Rotary, YaRNScaling
from unit.positions.rope_fields import LLAMA3, LONGROPE, YARN

FULL, SLIDING = "full_attention", "sliding_attention"
HEAD_DIM, MAX_SEQ_LEN = 2 * 11, 97

LLAMA = RopeSpelling()
GEMMA3 = RopeSpelling(Theta("rope_theta", 1e6), Theta("rope_local_base_freq", 1e4, is_scaled=False))
MODERNBERT = RopeSpelling(Theta("global_rope_theta", 160_000.0), Theta("local_rope_theta", 10_000.0))

LINEAR = {"rope_type": "linear", "factor": 3.0}
OLD_LINEAR = {"type": "linear", "factor": 3.0}


def fields(**values: Any) -> Fields:
    return Fields(file=Path("config.json"), values=json.loads(json.dumps(values)))


def read(spelling: RopeSpelling = LLAMA, **values: Any) -> dict[str, Rotary]:
    config = fields(**values)
    rotaries = read_rope(config, spelling, head_dim=HEAD_DIM, max_seq_len=MAX_SEQ_LEN)
    config.done()
    return rotaries


def assert_same(rotary: Rotary, frequencies: torch.Tensor, amplitude: float) -> None:
    dim = rotary.rotary_dim or rotary.head_dim
    assert torch.equal(rotary.scaling.frequencies(rotary.base, dim, torch.zeros(1, 1).long()), frequencies)
    assert rotary.scaling.amplitude == amplitude


def of_llama(**values: Any) -> LlamaConfig:
    return LlamaConfig(
        hidden_size=3 * HEAD_DIM,
        num_attention_heads=3,
        head_dim=HEAD_DIM,
        max_position_embeddings=MAX_SEQ_LEN,
        **json.loads(json.dumps(values)),
    )


ONE_FOR_ALL = [
    pytest.param({}, id="nothing"),
    pytest.param({"rope_theta": 777.0}, id="theta"),
    pytest.param({"rope_theta": 777}, id="theta-whole-number"),
    pytest.param({"rope_theta": 777.0, "rope_scaling": None}, id="null"),
    pytest.param({"rope_theta": 777.0, "rope_scaling": {}}, id="empty"),
    pytest.param({"rope_theta": 777.0, "rope_scaling": OLD_LINEAR}, id="type"),
    pytest.param({"rope_theta": 777.0, "rope_scaling": LINEAR}, id="rope_type"),
    pytest.param({"rope_theta": 777.0, "rope_scaling": LINEAR | {"type": "linear"}}, id="both-types"),
    pytest.param({"rope_scaling": LINEAR | {"rope_theta": 555.0}}, id="theta-inside"),
    pytest.param({"rope_theta": 777.0, "rope_scaling": {"type": "dynamic", "factor": 3.0}}, id="dynamic"),
    pytest.param({"rope_theta": 777.0, "rope_scaling": YARN}, id="yarn"),
    pytest.param({"rope_theta": 777.0, "rope_scaling": YARN | {"attention_factor": 0.6}}, id="amplitude"),
    pytest.param({"rope_scaling": YARN | {"beta_fast": 3.0, "beta_slow": 0.7, "truncate": True}}, id="betas"),
    pytest.param({"rope_scaling": YARN | {"beta_fast": None, "beta_slow": None}}, id="null-betas"),
    pytest.param({"rope_scaling": {"rope_type": "yarn", "factor": 5.0}}, id="yarn-without-original"),
    pytest.param({"rope_scaling": YARN | {"factor": None}}, id="yarn-without-factor"),
    pytest.param({"rope_scaling": YARN | {"mscale": 0.7, "mscale_all_dim": 1.3}}, id="mscale"),
    pytest.param(
        {"rope_scaling": YARN | {"mscale": 0.7, "mscale_all_dim": 1.3, "attention_factor": 0.6}},
        id="mscale-overruled",
    ),
    pytest.param({"rope_scaling": YARN | {"mscale": 0.7}}, id="one-mscale"),
    pytest.param({"rope_scaling": YARN | {"mscale": 0.7, "mscale_all_dim": 0.0}}, id="no-mscale"),
    pytest.param({"rope_theta": 777.0, "rope_scaling": LONGROPE}, id="longrope"),
    pytest.param({"rope_scaling": LONGROPE | {"factor": 3.0}}, id="longrope-factor"),
    pytest.param({"rope_scaling": LONGROPE | {"attention_factor": 0.6}}, id="longrope-amplitude"),
    pytest.param({"rope_theta": 777.0, "rope_scaling": LLAMA3}, id="llama3"),
    pytest.param(
        {
            "original_max_position_embeddings": 53,
            "rope_scaling": {k: v for k, v in LLAMA3.items() if not k.startswith("original")},
        },
        id="original-outside",
    ),
    pytest.param({"rope_parameters": {"rope_theta": 555.0, "rope_type": "default"}}, id="parameters"),
    pytest.param({"rope_parameters": {"rope_theta": 555.0}}, id="parameters-without-type"),
    pytest.param({"rope_parameters": LLAMA3 | {"rope_theta": 555.0}}, id="parameters-llama3"),
    pytest.param({"rope_parameters": LINEAR, "rope_theta": 555.0}, id="parameters-theta-outside"),
    pytest.param({"rope_parameters": LINEAR, "rope_scaling": OLD_LINEAR, "rope_theta": 5.5}, id="both"),
]


@pytest.mark.parametrize("values", ONE_FOR_ALL)
def test_llama(values: dict[str, Any]) -> None:
    theirs = LlamaRotaryEmbedding(of_llama(**values))
    rotaries = read(**values)
    assert list(rotaries) == [FULL, SLIDING]
    assert rotaries[FULL] == rotaries[SLIDING]
    assert_same(rotaries[FULL], theirs.inv_freq, theirs.attention_scaling)


def test_what_was_read() -> None:
    assert read()[FULL] == Rotary(HEAD_DIM, base=10_000.0)
    assert read(rope_theta=777.0, rope_scaling=LINEAR)[FULL] == Rotary(
        HEAD_DIM, base=777.0, scaling=LinearScaling(3.0)
    )
    assert read(rope_scaling=LLAMA3)[FULL].scaling == Llama3Scaling(7.0, 1.5, 4.5, 53)
    assert read(rope_scaling=YARN)[FULL].scaling == YaRNScaling(5.0, 19)


GEMMA3_FILES = [
    pytest.param({}, id="nothing"),
    pytest.param({"rope_theta": 777.0, "rope_local_base_freq": 55.0}, id="old"),
    pytest.param(
        {"rope_theta": 777.0, "rope_local_base_freq": 55.0, "rope_scaling": LINEAR}, id="old-scaled"
    ),
    pytest.param(
        {"rope_parameters": {FULL: LINEAR | {"rope_theta": 777.0}, SLIDING: {"rope_theta": 55.0}}}, id="new"
    ),
    pytest.param({"rope_parameters": {FULL: {"rope_type": "default", "rope_theta": 777.0}}}, id="new-half"),
    pytest.param({"rope_parameters": {FULL: None, SLIDING: {"rope_theta": 55.0}}}, id="new-null"),
    pytest.param(
        {"rope_parameters": {FULL: LINEAR, SLIDING: {}}, "rope_theta": 777.0, "rope_local_base_freq": 55.0},
        id="thetas-outside",
    ),
]


@pytest.mark.parametrize("values", GEMMA3_FILES)
def test_gemma3_whose_scaling_is_about_full_layers(values: dict[str, Any]) -> None:
    config = Gemma3TextConfig(
        head_dim=HEAD_DIM,
        num_hidden_layers=7,
        max_position_embeddings=MAX_SEQ_LEN,
        **json.loads(json.dumps(values)),
    )
    theirs = Gemma3RotaryEmbedding(config)
    for kind, rotary in read(GEMMA3, **values).items():
        assert_same(rotary, getattr(theirs, f"{kind}_inv_freq"), getattr(theirs, f"{kind}_attention_scaling"))


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"global_rope_theta": 777.0, "local_rope_theta": 55.0}, id="old"),
        pytest.param({"global_rope_theta": 777.0, "rope_scaling": YARN}, id="old-scaled"),
        pytest.param({"rope_parameters": {FULL: YARN | {"rope_theta": 777.0}, SLIDING: LINEAR}}, id="new"),
    ],
)
def test_modernbert_whose_scaling_is_about_all_layers(values: dict[str, Any]) -> None:
    # Their YaRN looks for `truncate` in the wrong object, hence its default here.
    config = ModernBertConfig(
        hidden_size=3 * HEAD_DIM,
        num_attention_heads=3,
        max_position_embeddings=MAX_SEQ_LEN,
        **json.loads(json.dumps(values)),
    )
    theirs = ModernBertRotaryEmbedding(config)
    for kind, rotary in read(MODERNBERT, **values).items():
        assert_same(rotary, getattr(theirs, f"{kind}_inv_freq"), getattr(theirs, f"{kind}_attention_scaling"))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rope_scaling": {"type": "ntk"}}, "rope_scaling.rope_type' is 'ntk', .* regard.lens"),
        ({"rope_scaling": LONGROPE | {"long_factor": [1.0]}}, "long_factor must have 11 numbers.* got 1"),
        ({"rope_scaling": LONGROPE | {"short_factor": None}}, "short_factor' must be a list; got None"),
        ({"rope_scaling": LONGROPE | {"short_factor": [0] * 11}}, "short_factor must be above 0; got 0.0"),
        ({"rope_scaling": {"type": "su"}}, "rope_scaling.rope_type' is 'su'"),
        ({"rope_scaling": {"type": "mrope", "rope_type": "default"}}, "'default', but .*type' is 'mrope'"),
        ({"rope_scaling": LINEAR | {"beta_fast": 3.0}}, "does not know .*rope_scaling.beta_fast = 3.0"),
        ({"rope_scaling": YARN | {"short_factor": [1.0]}}, "does not know .*rope_scaling.short_factor"),
        ({"rope_parameters": {"mrope_section": [2, 3]}}, "does not know .*rope_parameters.mrope_section"),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling.factor' must be a finite number"),
        ({"rope_scaling": {"type": "linear", "factor": "3"}}, "factor' must be a finite number; got '3'"),
        ({"rope_scaling": {"type": "linear", "factor": -3.0}}, "'rope_scaling': factor must be .*got -3.0"),
        ({"rope_scaling": {"type": 3}}, "rope_scaling.type' must be a text; got 3"),
        ({"rope_scaling": "linear"}, "rope_scaling' must be a table; got 'linear'"),
        ({"rope_theta": None}, "rope_theta' must be a finite number; got None"),
        ({"rope_theta": 0}, "base must be above 0"),
        ({"rope_theta": 7.0, "rope_parameters": {"rope_theta": 5.0}}, "is 5.0, but 'rope_theta' is 7.0"),
        ({"rope_scaling": LINEAR, "rope_parameters": {"rope_theta": 5.0}}, "contradict each other"),
        ({"original_max_position_embeddings": 29, "rope_scaling": YARN}, "is 19, but .* is 29"),
        (
            {"rope_scaling": {"type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 19}},
            "must be max_position_embeddings = 97.* got 19",
        ),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor' is 0.5, but models of this family"),
        ({"rope_scaling": LLAMA3 | {"mscale": 0.7}}, "does not know .*rope_scaling.mscale"),
        ({"rope_scaling": YARN | {"truncate": False}}, "truncate' must be True, all that .* got False"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "is 0.5, but models of this family"),
        (
            {"rope_parameters": {"partial_rotary_factor": 0.5}, "partial_rotary_factor": 0.25},
            "is 0.5, but 'partial_rotary_factor' is 0.25",
        ),
        # transformers' code of these families reads no inner object, and takes the default base in silence.
        (
            {"rope_parameters": {FULL: LINEAR | {"rope_theta": 7.0}, SLIDING: {"rope_theta": 5.0}}},
            "'rope_parameters' must be one object for all layers",
        ),
    ],
)
def test_what_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        read(**values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rope_parameters": {FULL: {}, "chunked_attention": {}}}, "rope_parameters.chunked_attention"),
        ({"rope_parameters": {FULL: {}, "rope_theta": 5.0}}, "does not know .*rope_parameters.rope_theta"),
        ({"rope_parameters": {FULL: {}, SLIDING: 3}}, "rope_parameters.sliding_attention' must be a table"),
        ({"rope_parameters": {FULL: LINEAR | {"low_freq_factor": 1.0}}}, "full_attention.low_freq_factor"),
        ({"rope_parameters": {FULL: YARN | {"truncate": False}}}, "full_attention.truncate"),
        # transformers passes it over in silence.
        ({"rope_parameters": {"rope_theta": 777.0}}, "one object for each type of layer.* got 'rope_theta'"),
    ],
)
def test_what_is_refused_by_type_of_layer(values: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        read(GEMMA3, **values)


SCALINGS = [
    pytest.param(scaling, id=type(scaling).__name__)
    for scaling in (
        NoScaling(),
        LinearScaling(3.0),
        YaRNScaling(5.0, 19, beta_fast=3.0, attention_factor=0.6),
        Llama3Scaling(7.0, 1.5, 4.5, 53),
        LongRoPEScaling(
            *(tuple(LONGROPE[f"{name}_factor"]) for name in ("short", "long")),  # type: ignore[arg-type]
            original_max_seq_len=19,
            factor=3.0,
            attention_factor=0.6,
        ),
    )
]


@pytest.mark.parametrize("scaling", SCALINGS)
def test_written_for_llama(scaling: Any, tmp_path: Path) -> None:
    rotary = Rotary(HEAD_DIM, base=777.0, scaling=scaling)
    written = write_rope({FULL: rotary, SLIDING: rotary})
    assert read(**written) == {FULL: rotary, SLIDING: rotary}
    # New, old, and together; as they read it and as they write it again.
    old = {key: value for key, value in written.items() if key != "rope_parameters"}
    for values in (written, {"rope_parameters": written["rope_parameters"]}, old):
        config = of_llama(**values)
        theirs = LlamaRotaryEmbedding(config)
        assert_same(rotary, theirs.inv_freq, theirs.attention_scaling)
        config.save_pretrained(tmp_path)
        saved = json.loads((tmp_path / "config.json").read_text("utf-8"))
        assert read(rope_parameters=saved["rope_parameters"])[FULL] == rotary
    assert read(**old)[FULL] == rotary


@pytest.mark.parametrize("scaling", [LinearScaling(3.0), YaRNScaling(5.0, 19)])
@pytest.mark.parametrize("spelling", [GEMMA3, MODERNBERT, LLAMA])
def test_written_by_type_of_layer(spelling: RopeSpelling, scaling: Any) -> None:
    full = Rotary(HEAD_DIM, base=777.0, scaling=scaling)
    for sliding in (Rotary(HEAD_DIM, base=55.0), Rotary(HEAD_DIM, base=55.0, scaling=scaling)):
        written = write_rope({FULL: full, SLIDING: sliding}, spelling)
        if spelling is LLAMA:  # whose code in transformers reads one object, and passes these over in silence
            with pytest.raises(CheckpointError, match="'rope_parameters' must be one object for all layers"):
                read(spelling, **written)
        else:
            assert read(spelling, **written) == {FULL: full, SLIDING: sliding}


def test_the_old_spelling_is_written_where_it_can_say_it() -> None:
    full, local = Rotary(HEAD_DIM, base=7.0, scaling=LinearScaling(3.0)), Rotary(HEAD_DIM, base=5.0)
    old = {"rope_theta": 7.0, "rope_local_base_freq": 5.0, "rope_scaling": LINEAR}
    written = write_rope({FULL: full, SLIDING: local}, GEMMA3)
    assert {key: value for key, value in written.items() if key != "rope_parameters"} == old
    config = Gemma3TextConfig(head_dim=HEAD_DIM, num_hidden_layers=7, **json.loads(json.dumps(written)))
    theirs = Gemma3RotaryEmbedding(config)
    assert_same(full, theirs.full_attention_inv_freq, 1.0)
    assert_same(local, theirs.sliding_attention_inv_freq, 1.0)
    # ModernBERT's `rope_scaling` is about all layers, so it cannot say that one type is not scaled.
    assert list(write_rope({FULL: full, SLIDING: local}, MODERNBERT)) == ["rope_parameters"]
    assert list(write_rope({FULL: full, SLIDING: full}, GEMMA3)) == ["rope_parameters"]


@pytest.mark.parametrize(
    ("given", "said"), [({"rotary_dim": 6}, "rotary_dim=6"), ({"layout": "interleaved"}, "'interleaved'")]
)
def test_what_no_file_can_say(given: dict[str, Any], said: str) -> None:
    rotary = Rotary(HEAD_DIM, base=777.0, **given)
    with pytest.raises(InputError, match=f"whole heads, .*{said}"):
        write_rope({FULL: rotary, SLIDING: rotary})


def test_a_whole_part_is_no_part() -> None:
    assert read(partial_rotary_factor=1.0) == read()
