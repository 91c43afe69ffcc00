"""The sizes of a DistilBERT, and the fields of config.json that give them."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from regard.checkpoints import INERT, Config

# These act in classifiers and in training only; the fixed sinusoids that `sinusoidal_pos_embds` asks for are
# stored in the checkpoint like learned ones.
_INERT_HERE = frozenset(
    {"pad_token_id", "qa_dropout", "seq_classif_dropout", "sinusoidal_pos_embds", "tie_weights_"}
)


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
        activation: of the feed-forward network.
        dropout_p, attention_dropout_p: in training, on sublayers and on attention weights.

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
    activation: str = "gelu"
    dropout_p: float = 0.1
    attention_dropout_p: float = 0.1

    @property
    def num_token_types(self) -> int:
        """0: DistilBERT has no token types."""
        return 0

    @property
    def norm_eps(self) -> float:
        """1e-12, which no field of config.json can change."""
        return 1e-12

    @classmethod
    def from_hf(cls, fields: Config, tensors: Collection[str]) -> "DistilBertConfig":
        """Read config.json."""
        del tensors
        config = cls(
            vocab_size=fields.require("vocab_size", int),
            d_model=fields.require("dim", int),
            num_layers=fields.require("n_layers", int),
            num_heads=fields.require("n_heads", int),
            d_ff=fields.require("hidden_dim", int),
            max_seq_len=fields.require("max_position_embeddings", int),
            activation=fields.get("activation", str, "gelu"),
            dropout_p=fields.get("dropout", float, 0.1),
            attention_dropout_p=fields.get("attention_dropout", float, 0.1),
        )
        fields.done(INERT | _INERT_HERE)
        return config

    def to_hf(self) -> dict[str, Any]:
        """The fields of config.json."""
        return {
            "architectures": ["DistilBertModel"],
            "model_type": "distilbert",
            "vocab_size": self.vocab_size,
            "dim": self.d_model,
            "n_layers": self.num_layers,
            "n_heads": self.num_heads,
            "hidden_dim": self.d_ff,
            "max_position_embeddings": self.max_seq_len,
            "activation": self.activation,
            "dropout": self.dropout_p,
            "attention_dropout": self.attention_dropout_p,
        }
