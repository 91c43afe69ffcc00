"""GGUF files of models of `transformers`, written as llama.cpp's converter writes them.

The names of tensors and fields are those of the `gguf` package, so that nothing here comes from regard.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind

_TRANSPOSED = ("c_attn.weight", "c_proj.weight", "c_fc.weight")


def write_gguf(
    model: Any,
    file: Path,
    kind: Kind = Kind.F32,
    *,
    more: dict[str, Any] | None = None,
    arrays: dict[str, Any] | None = None,
) -> Path:
    """Write a model's file, its matrices in blocks of a type; `more` are fields of its architecture, and
    `arrays` more tensors."""
    config = model.config
    name = {"gemma3_text": "gemma3", "mistral": "llama"}.get(config.model_type, config.model_type)
    writer = gguf.GGUFWriter(str(file), name)
    for field, value in (_fields(name, config) | (more or {})).items():
        add = {
            int: writer.add_uint32,
            float: writer.add_float32,
            bool: writer.add_bool,
            str: writer.add_string,
        }
        add[type(value)](f"{name}.{field}", value)
    arch = next(key for key, each in gguf.MODEL_ARCH_NAMES.items() if each == name)
    names = gguf.get_tensor_name_map(arch, 9)
    for hf_name, tensor in _state(model).items():
        written = names.get_name(hf_name, try_suffixes=(".weight", ".bias"))
        assert written is not None, hf_name
        numbers = _as_written(name, hf_name, tensor.float().numpy(), config)
        plain = numbers.ndim < 2 or "position" in written or "token_types" in written or "rel_b" in written
        stored = Kind.F32 if plain else kind
        if stored in (Kind.F32, Kind.F16):
            writer.add_tensor(written, numbers.astype(np.float32 if stored == Kind.F32 else np.float16))
        else:
            writer.add_tensor(written, gguf.quantize(numbers, stored), raw_dtype=stored)
    for extra, numbers in (arrays or {}).items():
        writer.add_tensor(extra, numbers)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def _state(model: Any) -> dict[str, Any]:
    state = model.state_dict()
    # A T5 1.1 is tied in memory since transformers 5, but its files have the layer.
    tied = model.config.tie_word_embeddings and getattr(model.config, "scale_decoder_outputs", True)
    left_out = ("pooler.", "bert.pooler.", "cls.", *(["lm_head."] if tied else []))
    shared = ("encoder.embed_tokens.", "decoder.embed_tokens.")
    return {
        name.removeprefix("bert."): each
        for name, each in state.items()
        if not name.startswith(left_out + shared) and not name.endswith(("position_ids", "token_type_ids"))
    }


def _as_written(arch: str, name: str, numbers: Any, config: Any) -> Any:
    if arch == "gpt2" and name.endswith(_TRANSPOSED):
        return numbers.T.copy()
    if arch in ("gemma2", "gemma3") and name.endswith("norm.weight"):
        return numbers + 1
    if arch == "llama" and ("q_proj" in name or "k_proj" in name):
        heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
        halves = numbers.reshape(heads, 2, -1, *numbers.shape[1:])
        return halves.swapaxes(1, 2).reshape(numbers.shape).copy()
    return numbers


def _fields(arch: str, config: Any) -> dict[str, Any]:
    if arch == "gpt2":
        return {
            "context_length": config.n_positions,
            "block_count": config.n_layer,
            "embedding_length": config.n_embd,
            "feed_forward_length": config.n_inner,
            "attention.head_count": config.n_head,
            "attention.layer_norm_epsilon": config.layer_norm_epsilon,
        }
    if arch == "t5":
        return {
            "context_length": 512,
            "block_count": config.num_layers,
            "embedding_length": config.d_model,
            "feed_forward_length": config.d_ff,
            "attention.head_count": config.num_heads,
            "attention.key_length": config.d_kv,
            "attention.value_length": config.d_kv,
            "attention.layer_norm_epsilon": config.layer_norm_epsilon,
            "attention.layer_norm_rms_epsilon": config.layer_norm_epsilon,
            "attention.relative_buckets_count": config.relative_attention_num_buckets,
            "decoder_start_token_id": 0,
        }
    fields = {
        "context_length": config.max_position_embeddings,
        "block_count": config.num_hidden_layers,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
    }
    if arch == "bert":
        return fields | {"attention.layer_norm_epsilon": config.layer_norm_eps, "attention.causal": False}
    fields |= {
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "vocab_size": config.vocab_size,
    }
    rope = config.rope_parameters
    fields["rope.freq_base"] = float(rope.get("full_attention", rope)["rope_theta"])
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if arch == "llama":
        fields["rope.dimension_count"] = head_dim
    else:
        fields |= {"attention.key_length": head_dim, "attention.value_length": head_dim}
    if arch in ("gemma2", "gemma3"):
        fields["attention.sliding_window"] = config.sliding_window
    if arch == "gemma2":
        fields["attn_logit_softcapping"] = config.attn_logit_softcapping
        fields["final_logit_softcapping"] = config.final_logit_softcapping
    return fields
