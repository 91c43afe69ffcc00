"""The decoders under test."""

from typing import Any

import transformers as hf

from parity.families_entry import MAX_LEN, PAD, VOCAB, FamilyUnderTest, heads, variant

_DECODER: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 6 * 10,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "intermediate_size": 37,
    "max_position_embeddings": MAX_LEN,
    "rms_norm_eps": 1e-3,
    "attention_dropout": 0.3,
    "pad_token_id": PAD,
    "rope_parameters": {"rope_type": "default", "rope_theta": 101.0},
}

GPT2 = FamilyUnderTest(
    # Fused q, k, v; all linear layers but the heads are stored transposed (Conv1D). Positions count from 0
    # whatever the mask, here and in every decoder: only `generate` gives others. Classifiers read the last
    # token that is not pad_token_id, by ids and not by the mask; without that id only a batch of one.
    name="gpt2",
    config=hf.GPT2Config,
    fields={
        "vocab_size": VOCAB,
        "n_embd": 3 * 7,
        "n_layer": 2,
        "n_head": 3,
        "n_inner": 37,
        "n_positions": MAX_LEN,
        "layer_norm_epsilon": 1e-3,
        "resid_pdrop": 0.3,
        "embd_pdrop": 0.2,
        "attn_pdrop": 0.4,
        "pad_token_id": PAD,
    },
    classes={**heads("GPT2"), "language-model": hf.GPT2LMHeadModel},
    shape="decoder",
    activation="activation_function",
)
LLAMA = FamilyUnderTest(
    name="llama",
    config=hf.LlamaConfig,
    fields={**_DECODER, "attention_bias": True, "mlp_bias": True},
    classes=heads("Llama", lm="CausalLM"),
    shape="decoder",
    activation="hidden_act",
    gain=1.0,
    features=frozenset({"rotary", "gqa"}),
)
MISTRAL = FamilyUnderTest(
    # head_dim is a field of its own.
    name="mistral",
    config=hf.MistralConfig,
    fields={**_DECODER, "hidden_size": 42, "head_dim": 10, "sliding_window": 5},
    classes=heads("Mistral", lm="CausalLM"),
    shape="decoder",
    activation="hidden_act",
    gain=1.0,
    features=frozenset({"rotary", "gqa", "window"}),
)
PHI3 = FamilyUnderTest(
    # q, k and v in one matrix, the halves of the gated layer in another. Six of ten entries are rotated.
    name="phi3",
    config=hf.Phi3Config,
    fields={
        **_DECODER,
        "sliding_window": 5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 101.0, "partial_rotary_factor": 0.6},
    },
    classes=heads("Phi3", lm="CausalLM"),
    shape="decoder",
    activation="hidden_act",
    gain=1.0,
    features=frozenset({"rotary", "gqa", "window"}),
)
QWEN2 = FamilyUnderTest(
    # q, k and v have biases, the output has none; no field says so.
    name="qwen2",
    config=hf.Qwen2Config,
    fields=_DECODER,
    classes=heads("Qwen2", lm="CausalLM"),
    shape="decoder",
    activation="hidden_act",
    gain=1.0,
    features=frozenset({"rotary", "gqa"}),
)
_WINDOWS = {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}
_OF_WINDOWS: dict[str, Any] = {
    **_WINDOWS,
    "features": frozenset({"rotary", "gqa", "window"}),
    "unwritten": ("max_window_layers",),  # layer_types says it
}
QWEN3 = FamilyUnderTest(
    name="qwen3",
    config=hf.Qwen3Config,
    fields={**_DECODER, "hidden_size": 29, "head_dim": 10, "attention_bias": True},
    classes=heads("Qwen3", lm="CausalLM"),
    shape="decoder",
    activation="hidden_act",
    gain=1.0,
    features=frozenset({"rotary", "gqa"}),
)
GEMMA2 = FamilyUnderTest(
    # Norms multiply by 1 + weight, before they round. The scale of q k^T is query_pre_attn_scalar ** -0.5,
    # whatever head_dim. sqrt(d_model) is rounded to the model's type before it scales the embeddings.
    name="gemma2",
    config=hf.Gemma2Config,
    fields={
        **_DECODER,
        "hidden_size": 42,
        "head_dim": 10,
        "query_pre_attn_scalar": 13,
        "sliding_window": 5,
        "num_hidden_layers": 3,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "attn_logit_softcapping": 3.0,
        "final_logit_softcapping": 2.0,
    },
    classes=heads("Gemma2", lm="CausalLM"),
    shape="decoder",
    activation="hidden_activation",
    gain=1.0,
    features=frozenset({"rotary", "gqa", "window", "embedding-scale", "softcap"}),
    head_features=frozenset({"softcap"}),
)
GEMMA3 = FamilyUnderTest(
    name="gemma3_text",
    config=hf.Gemma3TextConfig,
    fields={
        **_DECODER,
        "hidden_size": 42,
        "head_dim": 10,
        "query_pre_attn_scalar": 13,
        "sliding_window": 5,
        "num_hidden_layers": 3,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 3.0, "rope_theta": 101.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 11.0},
        },
    },
    classes={
        "base": hf.Gemma3TextModel,
        "language-model": hf.Gemma3ForCausalLM,
        "sequence": hf.Gemma3TextForSequenceClassification,
    },
    shape="decoder",
    activation="hidden_activation",
    gain=1.0,
    features=frozenset({"rotary", "gqa", "window", "embedding-scale"}),
)

