"""The sizes of a T5, and the fields of config.json that give them."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from regard.checkpoints import INERT, Fields, HeadKind, head_of, num_labels
from regard.core.errors import CheckpointError

# Written by the first T5 files, read by no code.
_INERT_HERE = frozenset({"n_positions"})

_WITH_DECODER = ("T5Model", "ForConditionalGeneration", "ForSequenceClassification", "WithLMHeadModel")

_CLASSES: dict[HeadKind | None, str] = {
    None: "T5Model",
    "language-model": "T5ForConditionalGeneration",
    "sequence": "T5ForSequenceClassification",
    "token": "T5ForTokenClassification",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class T5Config:
    """A T5; the defaults are those of t5-small.

    Args:
        vocab_size: rows of the table of learned embeddings.
        d_model: size of the residual stream.
        num_layers: layers of the encoder.
        num_decoder_layers: layers of the decoder.
        num_heads: heads a layer.
        head_dim: size of a query, key and value (`d_kv`).
        d_ff: size inside the feed-forward network.
        num_buckets: distances that the relative bias tells apart (`relative_attention_num_buckets`).
        max_distance: from which on it tells none apart (`relative_attention_max_distance`).
        activation: of the feed-forward network (`feed_forward_proj`, "relu" or "gated-gelu").
        is_gated: whether that is gated.
        norm_eps: added to the mean of squares by every norm (`layer_norm_epsilon`).
        dropout_p: in training, everywhere (`dropout_rate`).
        has_decoder: False for an encoder alone.
        head: what the checkpoint's head is for, or None.
        num_labels: of a classifier.
        classifier_dropout_p: before a classifier, in training.
        tie_word_embeddings: whether the output layer is the table of learned embeddings.
        scale_decoder_outputs: whether the decoder's output is divided by sqrt(d_model) before it.
        pad_token_id: what fills up a text.
        decoder_start_token_id: what the decoder reads first.
        eos_token_id: where a classifier of texts reads.

    Example:
        >>> T5Config().num_decoder_layers
        6
    """

    vocab_size: int = 32128
    d_model: int = 512
    num_layers: int = 6
    num_decoder_layers: int = 6
    num_heads: int = 8
    head_dim: int = 64
    d_ff: int = 2048
    num_buckets: int = 32
    max_distance: int = 128
    activation: str = "relu"
    is_gated: bool = False
    norm_eps: float = 1e-6
    dropout_p: float = 0.1
    has_decoder: bool = True
    head: HeadKind | None = "language-model"
    num_labels: int = 2
    classifier_dropout_p: float = 0.0
    tie_word_embeddings: bool = True
    scale_decoder_outputs: bool = True
    pad_token_id: int | None = 0
    decoder_start_token_id: int = 0
    eos_token_id: int = 1

    @property
    def num_token_types(self) -> int:
        """0: T5 has no token types."""
        return 0

    @property
    def max_seq_len(self) -> None:
        """None: a relative bias has no last position."""
        return None

    @classmethod
    def from_hf(cls, fields: Fields, tensors: Collection[str]) -> "T5Config":
        """Read config.json; that the output layer is tied, and that there is no decoder, the tensors say."""
        # A class that has a decoder says so, also where a half-downloaded file lacks it: it is missing then.
        written_by = fields.list_of("architectures", str, None) or [""]
        has_decoder = written_by[0].endswith(_WITH_DECODER) or any(
            name.removeprefix("transformer.").startswith("decoder.") for name in tensors
        )
        fields.expect("is_encoder_decoder", (True, False) if not has_decoder else (True,), default=True)
        fields.expect("is_decoder", (False,), default=False)
        activation, is_gated = _activation(fields)
        # Of T5 1.1 and FLAN-T5 the field says that outputs are not scaled; that is what it stands for since
        # transformers 5, which has a field for it. Whether the layer is tied, the stored tensors show.
        tied = fields.get("tie_word_embeddings", bool, True)
        num_layers = fields.require("num_layers", int)
        pad_id = fields.get_or_null("pad_token_id", int, 0)
        config = cls(
            vocab_size=fields.require("vocab_size", int),
            d_model=fields.require("d_model", int),
            num_layers=num_layers,
            num_decoder_layers=fields.get("num_decoder_layers", int, None) or num_layers,
            num_heads=fields.require("num_heads", int),
            head_dim=fields.require("d_kv", int),
            d_ff=fields.require("d_ff", int),
            num_buckets=fields.get("relative_attention_num_buckets", int, 32),
            max_distance=fields.get("relative_attention_max_distance", int, 128),
            activation=activation,
            is_gated=is_gated,
            norm_eps=fields.get("layer_norm_epsilon", float, 1e-6),
            dropout_p=fields.get("dropout_rate", float, 0.1),
            has_decoder=has_decoder,
            head=head_of(fields),
            num_labels=num_labels(fields),
            classifier_dropout_p=fields.get("classifier_dropout", float, 0.0),
            tie_word_embeddings="lm_head.weight" not in tensors,
            scale_decoder_outputs=fields.get("scale_decoder_outputs", bool, tied),
            pad_token_id=pad_id,
            decoder_start_token_id=fields.get("decoder_start_token_id", int, pad_id or 0),
            eos_token_id=fields.get("eos_token_id", int, 1),
        )
        fields.done(INERT | _INERT_HERE)
        return config

    def to_hf(self) -> dict[str, Any]:
        """The fields of config.json."""
        gelu_of_t5 = self.is_gated and self.activation == "gelu_new"
        activation = "gelu" if gelu_of_t5 else self.activation
        alone = "T5EncoderModel" if self.head is None else _CLASSES[self.head]
        return {
            "architectures": [_CLASSES[self.head] if self.has_decoder else alone],
            "model_type": "t5",
            "is_encoder_decoder": self.has_decoder,
            "vocab_size": self.vocab_size,
            "d_model": self.d_model,
            "num_layers": self.num_layers,
            "num_decoder_layers": self.num_decoder_layers,
            "num_heads": self.num_heads,
            "d_kv": self.head_dim,
            "d_ff": self.d_ff,
            "relative_attention_num_buckets": self.num_buckets,
            "relative_attention_max_distance": self.max_distance,
            "feed_forward_proj": f"gated-{activation}" if self.is_gated else activation,
            "layer_norm_epsilon": self.norm_eps,
            "dropout_rate": self.dropout_p,
            "classifier_dropout": self.classifier_dropout_p,
            # transformers 5 reads this field as the next one; older ones as both.
            "tie_word_embeddings": self.scale_decoder_outputs,
            "scale_decoder_outputs": self.scale_decoder_outputs,
            "num_labels": self.num_labels,
            "pad_token_id": self.pad_token_id,
            "decoder_start_token_id": self.decoder_start_token_id,
            "eos_token_id": self.eos_token_id,
        }


def _activation(fields: Fields) -> tuple[str, bool]:
    """The activation's name, and whether the feed-forward network is gated."""
    name = fields.get("feed_forward_proj", str, "relu")
    gate, _, gated = name.rpartition("-")
    if gate not in ("", "gated"):
        raise CheckpointError(
            f"{fields.file}: the field 'feed_forward_proj' must be an activation or gated-<activation>; "
            f"got {name!r}"
        )
    is_gated = gate == "gated"
    # "gated-gelu" has always meant the tanh approximation.
    activation = "gelu_new" if name == "gated-gelu" else gated
    # transformers writes both beside `feed_forward_proj`, and obeys them where they say something else.
    fields.expect("dense_act_fn", (activation,), default=activation)
    fields.expect("is_gated_act", (is_gated,), default=is_gated)
    return activation, is_gated
