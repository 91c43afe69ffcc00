"""Gemma 2 and Gemma 3, text only (Gemma Team 2024, 2025)."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from regard.blocks import (
    Embeddings,
    GatedFeedForward,
    MultiHeadAttention,
    Pattern,
    RMSNorm,
    SandwichNorm,
    SelfAttentionLayer,
    Stack,
)
from regard.checkpoints import Fields, GGUFFile, HeadKind, KeyMap, Rename
from regard.core import Causal, Mask, Window
from regard.core.arguments import Positive
from regard.core.errors import CheckpointError
from regard.models._config import DecoderConfig, Rate, Size, Small, check_sizes, hf
from regard.models._heads import decoder_head
from regard.models._transformer import Transformer
from regard.models.families._family import Family
from regard.models.families._gguf import Architecture
from regard.models.families._layer_types import FULL, SLIDING, OneInEvery, read_layer_types, read_window
from regard.models.families._rope import ROTARY_BUFFERS, RopeSpelling, Theta, read_rope, write_rope
from regard.models.families.llama import GGUF_LLAMA_FIELDS, GGUF_LLAMA_NAMES, LLAMA_RULES, gguf_sizes
from regard.positions import Rotary


@dataclass(frozen=True, kw_only=True)
class _Member:
    """What the code of one `model_type` fixes."""

    layers: OneInEvery
    rope: RopeSpelling
    max_seq_len: int
    is_gemma3: bool


_MEMBERS = {
    "gemma2": _Member(
        layers=OneInEvery(2),
        rope=RopeSpelling(),
        max_seq_len=8192,
        is_gemma3=False,
    ),
    "gemma3_text": _Member(
        layers=OneInEvery(6, field="sliding_window_pattern"),
        rope=RopeSpelling(
            Theta("rope_theta", 1_000_000.0), Theta("rope_local_base_freq", 10_000.0, is_scaled=False)
        ),
        max_seq_len=131_072,
        is_gemma3=True,
    ),
}


@dataclass(frozen=True, kw_only=True)
class GemmaConfig(DecoderConfig):
    """A Gemma 2 or a text-only Gemma 3; the defaults are those of Gemma 2 2B.

    Args:
        model_type: "gemma2" or "gemma3_text".
        num_heads, num_kv_heads: query heads, and key and value heads, a layer.
        head_dim: size of a query, key and value.
        max_seq_len: the length it was made for (`max_position_embeddings`); longer texts are not refused.
        rope: how positions turn queries and keys, by type of layer.
        layer_types: for each layer "full_attention" or "sliding_attention".
        sliding_window: how many tokens, itself included, a query of a sliding layer sees.
        is_bidirectional: whether queries see what follows as well (EmbeddingGemma); the window then lies half
            before and half after them.
        query_scalar: scores are divided by its root (`query_pre_attn_scalar`).
        softcap: bound of the scaled scores (`attn_logit_softcapping`).
        final_softcap: bound of the logits (`final_logit_softcapping`).
        norm_eps: added to the mean of squares by every norm (`rms_norm_eps`).
        attention_bias: whether the projections have a bias.
        attention_dropout_p: in training, on attention weights.

    The others are those of `DecoderConfig`.
    """

    STEMS = {"gemma2": "Gemma2", "gemma3_text": "Gemma3"}
    # Which kind of cache the generator makes.
    IGNORED_FIELDS = frozenset({"cache_implementation"})

    model_type: Literal["gemma2", "gemma3_text"] = hf("model_type", "gemma2")
    vocab_size: Size = hf("vocab_size", 256000, is_required=True)
    d_model: Size = hf("hidden_size", 2304, is_required=True)
    num_layers: Size = hf("num_hidden_layers", 26, is_required=True)
    num_heads: Size = hf("num_attention_heads", 8, is_required=True)
    num_kv_heads: Size = hf("num_key_value_heads", 4)
    head_dim: Size = hf("head_dim", 256)
    d_ff: Size = hf("intermediate_size", 9216, is_required=True)
    max_seq_len: Size = hf("max_position_embeddings", 8192, is_derived=True)
    rope: Mapping[str, Rotary] = field(
        default_factory=lambda: dict.fromkeys((FULL, SLIDING), Rotary(256, base=10_000.0))
    )
    layer_types: tuple[str, ...] = (SLIDING, FULL) * 13
    sliding_window: int = hf("sliding_window", 4096, is_derived=True)
    is_bidirectional: bool = False
    query_scalar: Positive = hf("query_pre_attn_scalar", 256.0)
    softcap: float | None = hf("attn_logit_softcapping", 50.0, is_derived=True)
    final_softcap: float | None = hf("final_logit_softcapping", 30.0, is_derived=True)
    activation: str = hf("hidden_activation", "gelu_pytorch_tanh")
    norm_eps: Small = hf("rms_norm_eps", 1e-6)
    attention_bias: bool = hf("attention_bias", False)
    attention_dropout_p: Rate = hf("attention_dropout", 0.0, null=0.0)
    pad_token_id: int | None = hf("pad_token_id", 0)

    @property
    def qk_norm(self) -> bool:
        """Whether queries and keys are normed: Gemma 3, in place of Gemma 2's soft cap."""
        return _MEMBERS[self.model_type].is_gemma3

    @classmethod
    def derived(cls, fields: Fields, tensors: Collection[str], read: Mapping[str, Any]) -> dict[str, Any]:
        # What the two generations do differently.
        member, num_layers = _MEMBERS[read["model_type"]], read["num_layers"]
        # transformers has no class to compare with.
        if member.is_gemma3 and read["head"] == "token":
            raise CheckpointError(
                f"{fields.file}: the field 'architectures' names a classifier of tokens, which transformers "
                "does not have for gemma3_text, so that nothing says how it reads; got "
                f"{fields.values.get('architectures')}"
            )
        max_seq_len = fields.get("max_position_embeddings", int, member.max_seq_len)
        window = read_window(fields, "sliding_window", 4096)
        # The first Gemma files say "gelu" here, and every version of the code has read `hidden_activation`.
        fields.get("hidden_act", str, None)
        # The code of Gemma 2 hands this on to no mask; that of Gemma 3 never reads the cap of the scores.
        if member.is_gemma3:
            is_bidirectional = fields.get("use_bidirectional_attention", bool, None) or False
            softcap = fields.expect("attn_logit_softcapping", (None,), default=None)
        else:
            is_bidirectional = False
            fields.expect("use_bidirectional_attention", (None, False), default=None)
            softcap = fields.get_or_null("attn_logit_softcapping", float, 50.0)
        cap = None if member.is_gemma3 else 30.0  # as in their classes, where a file has none
        return {
            "max_seq_len": max_seq_len,
            "rope": read_rope(fields, member.rope, head_dim=read["head_dim"], max_seq_len=max_seq_len),
            "layer_types": read_layer_types(fields, member.layers, num_layers=num_layers, window=window),
            "sliding_window": 4096 if window is None else window,
            "is_bidirectional": is_bidirectional,
            "softcap": softcap,
            "final_softcap": fields.get_or_null("final_logit_softcapping", float, cap),
        }

    def endings(self) -> Mapping[HeadKind | None, str]:
        """See `FamilyConfig`; Gemma 3 has no classifier of tokens."""
        if not _MEMBERS[self.model_type].is_gemma3:
            return self.ENDINGS
        sequence = "TextForSequenceClassification"
        return {None: "TextModel", "language-model": "ForCausalLM", "sequence": sequence}

    def extra(self) -> dict[str, Any]:
        member = _MEMBERS[self.model_type]
        written = write_rope(self.rope, member.rope) | {
            "layer_types": list(self.layer_types),
            "query_pre_attn_scalar": _whole(self.query_scalar),
        }
        if member.is_gemma3:
            written["use_bidirectional_attention"] = self.is_bidirectional
        return written


