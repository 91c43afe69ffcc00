"""Which layers slide, against the configurations of `transformers`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import (
    Gemma2Config,
    Gemma3TextConfig,
    MistralConfig,
    ModernBertConfig,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3Config,
)

from regard.checkpoints import Fields
from regard.core.errors import CheckpointError, InputError
from regard.models.families._layer_types import (
    FULL,
    SLIDING,
    AllLayers,
    LaterLayers,
    LayerRule,
    OneInEvery,
    read_layer_types,
    read_window,
)
from regard.models.families.llama import LlamaConfig, build

LAYERS = 7
QWEN = LaterLayers("max_window_layers", 28)
GEMMA2 = OneInEvery(2)
GEMMA3 = OneInEvery(6, field="sliding_window_pattern")
MODERNBERT = OneInEvery(3, field="global_attn_every_n_layers", is_first=True)
LISTED = [SLIDING, FULL, FULL, SLIDING, SLIDING, FULL, SLIDING]


def read(rule: LayerRule, values: dict[str, Any], *, window: int | None) -> tuple[str, ...]:
    fields = Fields(file=Path("config.json"), values=values)
    types = read_layer_types(fields, rule, num_layers=LAYERS, window=window)
    fields.done(inert=("sliding_window", "use_sliding_window"))
    return types


def qwen_window(values: dict[str, Any]) -> int | None:
    fields = Fields(file=Path("config.json"), values=values)
    return read_window(fields, "sliding_window", 4096, switch="use_sliding_window")


@pytest.mark.parametrize("config_class", [Qwen2Config, Qwen3Config])
@pytest.mark.parametrize(
    "values",
    [
        {},
        {"use_sliding_window": False, "sliding_window": 13, "max_window_layers": 3},
        {"use_sliding_window": True},
        {"use_sliding_window": True, "sliding_window": 13, "max_window_layers": 3},
        {"use_sliding_window": True, "sliding_window": None, "max_window_layers": 3},
        {"use_sliding_window": True, "sliding_window": 13, "max_window_layers": 0},
        {"use_sliding_window": True, "sliding_window": 13, "layer_types": LISTED, "max_window_layers": 3},
    ],
)
def test_qwen(config_class: type[PreTrainedConfig], values: dict[str, Any]) -> None:
    theirs = config_class(num_hidden_layers=LAYERS, **values)
    window = qwen_window(values)
    assert window == theirs.sliding_window
    assert list(read(QWEN, values, window=window)) == theirs.layer_types


@pytest.mark.parametrize(
    ("config_class", "rule", "values"),
    [
        pytest.param(Gemma2Config, GEMMA2, {}, id="gemma2"),
        pytest.param(Gemma2Config, GEMMA2, {"layer_types": LISTED}, id="gemma2-listed"),
        pytest.param(Gemma3TextConfig, GEMMA3, {}, id="gemma3"),
        pytest.param(Gemma3TextConfig, GEMMA3, {"sliding_window_pattern": 3}, id="gemma3-pattern"),
        pytest.param(Gemma3TextConfig, GEMMA3, {"sliding_window_pattern": 1}, id="gemma3-all-full"),
        pytest.param(
            Gemma3TextConfig,
            GEMMA3,
            {"layer_types": LISTED, "_sliding_window_pattern": 3},
            id="gemma3-listed",
        ),
        pytest.param(ModernBertConfig, MODERNBERT, {}, id="modernbert"),
        pytest.param(ModernBertConfig, MODERNBERT, {"global_attn_every_n_layers": 2}, id="modernbert-every"),
        pytest.param(ModernBertConfig, MODERNBERT, {"layer_types": LISTED}, id="modernbert-listed"),
    ],
)
def test_a_period(config_class: type[PreTrainedConfig], rule: LayerRule, values: dict[str, Any]) -> None:
    theirs = config_class(num_hidden_layers=LAYERS, **values)
    assert list(read(rule, values, window=13)) == theirs.layer_types


@pytest.mark.parametrize(
    ("rule", "values", "layers"),
    [
        (GEMMA2, {}, "sfsfsfs"),
        (GEMMA3, {}, "sssssfs"),
        (MODERNBERT, {}, "fssfssf"),
        (QWEN, {"max_window_layers": 5}, "fffffss"),
        (GEMMA2, {"layer_types": ["attention"] * 6 + [SLIDING]}, "ffffffs"),  # as older files name them
        (AllLayers(), {"layer_types": [SLIDING] * 7}, "sssssss"),
    ],
)
def test_the_layers_by_hand(rule: LayerRule, values: dict[str, Any], layers: str) -> None:
    assert read(rule, values, window=13) == tuple({"s": SLIDING, "f": FULL}[each] for each in layers)


@pytest.mark.parametrize("values", [{}, {"sliding_window": 13}, {"sliding_window": None}])
def test_mistral_slides_everywhere_or_nowhere(values: dict[str, Any]) -> None:
    theirs = MistralConfig(num_hidden_layers=LAYERS, **values)
    window = read_window(Fields(file=Path("config.json"), values=values), "sliding_window", 4096)
    assert window == theirs.sliding_window
    assert read(AllLayers(), values, window=window) == (FULL if window is None else SLIDING,) * LAYERS


@pytest.mark.parametrize(
    ("rule", "values", "window", "message"),
    [
        (GEMMA3, {"layer_types": LISTED[1:]}, 13, "one entry for each of 7 layers; got 6"),
        (GEMMA3, {"layer_types": ["chunked_attention"] * 7}, 13, "holds 'chunked_attention'"),
        (GEMMA3, {"layer_types": [3] * 7}, 13, r"layer_types\[0\]' must be a text; got 3"),
        (GEMMA3, {"sliding_window_pattern": 0}, 13, "sliding_window_pattern' must be at least 1; got 0"),
        (GEMMA3, {"_sliding_window_pattern": 3}, 13, "'_sliding_window_pattern' is 3, .* is 6"),
        (GEMMA3, {}, None, "no field gives the window"),
        (QWEN, {"layer_types": LISTED}, None, "no field gives the window"),
        (AllLayers(), {"layer_types": LISTED}, 13, "must be 'sliding_attention' for every layer"),
        (AllLayers(), {"layer_types": LISTED}, None, "must be 'full_attention' for every layer"),
    ],
)
def test_what_is_refused(rule: LayerRule, values: dict[str, Any], window: int | None, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        read(rule, values, window=window)


def test_what_else_is_refused() -> None:
    with pytest.raises(CheckpointError, match="sliding_window' must be at least 1; got 0"):
        qwen_window({"use_sliding_window": True, "sliding_window": 0})
    with pytest.raises(InputError, match=r"each of the 2 layers; got 32. LlamaConfig.of_sizes"):
        build(LlamaConfig(num_layers=2))
