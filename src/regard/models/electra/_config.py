"""The sizes of an ELECTRA, and the fields of config.json that give them."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from regard.checkpoints import INERT, Fields, HeadKind
from regard.models._post_norm_config import PostNormConfig, read_head, read_shared, write_shared

# Of the head for multiple choice only.
_INERT_HERE = frozenset(
    {
        "summary_activation",
        "summary_first_dropout",
        "summary_last_dropout",
        "summary_proj_to_labels",
        "summary_type",
        "summary_use_proj",
    }
)

_STARTS: dict[HeadKind, str] = {
    "masked-lm": "generator_",
    "sequence": "classifier.",
    "token": "classifier.",
}
_CLASSES: dict[HeadKind | None, str] = {
    None: "ElectraModel",
    "masked-lm": "ElectraForMaskedLM",
    "sequence": "ElectraForSequenceClassification",
    "token": "ElectraForTokenClassification",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ElectraConfig(PostNormConfig):
    """An ELECTRA encoder; the defaults are those of electra-small-discriminator.

    Args:
        d_embedding: size of the tables of embeddings (`embedding_size`); where it is not `d_model`, a linear
            layer leads from one to the other.
        num_token_types: rows of the table of token types (`type_vocab_size`).

    The others are those of `PostNormConfig`.

    Example:
        >>> ElectraConfig().d_model, ElectraConfig().d_embedding
        (256, 128)
    """

    d_model: int = 256
    num_heads: int = 4
    d_ff: int = 1024
    d_embedding: int = 128
    num_token_types: int = 2

    @classmethod
    def from_hf(cls, fields: Fields, tensors: Collection[str]) -> "ElectraConfig":
        """Read config.json.

        Raises:
            CheckpointError: fields that are missing, wrong, unknown, or ask for another architecture.
        """
        config = cls(
            **read_shared(fields),
            **read_head(fields, tensors, _STARTS),
            pad_token_id=fields.get_or_null("pad_token_id", int, 0),
            d_embedding=fields.require("embedding_size", int),
            classifier_dropout_p=fields.get("classifier_dropout", float, None),
            num_token_types=fields.get("type_vocab_size", int, 2),
        )
        fields.done(INERT | _INERT_HERE)
        return config

    def to_hf(self) -> dict[str, Any]:
        """The fields of config.json."""
        return {
            "architectures": [_CLASSES[self.head]],
            "model_type": "electra",
            **write_shared(self),
            "embedding_size": self.d_embedding,
            "classifier_dropout": self.classifier_dropout_p,
            "type_vocab_size": self.num_token_types,
        }
