"""The names of ELECTRA's tensors on disk."""

from regard.checkpoints import KeyMap, Rename
from regard.models._post_norm import (
    ATTENTION_RULES,
    DENSE_CLASSIFIER_RULES,
    EMBEDDING_RULES,
    FEED_FORWARD_RULES,
)

ELECTRA_KEYS = KeyMap(
    rules=(
        *EMBEDDING_RULES,
        Rename("embeddings_project.{part}", "encoder.embeddings.projection.{part}"),
        *ATTENTION_RULES,
        *FEED_FORWARD_RULES,
        Rename("generator_predictions.dense.{part}", "head.dense.{part}"),
        Rename("generator_predictions.LayerNorm.{part}", "head.norm.{part}"),
        Rename("generator_lm_head.{part}", "head.output.{part}"),
        *DENSE_CLASSIFIER_RULES,
    ),
    prefixes=("electra.",),
    # What a network may lack of these: whether a token was replaced, answers to questions, multiple choice.
    heads=(
        "generator_predictions.",
        "generator_lm_head.",
        "discriminator_predictions.",
        "classifier.",
        "qa_outputs.",
        "sequence_summary.",
    ),
    # 0, 1, 2, ..: written by transformers before 4.31.
    buffers=("embeddings.position_ids",),
)
"""ELECTRA's names on disk and in the network."""
