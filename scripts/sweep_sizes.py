"""How to make any architecture of transformers tiny: sizes by the names of configuration fields, as data."""

import re
from typing import Any

from transformers import CONFIG_MAPPING, PreTrainedConfig

PREFERRED = (
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
    "MODEL_MAPPING_NAMES",
)
"""transformers' tables of classes, the first that has an architecture counts."""

SIZES: tuple[tuple[str, Any], ...] = (
    (r"vocab_size|.*_vocab_size|vocab_size_per_layer_input|ngram_vocab_size_base", 128),
    (r"type_vocab_size", 2),
    (r"hidden_size|d_model|n_embd|dim|embed_dim|emb_dim|embedding_size|word_embed_proj_dim|model_dim", 32),
    (r"num_attention_heads|n_heads?|num_heads|(en|de)coder_attention_heads|num_(en|de)coder_heads", 4),
    (r"num_hidden_layers|n_layers?|num_layers|encoder_layers|encoder_num_layers|num_encoder_layers|depth", 2),
    (r"decoder_layers|num_decoder_layers|decoder_num_layers", 3),
    (
        r"(\w+_)?intermediate_size|d_ff|n_inner|ffn_dim|(en|de)coder_ffn_dim|ffn_hidden_size|hidden_dim|d_inner",
        64,
    ),
    (
        r"head_dim|d_kv|d_head|attention_head_dim|qk_nope_head_dim|qk_rope_head_dim|v_head_dim|global_head_dim",
        8,
    ),
    (r"max_position_embeddings|n_positions|max_(source|target)_positions|n_ctx|max_seq_len|seq_length", 64),
    (r"num_experts|n_routed_experts|num_local_experts|moe_num_experts|num_routed_experts", 4),
    (r"num_experts_per_tok|top_k_experts|moe_topk|moe_k|num_experts_per_token|experts_per_token", 2),
    (r"hidden_size_per_layer_input|linear_(key_|value_)?head_dim|index_head_dim", 8),
    (r"linear_num_(key_|value_)?heads|index_n_heads|o_groups", 4),
    (r"expert_ffn_hidden_size|attention_hidden_size", 32),
    (r"qk_head_dim|ple_embed_dim", 16),
    (r"num_kv_shared_layers|zero_expert_num", 0),
    (r"index_topk", 6),
    (r"q_lora_rank|kv_lora_rank|o_lora_rank", 16),
    (r"sliding_window|attention_window_size|local_attention", 8),
    (r"n_group|topk_group|n_groups", 1),
    (r"first_k_dense_replace", 1),
)
"""From the name of a field (a whole match) to its tiny size; only fields that the configuration has count."""

LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
"""What a configuration may call the number of its layers."""

KV_HEADS = r"num_key_value_heads|num_kv_heads|n_head_kv|multi_query_group_num|\w*_num_key_value_heads"
"""Half as many as the query heads where the default has fewer than query heads, else as many."""

_MROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]}}
_MROPE_HALF = {
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.5,
        "mrope_section": [1, 1, 0],
    }
}
_MAMBA2 = {
    "mamba_n_heads": 8,
    "mamba_d_head": 8,
    "mamba_d_state": 8,
    "mamba_n_groups": 1,
    "mamba_chunk_size": 8,
}

_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
_BY_TYPE = {"rope_parameters": {"full_attention": _ROPE, "sliding_attention": _ROPE}}

