"""The names of BERT's tensors on disk."""

from regard.checkpoints import KeyMap, Rename

_LAYER = "encoder.layer.{layer}"

BERT_KEYS = KeyMap(
    rules=(
        Rename("embeddings.word_embeddings.weight", "embeddings.tokens.weight"),
        Rename("embeddings.position_embeddings.weight", "embeddings.positions.weight"),
        Rename("embeddings.token_type_embeddings.weight", "embeddings.token_types.weight"),
        Rename("embeddings.LayerNorm.{part}", "embeddings.norm.{part}"),
        Rename(f"{_LAYER}.attention.self.query.{{part}}", "layers.{layer}.attention.q.{part}"),
        Rename(f"{_LAYER}.attention.self.key.{{part}}", "layers.{layer}.attention.k.{part}"),
        Rename(f"{_LAYER}.attention.self.value.{{part}}", "layers.{layer}.attention.v.{part}"),
        Rename(f"{_LAYER}.attention.output.dense.{{part}}", "layers.{layer}.attention.output.{part}"),
        Rename(
            f"{_LAYER}.attention.output.LayerNorm.{{part}}", "layers.{layer}.attention_residual.norm.{part}"
        ),
        Rename(f"{_LAYER}.intermediate.dense.{{part}}", "layers.{layer}.ffn.hidden.{part}"),
        Rename(f"{_LAYER}.output.dense.{{part}}", "layers.{layer}.ffn.output.{part}"),
        Rename(f"{_LAYER}.output.LayerNorm.{{part}}", "layers.{layer}.ffn_residual.norm.{part}"),
        Rename("pooler.dense.{part}", "pooler.dense.{part}"),
    ),
    prefixes=("bert.",),
    # TensorFlow's names for a layer norm's parameters, still in bert-base-uncased.
    aliases=((".gamma", ".weight"), (".beta", ".bias")),
    # Heads on top of the encoder: masked words and next sentence, classification, question answering.
    left_out=("cls.", "classifier.", "qa_outputs."),
    # 0, 1, 2, ..: written by transformers before 4.31.
    buffers=("embeddings.position_ids",),
)
"""BERT's names on disk and in `Bert`."""
