"""The names of Llama's tensors on disk, which Mistral and Qwen share."""

from regard.checkpoints import KeyMap, Rename

_LAYER = "decoder.layers.{layer}"

LLAMA_KEYS = KeyMap(
    rules=(
        Rename("embed_tokens.weight", "decoder.embeddings.tokens.weight"),
        Rename("layers.{layer}.input_layernorm.weight", f"{_LAYER}.attention_residual.norm.weight"),
        Rename("layers.{layer}.self_attn.q_proj.{part}", f"{_LAYER}.attention.q.{{part}}"),
        Rename("layers.{layer}.self_attn.k_proj.{part}", f"{_LAYER}.attention.k.{{part}}"),
        Rename("layers.{layer}.self_attn.v_proj.{part}", f"{_LAYER}.attention.v.{{part}}"),
        Rename("layers.{layer}.self_attn.o_proj.{part}", f"{_LAYER}.attention.output.{{part}}"),
        Rename("layers.{layer}.self_attn.q_norm.weight", f"{_LAYER}.attention.q_norm.weight"),
        Rename("layers.{layer}.self_attn.k_norm.weight", f"{_LAYER}.attention.k_norm.weight"),
        Rename("layers.{layer}.post_attention_layernorm.weight", f"{_LAYER}.ffn_residual.norm.weight"),
        Rename("layers.{layer}.mlp.gate_proj.{part}", f"{_LAYER}.ffn.gate.{{part}}"),
        Rename("layers.{layer}.mlp.up_proj.{part}", f"{_LAYER}.ffn.up.{{part}}"),
        Rename("layers.{layer}.mlp.down_proj.{part}", f"{_LAYER}.ffn.output.{{part}}"),
        Rename("norm.weight", "decoder.norm.weight"),
        Rename("lm_head.weight", "head.output.weight"),
        Rename("score.{part}", "head.score.{part}"),
    ),
    prefixes=("model.",),
    heads=("lm_head.", "score.", "qa_outputs."),
    # 1 / base^(2i/d), which follows from the config: written by transformers before 4.30.
    buffers=("layers.{layer}.self_attn.rotary_emb.inv_freq",),
)
"""Llama's names on disk and in the network."""
