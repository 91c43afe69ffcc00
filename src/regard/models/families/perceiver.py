"""Perceiver IO (Jaegle et al. 2021): an encoder whose cost grows with the text as N M, not as N^2."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from types import MappingProxyType
from typing import ClassVar

from torch import nn

from regard.blocks import (
    ConcatenatedEmbeddings,
    CrossAttentionLayer,
    FeedForward,
    LatentStack,
    MultiHeadAttention,
    PreNorm,
    SelfAttentionLayer,
)
from regard.checkpoints import HeadKind, KeyMap, Rename
from regard.models._config import EncoderConfig, Rate, Size, Small, check_sizes, hf
from regard.models._heads import (
    Classifier,
    Head,
    LanguageModelHead,
    first_position,
    output_layer,
    token_classifier,
)
from regard.models._init import Normal, Scheme, XavierUniform
from regard.models._transformer import Transformer
from regard.models.families._family import Family
from regard.positions import FourierPositions, LearnedPositions


@dataclass(frozen=True, kw_only=True)
class PerceiverConfig(EncoderConfig):
    """A Perceiver IO over tokens: characters, as a rule, since a long input costs little.

    Args:
        d_model: size of the learned embeddings, of the output queries and of the output.
        num_latents, d_latents: M, and the size of a latent vector; None for d_model.
        num_layers, num_heads: of the self-attention among latents.
        num_cross_heads: of the two cross-attentions.
        num_bands: sines, and as many cosines, of each position.
        max_seq_len: the most positions that it takes.
        norm_eps: added to the variance by every norm.
        dropout_p, attention_dropout_p: in training, on sublayers, on weights.

    The others are those of `EncoderConfig`. `transformers` has a Perceiver of another build, and refuses
    these files.
    """

    STEMS = {"perceiver-io": "PerceiverIO"}
    STARTS: ClassVar[Mapping[HeadKind, str]] = MappingProxyType(
        {"masked-lm": "lm_head.", "sequence": "classifier.", "token": "classifier."}
    )

    vocab_size: Size = hf("vocab_size", 262, is_required=True)
    d_model: Size = hf("hidden_size", 256, is_required=True)
    num_latents: int = hf("num_latents", 128, is_required=True)
    d_latents: int | None = hf("latent_size", None)
    num_layers: Size = hf("num_hidden_layers", 6, is_required=True)
    num_heads: Size = hf("num_attention_heads", 8, is_required=True)
    num_cross_heads: int = hf("num_cross_attention_heads", 1)
    d_ff: Size = hf("intermediate_size", 1024, is_required=True)
    num_bands: int = hf("num_bands", 64)
    max_seq_len: Size = hf("max_position_embeddings", 2048, is_required=True)
    norm_eps: Small = hf("layer_norm_eps", 1e-5)
    dropout_p: Rate = hf("hidden_dropout_prob", 0.0)
    attention_dropout_p: Rate = hf("attention_probs_dropout_prob", 0.0)
    pad_token_id: int | None = hf("pad_token_id", None)

    def initial(self) -> Scheme:
        # Tokens vary as much as the sines beside them: smaller, the norm of the input would hide them.
        return {
            "*.embeddings.tokens.weight": Normal(sqrt(0.5)),
            "*.attention.*.weight": XavierUniform(),
            "*.ffn.*.weight": XavierUniform(),
        }


def build(config: PerceiverConfig) -> Transformer:
    """An encoder that predicts masked tokens, or labels texts or tokens.

    Raises:
        InputError: sizes that no network can have.

    Source: Jaegle et al. 2021, arXiv 2107.14795, sections 3 and 4.1: positions are Fourier features beside
    the input, an output query is a learned vector for its position, and logits are read off by the table of
    learned embeddings; a text's label is read off its first query.
    """
    check_sizes(config)
    # Latents may be wider than the tokens.
    d_latents = config.d_model if config.d_latents is None else config.d_latents
    positions = FourierPositions(config.max_seq_len, config.num_bands)
    embeddings = ConcatenatedEmbeddings(
        config.vocab_size, config.d_model, positions=positions, pad_id=config.pad_row
    )
    stack = LatentStack(
        embeddings,
        [_latent_layer(config, d_latents) for _ in range(config.num_layers)],
        # Source: tokens with the features of their positions behind them.
        read=_cross_layer(config, d_latents, config.d_model + positions.size),
        # Queries are positions, source the latents.
        write=_cross_layer(config, config.d_model, d_latents),
        num_latents=config.num_latents,
        d_latents=d_latents,
        queries=LearnedPositions(config.max_seq_len, config.d_model),
    )
    return Transformer(config, encoder=stack, head=_head(config, embeddings.tokens))


def _head(config: PerceiverConfig, tokens: nn.Embedding) -> Head | None:
    match config.head:
        case "masked-lm":
            # Straight to the vocabulary: no dense layer in between.
            return LanguageModelHead(output_layer(tokens, is_tied=config.tie_word_embeddings, use_bias=True))
        case "sequence":
            return Classifier(first_position, score=nn.Linear(config.d_model, config.num_labels))
        case "token":
            return token_classifier(config.d_model, config.num_labels, dropout_p=config.dropout_p)
    return None


def _latent_layer(config: PerceiverConfig, size: int) -> SelfAttentionLayer:
    return SelfAttentionLayer(
        MultiHeadAttention(size, config.num_heads, dropout_p=config.attention_dropout_p),
        FeedForward(size, config.d_ff, activation=config.activation),
        attention_residual=_residual(config, size),
        ffn_residual=_residual(config, size),
    )


def _cross_layer(config: PerceiverConfig, size: int, d_source: int) -> CrossAttentionLayer:
    return CrossAttentionLayer(
        MultiHeadAttention(
            size, config.num_cross_heads, d_source=d_source, dropout_p=config.attention_dropout_p
        ),
        FeedForward(size, config.d_ff, activation=config.activation),
        source_norm=nn.LayerNorm(d_source, eps=config.norm_eps),
        attention_residual=_residual(config, size),
        ffn_residual=_residual(config, size),
    )


def _residual(config: PerceiverConfig, size: int) -> PreNorm:
    return PreNorm(nn.LayerNorm(size, eps=config.norm_eps), dropout_p=config.dropout_p)


def _of_layer(theirs: str, ours: str) -> tuple[Rename, ...]:
    return (
        *(
            Rename(f"{theirs}.attention.{name}.{{part}}", f"{ours}.attention.{name}.{{part}}")
            for name in ("q", "k", "v", "output")
        ),
        Rename(f"{theirs}.attention_norm.{{part}}", f"{ours}.attention_residual.norm.{{part}}"),
        *(
            Rename(f"{theirs}.ffn.{name}.{{part}}", f"{ours}.ffn.{name}.{{part}}")
            for name in ("hidden", "output")
        ),
        Rename(f"{theirs}.ffn_norm.{{part}}", f"{ours}.ffn_residual.norm.{{part}}"),
        Rename(f"{theirs}.source_norm.{{part}}", f"{ours}.source_norm.{{part}}"),
    )


PERCEIVER_KEYS = KeyMap(
    rules=(
        Rename("embeddings.weight", "encoder.embeddings.tokens.weight"),
        Rename("latents", "encoder.latents"),
        Rename("queries.weight", "encoder.queries.weight"),
        *_of_layer("read", "encoder.read"),
        *_of_layer("layers.{layer}", "encoder.layers.{layer}"),
        *_of_layer("write", "encoder.write"),
        Rename("lm_head.weight", "head.output.weight"),
        Rename("lm_head.bias", "head.output.bias"),
        Rename("classifier.text.{part}", "head.score.{part}"),
        Rename("classifier.token.{part}", "head.labels.{part}"),
    ),
    prefixes=("perceiver.",),
    heads=("lm_head.", "classifier."),
)
"""Perceiver IO's names on disk and in the network."""

FAMILIES = (Family("perceiver-io", PerceiverConfig, build, PERCEIVER_KEYS),)
