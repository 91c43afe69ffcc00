"""The names of DistilBERT's tensors on disk."""

from regard.checkpoints import KeyMap, Rename

_LAYER = "transformer.layer.{layer}"

DISTILBERT_KEYS = KeyMap(
    rules=(
        Rename("embeddings.word_embeddings.weight", "encoder.embeddings.tokens.weight"),
        Rename("embeddings.position_embeddings.weight", "encoder.embeddings.positions.weight"),
        Rename("embeddings.LayerNorm.{part}", "encoder.embeddings.norm.{part}"),
        Rename(f"{_LAYER}.attention.q_lin.{{part}}", "encoder.layers.{layer}.attention.q.{part}"),
        Rename(f"{_LAYER}.attention.k_lin.{{part}}", "encoder.layers.{layer}.attention.k.{part}"),
        Rename(f"{_LAYER}.attention.v_lin.{{part}}", "encoder.layers.{layer}.attention.v.{part}"),
        Rename(f"{_LAYER}.attention.out_lin.{{part}}", "encoder.layers.{layer}.attention.output.{part}"),
        Rename(f"{_LAYER}.sa_layer_norm.{{part}}", "encoder.layers.{layer}.attention_residual.norm.{part}"),
        Rename(f"{_LAYER}.ffn.lin1.{{part}}", "encoder.layers.{layer}.ffn.hidden.{part}"),
        Rename(f"{_LAYER}.ffn.lin2.{{part}}", "encoder.layers.{layer}.ffn.output.{part}"),
        Rename(f"{_LAYER}.output_layer_norm.{{part}}", "encoder.layers.{layer}.ffn_residual.norm.{part}"),
        Rename("vocab_transform.{part}", "head.dense.{part}"),
        Rename("vocab_layer_norm.{part}", "head.norm.{part}"),
        Rename("vocab_projector.{part}", "head.output.{part}"),
        Rename("pre_classifier.{part}", "head.hidden.{part}"),
        Rename("classifier.{part}", "head.labels.{part}"),
    ),
    prefixes=("distilbert.",),
    # What a network may lack of these: answers to questions.
    heads=("vocab_", "pre_classifier.", "classifier.", "qa_outputs."),
    buffers=("embeddings.position_ids",),
)
"""DistilBERT's names on disk and in the network."""
