"""The sizes of a RoBERTa, and the fields of config.json that give them."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

from regard.checkpoints import INERT, Fields, HeadKind
from regard.core.errors import CheckpointError
from regard.models._post_norm_config import PostNormConfig, has_pooler, read_head, read_shared, write_shared

ModelType = Literal["roberta", "xlm-roberta"]
"""The names of config.json for one and the same network."""

_STARTS: dict[HeadKind, str] = {"masked-lm": "lm_head.", "sequence": "classifier.", "token": "classifier."}
_CLASSES: dict[HeadKind | None, str] = {
    None: "Model",
    "masked-lm": "ForMaskedLM",
    "sequence": "ForSequenceClassification",
    "token": "ForTokenClassification",
}
_STEMS: dict[ModelType, str] = {"roberta": "Roberta", "xlm-roberta": "XLMRoberta"}


@dataclass(frozen=True, kw_only=True, slots=True)
class RobertaConfig(PostNormConfig):
    """A RoBERTa encoder; the defaults are those of roberta-base.

    Args:
        model_type: "roberta" or "xlm-roberta".
        max_seq_len: the longest text; the table of positions has 1 + `pad_token_id` rows more, since the
            first token's position is the number after that (`max_position_embeddings` counts all the rows).
        num_token_types: rows of the table of token types (`type_vocab_size`).
        use_pooler: whether the checkpoint has the pooler, a dense layer with tanh on the first position.
        pad_token_id: what fills up a text, and the number of padding's position.

    The others are those of `PostNormConfig`.

    Example:
        >>> RobertaConfig(vocab_size=250002, model_type="xlm-roberta").max_seq_len
        512
    """

    vocab_size: int = 50265
    norm_eps: float = 1e-5
    pad_token_id: int = 1
    model_type: ModelType = "roberta"
    num_token_types: int = 1
    use_pooler: bool = True

    @property
    def num_positions(self) -> int:
        """Rows of the table of positions."""
        return self.max_seq_len + self.pad_token_id + 1

    @classmethod
    def from_hf(cls, fields: Fields, tensors: Collection[str]) -> "RobertaConfig":
        """Read config.json; whether there is a pooler stands only in the names of the stored tensors.

        Raises:
            CheckpointError: fields that are missing, wrong, unknown, or ask for another architecture.
        """
        shared = read_shared(fields)
        pad_id, rows = fields.get("pad_token_id", int, 1), shared["max_seq_len"]
        if not 0 <= pad_id < rows - 1:
            raise CheckpointError(
                f"{fields.file}: the field 'pad_token_id' must be from 0 to {rows - 2}, two below "
                f"max_position_embeddings, since positions count on from it; got {pad_id}"
            )
        config = cls(
            **(shared | {"max_seq_len": rows - pad_id - 1}),
            **read_head(fields, tensors, _STARTS),
            model_type=fields.expect("model_type", tuple(_STEMS), default="roberta"),
            pad_token_id=pad_id,
            classifier_dropout_p=fields.get("classifier_dropout", float, None),
            num_token_types=fields.get("type_vocab_size", int, 2),
            use_pooler=has_pooler(tensors),
        )
        fields.done(INERT)
        return config

    def to_hf(self) -> dict[str, Any]:
        """The fields of config.json."""
        return {
            "architectures": [_STEMS[self.model_type] + _CLASSES[self.head]],
            "model_type": self.model_type,
            **write_shared(self),
            "max_position_embeddings": self.num_positions,
            "classifier_dropout": self.classifier_dropout_p,
            "type_vocab_size": self.num_token_types,
        }
