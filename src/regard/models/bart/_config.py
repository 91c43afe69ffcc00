"""The sizes of a BART, an mBART or a Marian model, and the fields of config.json that give them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from regard.checkpoints import Fields, HeadKind
from regard.models._config import FamilyConfig, hf

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


@dataclass(frozen=True, kw_only=True)
class BartConfig(FamilyConfig):
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

    STEMS = {"bart": "Bart", "mbart": "MBart", "marian": "Marian"}
    ENDINGS = {
        None: "Model",
        "language-model": "ForConditionalGeneration",
        "sequence": "ForSequenceClassification",
    }
    # What changes nothing here; `num_hidden_layers` repeats `encoder_layers`. The others are fields of
    # fairseq, of the generator (which token is forced first) and of distillation, and what acts in training.
    INERT = frozenset(
        {
            *("classif_dropout", "decoder_layerdrop", "encoder_layerdrop", "extra_pos_embeddings"),
            *("force_bos_token_to_be_generated", "init_std", "num_hidden_layers", "replacing_rate"),
            *("student_decoder_layers", "student_encoder_layers"),
        }
    )

    model_type: Literal["bart", "mbart", "marian"] = hf("model_type", "bart")
    vocab_size: int = hf("vocab_size", 50265, is_required=True)
    decoder_vocab_size: int = 50265
    d_model: int = hf("d_model", 1024, is_required=True)
    num_layers: int = hf("encoder_layers", 12, is_required=True)
    num_decoder_layers: int = hf("decoder_layers", 12, is_required=True)
    num_heads: int = hf("encoder_attention_heads", 16, is_required=True)
    num_decoder_heads: int = hf("decoder_attention_heads", 16, is_required=True)
    d_ff: int = hf("encoder_ffn_dim", 4096, is_required=True)
    d_decoder_ff: int = hf("decoder_ffn_dim", 4096, is_required=True)
    max_seq_len: int = hf("max_position_embeddings", 1024, is_required=True)
    activation: str = hf("activation_function", "gelu")
    scale_embedding: bool = hf("scale_embedding", False)
    share_embeddings: bool = True
    tie_word_embeddings: bool = hf("tie_word_embeddings", True)
    dropout_p: float = hf("dropout", 0.1)
    attention_dropout_p: float = hf("attention_dropout", 0.0, null=0.0)
    activation_dropout_p: float = hf("activation_dropout", 0.0)
    stores_positions: bool = False
    head: HeadKind | None = "language-model"
    has_logits_bias: bool = True
    num_labels: int = 3
    classifier_dropout_p: float = hf("classifier_dropout", 0.0)
    decoder_start_token_id: int | None = hf("decoder_start_token_id", 2, is_derived=True)
    pad_token_id: int = hf("pad_token_id", 1, is_derived=True)
    eos_token_id: int = hf("eos_token_id", 2, is_derived=True)

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
    def derived(cls, fields: Fields, tensors: Collection[str], read: Mapping[str, Any]) -> dict[str, Any]:
        """See `FamilyConfig`; whether the head has a bias stands only in the names of the stored tensors."""
        model_type, vocab_size = read["model_type"], read["vocab_size"]
        fields.expect("is_encoder_decoder", (True,), default=True)
        fields.expect("is_decoder", (False,), default=False)
        for name, value in _OLD_FIELDS[model_type].items():
            if name in fields.values:
                fields.expect(name, (value,), default=value)
        start, pad, end = {"bart": (2, 1, 2), "mbart": (None, 1, 2), "marian": (58100, 58100, 0)}[model_type]
        derived = {
            "decoder_vocab_size": vocab_size,
            "has_logits_bias": "final_logits_bias" in tensors,
            "decoder_start_token_id": fields.get("decoder_start_token_id", int, start),
            "pad_token_id": fields.get("pad_token_id", int, pad),
            "eos_token_id": fields.get("eos_token_id", int, end),
        }
        if model_type == "marian":
            derived["decoder_vocab_size"] = fields.get("decoder_vocab_size", int, None) or vocab_size
            derived["share_embeddings"] = fields.get("share_encoder_decoder_embeddings", bool, True)
            derived["stores_positions"] = any("embed_positions" in name for name in tensors)
        return derived

    def endings(self) -> Mapping[HeadKind | None, str]:
        """See `FamilyConfig`."""
        is_marian = self.model_type == "marian"
        return {**self.ENDINGS, "language-model": "MTModel"} if is_marian else self.ENDINGS

    def extra(self) -> dict[str, Any]:
        """See `FamilyConfig`."""
        of_marian = {
            "decoder_vocab_size": self.decoder_vocab_size,
            "share_encoder_decoder_embeddings": self.share_embeddings,
        }
        return {"is_encoder_decoder": True, **(of_marian if self.model_type == "marian" else {})}
