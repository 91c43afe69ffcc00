"""The sizes of a DistilBERT, and the fields of config.json that give them."""

from dataclasses import dataclass, field

from regard.models._config import hf
from regard.models._post_norm_config import PostNormConfig


@dataclass(frozen=True, kw_only=True)
class DistilBertConfig(PostNormConfig):
    """A DistilBERT encoder; the defaults are those of distilbert-base-uncased.

    Args:
        starts_sinusoidal: whether the table of positions began as sinusoids; it is stored like any other.
        classifier_dropout_p: before a classifier of texts, in training.

    The others are those of `PostNormConfig`; `norm_eps` is 1e-12, which no field of config.json can change.

    Example:
        >>> DistilBertConfig().num_layers
        6
    """

    STEMS = {"distilbert": "DistilBert"}
    STARTS = {"masked-lm": "vocab_", "sequence": "pre_classifier.", "token": "classifier."}
    # The first acts in answers to questions and in training only; nothing ever read the other.
    INERT = frozenset({"qa_dropout", "tie_weights_"})

    d_model: int = hf("dim", 768, is_required=True)
    num_layers: int = hf("n_layers", 6, is_required=True)
    num_heads: int = hf("n_heads", 12, is_required=True)
    d_ff: int = hf("hidden_dim", 3072, is_required=True)
    starts_sinusoidal: bool = hf("sinusoidal_pos_embds", False)
    activation: str = hf("activation", "gelu")
    norm_eps: float = field(default=1e-12, init=False)
    dropout_p: float = hf("dropout", 0.1)
    attention_dropout_p: float = hf("attention_dropout", 0.1)
    classifier_dropout_p: float = hf("seq_classif_dropout", 0.2)

    @property
    def label_dropout_p(self) -> float:
        """The dropout in a classifier of tokens, in training."""
        return self.dropout_p
