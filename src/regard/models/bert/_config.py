"""The sizes of a BERT, and the fields of config.json that give them."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from regard.checkpoints import INERT, Fields, HeadKind
from regard.models._post_norm_config import (
    PostNormConfig,
    has_pooler,
    read_head,
    read_shared,
    write_shared,
)

# These stand in the released TensorFlow checkpoints, whose code never read them.
_INERT_HERE = frozenset(
    {
        "pooler_fc_size",
        "pooler_num_attention_heads",
        "pooler_num_fc_layers",
        "pooler_size_per_head",
        "pooler_type",
    }
)

_STARTS: dict[HeadKind, str] = {
    "masked-lm": "cls.predictions.",
    "sequence": "classifier.",
    "token": "classifier.",
}
# Pre-training had a second head, which tells whether two sentences follow each other. It is left out, and so
# the class that is written has the masked-LM head only.
_CLASSES: dict[HeadKind | None, str] = {
    None: "BertModel",
    "masked-lm": "BertForMaskedLM",
    "sequence": "BertForSequenceClassification",
    "token": "BertForTokenClassification",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class BertConfig(PostNormConfig):
    """A BERT encoder; the defaults are those of bert-base-uncased.

    Args:
        num_token_types: rows of the table of token types (`type_vocab_size`).
        use_pooler: whether the checkpoint has the pooler, a dense layer with tanh on the first position.

    The others are those of `PostNormConfig`.

    Example:
        >>> BertConfig(num_layers=6).d_model
        768
    """

    num_token_types: int = 2
    use_pooler: bool = True

    @classmethod
    def from_hf(cls, fields: Fields, tensors: Collection[str]) -> "BertConfig":
        """Read config.json; whether there is a pooler stands only in the names of the stored tensors.

        Raises:
            CheckpointError: fields that are missing, wrong, unknown, or ask for another architecture.
        """
        fields.expect("directionality", ("bidi",), default="bidi")
        head = read_head(fields, tensors, _STARTS, {"ForPreTraining": "masked-lm"})
        config = cls(
            **read_shared(fields),
            **head,
            pad_token_id=fields.get_or_null("pad_token_id", int, 0),
            classifier_dropout_p=fields.get("classifier_dropout", float, None),
            num_token_types=fields.get("type_vocab_size", int, 2),
            # A classifier of texts reads it: if it is not stored, loading says so.
            use_pooler=has_pooler(tensors) or head["head"] == "sequence",
        )
        fields.done(INERT | _INERT_HERE)
        return config

    def to_hf(self) -> dict[str, Any]:
        """The fields of config.json."""
        return {
            "architectures": [_CLASSES[self.head]],
            "model_type": "bert",
            **write_shared(self),
            "classifier_dropout": self.classifier_dropout_p,
            "type_vocab_size": self.num_token_types,
        }
