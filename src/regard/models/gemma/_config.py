"""The sizes of a Gemma 2 or 3, and the fields of config.json that give them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from regard.checkpoints import INERT, Fields, HeadKind, head_of, num_labels
from regard.core.errors import CheckpointError, InputError
from regard.models._layer_types import FULL, SLIDING, OneInEvery, read_layer_types, read_window
from regard.models._rope import RopeSpelling, Theta, read_rope, write_rope
from regard.positions import Rotary


@dataclass(frozen=True, kw_only=True)
class _Member:
    """What the code of one `model_type` fixes."""

    stem: str
    sequence_stem: str
    layers: OneInEvery
    rope: RopeSpelling
    max_seq_len: int
    is_gemma3: bool


_MEMBERS = {
    "gemma2": _Member(
        stem="Gemma2",
        sequence_stem="Gemma2",
        layers=OneInEvery(2),
        rope=RopeSpelling(),
        max_seq_len=8192,
        is_gemma3=False,
    ),
    "gemma3_text": _Member(
        stem="Gemma3",
        sequence_stem="Gemma3Text",
        layers=OneInEvery(6, field="sliding_window_pattern"),
        rope=RopeSpelling(
            Theta("rope_theta", 1_000_000.0), Theta("rope_local_base_freq", 10_000.0, is_scaled=False)
        ),
        max_seq_len=131_072,
        is_gemma3=True,
    ),
}

# Which kind of cache the generator makes.
_INERT_HERE = frozenset({"cache_implementation"})


@dataclass(frozen=True, kw_only=True, slots=True)
class GemmaConfig:
    """A Gemma 2 or a text-only Gemma 3; the defaults are those of Gemma 2 2B.

    Args:
        model_type: "gemma2" or "gemma3_text".
        vocab_size: rows of the table of learned embeddings.
        d_model: size of the residual stream (`hidden_size`).
        num_layers: layers (`num_hidden_layers`).
        num_heads, num_kv_heads: query heads, and key and value heads, a layer.
        head_dim: size of a query, key and value.
        d_ff: size inside the feed-forward network (`intermediate_size`).
        max_seq_len: the length it was made for (`max_position_embeddings`); longer texts are not refused.
        rope: how positions turn queries and keys, by type of layer.
        layer_types: for each layer "full_attention" or "sliding_attention".
        sliding_window: how many tokens, itself included, a query of a sliding layer sees.
        is_bidirectional: whether queries see what follows as well (EmbeddingGemma); the window then lies half
            before and half after them.
        query_scalar: scores are divided by its root (`query_pre_attn_scalar`).
        softcap: bound of the scaled scores (`attn_logit_softcapping`).
        final_softcap: bound of the logits (`final_logit_softcapping`).
        activation: of the feed-forward network (`hidden_activation`).
        norm_eps: added to the mean of squares by every norm (`rms_norm_eps`).
        attention_bias: whether the projections have a bias.
        attention_dropout_p: in training, on attention weights.
        head: what the checkpoint's head is for, or None.
        num_labels, classifier_dropout_p: of a classifier.
        pad_token_id: what fills up a text; a classifier of texts reads the token before.
        tie_word_embeddings: whether the output layer is the table of learned embeddings.

    Example:
        >>> GemmaConfig().layer_types[:2]
        ('sliding_attention', 'full_attention')
    """

    model_type: str = "gemma2"
    vocab_size: int = 256000
    d_model: int = 2304
    num_layers: int = 26
    num_heads: int = 8
    num_kv_heads: int = 4
    head_dim: int = 256
    d_ff: int = 9216
    max_seq_len: int = 8192
    rope: Mapping[str, Rotary] = field(
        default_factory=lambda: dict.fromkeys((FULL, SLIDING), Rotary(256, base=10_000.0))
    )
    layer_types: tuple[str, ...] = (SLIDING, FULL) * 13
    sliding_window: int = 4096
    is_bidirectional: bool = False
    query_scalar: float = 256
    softcap: float | None = 50.0
    final_softcap: float | None = 30.0
    activation: str = "gelu_pytorch_tanh"
    norm_eps: float = 1e-6
    attention_bias: bool = False
    attention_dropout_p: float = 0.0
    head: HeadKind | None = "language-model"
    num_labels: int = 2
    classifier_dropout_p: float = 0.1
    pad_token_id: int | None = 0
    tie_word_embeddings: bool = True

    @property
    def num_token_types(self) -> int:
        """0: Gemma has no token types."""
        return 0

    @property
    def qk_norm(self) -> bool:
        """Whether queries and keys are normed: Gemma 3, in place of Gemma 2's soft cap."""
        return _MEMBERS[self.model_type].is_gemma3

    @classmethod
    def from_hf(cls, fields: Fields, tensors: Collection[str]) -> "GemmaConfig":
        """Read config.json.

        Raises:
            CheckpointError: fields that are missing, wrong, unknown, or ask for another architecture.
        """
        del tensors
        model_type = fields.require("model_type", str)
        member = _MEMBERS[model_type]
        num_layers = fields.require("num_hidden_layers", int)
        head_dim = fields.get("head_dim", int, 256)
        max_seq_len = fields.get("max_position_embeddings", int, member.max_seq_len)
        window = read_window(fields, "sliding_window", 4096)
        # The code of Gemma 2 hands this on to no mask; that of Gemma 3 never reads the cap of the scores.
        if member.is_gemma3:
            is_bidirectional = fields.get("use_bidirectional_attention", bool, None) or False
            fields.expect("attn_logit_softcapping", (None,), default=None)
            softcap = None
        else:
            is_bidirectional = False
            fields.expect("use_bidirectional_attention", (None, False), default=None)
            softcap = fields.get_or_null("attn_logit_softcapping", float, 50.0)
        config = cls(
            model_type=model_type,
            vocab_size=fields.require("vocab_size", int),
            d_model=fields.require("hidden_size", int),
            num_layers=num_layers,
            num_heads=fields.require("num_attention_heads", int),
            num_kv_heads=fields.get("num_key_value_heads", int, 4),
            head_dim=head_dim,
            d_ff=fields.require("intermediate_size", int),
            max_seq_len=max_seq_len,
            rope=read_rope(fields, member.rope, head_dim=head_dim, max_seq_len=max_seq_len),
            layer_types=read_layer_types(fields, member.layers, num_layers=num_layers, window=window),
            sliding_window=4096 if window is None else window,
            is_bidirectional=is_bidirectional,
            query_scalar=fields.get("query_pre_attn_scalar", float, 256.0),
            softcap=softcap,
            final_softcap=fields.get_or_null(
                "final_logit_softcapping", float, None if member.is_gemma3 else 30.0
            ),
            activation=_activation(fields),
            norm_eps=fields.get("rms_norm_eps", float, 1e-6),
            attention_bias=fields.get("attention_bias", bool, False),
            attention_dropout_p=fields.get("attention_dropout", float, None) or 0.0,
            head=_head(fields, member),
            num_labels=num_labels(fields),
            classifier_dropout_p=fields.get("classifier_dropout", float, 0.1),
            pad_token_id=fields.get_or_null("pad_token_id", int, 0),
            tie_word_embeddings=fields.get("tie_word_embeddings", bool, True),
        )
        fields.done(INERT | _INERT_HERE)
        return config

    def to_hf(self) -> dict[str, Any]:
        """The fields of config.json.

        Raises:
            InputError: a head that `transformers` has no class for.
        """
        member = _MEMBERS[self.model_type]
        names: dict[HeadKind | None, str] = {
            None: f"{member.sequence_stem}Model",
            "language-model": f"{member.stem}ForCausalLM",
            "sequence": f"{member.sequence_stem}ForSequenceClassification",
        }
        if not member.is_gemma3:
            names["token"] = f"{member.stem}ForTokenClassification"
        if self.head not in names:
            raise InputError(
                f"head must be one that transformers has for {self.model_type}: "
                f"{', '.join(str(name) for name in names)}; got {self.head!r}."
            )
        written: dict[str, Any] = {
            "architectures": [names[self.head]],
            "model_type": self.model_type,
            "vocab_size": self.vocab_size,
            "hidden_size": self.d_model,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "head_dim": self.head_dim,
            "intermediate_size": self.d_ff,
            "max_position_embeddings": self.max_seq_len,
            "layer_types": list(self.layer_types),
            "sliding_window": self.sliding_window,
            "query_pre_attn_scalar": _whole(self.query_scalar),
            "attn_logit_softcapping": self.softcap,
            "final_logit_softcapping": self.final_softcap,
            "hidden_activation": self.activation,
            "rms_norm_eps": self.norm_eps,
            "attention_bias": self.attention_bias,
            "attention_dropout": self.attention_dropout_p,
            "num_labels": self.num_labels,
            "classifier_dropout": self.classifier_dropout_p,
            "pad_token_id": self.pad_token_id,
            "tie_word_embeddings": self.tie_word_embeddings,
            **write_rope(self.rope, member.rope),
        }
        if member.is_gemma3:
            written["use_bidirectional_attention"] = self.is_bidirectional
        return written


def _head(fields: Fields, member: _Member) -> HeadKind | None:
    head = head_of(fields)
    if head == "token" and member.is_gemma3:
        raise CheckpointError(
            f"{fields.file}: the field 'architectures' names a classifier of tokens, which transformers does "
            "not have for gemma3_text, so that nothing says how it reads; got "
            f"{fields.values.get('architectures')}"
        )
    return head


def _whole(value: float) -> float:
    """As an int where it is one, which is what the code of transformers has the field as."""
    return int(value) if value == int(value) else value


def _activation(fields: Fields) -> str:
    # The first Gemma files say "gelu" here, and every version of the code has read `hidden_activation` alone.
    fields.get("hidden_act", str, None)
    return fields.get("hidden_activation", str, "gelu_pytorch_tanh")