DECODERS = (
    GPT2,
    LLAMA,
    MISTRAL,
    PHI3,
    QWEN2,
    QWEN3,
    GEMMA2,
    GEMMA3,
    variant(GPT2, id="gpt2-scaled-by-layer", scale_attn_by_inverse_layer_idx=True, scale_attn_weights=False),
    variant(LLAMA, id="llama-tied", tie_word_embeddings=True, attention_bias=False, mlp_bias=False),
    variant(
        LLAMA,
        id="llama-llama3",
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 101.0,
            "factor": 3.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 17,
        },
    ),
    variant(
        LLAMA,
        id="llama-yarn",
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": 101.0,
            "factor": 3.0,
            "original_max_position_embeddings": 7,
        },
    ),
    variant(
        LLAMA, id="llama-linear", rope_parameters={"rope_type": "linear", "rope_theta": 101.0, "factor": 3.0}
    ),
    # The base grows with the longest position of the batch, past max_position_embeddings: nothing to pack.
    # transformers remembers the longest so far; each run here starts as new (`as_new`).
    variant(
        LLAMA,
        id="llama-dynamic",
        max_position_embeddings=7,
        rope_parameters={"rope_type": "dynamic", "rope_theta": 101.0, "factor": 3.0},
        packs=False,
    ),
    # Other divisors in texts of more than seven tokens: nothing to pack either.
    variant(
        LLAMA,
        id="llama-longrope",
        rope_parameters={
            "rope_type": "longrope",
            "rope_theta": 101.0,
            "short_factor": [1.0, 1.1, 1.3, 1.7, 2.0],
            "long_factor": [1.1, 1.9, 2.7, 3.1, 3.7],
            "factor": 3.0,
            "original_max_position_embeddings": 7,
        },
        packs=False,
    ),
    variant(
        PHI3,
        id="phi3-longrope",
        sliding_window=None,
        features=frozenset({"rotary", "gqa"}),
        original_max_position_embeddings=7,
        rope_parameters={
            "rope_type": "longrope",
            "rope_theta": 101.0,
            "partial_rotary_factor": 0.8,
            "short_factor": [1.0, 1.1, 1.3, 1.7],
            "long_factor": [1.1, 1.9, 2.7, 3.1],
        },
        packs=False,
    ),
    variant(QWEN2, id="qwen2-windows", **_OF_WINDOWS),
    variant(QWEN3, id="qwen3-windows", **_OF_WINDOWS),
)
