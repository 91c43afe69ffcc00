"""DeBERTa v2 and v3: post-norm layers whose attention scores content and distance apart."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from torch import nn

from regard.blocks import Embeddings, FeedForward, PostNorm, SelfAttentionLayer, Stack
from regard.checkpoints import ID_BUFFERS, Fields, HeadKind, KeyMap, Rename, Shared
from regard.core.errors import CheckpointError
from regard.models._config import Rate, Rows, Size, Small, check_sizes, hf
from regard.models._heads import Activation, Classifier, Head, first_position, token_classifier
from regard.models._transformer import Transformer
from regard.models.families._deberta_layers import (
    C2P,
    P2C,
    ConvolvedLayer,
    DisentangledAttention,
    DisentangledBias,
    DistanceTerm,
    ProjectedNorm,
    RelativePositions,
    TrainedHead,
)
from regard.models.families._family import Family
from regard.models.families._post_norm import (
    EMBEDDING_RULES,
    FEED_FORWARD_RULES,
    PostNormConfig,
    masked_lm_head,
)
from regard.positions import LearnedPositions

__all__ = [
    "DEBERTA_KEYS",
    "Convolution",
    "DebertaConfig",
    "DisentangledBias",
    "DistanceTerm",
    "RelativePositions",
    "build",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Convolution:
    """What stands beside the first layer of the largest models.

    Args:
        kernel_size: tokens that it sees at once (`conv_kernel_size`).
        groups: parts that do not see each other (`conv_groups`).
        activation: after it (`conv_act`).
    """

    kernel_size: int = 3
    groups: int = 1
    activation: str = "tanh"


@dataclass(frozen=True, kw_only=True)
class DebertaConfig(PostNormConfig):
    """A DeBERTa v2 or v3 encoder; the defaults are those of deberta-v3-base.

    Args:
        d_embedding: size of the tables of embeddings (`embedding_size`); where it is not `d_model`, a linear
            layer leads from one to the other.
        num_token_types: rows of the table of token types (`type_vocab_size`).
        has_absolute_positions: whether the embeddings have positions too (`position_biased_input`).
        relative_attention: whether attention has terms that depend on distance.
        terms: which: "c2p", "p2c", in the file's order (`pos_att_type`).
        shares_projections: whether the table of distances goes through the layers' own W_k and W_q
            (`share_att_key`).
        max_distance: distances that the table is for; None for `max_seq_len` (`max_relative_positions`).
        num_buckets: half its rows; None for one row a distance (`position_buckets`).
        norms_table: whether its rows are normed (`norm_rel_ebd`).
        convolution: beside the first layer; None for none.
        pooler_activation, pooler_dropout_p: of a classifier of texts, before its labels.
        is_legacy: whether the masked-LM head is the one that `transformers` gave the family first, or the one
            that these models were trained with (`legacy`).

    The others are those of `PostNormConfig`; `classifier_dropout_p` is for texts only (`cls_dropout`).
    """

    STEMS = {"deberta-v2": "DebertaV2"}
    STARTS = {"masked-lm": "cls.", "sequence": "classifier.", "token": "classifier."}
    # What v1 calls `pad_token_id`.
    IGNORED_FIELDS = frozenset({"padding_idx"})

    vocab_size: Size = hf("vocab_size", 128100, is_required=True)
    norm_eps: Small = hf("layer_norm_eps", 1e-7)
    classifier_dropout_p: Rate | None = hf("cls_dropout", None)
    d_embedding: Size = hf("embedding_size", 768, is_derived=True)
    num_token_types: Rows = hf("type_vocab_size", 0)
    has_absolute_positions: bool = hf("position_biased_input", False, absent=True)
    relative_attention: bool = hf("relative_attention", True, absent=False)
    terms: tuple[str, ...] = (P2C, C2P)
    shares_projections: bool = hf("share_att_key", True, absent=False)
    max_distance: int | None = None
    num_buckets: int | None = 256
    norms_table: bool = True
    convolution: Convolution | None = None
    pooler_activation: str = hf("pooler_hidden_act", "gelu")
    pooler_dropout_p: Rate = hf("pooler_dropout", 0.0)
    is_legacy: bool = hf("legacy", True)

    @property
    def span(self) -> int:
        """Half the rows of the table of distances."""
        return self.furthest if self.num_buckets is None else self.num_buckets

    @property
    def furthest(self) -> int:
        """The distances that the table is for."""
        return self.max_seq_len if self.max_distance is None else self.max_distance

    @classmethod
    def of_sizes(cls, **given: Any) -> Self:
        """As published but for the sizes: half as many buckets as positions, tables as wide as the model."""
        # A first one, for what other sizes follow from.
        plain = cls(**given)
        own = {"num_buckets": min(256, max(2, plain.furthest // 2)), "d_embedding": plain.d_model}
        return cls(**own | given)

    @classmethod
    def starts(cls, fields: Fields) -> Mapping[HeadKind, str]:
        return (
            cls.STARTS if fields.get("legacy", bool, True) else {**cls.STARTS, "masked-lm": "lm_predictions."}
        )

    @classmethod
    def derived(cls, fields: Fields, tensors: Collection[str], read: Mapping[str, Any]) -> dict[str, Any]:
        # Sizes that the file repeats must agree.
        d_model, head_dim = read["d_model"], read["d_model"] // max(1, read["num_heads"])
        fields.expect("attention_head_size", (head_dim,), head_dim)
        pooled = fields.get("pooler_hidden_size", int, d_model)
        d_embedding = fields.get("embedding_size", int, d_model)
        if read["head"] == "sequence" and pooled != d_model:
            raise CheckpointError(
                f"{fields.file}: the field 'pooler_hidden_size' must be hidden_size = {d_model} in a "
                f"classifier of texts, which reads the last hidden state; got {pooled}"
            )
        if read["head"] == "masked-lm" and not read["is_legacy"] and d_embedding != d_model:
            raise CheckpointError(
                f"{fields.file}: the field 'embedding_size' must be hidden_size = {d_model} where 'legacy' "
                f"is false, because that head multiplies with the embeddings; got {d_embedding}"
            )
        return super().derived(fields, tensors, read) | {
            "d_embedding": d_embedding,
            "terms": _terms(fields),
            "max_distance": _where_positive(fields, "max_relative_positions"),
            "num_buckets": _where_positive(fields, "position_buckets"),
            "norms_table": _norms_table(fields),
            "convolution": _convolution(fields),
        }

    def extra(self) -> dict[str, Any]:
        written: dict[str, Any] = {
            "pos_att_type": list(self.terms),
            # transformers writes -1 where there is no number.
            "max_relative_positions": -1 if self.max_distance is None else self.max_distance,
            "position_buckets": -1 if self.num_buckets is None else self.num_buckets,
            "norm_rel_ebd": "layer_norm" if self.norms_table else "none",
            "pooler_hidden_size": self.d_model,
        }
        if self.convolution is not None:
            written["conv_kernel_size"] = self.convolution.kernel_size
            written["conv_groups"] = self.convolution.groups
            written["conv_act"] = self.convolution.activation
        return written


def _where_positive(fields: Fields, key: str) -> int | None:
    value = fields.get(key, int, -1)
    return value if value > 0 else None


def _terms(fields: Fields) -> tuple[str, ...]:
    key = "pos_att_type"
    # A list, or names joined by "|".
    value = fields.values.get(key)
    if value is None or isinstance(value, list):
        names = fields.list_of(key, str, None) or []
    else:
        names = [name.strip() for name in fields.require(key, str).lower().split("|") if name.strip()]
    if not set(names) <= {C2P, P2C} or len(set(names)) < len(names):
        raise CheckpointError(
            f"{fields.file}: the field {key!r} must hold {C2P!r} and {P2C!r}, once each or not at all; "
            f"got {', '.join(map(repr, names))}"
        )
    return tuple(names)


def _norms_table(fields: Fields) -> bool:
    names = [name.strip() for name in fields.get("norm_rel_ebd", str, "none").lower().split("|")]
    if unknown := sorted(set(names) - {"layer_norm", "none", ""}):
        raise CheckpointError(
            f"{fields.file}: the field 'norm_rel_ebd' must be 'layer_norm' or 'none'; "
            f"got {', '.join(unknown)}"
        )
    return "layer_norm" in names


def _convolution(fields: Fields) -> Convolution | None:
    kernel_size = fields.get("conv_kernel_size", int, 0)
    groups, activation = fields.get("conv_groups", int, 1), fields.get("conv_act", str, "tanh")
    if kernel_size < 1:
        return None
    # As many positions after it as before it needs a middle.
    if kernel_size % 2 == 0:
        raise CheckpointError(
            f"{fields.file}: the field 'conv_kernel_size' must be odd, or the text would become shorter; "
            f"got {kernel_size}"
        )
    return Convolution(kernel_size=kernel_size, groups=groups, activation=activation)


def build(config: DebertaConfig) -> Transformer:
    """An encoder that knows positions by the distances between them.

    Source: He et al. 2021, arXiv 2006.03654, section 3; v3: He et al. 2021, arXiv 2111.09543.
    """
    check_sizes(config)
    embeddings = _embeddings(config)
    # No pattern: every layer sees everything, and no rotary.
    stack = Stack(
        embeddings,
        [_layer(config, index) for index in range(config.num_layers)],
        bias=_positions(config) if config.relative_attention else None,
    )
    return Transformer(config, encoder=stack, head=_head(config, embeddings.tokens))


def _embeddings(config: DebertaConfig) -> Embeddings:
    norm: nn.LayerNorm
    if config.d_embedding == config.d_model:
        norm = _norm(config)
    else:
        # Narrower tables are widened before the norm.
        norm = ProjectedNorm(config.d_embedding, config.d_model, eps=config.norm_eps)
    positions = None
    if config.has_absolute_positions:
        positions = LearnedPositions(config.max_seq_len, config.d_embedding)
    return Embeddings(
        config.vocab_size,
        config.d_embedding,  # the norm leads to d_model
        positions=positions,
        num_token_types=config.num_token_types,
        norm=norm,
        pad_id=config.pad_row,
        dropout_p=config.dropout_p,
    )


def _positions(config: DebertaConfig) -> RelativePositions:
    return RelativePositions(
        config.d_model,
        span=config.span,
        max_distance=config.furthest,
        num_buckets=config.num_buckets,
        norm=_norm(config) if config.norms_table else None,
    )


def _layer(config: DebertaConfig, index: int) -> SelfAttentionLayer:
    attention = DisentangledAttention(
        config.d_model,
        config.num_heads,
        terms=config.terms,
        # Without a table there is nothing for projections of its own to project.
        shares_projections=config.shares_projections or not config.relative_attention,
        dropout_p=config.attention_dropout_p,
        table_dropout_p=config.dropout_p,
    )
    ffn = FeedForward(config.d_model, config.d_ff, activation=config.activation)
    attention_residual = PostNorm(_norm(config), dropout_p=config.dropout_p)
    ffn_residual = PostNorm(_norm(config), dropout_p=config.dropout_p)
    # Only the first layer has a convolution.
    if index or config.convolution is None:
        return SelfAttentionLayer(
            attention, ffn, attention_residual=attention_residual, ffn_residual=ffn_residual
        )
    return ConvolvedLayer(
        attention,
        ffn,
        attention_residual=attention_residual,
        ffn_residual=ffn_residual,
        convolution=nn.Conv1d(
            config.d_model,
            config.d_model,
            config.convolution.kernel_size,
            # As many positions out as in.
            padding=config.convolution.kernel_size // 2,
            groups=config.convolution.groups,
        ),
        activation=config.convolution.activation,
        norm=_norm(config),
        dropout_p=config.dropout_p,
    )


def _norm(config: DebertaConfig) -> nn.LayerNorm:
    return nn.LayerNorm(config.d_model, eps=config.norm_eps)


def _head(config: DebertaConfig, tokens: nn.Embedding) -> Head | None:
    match config.head:
        case "masked-lm":
            # The head of transformers' class; the other is the one DeBERTa was trained with.
            if config.is_legacy:
                return masked_lm_head(config, tokens, config.activation)
            return TrainedHead(
                masked_lm_head(replace(config, tie_word_embeddings=True), tokens, config.activation)
            )
        case "sequence":
            return Classifier(
                first_position,
                input_dropout=nn.Dropout(config.pooler_dropout_p),
                # What transformers calls the pooler: it belongs to the classifier here.
                hidden=nn.Linear(config.d_model, config.d_model),
                activation=Activation(config.pooler_activation),
                dropout=nn.Dropout(config.label_dropout_p),
                labels=nn.Linear(config.d_model, config.num_labels),
            )
        case "token":
            return token_classifier(config.d_model, config.num_labels, dropout_p=config.dropout_p)
    return None


_THEIRS, _OURS = "encoder.layer.{layer}.attention", "encoder.layers.{layer}.attention"

DEBERTA_KEYS = KeyMap(
    rules=(
        *EMBEDDING_RULES,
        Rename("embeddings.embed_proj.weight", "encoder.embeddings.norm.projection.weight"),
        Rename("encoder.rel_embeddings.weight", "encoder.bias.table.weight"),
        Rename("encoder.LayerNorm.{part}", "encoder.bias.norm.{part}"),
        Rename(f"{_THEIRS}.self.query_proj.{{part}}", f"{_OURS}.q.{{part}}"),
        Rename(f"{_THEIRS}.self.key_proj.{{part}}", f"{_OURS}.k.{{part}}"),
        Rename(f"{_THEIRS}.self.value_proj.{{part}}", f"{_OURS}.v.{{part}}"),
        Rename(f"{_THEIRS}.self.pos_query_proj.{{part}}", f"{_OURS}.pos_q.{{part}}"),
        Rename(f"{_THEIRS}.self.pos_key_proj.{{part}}", f"{_OURS}.pos_k.{{part}}"),
        Rename(f"{_THEIRS}.output.dense.{{part}}", f"{_OURS}.output.{{part}}"),
        Rename(f"{_THEIRS}.output.LayerNorm.{{part}}", f"{_OURS}_residual.norm.{{part}}"),
        *FEED_FORWARD_RULES,
        Rename("encoder.conv.conv.{part}", "encoder.layers.0.convolution.{part}"),
        Rename("encoder.conv.LayerNorm.{part}", "encoder.layers.0.convolution_norm.{part}"),
        Rename("cls.predictions.transform.dense.{part}", "head.dense.{part}"),
        Rename("cls.predictions.transform.LayerNorm.{part}", "head.norm.{part}"),
        Rename("cls.predictions.bias", "head.output.bias"),
        Rename("cls.predictions.decoder.weight", "head.output.weight"),
        Rename("cls.predictions.decoder.bias", "head.output.own_bias"),
        Shared("cls.predictions.decoder.bias", ("head.output.bias",), is_written=False),
        Rename("lm_predictions.lm_head.dense.{part}", "head.predictions.dense.{part}"),
        Rename("lm_predictions.lm_head.LayerNorm.{part}", "head.predictions.norm.{part}"),
        Rename("lm_predictions.lm_head.bias", "head.predictions.output.bias"),
        Rename("pooler.dense.{part}", "head.hidden.{part}"),
        Rename("classifier.{part}", "head.labels.{part}"),
    ),
    prefixes=("deberta.",),
    # What a network may lack of these: the heads of the training, answers to questions.
    heads=("cls.", "lm_predictions.", "mask_predictions.", "pooler.", "classifier.", "qa_outputs."),
    # Absolute positions that a model was trained with, and does without since; and the norm of a table of
    # distances that there is not where attention is not relative.
    left_out=("embeddings.position_embeddings.", "encoder.LayerNorm."),
    buffers=ID_BUFFERS,
)
"""DeBERTa's names on disk and in the network."""

FAMILIES = (Family("deberta-v2", DebertaConfig, build, DEBERTA_KEYS),)
