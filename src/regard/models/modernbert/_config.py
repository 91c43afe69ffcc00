"""The sizes of a ModernBERT, and the fields of config.json that give them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from regard.checkpoints import INERT, Fields, HeadKind
from regard.models._layer_types import FULL, SLIDING, OneInEvery, read_layer_types, read_window
from regard.models._post_norm_config import read_head
from regard.models._rope import RopeSpelling, Theta, read_rope, write_rope
from regard.positions import Rotary

_LAYERS = OneInEvery(3, field="global_attn_every_n_layers", is_first=True)
_ROPE = RopeSpelling(Theta("global_rope_theta", 160_000.0), Theta("local_rope_theta", 10_000.0))

# `layer_norm_eps` and `position_embedding_type` stand in the first files and were never read: the norms have
# `norm_eps`, and there are no absolute positions. The others say how it is trained, and what is left out of a
# loss.
_INERT_HERE = frozenset(
    {
        "cls_token_id",
        "deterministic_flash_attn",
        "initializer_cutoff_factor",
        "layer_norm_eps",
        "position_embedding_type",
        "reference_compile",
        "repad_logits_with_grad",
        "sparse_pred_ignore_index",
        "sparse_prediction",
    }
)

_STARTS: dict[HeadKind, str] = {"masked-lm": "head.", "sequence": "classifier.", "token": "classifier."}
_CLASSES: dict[HeadKind | None, str] = {
    None: "ModernBertModel",
    "masked-lm": "ModernBertForMaskedLM",
    "sequence": "ModernBertForSequenceClassification",
    "token": "ModernBertForTokenClassification",
}

Pooling = Literal["cls", "mean"]
"""What a classifier of texts reads: the first position, or the mean of all tokens."""

_POOLINGS: tuple[Pooling, ...] = ("cls", "mean")


@dataclass(frozen=True, kw_only=True, slots=True)
class ModernBertConfig:
    """A ModernBERT encoder; the defaults are those of ModernBERT-base.

    Args:
        vocab_size: rows of the table of learned embeddings.
        d_model: size of the residual stream (`hidden_size`).
        num_layers: encoder layers (`num_hidden_layers`).
        num_heads: heads a layer (`num_attention_heads`).
        d_ff: size inside the feed-forward network (`intermediate_size`).
        max_seq_len: the length it was made for (`max_position_embeddings`); longer texts are not refused.
        rope: how positions turn queries and keys, by type of layer.
        layer_types: for each layer "full_attention" or "sliding_attention".
        local_attention: width of the window of a sliding layer, half of it on either side of a query.
        activation: of the feed-forward network's gate (`hidden_activation`).
        norm_eps: added to the variance by every layer norm.
        norm_bias, attention_bias, ffn_bias: whether norms, and linear layers, have a bias (`mlp_bias`).
        embedding_dropout_p, attention_dropout_p, ffn_dropout_p: in training.
        head: what the checkpoint's head is for, or None.
        head_bias, output_bias: whether the head's first layer has a bias, and the layer to the vocabulary
            (`classifier_bias`, `decoder_bias`).
        head_activation: between a head's layers (`classifier_activation`).
        pooling: what a classifier of texts reads (`classifier_pooling`).
        num_labels, classifier_dropout_p: of a classifier.
        pad_token_id: what fills up a text.
        tie_word_embeddings: whether the masked-LM head's output is the table of learned embeddings.

    Example:
        >>> ModernBertConfig().layer_types[:3]
        ('full_attention', 'sliding_attention', 'sliding_attention')
    """

    vocab_size: int = 50368
    d_model: int = 768
    num_layers: int = 22
    num_heads: int = 12
    d_ff: int = 1152
    max_seq_len: int = 8192
    rope: Mapping[str, Rotary] = field(
        default_factory=lambda: {FULL: Rotary(64, base=160_000.0), SLIDING: Rotary(64, base=10_000.0)}
    )
    layer_types: tuple[str, ...] = (FULL, SLIDING, SLIDING) * 7 + (FULL,)
    local_attention: int = 128
    activation: str = "gelu"
    norm_eps: float = 1e-5
    norm_bias: bool = False
    attention_bias: bool = False
    ffn_bias: bool = False
    embedding_dropout_p: float = 0.0
    attention_dropout_p: float = 0.0
    ffn_dropout_p: float = 0.0
    head: HeadKind | None = None
    head_bias: bool = False
    output_bias: bool = True
    head_activation: str = "gelu"
    pooling: Pooling = "cls"
    num_labels: int = 2
    classifier_dropout_p: float = 0.0
    pad_token_id: int | None = 50283
    tie_word_embeddings: bool = True

    @property
    def num_token_types(self) -> int:
        """0: ModernBERT has no token types."""
        return 0

    @classmethod
    def from_hf(cls, fields: Fields, tensors: Collection[str]) -> "ModernBertConfig":
        """Read config.json.

        Raises:
            CheckpointError: fields that are missing, wrong, unknown, or ask for another architecture.
        """
        num_layers = fields.require("num_hidden_layers", int)
        d_model = fields.require("hidden_size", int)
        num_heads = fields.require("num_attention_heads", int)
        max_seq_len = fields.get("max_position_embeddings", int, 8192)
        window = read_window(fields, "local_attention", 128)
        config = cls(
            vocab_size=fields.require("vocab_size", int),
            d_model=d_model,
            num_layers=num_layers,
            num_heads=num_heads,
            d_ff=fields.require("intermediate_size", int),
            max_seq_len=max_seq_len,
            rope=read_rope(fields, _ROPE, head_dim=d_model // max(1, num_heads), max_seq_len=max_seq_len),
            layer_types=read_layer_types(fields, _LAYERS, num_layers=num_layers, window=window),
            local_attention=128 if window is None else window,
            activation=fields.get("hidden_activation", str, "gelu"),
            norm_eps=fields.get("norm_eps", float, 1e-5),
            norm_bias=fields.get("norm_bias", bool, False),
            attention_bias=fields.get("attention_bias", bool, False),
            ffn_bias=fields.get("mlp_bias", bool, False),
            embedding_dropout_p=fields.get("embedding_dropout", float, 0.0),
            attention_dropout_p=fields.get("attention_dropout", float, 0.0),
            ffn_dropout_p=fields.get("mlp_dropout", float, 0.0),
            head_bias=fields.get("classifier_bias", bool, False),
            output_bias=fields.get("decoder_bias", bool, True),
            head_activation=fields.get("classifier_activation", str, "gelu"),
            pooling=fields.expect("classifier_pooling", _POOLINGS, "cls"),
            classifier_dropout_p=fields.get("classifier_dropout", float, 0.0),
            pad_token_id=fields.get_or_null("pad_token_id", int, 50283),
            tie_word_embeddings=fields.get("tie_word_embeddings", bool, True),
            **read_head(fields, tensors, _STARTS),
        )
        fields.done(INERT | _INERT_HERE)
        return config

    def to_hf(self) -> dict[str, Any]:
        """The fields of config.json."""
        return {
            "architectures": [_CLASSES[self.head]],
            "model_type": "modernbert",
            "vocab_size": self.vocab_size,
            "hidden_size": self.d_model,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "intermediate_size": self.d_ff,
            "max_position_embeddings": self.max_seq_len,
            **write_rope(self.rope, _ROPE),
            "layer_types": list(self.layer_types),
            "local_attention": self.local_attention,
            "hidden_activation": self.activation,
            "norm_eps": self.norm_eps,
            "norm_bias": self.norm_bias,
            "attention_bias": self.attention_bias,
            "mlp_bias": self.ffn_bias,
            "embedding_dropout": self.embedding_dropout_p,
            "attention_dropout": self.attention_dropout_p,
            "mlp_dropout": self.ffn_dropout_p,
            "classifier_bias": self.head_bias,
            "decoder_bias": self.output_bias,
            "classifier_activation": self.head_activation,
            "classifier_pooling": self.pooling,
            "classifier_dropout": self.classifier_dropout_p,
            "num_labels": self.num_labels,
            "pad_token_id": self.pad_token_id,
            "tie_word_embeddings": self.tie_word_embeddings,
        }
