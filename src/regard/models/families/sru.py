"""SRU++ (Lei 2021): a recurrent language model with attention in place of its projections."""

from dataclasses import dataclass, field
from math import sqrt
from typing import ClassVar

from regard.blocks import Embeddings, Pattern, SruAttention, SruLayer, Stack
from regard.checkpoints import KeyMap, Rename
from regard.core import Causal
from regard.models._config import DecoderConfig, Rate, Size, Small, check_sizes, hf
from regard.models._heads import decoder_head
from regard.models._init import Constant, Normal, Scheme, XavierUniform
from regard.models._transformer import Transformer
from regard.models.families._family import Family


@dataclass(frozen=True, kw_only=True)
class SruConfig(DecoderConfig):
    """A decoder of SRU++ layers, which know positions by their recurrence.

    Args:
        num_heads: into how many heads a query is split.
        d_attention: d', the size of a query; None for a quarter of d_model.
        max_seq_len: the length it was made for; longer texts are not refused.
        norm_eps: added to the variance by every norm.
        dropout_p, attention_dropout_p: in training, before the projections of the states, on weights.

    The others are those of `DecoderConfig`; there is no feed-forward network, and no `d_ff`. `transformers`
    has no such model, and refuses its files.
    """

    STEMS = {"srupp": "SRUpp"}
    ABSENT: ClassVar[frozenset[str]] = frozenset({"d_ff", "activation"})

    vocab_size: Size = hf("vocab_size", 32000, is_required=True)
    d_model: Size = hf("hidden_size", 512, is_required=True)
    num_layers: Size = hf("num_hidden_layers", 8, is_required=True)
    num_heads: Size = hf("num_attention_heads", 1, is_required=True)
    d_attention: int | None = hf("attention_size", None)
    d_ff: Size = field(default=1, repr=False)
    activation: str = field(default="", repr=False)
    max_seq_len: Size = hf("max_position_embeddings", 2048)
    norm_eps: Small = hf("layer_norm_eps", 1e-5)
    dropout_p: Rate = hf("dropout", 0.0)
    attention_dropout_p: Rate = hf("attention_dropout", 0.0)

    def initial(self) -> Scheme:
        return {
            # Attention adds nothing at first: the recurrence learns by itself.
            "*.attention.alpha": Constant(0.0),
            "*.attention.norm.weight": Constant(1.0),
            "*.attention.*.weight": XavierUniform(),
            "*.layers.*.weight": Normal(sqrt(0.5)),
        }


def build(config: SruConfig) -> Transformer:
    """A decoder that predicts the next token.

    Raises:
        InputError: sizes that no network can have.

    Source: Lei 2021, arXiv 2102.12459, the part "SRU++".
    """
    check_sizes(config)
    embeddings = Embeddings(config.vocab_size, config.d_model, pad_id=config.pad_row)
    # No norm at the end: every layer has its own, inside its attention.
    stack = Stack(
        embeddings,
        [_layer(config) for _ in range(config.num_layers)],
        patterns=[Pattern(mask=Causal())] * config.num_layers,
    )
    return Transformer(config, decoder=stack, head=decoder_head(config, embeddings.tokens))


def _layer(config: SruConfig) -> SruLayer:
    attention = SruAttention(
        config.d_model,
        # A quarter of the width, unless a size is given.
        config.d_model // 4 if config.d_attention is None else config.d_attention,
        num_heads=config.num_heads,
        norm_eps=config.norm_eps,
        dropout_p=config.dropout_p,
        attention_dropout_p=config.attention_dropout_p,
    )
    return SruLayer(attention, config.d_model)


_LAYER = "decoder.layers.{layer}"

SRU_KEYS = KeyMap(
    rules=(
        Rename("embed_tokens.weight", "decoder.embeddings.tokens.weight"),
        Rename("layers.{layer}.q_proj.weight", f"{_LAYER}.attention.q.weight"),
        Rename("layers.{layer}.k_proj.weight", f"{_LAYER}.attention.k.weight"),
        Rename("layers.{layer}.v_proj.weight", f"{_LAYER}.attention.v.weight"),
        Rename("layers.{layer}.o_proj.weight", f"{_LAYER}.attention.output.weight"),
        Rename("layers.{layer}.alpha", f"{_LAYER}.attention.alpha"),
        Rename("layers.{layer}.layer_norm.{part}", f"{_LAYER}.attention.norm.{{part}}"),
        Rename("layers.{layer}.state_weight", f"{_LAYER}.weight"),
        Rename("layers.{layer}.state_bias", f"{_LAYER}.bias"),
        Rename("lm_head.weight", "head.output.weight"),
        Rename("score.{part}", "head.score.{part}"),
    ),
    prefixes=("model.",),
    heads=("lm_head.", "score."),
)
"""SRU++'s names on disk and in the network."""

FAMILIES = (Family("srupp", SruConfig, build, SRU_KEYS),)
