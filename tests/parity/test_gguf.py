"""GGUF files against `transformers`: the model that a file was made of, and its own loader of such files."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from gguf import GGMLQuantizationType as Kind

from parity.gguf_files import write_gguf
from regard.core.errors import CheckpointError
from regard.models import Loaded, load_checkpoint, save_checkpoint
from regard.positions import Llama3Scaling
from tolerances import PARITY_FP32, assert_close_to_largest

_DECODER: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "intermediate_size": 160,
    "max_position_embeddings": 83,
    "rms_norm_eps": 1e-3,
    "rope_parameters": {"rope_type": "default", "rope_theta": 101.0},
    "initializer_range": 0.2,
}
_GEMMA = _DECODER | {"head_dim": 32, "sliding_window": 5, "query_pre_attn_scalar": 32}
_BASES = {
    "full_attention": {"rope_type": "default", "rope_theta": 1e4},
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
}
_T5: dict[str, Any] = {
    "vocab_size": 61,
    "d_model": 64,
    "d_kv": 32,
    "d_ff": 96,
    "num_layers": 2,
    "num_heads": 3,
}


@dataclass(frozen=True)
class Case:
    """A model to write, and what its file says beside its sizes."""

    model: type[Any]
    config: type[Any]
    fields: dict[str, Any]
    more: dict[str, Any] = field(default_factory=dict)


CASES = {
    "llama": Case(hf.LlamaForCausalLM, hf.LlamaConfig, _DECODER | {"tie_word_embeddings": True}),
    "llama with biases": Case(
        hf.LlamaForCausalLM, hf.LlamaConfig, _DECODER | {"attention_bias": True, "mlp_bias": True}
    ),
    "llama, linear": Case(
        hf.LlamaForCausalLM,
        hf.LlamaConfig,
        _DECODER | {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 101.0}},
        more={"rope.scaling.type": "linear", "rope.scaling.factor": 4.0},
    ),
    "qwen2, yarn": Case(
        hf.Qwen2ForCausalLM,
        hf.Qwen2Config,
        _DECODER
        | {
            "rope_parameters": {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 20,
                "rope_theta": 101.0,
            }
        },
        more={
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 20,
        },
    ),
    "mistral": Case(hf.MistralForCausalLM, hf.MistralConfig, _DECODER | {"sliding_window": None}),
    "qwen2": Case(hf.Qwen2ForCausalLM, hf.Qwen2Config, _DECODER),
    "qwen3": Case(hf.Qwen3ForCausalLM, hf.Qwen3Config, _DECODER | {"head_dim": 32}),
    "gemma2": Case(
        hf.Gemma2ForCausalLM,
        hf.Gemma2Config,
        _GEMMA | {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0},
    ),
    "gemma3": Case(
        hf.Gemma3ForCausalLM,
        hf.Gemma3TextConfig,
        _GEMMA | {"num_hidden_layers": 7, "rope_parameters": _BASES},
    ),
    "phi3": Case(
        hf.Phi3ForCausalLM,
        hf.Phi3Config,
        _DECODER
        | {
            "sliding_window": 5,
            "pad_token_id": 0,
            "rope_parameters": {"rope_type": "default", "rope_theta": 101.0, "partial_rotary_factor": 0.75},
        },
        more={"rope.dimension_count": 12, "attention.sliding_window": 5},
    ),
    "gpt2": Case(
        hf.GPT2LMHeadModel,
        hf.GPT2Config,
        {"vocab_size": 61, "n_embd": 96, "n_layer": 2, "n_head": 3, "n_inner": 160, "n_positions": 83},
    ),
    "bert": Case(
        hf.BertModel,
        hf.BertConfig,
        {
            **{
                key: value
                for key, value in _DECODER.items()
                if not key.startswith(("rms", "rope", "num_key"))
            },
            "layer_norm_eps": 1e-3,
        },
    ),
    "t5": Case(hf.T5ForConditionalGeneration, hf.T5Config, _T5),
    "t5, gated": Case(
        hf.T5ForConditionalGeneration,
        hf.T5Config,
        _T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    ),
}
IDS = torch.tensor([[3, 14, 15, 9, 26, 5, 35, 8, 9, 7, 9, 3]])


def written(name: str, folder: Path, kind: Kind) -> tuple[Any, Path]:
    """A random model, and its file."""
    case = CASES[name]
    torch.manual_seed(3)
    model = case.model(case.config(**case.fields)).eval()
    for each in model.parameters():  # norms and biases of a new model are all 1 and 0
        if each.ndim == 1:
            each.data += torch.randn_like(each) / 5
    return model, write_gguf(model, folder / "model.gguf", kind, more=case.more)


def given(loaded: Loaded) -> dict[str, Any]:
    """What a network reads."""
    two = {"decoder_token_ids": IDS[:, :5]} if len(loaded.network.prefixes) == 2 else {}
    return {"token_ids": IDS, **two}


def expected(model: Any) -> Any:
    """What `transformers` makes of the same."""
    two = {"decoder_input_ids": IDS[:, :5]} if model.config.is_encoder_decoder else {}
    with torch.no_grad():
        output = model(input_ids=IDS, **two)
    return output.logits if hasattr(output, "logits") else output.last_hidden_state


def made(loaded: Loaded) -> torch.Tensor:
    """What regard makes of it."""
    with torch.no_grad():
        output = loaded.network(**given(loaded))
    return output.last_hidden_state if output.logits is None else output.logits


@pytest.mark.parametrize("name", CASES)
def test_a_file_in_float32_is_the_model_it_was_made_of(name: str, tmp_path: Path) -> None:
    model, file = written(name, tmp_path, Kind.F32)
    assert_close_to_largest(made(load_checkpoint(file)), expected(model), PARITY_FP32)


# The loader of transformers knows no BERT, no T5 without gates, and Mistral under a name of its own.
_ITS_OWN = ("llama", "qwen2", "gemma2", "gemma3", "gpt2")


@pytest.mark.parametrize("name", _ITS_OWN)
@pytest.mark.parametrize("kind", [Kind.F16, Kind.Q8_0, Kind.Q4_1, Kind.Q5_0])
def test_blocks_give_the_numbers_that_transformers_reads(name: str, kind: Kind, tmp_path: Path) -> None:
    model, file = written(name, tmp_path, kind)
    theirs = CASES[name].model.from_pretrained(tmp_path, gguf_file=file.name, config=model.config).eval()
    packed, unpacked = load_checkpoint(file), load_checkpoint(file, packed=False)
    assert_close_to_largest(made(unpacked), expected(theirs), PARITY_FP32)
    assert_close_to_largest(made(packed), made(unpacked), PARITY_FP32)


_SIZES = {"attention.key_length": 64, "attention.value_length": 64}


def _llama3() -> tuple[Any, dict[str, Any]]:
    """A Llama whose frequencies are stretched, and what the converter works out of that."""
    rope = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
        "rope_theta": 500_000.0,
    }
    torch.manual_seed(3)
    model = hf.LlamaForCausalLM(hf.LlamaConfig(**_DECODER | {"rope_parameters": rope, "head_dim": 64})).eval()
    factors = []
    for turn in range(32):
        length = 2 * math.pi * 500_000.0 ** (turn / 32)
        smooth = (8192 / length - 1.0) / 3.0
        factors.append(1.0 if length < 2048 else 8.0 if length > 8192 else 1 / ((1 - smooth) / 8.0 + smooth))
    return model, {"rope_freqs.weight": np.array(factors, dtype=np.float32)}


def test_factors_of_frequencies_are_the_scaling_that_they_follow_from(tmp_path: Path) -> None:
    model, arrays = _llama3()
    loaded = load_checkpoint(write_gguf(model, tmp_path / "model.gguf", more=_SIZES, arrays=arrays))
    assert_close_to_largest(made(loaded), expected(model), PARITY_FP32)
    config: Any = loaded.network.config
    assert config.rotary.scaling == Llama3Scaling(8.0, 1.0, 4.0, 8192)


def test_other_factors_are_refused(tmp_path: Path) -> None:
    model, arrays = _llama3()
    arrays["rope_freqs.weight"][-1] *= 1.1
    with pytest.raises(CheckpointError, match="must be those of Llama 3"):
        load_checkpoint(write_gguf(model, tmp_path / "model.gguf", more=_SIZES, arrays=arrays))


_REFUSED = {
    "rope.scaling.type": ("longrope", r"'llama\.rope\.scaling\.type' must be 'none', 'linear' or 'yarn'"),
    "expert_count": (8, r"'llama\.expert_count' must be 0"),
    "attention.scale": (0.5, r"does not know these fields.*llama\.attention\.scale = 0\.5"),
    "rope.dimension_count": (8, r"'llama\.rope\.dimension_count' must be 16"),
    "attention.head_count": (True, r"'llama\.attention\.head_count' must be a whole number"),
}


@pytest.mark.parametrize("name", _REFUSED)
def test_what_would_change_the_result_is_refused(name: str, tmp_path: Path) -> None:
    value, told = _REFUSED[name]
    model = hf.LlamaForCausalLM(hf.LlamaConfig(**_DECODER))
    with pytest.raises(CheckpointError, match=told):
        load_checkpoint(write_gguf(model, tmp_path / "model.gguf", more={name: value}))


def test_a_model_in_blocks_is_saved_as_a_folder_with_its_numbers(tmp_path: Path) -> None:
    _, file = written("llama", tmp_path, Kind.Q4_1)
    loaded = load_checkpoint(file)
    again = load_checkpoint(save_checkpoint(loaded, tmp_path / "folder"))
    assert_close_to_largest(made(again), made(load_checkpoint(file, packed=False)), 0.0)


def test_an_architecture_of_no_family_is_refused_by_name(tmp_path: Path) -> None:
    _, file = written("gpt2", tmp_path, Kind.F32)
    file.write_bytes(file.read_bytes().replace(b"gpt2", b"gpt9"))
    with pytest.raises(CheckpointError, match=r"must be one of bert, gemma2, .*; got 'gpt9'"):
        load_checkpoint(file)