def _whole(value: float) -> float:
    """As an int where it is one, which is what the code of transformers has the field as."""
    return int(value) if value == int(value) else value


def build(config: GemmaConfig) -> Transformer:
    """A decoder that predicts the next token; a bidirectional one is an encoder in all but name.

    Source: Gemma Team 2024, arXiv 2408.00118, section 2; Gemma Team 2025, arXiv 2503.19786, section 2.1.
    """
    check_sizes(config)
    # Embeddings times sqrt(d_model), rounded to the model's type first.
    embeddings = Embeddings(
        config.vocab_size, config.d_model, scale=math.sqrt(config.d_model), pad_id=config.pad_row
    )
    # One pattern for each type of layer, shared by all of that type.
    masks = {FULL: None if config.is_bidirectional else Causal(), SLIDING: _window(config)}
    patterns = {kind: Pattern(mask=masks[kind], rotary=rotary) for kind, rotary in config.rope.items()}
    stack = Stack(
        embeddings,
        [_layer(config) for _ in range(config.num_layers)],
        patterns=[patterns[kind] for kind in config.layer_types],
        norm=_norm(config, config.d_model),
    )
    return Transformer(
        config, decoder=stack, head=decoder_head(config, embeddings.tokens, softcap=config.final_softcap)
    )


