"""The sizes of an MPNet, and the fields of config.json that give them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from regard.checkpoints import Fields
from regard.core.errors import CheckpointError
from regard.models._config import hf
from regard.models._post_norm_config import PostNormConfig, has_pooler

PAD_ID = 1
"""Positions count on from it, whatever `pad_token_id` says."""
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

    Example:
        >>> MPNetConfig().max_seq_len, MPNetConfig().num_token_types
        (512, 0)
    """

    STEMS = {"mpnet": "MPNet"}
    STARTS = {"masked-lm": "lm_head.", "sequence": "classifier.", "token": "classifier."}

    vocab_size: int = hf("vocab_size", 30527, is_required=True)
    norm_eps: float = hf("layer_norm_eps", 1e-5, absent=1e-12)
    classifier_dropout_p: float | None = field(default=None, init=False)
    pad_token_id: int | None = hf("pad_token_id", PAD_ID)
    num_buckets: int = hf("relative_attention_num_buckets", NUM_BUCKETS)
    use_pooler: bool = True

    @property
    def num_positions(self) -> int:
        """Rows of the table of positions."""
        return self.max_seq_len + PAD_ID + 1

    @classmethod
    def derived(cls, fields: Fields, tensors: Collection[str], read: Mapping[str, Any]) -> dict[str, Any]:
        """See `FamilyConfig`."""
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
        counted = {"max_seq_len": read["max_seq_len"] - PAD_ID - 1, "use_pooler": has_pooler(tensors)}
        return super().derived(fields, tensors, read) | counted

    def extra(self) -> dict[str, Any]:
        """See `FamilyConfig`."""
        return {"max_position_embeddings": self.num_positions}
