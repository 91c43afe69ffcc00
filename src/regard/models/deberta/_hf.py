"""The names of DeBERTa v2's and v3's tensors on disk."""

from regard.checkpoints import KeyMap, Rename
from regard.models._post_norm import EMBEDDING_RULES, FEED_FORWARD_RULES

_THEIRS, _OURS = "encoder.layer.{layer}.attention", "encoder.layers.{layer}.attention"

DEBERTA_KEYS = KeyMap(
    rules=(
        *EMBEDDING_RULES,
        Rename("embeddings.embed_proj.weight", "encoder.embeddings.norm.projection.weight"),
        Rename("encoder.rel_embeddings.weight", "encoder.bias.table.weight"),
        Rename("encoder.LayerNorm.{part}", "encoder.bias.norm.{part}"),
        Rename(f"{_THEIRS}.self.query_proj.{{part}}", f"{_OURS}.q.{{part}}"),
        Rename(f"{_THEIRS}.self.key_proj.{{part}}", f"{_OURS}.k.{{part}}"),
        Rename(f"{_THEIRS}.self.value_proj.{{part}}", f"{_OURS}.v.{{part}}"),
        Rename(f"{_THEIRS}.self.pos_query_proj.{{part}}", f"{_OURS}.pos_q.{{part}}"),
        Rename(f"{_THEIRS}.self.pos_key_proj.{{part}}", f"{_OURS}.pos_k.{{part}}"),
        Rename(f"{_THEIRS}.output.dense.{{part}}", f"{_OURS}.output.{{part}}"),
        Rename(f"{_THEIRS}.output.LayerNorm.{{part}}", f"{_OURS}_residual.norm.{{part}}"),
        *FEED_FORWARD_RULES,
        Rename("encoder.conv.conv.{part}", "encoder.layers.0.convolution.{part}"),
        Rename("encoder.conv.LayerNorm.{part}", "encoder.layers.0.convolution_norm.{part}"),
        Rename("cls.predictions.transform.dense.{part}", "head.dense.{part}"),
        Rename("cls.predictions.transform.LayerNorm.{part}", "head.norm.{part}"),
        Rename("cls.predictions.bias", "head.output.bias"),
        Rename("cls.predictions.decoder.weight", "head.output.weight"),
        Rename("cls.predictions.decoder.bias", "head.output.own_bias"),
        Rename("lm_predictions.lm_head.dense.{part}", "head.predictions.dense.{part}"),
        Rename("lm_predictions.lm_head.LayerNorm.{part}", "head.predictions.norm.{part}"),
        Rename("lm_predictions.lm_head.bias", "head.predictions.output.bias"),
        Rename("pooler.dense.{part}", "head.hidden.{part}"),
        Rename("classifier.{part}", "head.labels.{part}"),
    ),
    prefixes=("deberta.",),
    # What a network may lack of these: the heads of the training, answers to questions.
    heads=("cls.", "lm_predictions.", "mask_predictions.", "pooler.", "classifier.", "qa_outputs."),
    # Absolute positions that a model was trained with, and does without since; and the norm of a table of
    # distances that there is not where attention is not relative.
    left_out=("embeddings.position_embeddings.", "encoder.LayerNorm."),
    # 0, 1, 2, ..: written by transformers before 4.31.
    buffers=("embeddings.position_ids",),
)
"""DeBERTa's names on disk and in the network."""
