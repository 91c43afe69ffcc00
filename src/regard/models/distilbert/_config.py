"""The sizes of a DistilBERT, and the fields of config.json that give them."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from regard.checkpoints import INERT, Fields, HeadKind
from regard.models._post_norm_config import read_head

# The first acts in answers to questions and in training only; nothing ever read the other.
_INERT_HERE = frozenset({"qa_dropout", "tie_weights_"})

_STARTS: dict[HeadKind, str] = {
    "masked-lm": "vocab_",
    "sequence": "pre_classifier.",
    "token": "classifier.",
}
_CLASSES: dict[HeadKind | None, str] = {
    None: "DistilBertModel",
    "masked-lm": "DistilBertForMaskedLM",
    "sequence": "DistilBertForSequenceClassification",
    "token": "DistilBertForTokenClassification",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class DistilBertConfig:
    """A DistilBERT encoder; the defaults are those of distilbert-base-uncased.

    Args:
        vocab_size: rows of the table of learned embeddings.
        d_model: size of the residual stream (`dim`).
        num_layers: encoder layers (`n_layers`).
        num_heads: heads a layer (`n_heads`).
        d_ff: size inside the feed-forward network (`hidden_dim`).
        max_seq_len: rows of the table of positions (`max_position_embeddings`).
        starts_sinusoidal: whether that table began as sinusoids (`sinusoidal_pos_embds`); it is stored like
            any other.
        activation: of the feed-forward network, and of the masked-LM head.
        dropout_p, attention_dropout_p: in training, on sublayers and on attention weights.
        head: what the checkpoint's head is for, or None.
        num_labels: of a classifier.
        classifier_dropout_p: before a classifier of texts, in training (`seq_classif_dropout`).
        tie_word_embeddings: whether the masked-LM head's output is the table of learned embeddings.
        pad_token_id: what fills up a text.

    Example:
        >>> DistilBertConfig().num_layers
        6
    """

    vocab_size: int = 30522
    d_model: int = 768
    num_layers: int = 6
    num_heads: int = 12
    d_ff: int = 3072
    max_seq_len: int = 512
    starts_sinusoidal: bool = False
    activation: str = "gelu"
    dropout_p: float = 0.1
    attention_dropout_p: float = 0.1
    head: HeadKind | None = None
    num_labels: int = 2
    classifier_dropout_p: float = 0.2
    tie_word_embeddings: bool = True
    pad_token_id: int | None = 0

    @property
    def num_token_types(self) -> int:
        """0: DistilBERT has no token types."""
        return 0

    @property
    def norm_eps(self) -> float:
        """1e-12, which no field of config.json can change."""
        return 1e-12

    @classmethod
    def from_hf(cls, fields: Fields, tensors: Collection[str]) -> "DistilBertConfig":
        """Read config.json.

        Raises:
            CheckpointError: fields that are missing, wrong, unknown, or ask for another architecture.
        """
        config = cls(
            vocab_size=fields.require("vocab_size", int),
            d_model=fields.require("dim", int),
            num_layers=fields.require("n_layers", int),
            num_heads=fields.require("n_heads", int),
            d_ff=fields.require("hidden_dim", int),
            max_seq_len=fields.require("max_position_embeddings", int),
            starts_sinusoidal=fields.get("sinusoidal_pos_embds", bool, False),
            activation=fields.get("activation", str, "gelu"),
            dropout_p=fields.get("dropout", float, 0.1),
            attention_dropout_p=fields.get("attention_dropout", float, 0.1),
            classifier_dropout_p=fields.get("seq_classif_dropout", float, 0.2),
            tie_word_embeddings=fields.get("tie_word_embeddings", bool, True),
            pad_token_id=fields.get_or_null("pad_token_id", int, 0),
            **read_head(fields, tensors, _STARTS),
        )
        fields.done(INERT | _INERT_HERE)
        return config

    def to_hf(self) -> dict[str, Any]:
        """The fields of config.json."""
        return {
            "architectures": [_CLASSES[self.head]],
            "model_type": "distilbert",
            "vocab_size": self.vocab_size,
            "dim": self.d_model,
            "n_layers": self.num_layers,
            "n_heads": self.num_heads,
            "hidden_dim": self.d_ff,
            "max_position_embeddings": self.max_seq_len,
            "sinusoidal_pos_embds": self.starts_sinusoidal,
            "activation": self.activation,
            "dropout": self.dropout_p,
            "attention_dropout": self.attention_dropout_p,
            "seq_classif_dropout": self.classifier_dropout_p,
            "tie_word_embeddings": self.tie_word_embeddings,
            "num_labels": self.num_labels,
            "pad_token_id": self.pad_token_id,
        }