def _window(config: GemmaConfig) -> Mask:
    if config.is_bidirectional:  # transformers says w // 2 + 1, and leaves that distance out
        return Window(left=config.sliding_window // 2, right=config.sliding_window // 2)
    # The width counts the query itself.
    return Causal() & Window(left=config.sliding_window - 1)


def _layer(config: GemmaConfig) -> SelfAttentionLayer:
    return SelfAttentionLayer(
        MultiHeadAttention(
            config.d_model,
            config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            use_bias=config.attention_bias,
            # In place of 1 / sqrt(head_dim).
            scale=config.query_scalar**-0.5,
            softcap=config.softcap,
            q_norm=_norm(config, config.head_dim) if config.qk_norm else None,
            k_norm=_norm(config, config.head_dim) if config.qk_norm else None,
            dropout_p=config.attention_dropout_p,
        ),
        GatedFeedForward(config.d_model, config.d_ff, activation=config.activation),
        attention_residual=_residual(config),
        ffn_residual=_residual(config),
    )


def _residual(config: GemmaConfig) -> SandwichNorm:
    # Norms before and after each sublayer.
    return SandwichNorm(_norm(config, config.d_model), _norm(config, config.d_model))


def _norm(config: GemmaConfig, size: int) -> RMSNorm:
    return RMSNorm(size, eps=config.norm_eps, offset=1.0)  # what is stored is the distance from 1


_LAYER = "decoder.layers.{layer}"

GEMMA_KEYS = KeyMap(
    rules=(
        *LLAMA_RULES,
        Rename("layers.{layer}.input_layernorm.weight", f"{_LAYER}.attention_residual.before.weight"),
        Rename("layers.{layer}.post_attention_layernorm.weight", f"{_LAYER}.attention_residual.after.weight"),
        Rename("layers.{layer}.pre_feedforward_layernorm.weight", f"{_LAYER}.ffn_residual.before.weight"),
        Rename("layers.{layer}.post_feedforward_layernorm.weight", f"{_LAYER}.ffn_residual.after.weight"),
    ),
    prefixes=("model.",),
    heads=("lm_head.", "score.", "qa_outputs."),
    buffers=ROTARY_BUFFERS
    | {"embed_tokens.embed_scale": lambda at, to: abs(at**2 / to.config.d_model - 1) < 0.02},
)
"""Gemma's names on disk and in the network."""


_BLOCK, _THEIRS = "blk.{layer}", "layers.{layer}"

_NAMES = (
    *GGUF_LLAMA_NAMES,
    Rename(f"{_BLOCK}.post_attention_norm.weight", f"{_THEIRS}.post_attention_layernorm.weight"),
    Rename(f"{_BLOCK}.ffn_norm.weight", f"{_THEIRS}.pre_feedforward_layernorm.weight"),
    Rename(f"{_BLOCK}.post_ffw_norm.weight", f"{_THEIRS}.post_feedforward_layernorm.weight"),
)


def _gguf_scalar(fields: Fields, largest: int) -> dict[str, Any]:
    """What scores are divided by the root of; no file says it. It is the size of a head, but for the largest
    model of each generation, which is told by its layers, as in llama.cpp."""
    # The largest model divides by d_model / heads, the others by the size of a head.
    heads, width = fields.require("attention.head_count", int), fields.require("embedding_length", int)
    is_largest = fields.require("block_count", int) == largest
    size = width // max(1, heads) if is_largest else fields.get("attention.key_length", int, 256)
    return {"query_pre_attn_scalar": size}


def _gguf_gemma2(fields: Fields, file: GGUFFile) -> dict[str, Any]:
    return gguf_sizes(fields, file) | _gguf_scalar(fields, largest=46)


def _gguf_gemma3(fields: Fields, file: GGUFFile) -> dict[str, Any]:
    period = fields.get("attention.sliding_window_pattern", int, 6)
    local = fields.get("rope.freq_base_swa", float, 10_000.0)
    return (
        gguf_sizes(fields, file)
        | _gguf_scalar(fields, largest=62)
        | {"rope_local_base_freq": local, "sliding_window_pattern": period}
    )


_FIELDS = GGUF_LLAMA_FIELDS | {
    "attention.sliding_window": "sliding_window",
    "final_logit_softcapping": "final_logit_softcapping",
}

GEMMA_GGUF = {
    "gemma2": Architecture(
        model_type="gemma2",
        class_name="Gemma2ForCausalLM",
        fields=_FIELDS | {"attn_logit_softcapping": "attn_logit_softcapping"},
        names=_NAMES,
        more=_gguf_gemma2,
        norm_offset=1.0,
    ),
    "gemma3": Architecture(
        model_type="gemma3_text",
        class_name="Gemma3ForCausalLM",
        fields=_FIELDS,
        names=_NAMES,
        more=_gguf_gemma3,
        norm_offset=1.0,
    ),
}
"""Files of Gemma, in which norms have their whole weight and not its distance from 1."""

FAMILIES = tuple(
    Family(name, GemmaConfig, build, GEMMA_KEYS, read_by="GemmaTokenizer", heads_divide=True, live=True)
    for name in _MEMBERS
)
