"""Expire-Span (Sukhbaatar et al. 2021): a decoder whose attention forgets, in every layer by itself."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from regard.blocks import (
    Embeddings,
    ExpireSpanAttention,
    GatedFeedForward,
    Pattern,
    PreNorm,
    RMSNorm,
    SelfAttentionLayer,
    Stack,
)
from regard.checkpoints import KeyMap, Rename
from regard.core import Causal
from regard.core.errors import InputError
from regard.models._config import DecoderConfig, Rate, Size, Small, check_sizes, hf
from regard.models._heads import decoder_head
from regard.models._init import Constant, Scheme
from regard.models._transformer import Transformer
from regard.models.families._family import Family
from regard.models.families.llama import LLAMA_KEYS
from regard.positions import Rotary


@dataclass(frozen=True, kw_only=True)
class ExpireSpanConfig(DecoderConfig):
    """A decoder with Expire-Span; around its attention it is built like Llama.

    Args:
        max_seq_len: the length it was made for; longer texts are not refused.
        max_span: L, the longest span of a position, in positions.
        ramp: R, over how many positions it fades after its span.
        span_penalty: alpha, by which training for the next token multiplies the mean span, summed over the
            layers, before it adds it to the loss.
        initial_span: the mean share of L before training.
        rope_base: of the rotary positions.
        norm_eps: added to the mean of squares by every norm.
        attention_dropout_p: in training, on attention weights.

    The others are those of `DecoderConfig`. `transformers` has no such model, and refuses its files.
    """

    STEMS = {"expire-span": "ExpireSpan"}

    vocab_size: Size = hf("vocab_size", 32000, is_required=True)
    d_model: Size = hf("hidden_size", 512, is_required=True)
    num_layers: Size = hf("num_hidden_layers", 8, is_required=True)
    num_heads: Size = hf("num_attention_heads", 8, is_required=True)
    d_ff: Size = hf("intermediate_size", 1536, is_required=True)
    max_seq_len: Size = hf("max_position_embeddings", 2048)
    max_span: int = hf("max_span", 1024, is_required=True)
    ramp: int = hf("span_ramp", 64, is_required=True)
    span_penalty: Small = hf("span_penalty", 1e-6, is_shown=False)
    initial_span: float = hf("initial_span", 0.5, is_shown=False)
    rope_base: float = hf("rope_theta", 10_000.0)
    activation: str = hf("hidden_act", "silu")
    norm_eps: Small = hf("rms_norm_eps", 1e-6)
    attention_dropout_p: Rate = hf("attention_dropout", 0.0)

    def initial(self) -> Scheme:
        # Spans begin at this share of the longest.
        share = self.initial_span
        return {
            "*.attention.span.weight": Constant(0.0),
            # The logit of the share: with weights of 0 every span is sigmoid(bias) L.
            "*.attention.span.bias": Constant(math.log(share / (1.0 - share))),
        }

    def penalties(self) -> Mapping[str, float]:
        # Added to the loss: without it nothing need be forgotten.
        return {"spans": self.span_penalty} if self.span_penalty else {}


def build(config: ExpireSpanConfig) -> Transformer:
    """A decoder that predicts the next token.

    Raises:
        InputError: sizes that no network can have; spans, a ramp or a penalty outside the paper's domain.

    Source: Sukhbaatar et al. 2021, arXiv 2105.06548, section 4; relative positions, which the paper asks for,
    are rotary here.
    """
    check_sizes(config)
    if not 0.0 < config.initial_span < 1.0:
        raise InputError(f"initial_span must be above 0 and below 1; got {config.initial_span}.")
    embeddings = Embeddings(config.vocab_size, config.d_model, pad_id=config.pad_row)
    # The relative positions that the paper asks for.
    rotary = Rotary(config.d_model // config.num_heads, base=config.rope_base)
    stack = Stack(
        embeddings,
        [_layer(config) for _ in range(config.num_layers)],
        patterns=[Pattern(mask=Causal(), rotary=rotary)] * config.num_layers,
        norm=_norm(config),
    )
    return Transformer(config, decoder=stack, head=decoder_head(config, embeddings.tokens))


def _layer(config: ExpireSpanConfig) -> SelfAttentionLayer:
    return SelfAttentionLayer(
        ExpireSpanAttention(
            config.d_model,
            config.num_heads,
            max_span=config.max_span,
            ramp=config.ramp,
            use_bias=False,
            dropout_p=config.attention_dropout_p,
        ),
        # As Llama has it.
        GatedFeedForward(config.d_model, config.d_ff, activation=config.activation),
        attention_residual=PreNorm(_norm(config)),
        ffn_residual=PreNorm(_norm(config)),
    )


def _norm(config: ExpireSpanConfig) -> RMSNorm:
    return RMSNorm(config.d_model, eps=config.norm_eps)


EXPIRE_SPAN_KEYS = KeyMap(
    rules=(
        *LLAMA_KEYS.rules,
        Rename("layers.{layer}.self_attn.span.{part}", "decoder.layers.{layer}.attention.span.{part}"),
    ),
    prefixes=LLAMA_KEYS.prefixes,
    heads=("lm_head.", "score."),
)
"""Llama's names, and those of the spans."""

FAMILIES = (Family("expire-span", ExpireSpanConfig, build, EXPIRE_SPAN_KEYS),)
