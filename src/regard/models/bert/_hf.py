"""The names of BERT's tensors on disk."""

from regard.checkpoints import KeyMap, Rename
from regard.models._post_norm import ATTENTION_RULES, EMBEDDING_RULES, FEED_FORWARD_RULES, POOLER_RULES

BERT_KEYS = KeyMap(
    rules=(
        *EMBEDDING_RULES,
        *ATTENTION_RULES,
        *FEED_FORWARD_RULES,
        *POOLER_RULES,
        Rename("cls.predictions.transform.dense.{part}", "head.dense.{part}"),
        Rename("cls.predictions.transform.LayerNorm.{part}", "head.norm.{part}"),
        Rename("cls.predictions.bias", "head.output.bias"),
        Rename("cls.predictions.decoder.weight", "head.output.weight"),
        Rename("cls.predictions.decoder.bias", "head.output.own_bias"),
        Rename("classifier.{part}", "head.labels.{part}"),
    ),
    prefixes=("bert.",),
    # TensorFlow's names for a layer norm's parameters, still in bert-base-uncased.
    aliases=((".gamma", ".weight"), (".beta", ".bias")),
    # What a network may lack of these: whether the next sentence follows, answers to questions.
    heads=("cls.", "classifier.", "qa_outputs."),
    # 0, 1, 2, ..: written by transformers before 4.31.
    buffers=("embeddings.position_ids",),
)
"""BERT's names on disk and in the network."""
