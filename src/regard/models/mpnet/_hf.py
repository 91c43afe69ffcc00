"""The names of MPNet's tensors on disk."""

from regard.checkpoints import KeyMap, Rename
from regard.models._post_norm import (
    DENSE_CLASSIFIER_RULES,
    EMBEDDING_RULES,
    FEED_FORWARD_RULES,
    LM_HEAD_RULES,
    POOLER_RULES,
)

_THEIRS, _OURS = "encoder.layer.{layer}.attention", "encoder.layers.{layer}"

MPNET_KEYS = KeyMap(
    rules=(
        *EMBEDDING_RULES,
        Rename("encoder.relative_attention_bias.weight", "encoder.bias.table.weight"),
        Rename(f"{_THEIRS}.attn.q.{{part}}", f"{_OURS}.attention.q.{{part}}"),
        Rename(f"{_THEIRS}.attn.k.{{part}}", f"{_OURS}.attention.k.{{part}}"),
        Rename(f"{_THEIRS}.attn.v.{{part}}", f"{_OURS}.attention.v.{{part}}"),
        Rename(f"{_THEIRS}.attn.o.{{part}}", f"{_OURS}.attention.output.{{part}}"),
        Rename(f"{_THEIRS}.LayerNorm.{{part}}", f"{_OURS}.attention_residual.norm.{{part}}"),
        *FEED_FORWARD_RULES,
        *POOLER_RULES,
        *LM_HEAD_RULES,
        *DENSE_CLASSIFIER_RULES,
    ),
    prefixes=("mpnet.",),
    # What a network may lack of these: answers to questions.
    heads=("lm_head.", "classifier.", "qa_outputs."),
    # 0, 1, 2, ..: written by transformers before 4.31.
    buffers=("embeddings.position_ids",),
)
"""MPNet's names on disk and in the network."""
