"""The sizes of a RoBERTa, and the fields of config.json that give them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from regard.checkpoints import Fields
from regard.core.errors import CheckpointError
from regard.models._config import hf
from regard.models._post_norm_config import PostNormConfig, has_pooler


@dataclass(frozen=True, kw_only=True)
class RobertaConfig(PostNormConfig):
    """A RoBERTa encoder; the defaults are those of roberta-base.

    Args:
        model_type: "roberta" or "xlm-roberta", the names of config.json for one and the same network.
        max_seq_len: the longest text; the table of positions has 1 + `pad_token_id` rows more, since the
            first token's position is the number after that (`max_position_embeddings` counts all the rows).
        num_token_types: rows of the table of token types.
        use_pooler: whether the checkpoint has the pooler, a dense layer with tanh on the first position.
        pad_token_id: what fills up a text, and the number of padding's position.

    The others are those of `PostNormConfig`.

    Example:
        >>> RobertaConfig(vocab_size=250002, model_type="xlm-roberta").max_seq_len
        512
    """

    STEMS = {"roberta": "Roberta", "xlm-roberta": "XLMRoberta"}
    STARTS = {"masked-lm": "lm_head.", "sequence": "classifier.", "token": "classifier."}

    vocab_size: int = hf("vocab_size", 50265, is_required=True)
    norm_eps: float = hf("layer_norm_eps", 1e-5, absent=1e-12)
    pad_token_id: int = hf("pad_token_id", 1)
    model_type: Literal["roberta", "xlm-roberta"] = hf("model_type", "roberta")
    num_token_types: int = hf("type_vocab_size", 1, absent=2)
    use_pooler: bool = True

    @property
    def num_positions(self) -> int:
        """Rows of the table of positions."""
        return self.max_seq_len + self.pad_token_id + 1

    @classmethod
    def derived(cls, fields: Fields, tensors: Collection[str], read: Mapping[str, Any]) -> dict[str, Any]:
        """See `FamilyConfig`."""
        pad_id, rows = read["pad_token_id"], read["max_seq_len"]
        if not 0 <= pad_id < rows - 1:
            raise CheckpointError(
                f"{fields.file}: the field 'pad_token_id' must be from 0 to {rows - 2}, two below "
                f"max_position_embeddings, since positions count on from it; got {pad_id}"
            )
        counted = {"max_seq_len": rows - pad_id - 1, "use_pooler": has_pooler(tensors)}
        return super().derived(fields, tensors, read) | counted

    def extra(self) -> dict[str, Any]:
        """See `FamilyConfig`."""
        return {"max_position_embeddings": self.num_positions}