OWN: dict[str, dict[str, Any]] = {
    "bamba": {**_MAMBA2, "attn_layer_indices": [1]},
    "cohere_compass": {"text_config": _BY_TYPE},
    "cohere_compass_text": _BY_TYPE,
    "codegen": {"rotary_dim": 4},
    "deepseek_v2": {"num_experts_per_tok": 2},
    "dots1": {"n_shared_experts": 1, "n_routed_experts": 4, "n_group": 1, "num_experts_per_tok": 2},
    "encoder-decoder": {"decoder": {"is_decoder": True, "add_cross_attention": True}},
    "esm": {"vocab_size": 128, "mask_token_id": 5, "pad_token_id": 1},
    "falcon_h1": {**_MAMBA2, "mamba_d_ssm": 64},
    "glm46v": {"text_config": _MROPE},
    "glm4v": {"text_config": _MROPE},
    "glm4v_moe": {"text_config": _MROPE_HALF},
    "glm4v_moe_text": _MROPE_HALF,
    "glm4v_text": _MROPE,
    "glm_image": {"text_config": _MROPE},
    "glm_image_text": _MROPE,
    "glm_ocr": {"text_config": _MROPE},
    "glm_ocr_text": _MROPE,
    "glmga": {"text_config": _MROPE},
    "gptj": {"rotary_dim": 4},
    "granitemoehybrid": {**_MAMBA2, "layer_types": ["mamba", "attention"], "num_hidden_layers": 2},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "num_hidden_layers": 4},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_hidden_layers": 2, "num_dense_layers": 1},
    "mamba2": {"num_heads": 8, "head_dim": 8, "n_groups": 1, "state_size": 8},
    "mistral4": {"head_dim": 16, "qk_head_dim": 16},
    "neomme": {"head_dim": 16},
    "nemotron": {"num_key_value_heads": 2},
    "paddleocr_vl": {"text_config": _MROPE},
    "qwen2_5_vl": {"text_config": _MROPE},
    "qwen2_5_vl_text": _MROPE,
    "qwen2_vl": {"text_config": _MROPE},
    "qwen2_vl_text": _MROPE,
    "recurrent_gemma": {"block_types": ["recurrent", "attention"]},
    "sam3_lite_text_text_model": {"num_hidden_layers": 3},
    "xmod": {"default_language": "en_XX"},
}
"""Fields of single architectures that general sizes do not fit."""


def tiny_config(model_type: str) -> Any:
    """A tiny configuration of an architecture."""
    cls = CONFIG_MAPPING[model_type]
    return cls(**_tiny(cls(), OWN.get(model_type, {})))


def _tiny(default: Any, own: dict[str, Any]) -> dict[str, Any]:
    sizes: dict[str, Any] = {}
    fields = vars(default)
    next_id = 1
    for name, value in fields.items():
        if isinstance(value, PreTrainedConfig):
            given = own.get(name)
            inner = _tiny(value, given if isinstance(given, dict) else {})
            sizes[name] = {"model_type": value.model_type} | inner
        elif isinstance(value, bool) or name.startswith("_"):
            continue
        elif name.endswith("_token_id") and isinstance(value, int):
            sizes[name] = next_id
            next_id += 1
        elif name == "head_dim" and value is None:
            sizes[name] = 8
        elif re.fullmatch(KV_HEADS, name) and isinstance(value, int):
            sizes[name] = 2 if value < _query_heads(default) else 4
        elif isinstance(value, int):
            for pattern, size in SIZES:
                if re.fullmatch(pattern, name):
                    sizes[name] = min(size, value) if value > 0 else value
    sizes |= _layers(default, sizes)
    rope = fields.get("rope_parameters") or fields.get("rope_scaling")
    if isinstance(rope, dict) and "mrope_section" in rope:
        half = sizes.get("head_dim", 8) // 2
        half = int(half * rope.get("partial_rotary_factor", fields.get("partial_rotary_factor") or 1.0))
        name = "rope_parameters" if fields.get("rope_parameters") else "rope_scaling"
        sizes[name] = rope | {"mrope_section": [half - 2 * (half // 3), half // 3, half // 3]}
    return sizes | {name: value for name, value in own.items() if not isinstance(sizes.get(name), dict)}


def _query_heads(default: Any) -> int:
    return next(
        (
            value
            for name in ("num_attention_heads", "n_head", "num_heads", "n_heads")
            if isinstance(value := getattr(default, name, None), int)
        ),
        0,
    )


def _layers(default: Any, sizes: dict[str, Any]) -> dict[str, Any]:
    """One layer of each kind, and at least two, where a configuration lists the kinds of its layers."""
    count = next((vars(default)[name] for name in LAYERS if isinstance(vars(default).get(name), int)), 0)
    lists = {
        name: list(value)
        for name, value in vars(default).items()
        if isinstance(value, list | tuple) and len(value) == count and count > 2
    }
    if not lists:
        return {}
    kinds = list(zip(*(map(str, value) for value in lists.values()), strict=True))
    chosen = sorted({kinds.index(kind) for kind in kinds})[:6]
    chosen = chosen if len(chosen) > 1 else [0, 1]
    named = next(name for name in LAYERS if name in vars(default))
    return {named: len(chosen)} | {name: [value[index] for index in chosen] for name, value in lists.items()}
