"""ModernBERT (Warner et al. 2024)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import nn

from regard.blocks import (
    Embeddings,
    GatedFeedForward,
    Linear,
    MultiHeadAttention,
    Pattern,
    PreNorm,
    SelfAttentionLayer,
    Stack,
)
from regard.checkpoints import Fields, KeyMap, Rename
from regard.core import Window
from regard.models._config import EncoderConfig, Rate, Size, Small, check_sizes, hf
from regard.models._heads import (
    Activation,
    Classifier,
    Head,
    MaskedLMHead,
    every_position,
    first_position,
    mean_of_tokens,
    output_layer,
)
from regard.models._init import Constant, Normal, Scheme, residual_std
from regard.models._transformer import Transformer
from regard.models.families._family import Family
from regard.models.families._layer_types import FULL, SLIDING, OneInEvery, read_layer_types, read_window
from regard.models.families._rope import ROTARY_BUFFERS, RopeSpelling, Theta, read_rope, write_rope
from regard.positions import Rotary

_LAYERS = OneInEvery(3, field="global_attn_every_n_layers", is_first=True)
_ROPE = RopeSpelling(Theta("global_rope_theta", 160_000.0), Theta("local_rope_theta", 10_000.0))


@dataclass(frozen=True, kw_only=True)
class ModernBertConfig(EncoderConfig):
    """A ModernBERT encoder; the defaults are those of ModernBERT-base.

    Args:
        max_seq_len: the length it was made for (`max_position_embeddings`); longer texts are not refused.
        rope: how positions turn queries and keys, by type of layer.
        layer_types: for each layer "full_attention" or "sliding_attention".
        local_attention: width of the window of a sliding layer, half of it on either side of a query.
        norm_eps: added to the variance by every layer norm.
        norm_bias, attention_bias, ffn_bias: whether norms, and linear layers, have a bias (`mlp_bias`).
        embedding_dropout_p, attention_dropout_p, ffn_dropout_p: in training.
        head_bias, output_bias: whether the head's first layer has a bias, and the layer to the vocabulary
            (`classifier_bias`, `decoder_bias`).
        head_activation: between a head's layers (`classifier_activation`).
        pooling: what a classifier of texts reads (`classifier_pooling`).
        num_labels, classifier_dropout_p: of a classifier.
        initializer_cutoff: in standard deviations; weights beyond it are drawn again before training.

    The others are those of `FamilyConfig`.
    """

    STEMS = {"modernbert": "ModernBert"}
    STARTS = {"masked-lm": "head.", "sequence": "classifier.", "token": "classifier."}
    # `layer_norm_eps` and `position_embedding_type` stand in the first files and were never read: the norms
    # have `norm_eps`, and there are no absolute positions. The others say how it is trained, and what is left
    # out of a loss.
    IGNORED_FIELDS = frozenset(
        {
            *("cls_token_id", "deterministic_flash_attn", "layer_norm_eps"),
            *("position_embedding_type", "reference_compile", "repad_logits_with_grad"),
            *("sparse_pred_ignore_index", "sparse_prediction"),
        }
    )

    vocab_size: Size = hf("vocab_size", 50368, is_required=True)
    num_layers: Size = hf("num_hidden_layers", 22, is_required=True)
    d_ff: Size = hf("intermediate_size", 1152, is_required=True)
    max_seq_len: Size = hf("max_position_embeddings", 8192)
    rope: Mapping[str, Rotary] = field(
        default_factory=lambda: {FULL: Rotary(64, base=160_000.0), SLIDING: Rotary(64, base=10_000.0)}
    )
    layer_types: tuple[str, ...] = (FULL, SLIDING, SLIDING) * 7 + (FULL,)
    local_attention: int = hf("local_attention", 128, is_derived=True)
    activation: str = hf("hidden_activation", "gelu")
    norm_eps: Small = hf("norm_eps", 1e-5)
    norm_bias: bool = hf("norm_bias", False)
    attention_bias: bool = hf("attention_bias", False)
    ffn_bias: bool = hf("mlp_bias", False)
    embedding_dropout_p: Rate = hf("embedding_dropout", 0.0)
    attention_dropout_p: Rate = hf("attention_dropout", 0.0)
    ffn_dropout_p: Rate = hf("mlp_dropout", 0.0)
    head_bias: bool = hf("classifier_bias", False)
    output_bias: bool = hf("decoder_bias", True)
    head_activation: str = hf("classifier_activation", "gelu")
    pooling: Literal["cls", "mean"] = hf("classifier_pooling", "cls")
    classifier_dropout_p: Rate = hf("classifier_dropout", 0.0)
    pad_token_id: int | None = hf("pad_token_id", 50283)
    # null: 3 in the code of transformers.
    initializer_cutoff: float = hf("initializer_cutoff_factor", 2.0, null=3.0, is_shown=False)

    @classmethod
    def derived(cls, fields: Fields, tensors: Collection[str], read: Mapping[str, Any]) -> dict[str, Any]:
        window = read_window(fields, "local_attention", 128)
        head_dim = read["d_model"] // max(1, read["num_heads"])
        return {
            "rope": read_rope(fields, _ROPE, head_dim=head_dim, max_seq_len=read["max_seq_len"]),
            "layer_types": read_layer_types(fields, _LAYERS, num_layers=read["num_layers"], window=window),
            "local_attention": 128 if window is None else window,
        }

    def initial(self) -> Scheme:
        """Source: Warner et al. 2024, arXiv 2412.13663, appendix A.1; what ends on the residual stream is
        smaller by sqrt(2 L), as in Megatron."""
        cutoff, std = self.initializer_cutoff, self.initializer_range
        out = Normal(residual_std(std, self.num_layers), cutoff)
        return {
            "*norm.weight": Constant(1.0),
            "*.attention.output.weight": out,
            "*.ffn.output.weight": out,
            "head.dense.weight": out,
            "head.output.weight": out,
            "head.labels.weight": Normal(self.d_model**-0.5, cutoff),
            "*.weight": Normal(std, cutoff),
        }

    def extra(self) -> dict[str, Any]:
        return write_rope(self.rope, _ROPE) | {"layer_types": list(self.layer_types)}


def build(config: ModernBertConfig) -> Transformer:
    """An encoder, two of three layers of which look only at a token's neighbourhood.

    Several texts may stand in one row, without padding: with `positions` that begin anew for each of them,
    and a `regard.core.Segments` mask that keeps them apart.

    Source: Warner et al. 2024, arXiv 2412.13663, section 2.1.
    """
    check_sizes(config)
    embeddings = Embeddings(
        config.vocab_size,
        config.d_model,
        norm=_norm(config),
        pad_id=config.pad_row,
        dropout_p=config.embedding_dropout_p,
    )
    # The width counts both sides.
    side = config.local_attention // 2
    # One layer in three sees everything.
    masks = {FULL: None, SLIDING: Window(left=side, right=side)}
    patterns = {kind: Pattern(mask=masks[kind], rotary=rotary) for kind, rotary in config.rope.items()}
    stack = Stack(
        embeddings,
        [_layer(config, index) for index in range(config.num_layers)],
        patterns=[patterns[kind] for kind in config.layer_types],
        norm=_norm(config),
    )
    return Transformer(config, encoder=stack, head=_head(config, embeddings.tokens))


def _layer(config: ModernBertConfig, index: int) -> SelfAttentionLayer:
    # What enters the first layer comes out of the embeddings' norm.
    attention_norm = nn.Identity() if index == 0 else _norm(config)
    return SelfAttentionLayer(
        MultiHeadAttention(
            config.d_model,
            config.num_heads,
            use_bias=config.attention_bias,
            dropout_p=config.attention_dropout_p,
        ),
        GatedFeedForward(
            config.d_model,
            config.d_ff,
            activation=config.activation,
            use_bias=config.ffn_bias,
            dropout_p=config.ffn_dropout_p,
        ),
        # One rate for the weights and for what attention adds, which has no field of its own.
        attention_residual=PreNorm(attention_norm, dropout_p=config.attention_dropout_p),
        ffn_residual=PreNorm(_norm(config)),
    )


def _norm(config: ModernBertConfig) -> nn.LayerNorm:
    return nn.LayerNorm(config.d_model, eps=config.norm_eps, bias=config.norm_bias)


def _head(config: ModernBertConfig, tokens: nn.Embedding) -> Head | None:
    # All heads begin with the same dense layer and norm.
    if config.head is None:
        return None
    dense = Linear(config.d_model, config.d_model, bias=config.head_bias)
    norm = _norm(config)
    if config.head == "masked-lm":
        output = output_layer(tokens, is_tied=config.tie_word_embeddings, use_bias=config.output_bias)
        return MaskedLMHead(dense, config.head_activation, norm, output)
    # Read off one position, or off the mean.
    of_text = mean_of_tokens if config.pooling == "mean" else first_position
    return Classifier(
        every_position if config.head == "token" else of_text,
        dense=dense,
        activation=Activation(config.head_activation),
        norm=norm,
        dropout=nn.Dropout(config.classifier_dropout_p),
        labels=nn.Linear(config.d_model, config.num_labels),
    )


_LAYER = "encoder.layers.{layer}"

MODERNBERT_KEYS = KeyMap(
    rules=(
        Rename("embeddings.tok_embeddings.weight", "encoder.embeddings.tokens.weight"),
        Rename("embeddings.norm.{part}", "encoder.embeddings.norm.{part}"),
        Rename("layers.{layer}.attn_norm.{part}", f"{_LAYER}.attention_residual.norm.{{part}}"),
        Rename(
            "layers.{layer}.attn.Wqkv.{part}",
            (
                f"{_LAYER}.attention.q.{{part}}",
                f"{_LAYER}.attention.k.{{part}}",
                f"{_LAYER}.attention.v.{{part}}",
            ),
        ),
        Rename("layers.{layer}.attn.Wo.{part}", f"{_LAYER}.attention.output.{{part}}"),
        Rename("layers.{layer}.mlp_norm.{part}", f"{_LAYER}.ffn_residual.norm.{{part}}"),
        Rename("layers.{layer}.mlp.Wi.{part}", (f"{_LAYER}.ffn.gate.{{part}}", f"{_LAYER}.ffn.up.{{part}}")),
        Rename("layers.{layer}.mlp.Wo.{part}", f"{_LAYER}.ffn.output.{{part}}"),
        Rename("final_norm.{part}", "encoder.norm.{part}"),
        Rename("head.dense.{part}", "head.dense.{part}"),
        Rename("head.norm.{part}", "head.norm.{part}"),
        Rename("decoder.{part}", "head.output.{part}"),
        Rename("classifier.{part}", "head.labels.{part}"),
    ),
    prefixes=("model.",),
    heads=("head.", "decoder.", "classifier."),
    buffers=ROTARY_BUFFERS,
)
"""ModernBERT's names on disk and in the network."""

FAMILIES = (Family("modernbert", ModernBertConfig, build, MODERNBERT_KEYS),)
