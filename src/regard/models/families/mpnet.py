"""MPNet (Song et al. 2020), all-mpnet-base-v2 among its descendants."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from regard.blocks import CountTokens
from regard.checkpoints import ID_BUFFERS, Fields, KeyMap, Rename
from regard.core.errors import CheckpointError, InputError
from regard.models._config import Rate, Size, Small, check_sizes, hf
from regard.models._transformer import Transformer
from regard.models.families._family import Family
from regard.models.families._post_norm import (
    DENSE_CLASSIFIER_RULES,
    EMBEDDING_RULES,
    FEED_FORWARD_RULES,
    LM_HEAD_RULES,
    POOLER_RULES,
    PostNormConfig,
    dense_classifier,
    has_pooler,
    post_norm_encoder,
)
from regard.positions import RelativeBias

PAD_ID = 1
"""Positions count on from it, whatever `pad_token_id` says: the published code has the number itself."""
NUM_BUCKETS = 32
"""How many buckets distances fall into, whatever `relative_attention_num_buckets` says."""


@dataclass(frozen=True, kw_only=True)
class MPNetConfig(PostNormConfig):
    """An MPNet encoder; the defaults are those of mpnet-base.

    Args:
        max_seq_len: the longest text; the table of positions has two rows more (`max_position_embeddings`
            counts all of them), since the first token's position is 2.
        num_buckets: rows of the table of relative biases; distances fall into 32 buckets, and rows after
            those stay unread.
        use_pooler: whether the checkpoint has the pooler, a dense layer with tanh on the first position.

    The others are those of `PostNormConfig`. Its classifiers have the dropout of the layers.
    """

    STEMS = {"mpnet": "MPNet"}
    STARTS = {"masked-lm": "lm_head.", "sequence": "classifier.", "token": "classifier."}

    vocab_size: Size = hf("vocab_size", 30527, is_required=True)
    norm_eps: Small = hf("layer_norm_eps", 1e-5, absent=1e-12)
    classifier_dropout_p: Rate | None = field(default=None, init=False)
    pad_token_id: int | None = hf("pad_token_id", PAD_ID)
    num_buckets: int = hf("relative_attention_num_buckets", NUM_BUCKETS)
    use_pooler: bool = True

    @property
    def num_positions(self) -> int:
        """Rows of the table of positions."""
        return self.max_seq_len + PAD_ID + 1

    @property
    def pad_row(self) -> int | None:
        """1 here too, whatever `pad_token_id` says."""
        return PAD_ID if self.vocab_size > PAD_ID else None

    @classmethod
    def derived(cls, fields: Fields, tensors: Collection[str], read: Mapping[str, Any]) -> dict[str, Any]:
        # Numbers that the published code fixes: a file may say more, never less.
        least = {
            "max_position_embeddings": (
                PAD_ID + 2,
                read["max_seq_len"],
                f", since the first token's position is {PAD_ID + 1}",
            ),
            "relative_attention_num_buckets": (
                NUM_BUCKETS,
                read["num_buckets"],
                ", the buckets that distances fall into whatever it says",
            ),
        }
        for name, (wanted, got, why) in least.items():
            if got < wanted:
                raise CheckpointError(
                    f"{fields.file}: the field {name!r} must be at least {wanted}{why}; got {got}"
                )
        # Positions start behind the row of padding.
        counted = {"max_seq_len": read["max_seq_len"] - PAD_ID - 1, "use_pooler": has_pooler(tensors)}
        return super().derived(fields, tensors, read) | counted

    def extra(self) -> dict[str, Any]:
        return {"max_position_embeddings": self.num_positions}


def build(config: MPNetConfig) -> Transformer:
    """An encoder trained to predict tokens in a permuted order; used, it is a BERT with relative biases.

    Padding is told by its id, as in RoBERTa.

    Source: Song et al. 2020, arXiv 2004.09297, section 2; the relative bias: Raffel et al. 2020, arXiv
    1910.10683, section 2.1.
    """
    check_sizes(config)
    if config.num_buckets < NUM_BUCKETS:
        raise InputError(f"num_buckets must be at least {NUM_BUCKETS}; got {config.num_buckets}.")
    # The distance is a number in their code too, which no field changes.
    bias = RelativeBias(config.num_heads, NUM_BUCKETS, max_distance=128, bidirectional=True)
    if config.num_buckets > NUM_BUCKETS:
        # Rows beyond NUM_BUCKETS are stored, and never read.
        bias.table = nn.Embedding(config.num_buckets, config.num_heads)
    return post_norm_encoder(
        config,
        classifier=lambda: dense_classifier(config, "tanh"),
        numbering=CountTokens(PAD_ID),
        bias=bias,
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
    buffers=ID_BUFFERS,
)
"""MPNet's names on disk and in the network."""

# transformers 4 has the method for `pruned_heads`, and fails in the forward pass after it.
FAMILIES = (Family("mpnet", MPNetConfig, build, MPNET_KEYS),)
