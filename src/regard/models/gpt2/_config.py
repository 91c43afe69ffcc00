"""The sizes of a GPT-2, and the fields of config.json that give them."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from regard.checkpoints import INERT, Fields, HeadKind, head_of, num_labels

# The summary is of a head for multiple choice; upcasting only says in which type the same numbers come about;
# `predict_special_tokens` is about as many as `n_special` says, and there are none.
_INERT_HERE = frozenset(
    {
        "n_ctx",
        "predict_special_tokens",
        "reorder_and_upcast_attn",
        "summary_activation",
        "summary_first_dropout",
        "summary_proj_to_labels",
        "summary_type",
        "summary_use_proj",
    }
)

_CLASSES: dict[HeadKind | None, str] = {
    None: "GPT2Model",
    "language-model": "GPT2LMHeadModel",
    "sequence": "GPT2ForSequenceClassification",
    "token": "GPT2ForTokenClassification",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpt2Config:
    """A GPT-2; the defaults are those of the smallest, `gpt2`.

    Args:
        vocab_size: rows of the table of learned embeddings.
        d_model: size of the residual stream (`n_embd`).
        num_layers: layers (`n_layer`).
        num_heads: heads a layer (`n_head`).
        d_ff: size inside the feed-forward network (`n_inner`, or 4 d_model).
        max_seq_len: rows of the table of positions (`n_positions`).
        activation: of the feed-forward network (`activation_function`).
        norm_eps: added to the variance by every layer norm (`layer_norm_epsilon`).
        scale_by_head_dim: whether scores are divided by sqrt(head_dim) (`scale_attn_weights`).
        scale_by_layer: whether also by the layer's number from 1 (`scale_attn_by_inverse_layer_idx`).
        dropout_p, embedding_dropout_p, attention_dropout_p: in training, on sublayers, embeddings, weights.
        head: what the checkpoint's head is for, or None.
        num_labels: of a classifier.
        classifier_dropout_p: before a classifier of tokens, in training.
        pad_token_id: what fills up a text; a classifier of texts reads the token before.
        tie_word_embeddings: whether the output layer is the table of learned embeddings.

    Example:
        >>> Gpt2Config(num_layers=24, num_heads=16, d_model=1024).d_model
        1024
    """

    vocab_size: int = 50257
    d_model: int = 768
    num_layers: int = 12
    num_heads: int = 12
    d_ff: int = 3072
    max_seq_len: int = 1024
    activation: str = "gelu_new"
    norm_eps: float = 1e-5
    scale_by_head_dim: bool = True
    scale_by_layer: bool = False
    dropout_p: float = 0.1
    embedding_dropout_p: float = 0.1
    attention_dropout_p: float = 0.1
    head: HeadKind | None = "language-model"
    num_labels: int = 2
    classifier_dropout_p: float = 0.1
    pad_token_id: int | None = None
    tie_word_embeddings: bool = True

    @property
    def num_token_types(self) -> int:
        """0: GPT-2 has no token types."""
        return 0

    @classmethod
    def from_hf(cls, fields: Fields, tensors: Collection[str]) -> "Gpt2Config":
        """Read config.json."""
        del tensors
        d_model = fields.require("n_embd", int)
        inner = fields.get("n_inner", int, None)
        fields.expect("n_special", (0,), default=0)
        config = cls(
            vocab_size=fields.require("vocab_size", int),
            d_model=d_model,
            num_layers=fields.require("n_layer", int),
            num_heads=fields.require("n_head", int),
            d_ff=4 * d_model if inner is None else inner,
            max_seq_len=fields.require("n_positions", int),
            activation=fields.get("activation_function", str, "gelu_new"),
            norm_eps=fields.get("layer_norm_epsilon", float, 1e-5),
            scale_by_head_dim=fields.get("scale_attn_weights", bool, True),
            scale_by_layer=fields.get("scale_attn_by_inverse_layer_idx", bool, False),
            dropout_p=fields.get("resid_pdrop", float, 0.1),
            embedding_dropout_p=fields.get("embd_pdrop", float, 0.1),
            attention_dropout_p=fields.get("attn_pdrop", float, 0.1),
            head=head_of(fields),
            num_labels=num_labels(fields),
            classifier_dropout_p=fields.get("classifier_dropout", float, 0.1),
            pad_token_id=fields.get("pad_token_id", int, None),
            tie_word_embeddings=fields.get("tie_word_embeddings", bool, True),
        )
        fields.done(INERT | _INERT_HERE)
        return config

    def to_hf(self) -> dict[str, Any]:
        """The fields of config.json."""
        return {
            "architectures": [_CLASSES[self.head]],
            "model_type": "gpt2",
            "vocab_size": self.vocab_size,
            "n_embd": self.d_model,
            "n_layer": self.num_layers,
            "n_head": self.num_heads,
            "n_inner": self.d_ff,
            "n_positions": self.max_seq_len,
            "activation_function": self.activation,
            "layer_norm_epsilon": self.norm_eps,
            "scale_attn_weights": self.scale_by_head_dim,
            "scale_attn_by_inverse_layer_idx": self.scale_by_layer,
            "resid_pdrop": self.dropout_p,
            "embd_pdrop": self.embedding_dropout_p,
            "attn_pdrop": self.attention_dropout_p,
            "num_labels": self.num_labels,
            "classifier_dropout": self.classifier_dropout_p,
            "pad_token_id": self.pad_token_id,
            "tie_word_embeddings": self.tie_word_embeddings,
        }
