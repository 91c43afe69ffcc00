"""The sizes of a Llama, Mistral, Qwen 2 or Qwen 3 model, and the fields of config.json that give them."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from regard.checkpoints import INERT, Fields, HeadKind, head_of, num_labels
from regard.models._layer_types import (
    FULL,
    SLIDING,
    AllLayers,
    LaterLayers,
    LayerRule,
    read_layer_types,
    read_window,
)
from regard.models._rope import read_rope, write_rope
from regard.positions import Rotary


@dataclass(frozen=True, kw_only=True)
class _Member:
    """What the code of one `model_type` fixes, or lets its files say.

    Args:
        stem: how the names of its classes begin.
        layers: which layers slide.
        qkv_bias, output_bias: whether projections have a bias; None where the file says.
        has_ffn_bias: whether the file may ask for biases in the feed-forward network.
        has_head_dim: whether the file may give the size of a head.
        qk_norm: whether queries and keys are normed.
        has_window: whether the file may give one, in `sliding_window`.
        window_switch: the field that turns it on.
        num_kv_heads, head_dim, max_seq_len: the defaults; None for as many as query heads, and for what they
            leave each.
    """

    stem: str
    layers: LayerRule
    qkv_bias: bool | None = None
    output_bias: bool | None = None
    has_ffn_bias: bool = False
    qk_norm: bool = False
    has_window: bool = True
    window_switch: str | None = "use_sliding_window"
    num_kv_heads: int | None = 32
    head_dim: int | None = None
    max_seq_len: int = 32768


_MEMBERS = {
    "llama": _Member(
        stem="Llama",
        has_ffn_bias=True,
        has_window=False,
        window_switch=None,
        layers=AllLayers(),
        num_kv_heads=None,
        max_seq_len=2048,
    ),
    "mistral": _Member(
        stem="Mistral",
        qkv_bias=False,
        output_bias=False,
        window_switch=None,
        layers=AllLayers(),
        num_kv_heads=8,
        max_seq_len=4096 * 32,
    ),
    "qwen2": _Member(
        stem="Qwen2", layers=LaterLayers("max_window_layers", 28), qkv_bias=True, output_bias=False
    ),
    "qwen3": _Member(stem="Qwen3", layers=LaterLayers("max_window_layers", 28), qk_norm=True, head_dim=128),
}

# What SmolLM's training code calls itself; the first Llamas' name for `max_position_embeddings`, which their
# rotary embeddings need no more than that one; and into how many an old version splits a matrix product.
_INERT_HERE = frozenset({"is_llama_config", "max_sequence_length", "pretraining_tp"})


@dataclass(frozen=True, kw_only=True, slots=True)
class LlamaConfig:
    """A decoder built like Llama; the defaults are those of Llama 7B.

    Args:
        model_type: "llama", "mistral", "qwen2" or "qwen3".
        vocab_size: rows of the table of learned embeddings.
        d_model: size of the residual stream (`hidden_size`).
        num_layers: layers (`num_hidden_layers`).
        num_heads: query heads a layer (`num_attention_heads`).
        num_kv_heads: key and value heads a layer (`num_key_value_heads`).
        head_dim: size of a query, key and value.
        d_ff: size inside the feed-forward network (`intermediate_size`).
        max_seq_len: the length it was made for (`max_position_embeddings`); longer texts are not refused.
        rotary: how positions turn queries and keys.
        layer_types: for each layer "full_attention" or "sliding_attention".
        sliding_window: how many tokens, itself included, a query of a sliding layer sees; None without one.
        activation: of the feed-forward network (`hidden_act`).
        norm_eps: added to the mean of squares by every norm (`rms_norm_eps`).
        qkv_bias, output_bias, ffn_bias: whether linear layers have a bias.
        qk_norm: whether queries and keys are normed.
        attention_dropout_p: in training, on attention weights.
        head: what the checkpoint's head is for, or None.
        num_labels, classifier_dropout_p: of a classifier.
        pad_token_id: what fills up a text; a classifier of texts reads the token before.
        tie_word_embeddings: whether the output layer is the table of learned embeddings.

    Example:
        >>> LlamaConfig().head_dim
        128
    """

    model_type: str = "llama"
    vocab_size: int = 32000
    d_model: int = 4096
    num_layers: int = 32
    num_heads: int = 32
    num_kv_heads: int = 32
    head_dim: int = 128
    d_ff: int = 11008
    max_seq_len: int = 2048
    rotary: Rotary = field(default_factory=lambda: Rotary(128, base=10_000.0))
    layer_types: tuple[str, ...] = (FULL,) * 32
    sliding_window: int | None = None
    activation: str = "silu"
    norm_eps: float = 1e-6
    qkv_bias: bool = False
    output_bias: bool = False
    ffn_bias: bool = False
    qk_norm: bool = False
    attention_dropout_p: float = 0.0
    head: HeadKind | None = "language-model"
    num_labels: int = 2
    classifier_dropout_p: float = 0.1
    pad_token_id: int | None = None
    tie_word_embeddings: bool = False

    @property
    def num_token_types(self) -> int:
        """0: none of them has token types."""
        return 0

    @classmethod
    def from_hf(cls, fields: Fields, tensors: Collection[str]) -> "LlamaConfig":
        """Read config.json."""
        del tensors
        model_type = fields.require("model_type", str)
        member = _MEMBERS[model_type]
        num_layers = fields.require("num_hidden_layers", int)
        num_heads = fields.require("num_attention_heads", int)
        d_model = fields.require("hidden_size", int)
        head_dim = fields.get("head_dim", int, None)
        if head_dim is None:
            head_dim = member.head_dim or d_model // max(1, num_heads)
        max_seq_len = fields.get("max_position_embeddings", int, member.max_seq_len)
        window = None
        if member.has_window:
            window = read_window(fields, "sliding_window", 4096, switch=member.window_switch)
        bias = fields.get("attention_bias", bool, False) if member.qkv_bias is None else None
        fields.expect("rope_interleaved", (False,), default=False)
        fields.expect("use_mrope", (False,), default=False)
        kv_heads = fields.get_or_null("num_key_value_heads", int, member.num_kv_heads)
        config = cls(
            model_type=model_type,
            vocab_size=fields.require("vocab_size", int),
            d_model=d_model,
            num_layers=num_layers,
            num_heads=num_heads,
            num_kv_heads=num_heads if kv_heads is None else kv_heads,
            head_dim=head_dim,
            d_ff=fields.require("intermediate_size", int),
            max_seq_len=max_seq_len,
            rotary=read_rope(fields, head_dim=head_dim, max_seq_len=max_seq_len)[FULL],
            layer_types=read_layer_types(fields, member.layers, num_layers=num_layers, window=window),
            sliding_window=window,
            activation=fields.get("hidden_act", str, "silu"),
            norm_eps=fields.get("rms_norm_eps", float, 1e-6),
            qkv_bias=bool(bias if member.qkv_bias is None else member.qkv_bias),
            output_bias=bool(bias if member.output_bias is None else member.output_bias),
            ffn_bias=fields.get("mlp_bias", bool, False) if member.has_ffn_bias else False,
            qk_norm=member.qk_norm,
            attention_dropout_p=fields.get("attention_dropout", float, None) or 0.0,
            head=head_of(fields),
            num_labels=num_labels(fields),
            classifier_dropout_p=fields.get("classifier_dropout", float, 0.1),
            pad_token_id=fields.get("pad_token_id", int, None),
            tie_word_embeddings=fields.get("tie_word_embeddings", bool, False),
        )
        fields.done(INERT | _INERT_HERE)
        return config

    def to_hf(self) -> dict[str, Any]:
        """The fields of config.json."""
        member = _MEMBERS[self.model_type]
        endings: dict[HeadKind | None, str] = {
            None: "Model",
            "language-model": "ForCausalLM",
            "sequence": "ForSequenceClassification",
            "token": "ForTokenClassification",
        }
        written: dict[str, Any] = {
            "architectures": [member.stem + endings[self.head]],
            "model_type": self.model_type,
            "vocab_size": self.vocab_size,
            "hidden_size": self.d_model,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "intermediate_size": self.d_ff,
            "max_position_embeddings": self.max_seq_len,
            "hidden_act": self.activation,
            "rms_norm_eps": self.norm_eps,
            "attention_dropout": self.attention_dropout_p,
            "num_labels": self.num_labels,
            "classifier_dropout": self.classifier_dropout_p,
            "pad_token_id": self.pad_token_id,
            "tie_word_embeddings": self.tie_word_embeddings,
            **write_rope({FULL: self.rotary, SLIDING: self.rotary}),
        }
        if self.model_type != "qwen2" or self.head_dim * self.num_heads != self.d_model:
            written["head_dim"] = self.head_dim
        if member.qkv_bias is None:
            written["attention_bias"] = self.qkv_bias
        if member.has_ffn_bias:
            written["mlp_bias"] = self.ffn_bias
        if member.has_window:
            written["sliding_window"] = self.sliding_window
        if member.window_switch is not None:
            written["use_sliding_window"] = self.sliding_window is not None
            written["layer_types"] = list(self.layer_types)
        return written
