"""The sizes of a T5, and the fields of config.json that give them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from regard.checkpoints import Fields, HeadKind
from regard.core.errors import CheckpointError
from regard.models._config import FamilyConfig, hf

_WITH_DECODER = ("T5Model", "ForConditionalGeneration", "ForSequenceClassification", "WithLMHeadModel")


@dataclass(frozen=True, kw_only=True)
class T5Config(FamilyConfig):
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

    STEMS = {"t5": "T5"}
    ENDINGS = {**FamilyConfig.ENDINGS, "language-model": "ForConditionalGeneration"}
    # Written by the first T5 files, read by no code.
    INERT = frozenset({"n_positions"})

    vocab_size: int = hf("vocab_size", 32128, is_required=True)
    d_model: int = hf("d_model", 512, is_required=True)
    num_layers: int = hf("num_layers", 6, is_required=True)
    num_decoder_layers: int = hf("num_decoder_layers", 6, is_derived=True)
    num_heads: int = hf("num_heads", 8, is_required=True)
    head_dim: int = hf("d_kv", 64, is_required=True)
    d_ff: int = hf("d_ff", 2048, is_required=True)
    num_buckets: int = hf("relative_attention_num_buckets", 32)
    max_distance: int = hf("relative_attention_max_distance", 128)
    activation: str = "relu"
    is_gated: bool = False
    norm_eps: float = hf("layer_norm_epsilon", 1e-6)
    dropout_p: float = hf("dropout_rate", 0.1)
    has_decoder: bool = True
    head: HeadKind | None = "language-model"
    classifier_dropout_p: float = hf("classifier_dropout", 0.0)
    tie_word_embeddings: bool = True
    scale_decoder_outputs: bool = hf("scale_decoder_outputs", True, is_derived=True)
    pad_token_id: int | None = hf("pad_token_id", 0)
    decoder_start_token_id: int = hf("decoder_start_token_id", 0, is_derived=True)
    eos_token_id: int = hf("eos_token_id", 1)

    @property
    def max_seq_len(self) -> None:
        """None: a relative bias has no last position."""
        return None

    @classmethod
    def derived(cls, fields: Fields, tensors: Collection[str], read: Mapping[str, Any]) -> dict[str, Any]:
        """See `FamilyConfig`; the tensors say that the output layer is tied, and that there is no decoder."""
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
        return {
            "num_decoder_layers": fields.get("num_decoder_layers", int, None) or read["num_layers"],
            "activation": activation,
            "is_gated": is_gated,
            "has_decoder": has_decoder,
            "tie_word_embeddings": "lm_head.weight" not in tensors,
            "scale_decoder_outputs": fields.get("scale_decoder_outputs", bool, tied),
            "decoder_start_token_id": fields.get("decoder_start_token_id", int, read["pad_token_id"] or 0),
        }

    def endings(self) -> Mapping[HeadKind | None, str]:
        """See `FamilyConfig`."""
        return self.ENDINGS if self.has_decoder else {**self.ENDINGS, None: "EncoderModel"}

    def extra(self) -> dict[str, Any]:
        """See `FamilyConfig`."""
        gelu_of_t5 = self.is_gated and self.activation == "gelu_new"
        activation = "gelu" if gelu_of_t5 else self.activation
        return {
            "is_encoder_decoder": self.has_decoder,
            "feed_forward_proj": f"gated-{activation}" if self.is_gated else activation,
            # transformers 5 reads this field as `scale_decoder_outputs`; older ones as both.
            "tie_word_embeddings": self.scale_decoder_outputs,
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
