"""The fields of config.json that the encoders descended from BERT share."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from regard.checkpoints import Fields
from regard.models._config import EncoderConfig, hf


@dataclass(frozen=True, kw_only=True)
class PostNormConfig(EncoderConfig):
    """What BERT and its descendants have all; the defaults are those of bert-base-uncased.

    Args:
        vocab_size: rows of the table of learned embeddings.
        d_model: size of the residual stream.
        num_layers: encoder layers.
        num_heads: heads a layer.
        d_ff: size inside the feed-forward network.
        max_seq_len: the tokens that the table of positions has rows for.
        activation: of the feed-forward network.
        norm_eps: added to the variance by every layer norm.
        dropout_p, attention_dropout_p: in training, on sublayers and on attention weights.
        classifier_dropout_p: in training, in a classifier; None for `dropout_p`.
        tie_word_embeddings: whether the masked-LM head's output is the table of learned embeddings.
        pad_token_id: what fills up a text. Where positions are not counted by it, it changes no number:
            `transformers` keeps the row of that id from being trained.

    `head` and `num_labels` are those of `FamilyConfig`.
    """

    vocab_size: int = hf("vocab_size", 30522, is_required=True)
    d_model: int = hf("hidden_size", 768, is_required=True)
    num_layers: int = hf("num_hidden_layers", 12, is_required=True)
    num_heads: int = hf("num_attention_heads", 12, is_required=True)
    d_ff: int = hf("intermediate_size", 3072, is_required=True)
    max_seq_len: int = hf("max_position_embeddings", 512, is_required=True)
    activation: str = hf("hidden_act", "gelu")
    norm_eps: float = hf("layer_norm_eps", 1e-12)
    dropout_p: float = hf("hidden_dropout_prob", 0.1)
    attention_dropout_p: float = hf("attention_probs_dropout_prob", 0.1)
    classifier_dropout_p: float | None = hf("classifier_dropout", None)
    tie_word_embeddings: bool = hf("tie_word_embeddings", True)
    pad_token_id: int | None = hf("pad_token_id", 0)

    @property
    def use_pooler(self) -> bool:
        """Whether there is a pooler, a dense layer with tanh on the first position."""
        return False

    @property
    def num_positions(self) -> int:
        """Rows of the table of positions."""
        return self.max_seq_len

    @property
    def label_dropout_p(self) -> float:
        """The dropout in a classifier, in training."""
        return self.dropout_p if self.classifier_dropout_p is None else self.classifier_dropout_p

    @classmethod
    def derived(cls, fields: Fields, tensors: Collection[str], read: Mapping[str, Any]) -> dict[str, Any]:
        """See `FamilyConfig`."""
        del tensors, read
        fields.expect("position_embedding_type", ("absolute",), default="absolute")
        fields.expect("is_decoder", (False,), default=False)
        return {}


def has_pooler(tensors: Collection[str]) -> bool:
    """Whether a pooler is stored, which only the names of the tensors say."""
    return any(name.endswith("pooler.dense.weight") for name in tensors)
