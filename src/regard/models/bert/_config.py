"""The sizes of a BERT, and the fields of config.json that give them."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from regard.checkpoints import INERT, Config

# Which id pads only keeps that row of the table from being trained; the rest stands in the released
# TensorFlow checkpoints, whose code never read it.
_INERT_HERE = frozenset(
    {
        "pad_token_id",
        "pooler_fc_size",
        "pooler_num_attention_heads",
        "pooler_num_fc_layers",
        "pooler_size_per_head",
        "pooler_type",
    }
)


@dataclass(frozen=True, kw_only=True, slots=True)
class BertConfig:
    """A BERT encoder; the defaults are those of bert-base-uncased.

    Args:
        vocab_size: rows of the table of learned embeddings.
        d_model: size of the residual stream (`hidden_size`).
        num_layers: encoder layers (`num_hidden_layers`).
        num_heads: heads a layer (`num_attention_heads`).
        d_ff: size inside the feed-forward network (`intermediate_size`).
        max_seq_len: rows of the table of positions (`max_position_embeddings`).
        num_token_types: rows of the table of token types (`type_vocab_size`).
        activation: of the feed-forward network (`hidden_act`).
        norm_eps: added to the variance by every layer norm.
        dropout_p, attention_dropout_p: in training, on sublayers and on attention weights.
        use_pooler: whether the checkpoint has the pooler, a dense layer with tanh on the first position.

    Example:
        >>> BertConfig(num_layers=6).d_model
        768
    """

    vocab_size: int = 30522
    d_model: int = 768
    num_layers: int = 12
    num_heads: int = 12
    d_ff: int = 3072
    max_seq_len: int = 512
    num_token_types: int = 2
    activation: str = "gelu"
    norm_eps: float = 1e-12
    dropout_p: float = 0.1
    attention_dropout_p: float = 0.1
    use_pooler: bool = True

    @classmethod
    def from_hf(cls, fields: Config, tensors: Collection[str]) -> "BertConfig":
        """Read config.json; whether there is a pooler stands only in the names of the stored tensors."""
        fields.expect("position_embedding_type", ("absolute",), default="absolute")
        fields.expect("directionality", ("bidi",), default="bidi")
        config = cls(
            vocab_size=fields.require("vocab_size", int),
            d_model=fields.require("hidden_size", int),
            num_layers=fields.require("num_hidden_layers", int),
            num_heads=fields.require("num_attention_heads", int),
            d_ff=fields.require("intermediate_size", int),
            max_seq_len=fields.require("max_position_embeddings", int),
            num_token_types=fields.get("type_vocab_size", int, 2),
            activation=fields.get("hidden_act", str, "gelu"),
            norm_eps=fields.get("layer_norm_eps", float, 1e-12),
            dropout_p=fields.get("hidden_dropout_prob", float, 0.1),
            attention_dropout_p=fields.get("attention_probs_dropout_prob", float, 0.1),
            use_pooler=any(name.endswith("pooler.dense.weight") for name in tensors),
        )
        fields.done(INERT | _INERT_HERE)
        return config

    def to_hf(self) -> dict[str, Any]:
        """The fields of config.json."""
        return {
            "architectures": ["BertModel"],
            "model_type": "bert",
            "vocab_size": self.vocab_size,
            "hidden_size": self.d_model,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "intermediate_size": self.d_ff,
            "max_position_embeddings": self.max_seq_len,
            "type_vocab_size": self.num_token_types,
            "hidden_act": self.activation,
            "layer_norm_eps": self.norm_eps,
            "hidden_dropout_prob": self.dropout_p,
            "attention_probs_dropout_prob": self.attention_dropout_p,
        }
