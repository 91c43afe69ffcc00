"""The names of DistilBERT's tensors on disk."""

from regard.checkpoints import KeyMap, Rename

_LAYER = "transformer.layer.{layer}"

DISTILBERT_KEYS = KeyMap(
    rules=(
        Rename("embeddings.word_embeddings.weight", "embeddings.tokens.weight"),
        Rename("embeddings.position_embeddings.weight", "embeddings.positions.weight"),
        Rename("embeddings.LayerNorm.{part}", "embeddings.norm.{part}"),
        Rename(f"{_LAYER}.attention.q_lin.{{part}}", "layers.{layer}.attention.q.{part}"),
        Rename(f"{_LAYER}.attention.k_lin.{{part}}", "layers.{layer}.attention.k.{part}"),
        Rename(f"{_LAYER}.attention.v_lin.{{part}}", "layers.{layer}.attention.v.{part}"),
        Rename(f"{_LAYER}.attention.out_lin.{{part}}", "layers.{layer}.attention.output.{part}"),
        Rename(f"{_LAYER}.sa_layer_norm.{{part}}", "layers.{layer}.attention_residual.norm.{part}"),
        Rename(f"{_LAYER}.ffn.lin1.{{part}}", "layers.{layer}.ffn.hidden.{part}"),
        Rename(f"{_LAYER}.ffn.lin2.{{part}}", "layers.{layer}.ffn.output.{part}"),
        Rename(f"{_LAYER}.output_layer_norm.{{part}}", "layers.{layer}.ffn_residual.norm.{part}"),
    ),
    prefixes=("distilbert.",),
    # Heads on top of the encoder: masked words, classification, question answering.
    left_out=("vocab_", "pre_classifier.", "classifier.", "qa_outputs."),
    buffers=("embeddings.position_ids",),
)
"""DistilBERT's names on disk and in `DistilBert`."""
