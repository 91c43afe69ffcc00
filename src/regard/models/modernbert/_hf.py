"""The names of ModernBERT's tensors on disk: q, k and v are one matrix there, and gate and up another."""

from regard.checkpoints import KeyMap, Rename, Split

_LAYER = "encoder.layers.{layer}"

MODERNBERT_KEYS = KeyMap(
    rules=(
        Rename("embeddings.tok_embeddings.weight", "encoder.embeddings.tokens.weight"),
        Rename("embeddings.norm.{part}", "encoder.embeddings.norm.{part}"),
        Rename("layers.{layer}.attn_norm.{part}", f"{_LAYER}.attention_residual.norm.{{part}}"),
        Split(
            "layers.{layer}.attn.Wqkv.{part}",
            (
                f"{_LAYER}.attention.q.{{part}}",
                f"{_LAYER}.attention.k.{{part}}",
                f"{_LAYER}.attention.v.{{part}}",
            ),
        ),
        Rename("layers.{layer}.attn.Wo.{part}", f"{_LAYER}.attention.output.{{part}}"),
        Rename("layers.{layer}.mlp_norm.{part}", f"{_LAYER}.ffn_residual.norm.{{part}}"),
        Split("layers.{layer}.mlp.Wi.{part}", (f"{_LAYER}.ffn.gate.{{part}}", f"{_LAYER}.ffn.up.{{part}}")),
        Rename("layers.{layer}.mlp.Wo.{part}", f"{_LAYER}.ffn.output.{{part}}"),
        Rename("final_norm.{part}", "encoder.norm.{part}"),
        Rename("head.dense.{part}", "head.dense.{part}"),
        Rename("head.norm.{part}", "head.norm.{part}"),
        Rename("decoder.{part}", "head.output.{part}"),
        Rename("classifier.{part}", "head.labels.{part}"),
    ),
    prefixes=("model.",),
    heads=("head.", "decoder.", "classifier."),
)
"""ModernBERT's names on disk and in the network."""
