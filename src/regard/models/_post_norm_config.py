"""The fields of config.json that the encoders descended from BERT share."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from regard.checkpoints import Fields, HeadKind, head_of, num_labels
from regard.core.errors import CheckpointError


@dataclass(frozen=True, kw_only=True, slots=True)
class PostNormConfig:
    """What BERT, RoBERTa, ELECTRA and MPNet have all; the defaults are those of bert-base-uncased.

    Args:
        vocab_size: rows of the table of learned embeddings.
        d_model: size of the residual stream (`hidden_size`).
        num_layers: encoder layers (`num_hidden_layers`).
        num_heads: heads a layer (`num_attention_heads`).
        d_ff: size inside the feed-forward network (`intermediate_size`).
        max_seq_len: the tokens that the table of positions has rows for (`max_position_embeddings`).
        activation: of the feed-forward network (`hidden_act`).
        norm_eps: added to the variance by every layer norm.
        dropout_p, attention_dropout_p: in training, on sublayers and on attention weights.
        head: what the checkpoint's head is for, or None.
        num_labels: of a classifier.
        classifier_dropout_p: in training, in a classifier; None for `dropout_p`.
        tie_word_embeddings: whether the masked-LM head's output is the table of learned embeddings.
        pad_token_id: what fills up a text. Where positions are not counted by it, it changes no number:
            `transformers` keeps the row of that id from being trained.
    """

    vocab_size: int = 30522
    d_model: int = 768
    num_layers: int = 12
    num_heads: int = 12
    d_ff: int = 3072
    max_seq_len: int = 512
    activation: str = "gelu"
    norm_eps: float = 1e-12
    dropout_p: float = 0.1
    attention_dropout_p: float = 0.1
    head: HeadKind | None = None
    num_labels: int = 2
    classifier_dropout_p: float | None = None
    tie_word_embeddings: bool = True
    pad_token_id: int | None = 0

    @property
    def label_dropout_p(self) -> float:
        """The dropout in a classifier, in training."""
        return self.dropout_p if self.classifier_dropout_p is None else self.classifier_dropout_p


def read_shared(fields: Fields) -> dict[str, Any]:
    """The arguments of a `PostNormConfig` but for the head and its labels.

    Raises:
        CheckpointError: a field is missing, of another type, or asks for what these networks do not have.
    """
    fields.expect("position_embedding_type", ("absolute",), default="absolute")
    fields.expect("is_decoder", (False,), default=False)
    return {
        "vocab_size": fields.require("vocab_size", int),
        "d_model": fields.require("hidden_size", int),
        "num_layers": fields.require("num_hidden_layers", int),
        "num_heads": fields.require("num_attention_heads", int),
        "d_ff": fields.require("intermediate_size", int),
        "max_seq_len": fields.require("max_position_embeddings", int),
        "activation": fields.get("hidden_act", str, "gelu"),
        "norm_eps": fields.get("layer_norm_eps", float, 1e-12),
        "dropout_p": fields.get("hidden_dropout_prob", float, 0.1),
        "attention_dropout_p": fields.get("attention_probs_dropout_prob", float, 0.1),
        "tie_word_embeddings": fields.get("tie_word_embeddings", bool, True),
    }


def write_shared(config: PostNormConfig) -> dict[str, Any]:
    """The fields of config.json that `read_shared` and `read_head` read."""
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.d_ff,
        "max_position_embeddings": config.max_seq_len,
        "hidden_act": config.activation,
        "layer_norm_eps": config.norm_eps,
        "hidden_dropout_prob": config.dropout_p,
        "attention_probs_dropout_prob": config.attention_dropout_p,
        "tie_word_embeddings": config.tie_word_embeddings,
        "num_labels": config.num_labels,
        "pad_token_id": config.pad_token_id,
    }


def read_head(
    fields: Fields,
    tensors: Collection[str],
    starts: Mapping[HeadKind, str],
    more: Mapping[str, HeadKind | None] = MappingProxyType({}),
) -> dict[str, Any]:
    """The arguments `head` and `num_labels` of an encoder's config.

    A file may name a class with a head and hold none of its tensors, as after training on from such a model
    without its head; then there is none.

    Args:
        fields, more: as in `head_of`.
        tensors: the names of the stored tensors.
        starts: how the names of a head's tensors begin, for every head that the family has.

    Raises:
        CheckpointError: the file is of a decoder, or its fields disagree about the number of labels.
    """
    kind = head_of(fields, more)
    if kind is not None and kind not in starts:
        raise CheckpointError(
            f"{fields.file}: the field 'architectures' names a class that predicts the next token; "
            f"regard has this family as an encoder, without a head or with one of {', '.join(starts)}"
        )
    head = kind if kind is not None and any(name.startswith(starts[kind]) for name in tensors) else None
    return {"head": head} | ({"num_labels": num_labels(fields)} if head in ("sequence", "token") else {})


def has_pooler(tensors: Collection[str]) -> bool:
    """Whether a pooler is stored, which only the names of the tensors say."""
    return any(name.endswith("pooler.dense.weight") for name in tensors)
