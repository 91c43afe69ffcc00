"""The names of Gemma 2's and 3's tensors on disk."""

from regard.checkpoints import KeyMap, Rename

_LAYER = "decoder.layers.{layer}"

GEMMA_KEYS = KeyMap(
    rules=(
        Rename("embed_tokens.weight", "decoder.embeddings.tokens.weight"),
        Rename("layers.{layer}.input_layernorm.weight", f"{_LAYER}.attention_residual.before.weight"),
        Rename("layers.{layer}.self_attn.q_proj.{part}", f"{_LAYER}.attention.q.{{part}}"),
        Rename("layers.{layer}.self_attn.k_proj.{part}", f"{_LAYER}.attention.k.{{part}}"),
        Rename("layers.{layer}.self_attn.v_proj.{part}", f"{_LAYER}.attention.v.{{part}}"),
        Rename("layers.{layer}.self_attn.o_proj.{part}", f"{_LAYER}.attention.output.{{part}}"),
        Rename("layers.{layer}.self_attn.q_norm.weight", f"{_LAYER}.attention.q_norm.weight"),
        Rename("layers.{layer}.self_attn.k_norm.weight", f"{_LAYER}.attention.k_norm.weight"),
        Rename("layers.{layer}.post_attention_layernorm.weight", f"{_LAYER}.attention_residual.after.weight"),
        Rename("layers.{layer}.pre_feedforward_layernorm.weight", f"{_LAYER}.ffn_residual.before.weight"),
        Rename("layers.{layer}.mlp.gate_proj.weight", f"{_LAYER}.ffn.gate.weight"),
        Rename("layers.{layer}.mlp.up_proj.weight", f"{_LAYER}.ffn.up.weight"),
        Rename("layers.{layer}.mlp.down_proj.weight", f"{_LAYER}.ffn.output.weight"),
        Rename("layers.{layer}.post_feedforward_layernorm.weight", f"{_LAYER}.ffn_residual.after.weight"),
        Rename("norm.weight", "decoder.norm.weight"),
        Rename("lm_head.weight", "head.output.weight"),
        Rename("score.{part}", "head.score.{part}"),
    ),
    prefixes=("model.",),
    heads=("lm_head.", "score.", "qa_outputs."),
)
"""Gemma's names on disk and in the network."""
