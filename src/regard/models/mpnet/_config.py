"""The sizes of an MPNet, and the fields of config.json that give them."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from regard.checkpoints import INERT, Fields, HeadKind
from regard.core.errors import CheckpointError
from regard.models._post_norm_config import (
    PostNormConfig,
    has_pooler,
    read_head,
    read_shared,
    write_shared,
)

PAD_ID = 1
"""Positions count on from it, whatever `pad_token_id` says."""
NUM_BUCKETS = 32
"""How many buckets distances fall into, whatever `relative_attention_num_buckets` says."""

_STARTS: dict[HeadKind, str] = {"masked-lm": "lm_head.", "sequence": "classifier.", "token": "classifier."}
_CLASSES: dict[HeadKind | None, str] = {
    None: "MPNetModel",
    "masked-lm": "MPNetForMaskedLM",
    "sequence": "MPNetForSequenceClassification",
    "token": "MPNetForTokenClassification",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class MPNetConfig(PostNormConfig):
    """An MPNet encoder; the defaults are those of mpnet-base.

    Args:
        max_seq_len: the longest text; the table of positions has two rows more (`max_position_embeddings`
            counts all of them), since the first token's position is 2.
        num_buckets: rows of the table of relative biases (`relative_attention_num_buckets`); distances fall
            into 32 buckets, and rows after those stay unread.
        use_pooler: whether the checkpoint has the pooler, a dense layer with tanh on the first position.

    The others are those of `PostNormConfig`. Its classifiers have the dropout of the layers.

    Example:
        >>> MPNetConfig().max_seq_len, MPNetConfig().num_token_types
        (512, 0)
    """

    vocab_size: int = 30527
    norm_eps: float = 1e-5
    pad_token_id: int | None = PAD_ID
    num_buckets: int = NUM_BUCKETS
    use_pooler: bool = True

    @property
    def num_token_types(self) -> int:
        """0: MPNet has no token types."""
        return 0

    @property
    def num_positions(self) -> int:
        """Rows of the table of positions."""
        return self.max_seq_len + PAD_ID + 1

    @classmethod
    def from_hf(cls, fields: Fields, tensors: Collection[str]) -> "MPNetConfig":
        """Read config.json; whether there is a pooler stands only in the names of the stored tensors.

        Raises:
            CheckpointError: fields that are missing, wrong, unknown, or ask for another architecture.
        """
        shared = read_shared(fields)
        if shared["max_seq_len"] <= PAD_ID + 1:
            raise CheckpointError(
                f"{fields.file}: the field 'max_position_embeddings' must be at least {PAD_ID + 2}, since "
                f"the first token's position is {PAD_ID + 1}; got {shared['max_seq_len']}"
            )
        buckets = fields.get("relative_attention_num_buckets", int, NUM_BUCKETS)
        if buckets < NUM_BUCKETS:
            raise CheckpointError(
                f"{fields.file}: the field 'relative_attention_num_buckets' must be at least {NUM_BUCKETS}, "
                f"the buckets that distances fall into whatever it says; got {buckets}"
            )
        config = cls(
            **(shared | {"max_seq_len": shared["max_seq_len"] - PAD_ID - 1}),
            **read_head(fields, tensors, _STARTS),
            pad_token_id=fields.get_or_null("pad_token_id", int, PAD_ID),
            num_buckets=buckets,
            use_pooler=has_pooler(tensors),
        )
        fields.done(INERT)
        return config

    def to_hf(self) -> dict[str, Any]:
        """The fields of config.json."""
        return {
            "architectures": [_CLASSES[self.head]],
            "model_type": "mpnet",
            **write_shared(self),
            "max_position_embeddings": self.num_positions,
            "relative_attention_num_buckets": self.num_buckets,
        }
