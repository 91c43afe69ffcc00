"""The sizes of a DeBERTa v2 or v3, and the fields of config.json that give them."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from regard.checkpoints import INERT, Fields, HeadKind
from regard.core.errors import CheckpointError
from regard.models._post_norm_config import PostNormConfig, read_head, read_shared, write_shared
from regard.models.deberta._attention import C2P, P2C

# What v1 calls `pad_token_id`.
_INERT_HERE = frozenset({"padding_idx"})

_CLASSES: dict[HeadKind | None, str] = {
    None: "DebertaV2Model",
    "masked-lm": "DebertaV2ForMaskedLM",
    "sequence": "DebertaV2ForSequenceClassification",
    "token": "DebertaV2ForTokenClassification",
}


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


@dataclass(frozen=True, kw_only=True, slots=True)
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

    Example:
        >>> DebertaConfig().span
        256
    """

    vocab_size: int = 128100
    norm_eps: float = 1e-7
    d_embedding: int = 768
    num_token_types: int = 0
    has_absolute_positions: bool = False
    relative_attention: bool = True
    terms: tuple[str, ...] = (P2C, C2P)
    shares_projections: bool = True
    max_distance: int | None = None
    num_buckets: int | None = 256
    norms_table: bool = True
    convolution: Convolution | None = None
    pooler_activation: str = "gelu"
    pooler_dropout_p: float = 0.0
    is_legacy: bool = True

    @property
    def span(self) -> int:
        """Half the rows of the table of distances."""
        return self.furthest if self.num_buckets is None else self.num_buckets

    @property
    def furthest(self) -> int:
        """The distances that the table is for."""
        return self.max_seq_len if self.max_distance is None else self.max_distance

    @classmethod
    def from_hf(cls, fields: Fields, tensors: Collection[str]) -> "DebertaConfig":
        """Read config.json.

        Raises:
            CheckpointError: fields that are missing, wrong, unknown, or ask for another architecture.
        """
        shared = read_shared(fields) | {"norm_eps": fields.get("layer_norm_eps", float, 1e-7)}
        d_model, num_heads = shared["d_model"], shared["num_heads"]
        is_legacy = fields.get("legacy", bool, True)
        starts: dict[HeadKind, str] = {
            "masked-lm": "cls." if is_legacy else "lm_predictions.",
            "sequence": "classifier.",
            "token": "classifier.",
        }
        pooled = fields.get("pooler_hidden_size", int, d_model)
        fields.expect("attention_head_size", (d_model // max(1, num_heads),), d_model // max(1, num_heads))
        config = cls(
            **shared,
            **read_head(fields, tensors, starts),
            pad_token_id=fields.get_or_null("pad_token_id", int, 0),
            classifier_dropout_p=fields.get("cls_dropout", float, None),
            d_embedding=fields.get("embedding_size", int, d_model),
            num_token_types=fields.get("type_vocab_size", int, 0),
            has_absolute_positions=fields.get("position_biased_input", bool, True),
            relative_attention=fields.get("relative_attention", bool, False),
            terms=_terms(fields),
            shares_projections=fields.get("share_att_key", bool, False),
            max_distance=_where_positive(fields, "max_relative_positions"),
            num_buckets=_where_positive(fields, "position_buckets"),
            norms_table=_norms_table(fields),
            convolution=_convolution(fields),
            pooler_activation=fields.get("pooler_hidden_act", str, "gelu"),
            pooler_dropout_p=fields.get("pooler_dropout", float, 0.0),
            is_legacy=is_legacy,
        )
        fields.done(INERT | _INERT_HERE)
        if config.head == "sequence" and pooled != d_model:
            raise CheckpointError(
                f"{fields.file}: the field 'pooler_hidden_size' must be hidden_size = {d_model} in a "
                f"classifier of texts, which reads the last hidden state; got {pooled}"
            )
        if config.head == "masked-lm" and not is_legacy and config.d_embedding != d_model:
            raise CheckpointError(
                f"{fields.file}: the field 'embedding_size' must be hidden_size = {d_model} where 'legacy' "
                f"is false, because that head multiplies with the embeddings; got {config.d_embedding}"
            )
        return config

    def to_hf(self) -> dict[str, Any]:
        """The fields of config.json."""
        written = {
            "architectures": [_CLASSES[self.head]],
            "model_type": "deberta-v2",
            **write_shared(self),
            "embedding_size": self.d_embedding,
            "type_vocab_size": self.num_token_types,
            "position_biased_input": self.has_absolute_positions,
            "relative_attention": self.relative_attention,
            "pos_att_type": list(self.terms),
            "share_att_key": self.shares_projections,
            "max_relative_positions": -1 if self.max_distance is None else self.max_distance,
            "position_buckets": -1 if self.num_buckets is None else self.num_buckets,
            "norm_rel_ebd": "layer_norm" if self.norms_table else "none",
            "pooler_hidden_act": self.pooler_activation,
            "pooler_hidden_size": self.d_model,
            "pooler_dropout": self.pooler_dropout_p,
            "legacy": self.is_legacy,
        }
        if self.classifier_dropout_p is not None:
            written["cls_dropout"] = self.classifier_dropout_p
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
    given = fields.values.get(key)
    if given is None or isinstance(given, list):
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
    if kernel_size % 2 == 0:
        raise CheckpointError(
            f"{fields.file}: the field 'conv_kernel_size' must be odd, or the text would become shorter; "
            f"got {kernel_size}"
        )
    return Convolution(kernel_size=kernel_size, groups=groups, activation=activation)
