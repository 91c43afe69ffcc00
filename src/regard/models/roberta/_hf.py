"""The names of RoBERTa's tensors on disk, which are XLM-R's too."""

from regard.checkpoints import KeyMap
from regard.models._post_norm import (
    ATTENTION_RULES,
    DENSE_CLASSIFIER_RULES,
    EMBEDDING_RULES,
    FEED_FORWARD_RULES,
    LM_HEAD_RULES,
    POOLER_RULES,
)

ROBERTA_KEYS = KeyMap(
    rules=(
        *EMBEDDING_RULES,
        *ATTENTION_RULES,
        *FEED_FORWARD_RULES,
        *POOLER_RULES,
        *LM_HEAD_RULES,
        *DENSE_CLASSIFIER_RULES,
    ),
    prefixes=("roberta.",),
    # What a network may lack of these: answers to questions.
    heads=("lm_head.", "classifier.", "qa_outputs."),
    # 0, 1, 2, ..: written by transformers before 4.31.
    buffers=("embeddings.position_ids",),
)
"""RoBERTa's names on disk and in the network."""
