"""The sizes of a BART, an mBART or a Marian model, and the fields of config.json that give them."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

from regard.checkpoints import INERT, Fields, HeadKind, head_of, num_labels
from regard.core.errors import CheckpointError

# What changes nothing here; `num_hidden_layers` repeats `encoder_layers`. The others are fields of fairseq,
# of the generator (which token is forced first) and of distillation, and what acts in training only.
_INERT_HERE = frozenset(
    {
        "classif_dropout",
        "decoder_layerdrop",
        "encoder_layerdrop",
        "extra_pos_embeddings",
        "force_bos_token_to_be_generated",
        "init_std",
        "num_hidden_layers",
        "replacing_rate",
        "student_decoder_layers",
        "student_encoder_layers",
    }
)

_STEMS = {"bart": "Bart", "mbart": "MBart", "marian": "Marian"}


@dataclass(frozen=True, kw_only=True, slots=True)
class BartConfig:
    """A BART, an mBART or a Marian model; the defaults are those of bart-large.

    Args:
        model_type: which of the three, "bart", "mbart" or "marian".
        vocab_size: rows of the encoder's table of learned embeddings, and the decoder's where they share it.
        decoder_vocab_size: rows of the decoder's.
        d_model: size of the residual stream.
        num_layers, num_decoder_layers: layers of the encoder and the decoder.
        num_heads, num_decoder_heads: heads a layer.
        d_ff, d_decoder_ff: size inside the feed-forward networks.
        max_seq_len: the most positions (`max_position_embeddings`).
        activation: of the feed-forward networks (`activation_function`).
        scale_embedding: whether learned embeddings are multiplied by sqrt(d_model).
        share_embeddings: whether encoder and decoder have one table.
        tie_word_embeddings: whether the output layer is the decoder's table.
        dropout_p, attention_dropout_p, activation_dropout_p: in training, on sublayers, attention weights and
            inside the feed-forward networks.
        stores_positions: whether Marian's sinusoids stand in the checkpoint, which then gives them.
        head: what the checkpoint's head is for, or None.
        has_logits_bias: whether the language-model head has one (`final_logits_bias`).
        num_labels, classifier_dropout_p: of a classifier.
        decoder_start_token_id: what the decoder reads first; None where the text's language says (mBART).
        pad_token_id: what fills up a text.
        eos_token_id: where a classifier reads.

    Example:
        >>> BartConfig(model_type="mbart").norm_first
        True
    """

    model_type: Literal["bart", "mbart", "marian"] = "bart"
    vocab_size: int = 50265
    decoder_vocab_size: int = 50265
    d_model: int = 1024
    num_layers: int = 12
    num_decoder_layers: int = 12
    num_heads: int = 16
    num_decoder_heads: int = 16
    d_ff: int = 4096
    d_decoder_ff: int = 4096
    max_seq_len: int = 1024
    activation: str = "gelu"
    scale_embedding: bool = False
    share_embeddings: bool = True
    tie_word_embeddings: bool = True
    dropout_p: float = 0.1
    attention_dropout_p: float = 0.0
    activation_dropout_p: float = 0.0
    stores_positions: bool = False
    head: HeadKind | None = "language-model"
    has_logits_bias: bool = True
    num_labels: int = 3
    classifier_dropout_p: float = 0.0
    decoder_start_token_id: int | None = 2
    pad_token_id: int = 1
    eos_token_id: int = 2

    @property
    def num_token_types(self) -> int:
        """0: none of the three has token types."""
        return 0

    @property
    def norm_eps(self) -> float:
        """1e-5, which no field of config.json can change."""
        return 1e-5

    @property
    def norm_first(self) -> bool:
        """Whether norms stand before sublayers, with one after the last layer: mBART."""
        return self.model_type == "mbart"

    @property
    def has_embedding_norm(self) -> bool:
        """Whether the embeddings are normed: all but Marian."""
        return self.model_type != "marian"

    @property
    def has_sinusoids(self) -> bool:
        """Whether positions are sinusoids, not learned: Marian."""
        return self.model_type == "marian"

    @classmethod
    def from_hf(cls, fields: Fields, tensors: Collection[str]) -> "BartConfig":
        """Read config.json; whether the head has a bias stands only in the names of the stored tensors."""
        model_type = fields.require("model_type", str)
        fields.expect("is_encoder_decoder", (True,), default=True)
        fields.expect("is_decoder", (False,), default=False)
        _check_old_fields(fields, model_type)
        vocab_size = fields.require("vocab_size", int)
        is_marian = model_type == "marian"
        config = cls(
            model_type=model_type,  # type: ignore[arg-type]  # the registry has asked for one of the three
            vocab_size=vocab_size,
            decoder_vocab_size=(fields.get("decoder_vocab_size", int, None) if is_marian else None)
            or vocab_size,
            d_model=fields.require("d_model", int),
            num_layers=fields.require("encoder_layers", int),
            num_decoder_layers=fields.require("decoder_layers", int),
            num_heads=fields.require("encoder_attention_heads", int),
            num_decoder_heads=fields.require("decoder_attention_heads", int),
            d_ff=fields.require("encoder_ffn_dim", int),
            d_decoder_ff=fields.require("decoder_ffn_dim", int),
            max_seq_len=fields.require("max_position_embeddings", int),
            activation=fields.get("activation_function", str, "gelu"),
            scale_embedding=fields.get("scale_embedding", bool, False),
            share_embeddings=fields.get("share_encoder_decoder_embeddings", bool, True)
            if is_marian
            else True,
            tie_word_embeddings=fields.get("tie_word_embeddings", bool, True),
            dropout_p=fields.get("dropout", float, 0.1),
            attention_dropout_p=fields.get("attention_dropout", float, None) or 0.0,
            activation_dropout_p=fields.get("activation_dropout", float, 0.0),
            stores_positions=is_marian and any("embed_positions" in name for name in tensors),
            head=head_of(fields),
            has_logits_bias="final_logits_bias" in tensors,
            num_labels=num_labels(fields),
            classifier_dropout_p=fields.get("classifier_dropout", float, 0.0),
            decoder_start_token_id=fields.get(
                "decoder_start_token_id", int, {"bart": 2, "mbart": None, "marian": 58100}[model_type]
            ),
            pad_token_id=fields.get("pad_token_id", int, 58100 if is_marian else 1),
            eos_token_id=fields.get("eos_token_id", int, 0 if is_marian else 2),
        )
        fields.done(INERT | _INERT_HERE)
        return config

    def to_hf(self) -> dict[str, Any]:
        """The fields of config.json."""
        endings = {
            None: "Model",
            "language-model": "MTModel" if self.model_type == "marian" else "ForConditionalGeneration",
            "sequence": "ForSequenceClassification",
        }
        of_marian = {
            "decoder_vocab_size": self.decoder_vocab_size,
            "share_encoder_decoder_embeddings": self.share_embeddings,
        }
        return {
            "architectures": [_STEMS[self.model_type] + endings[self.head]],
            "model_type": self.model_type,
            "is_encoder_decoder": True,
            "vocab_size": self.vocab_size,
            "d_model": self.d_model,
            "encoder_layers": self.num_layers,
            "decoder_layers": self.num_decoder_layers,
            "encoder_attention_heads": self.num_heads,
            "decoder_attention_heads": self.num_decoder_heads,
            "encoder_ffn_dim": self.d_ff,
            "decoder_ffn_dim": self.d_decoder_ff,
            "max_position_embeddings": self.max_seq_len,
            "activation_function": self.activation,
            "scale_embedding": self.scale_embedding,
            "tie_word_embeddings": self.tie_word_embeddings,
            "dropout": self.dropout_p,
            "attention_dropout": self.attention_dropout_p,
            "activation_dropout": self.activation_dropout_p,
            "classifier_dropout": self.classifier_dropout_p,
            "num_labels": self.num_labels,
            "decoder_start_token_id": self.decoder_start_token_id,
            "pad_token_id": self.pad_token_id,
            "eos_token_id": self.eos_token_id,
            **(of_marian if self.model_type == "marian" else {}),
        }


# Spellings of configs written before transformers 4; each at the only value that its family can have.
_OLD_FIELDS: dict[str, dict[str, bool]] = {
    "bart": {
        "add_bias_logits": False,
        "add_final_layer_norm": False,
        "normalize_before": False,
        "normalize_embedding": True,
        "static_position_embeddings": False,
    },
    "mbart": {
        "add_bias_logits": False,
        "add_final_layer_norm": True,
        "normalize_before": True,
        "normalize_embedding": True,
        "static_position_embeddings": False,
    },
    "marian": {
        "add_bias_logits": False,
        "add_final_layer_norm": False,
        "normalize_before": False,
        "normalize_embedding": False,
        "static_position_embeddings": True,
    },
}


def _check_old_fields(fields: Fields, model_type: str) -> None:
    if model_type not in _STEMS:
        raise CheckpointError(
            f"{fields.file}: the field 'model_type' must be bart, mbart or marian; got {model_type!r}"
        )
    for name, value in _OLD_FIELDS[model_type].items():
        if name in fields.values:
            fields.expect(name, (value,), default=value)
