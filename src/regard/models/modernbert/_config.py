"""The sizes of a ModernBERT, and the fields of config.json that give them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from regard.checkpoints import Fields
from regard.models._config import EncoderConfig, hf
from regard.models._layer_types import FULL, SLIDING, OneInEvery, read_layer_types, read_window
from regard.models._rope import RopeSpelling, Theta, read_rope, write_rope
from regard.positions import Rotary

_LAYERS = OneInEvery(3, field="global_attn_every_n_layers", is_first=True)
_ROPE = RopeSpelling(Theta("global_rope_theta", 160_000.0), Theta("local_rope_theta", 10_000.0))


@dataclass(frozen=True, kw_only=True)
class ModernBertConfig(EncoderConfig):
    """A ModernBERT encoder; the defaults are those of ModernBERT-base.

    Args:
        vocab_size: rows of the table of learned embeddings.
        d_model: size of the residual stream (`hidden_size`).
        num_layers: encoder layers (`num_hidden_layers`).
        num_heads: heads a layer (`num_attention_heads`).
        d_ff: size inside the feed-forward network (`intermediate_size`).
        max_seq_len: the length it was made for (`max_position_embeddings`); longer texts are not refused.
        rope: how positions turn queries and keys, by type of layer.
        layer_types: for each layer "full_attention" or "sliding_attention".
        local_attention: width of the window of a sliding layer, half of it on either side of a query.
        activation: of the feed-forward network's gate (`hidden_activation`).
        norm_eps: added to the variance by every layer norm.
        norm_bias, attention_bias, ffn_bias: whether norms, and linear layers, have a bias (`mlp_bias`).
        embedding_dropout_p, attention_dropout_p, ffn_dropout_p: in training.
        head: what the checkpoint's head is for, or None.
        head_bias, output_bias: whether the head's first layer has a bias, and the layer to the vocabulary
            (`classifier_bias`, `decoder_bias`).
        head_activation: between a head's layers (`classifier_activation`).
        pooling: what a classifier of texts reads (`classifier_pooling`).
        num_labels, classifier_dropout_p: of a classifier.
        pad_token_id: what fills up a text.
        tie_word_embeddings: whether the masked-LM head's output is the table of learned embeddings.

    Example:
        >>> ModernBertConfig().layer_types[:3]
        ('full_attention', 'sliding_attention', 'sliding_attention')
    """

    STEMS = {"modernbert": "ModernBert"}
    STARTS = {"masked-lm": "head.", "sequence": "classifier.", "token": "classifier."}
    # `layer_norm_eps` and `position_embedding_type` stand in the first files and were never read: the norms
    # have `norm_eps`, and there are no absolute positions. The others say how it is trained, and what is left
    # out of a loss.
    INERT = frozenset(
        {
            *("cls_token_id", "deterministic_flash_attn", "initializer_cutoff_factor", "layer_norm_eps"),
            *("position_embedding_type", "reference_compile", "repad_logits_with_grad"),
            *("sparse_pred_ignore_index", "sparse_prediction"),
        }
    )

    vocab_size: int = hf("vocab_size", 50368, is_required=True)
    d_model: int = hf("hidden_size", 768, is_required=True)
    num_layers: int = hf("num_hidden_layers", 22, is_required=True)
    num_heads: int = hf("num_attention_heads", 12, is_required=True)
    d_ff: int = hf("intermediate_size", 1152, is_required=True)
    max_seq_len: int = hf("max_position_embeddings", 8192)
    rope: Mapping[str, Rotary] = field(
        default_factory=lambda: {FULL: Rotary(64, base=160_000.0), SLIDING: Rotary(64, base=10_000.0)}
    )
    layer_types: tuple[str, ...] = (FULL, SLIDING, SLIDING) * 7 + (FULL,)
    local_attention: int = hf("local_attention", 128, is_derived=True)
    activation: str = hf("hidden_activation", "gelu")
    norm_eps: float = hf("norm_eps", 1e-5)
    norm_bias: bool = hf("norm_bias", False)
    attention_bias: bool = hf("attention_bias", False)
    ffn_bias: bool = hf("mlp_bias", False)
    embedding_dropout_p: float = hf("embedding_dropout", 0.0)
    attention_dropout_p: float = hf("attention_dropout", 0.0)
    ffn_dropout_p: float = hf("mlp_dropout", 0.0)
    head_bias: bool = hf("classifier_bias", False)
    output_bias: bool = hf("decoder_bias", True)
    head_activation: str = hf("classifier_activation", "gelu")
    pooling: Literal["cls", "mean"] = hf("classifier_pooling", "cls")
    classifier_dropout_p: float = hf("classifier_dropout", 0.0)
    pad_token_id: int | None = hf("pad_token_id", 50283)
    tie_word_embeddings: bool = hf("tie_word_embeddings", True)

    @classmethod
    def derived(cls, fields: Fields, tensors: Collection[str], read: Mapping[str, Any]) -> dict[str, Any]:
        """See `FamilyConfig`."""
        del tensors
        window = read_window(fields, "local_attention", 128)
        head_dim = read["d_model"] // max(1, read["num_heads"])
        return {
            "rope": read_rope(fields, _ROPE, head_dim=head_dim, max_seq_len=read["max_seq_len"]),
            "layer_types": read_layer_types(fields, _LAYERS, num_layers=read["num_layers"], window=window),
            "local_attention": 128 if window is None else window,
        }

    def extra(self) -> dict[str, Any]:
        """See `FamilyConfig`."""
        return write_rope(self.rope, _ROPE) | {"layer_types": list(self.layer_types)}
