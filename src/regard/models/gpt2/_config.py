"""The sizes of a GPT-2, and the fields of config.json that give them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from regard.checkpoints import Fields
from regard.models._config import DecoderConfig, hf


@dataclass(frozen=True, kw_only=True)
class Gpt2Config(DecoderConfig):
    """A GPT-2; the defaults are those of the smallest, `gpt2`.

    Args:
        vocab_size: rows of the table of learned embeddings.
        d_model: size of the residual stream.
        num_layers: layers.
        num_heads: heads a layer.
        d_ff: size inside the feed-forward network (`n_inner`, or 4 d_model).
        max_seq_len: rows of the table of positions.
        activation: of the feed-forward network.
        norm_eps: added to the variance by every layer norm.
        scale_by_head_dim: whether scores are divided by sqrt(head_dim).
        scale_by_layer: whether also by the layer's number from 1.
        dropout_p, embedding_dropout_p, attention_dropout_p: in training, on sublayers, embeddings, weights.
        classifier_dropout_p: before a classifier of tokens, in training.
        pad_token_id: what fills up a text; a classifier of texts reads the token before.
        tie_word_embeddings: whether the output layer is the table of learned embeddings.

    `head` and `num_labels` are those of `FamilyConfig`.

    Example:
        >>> Gpt2Config(num_layers=24, num_heads=16, d_model=1024).d_model
        1024
    """

    STEMS = {"gpt2": "GPT2"}
    ENDINGS = {**DecoderConfig.ENDINGS, "language-model": "LMHeadModel"}
    # The summary is of a head for multiple choice; upcasting only says in which type the same numbers come
    # about; `predict_special_tokens` is about as many as `n_special` says, and there are none.
    INERT = frozenset(
        {
            *("n_ctx", "predict_special_tokens", "reorder_and_upcast_attn", "summary_activation"),
            *("summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj"),
        }
    )

    vocab_size: int = hf("vocab_size", 50257, is_required=True)
    d_model: int = hf("n_embd", 768, is_required=True)
    num_layers: int = hf("n_layer", 12, is_required=True)
    num_heads: int = hf("n_head", 12, is_required=True)
    d_ff: int = hf("n_inner", 3072, is_derived=True)
    max_seq_len: int = hf("n_positions", 1024, is_required=True)
    activation: str = hf("activation_function", "gelu_new")
    norm_eps: float = hf("layer_norm_epsilon", 1e-5)
    scale_by_head_dim: bool = hf("scale_attn_weights", True)
    scale_by_layer: bool = hf("scale_attn_by_inverse_layer_idx", False)
    dropout_p: float = hf("resid_pdrop", 0.1)
    embedding_dropout_p: float = hf("embd_pdrop", 0.1)
    attention_dropout_p: float = hf("attn_pdrop", 0.1)

    @classmethod
    def derived(cls, fields: Fields, tensors: Collection[str], read: Mapping[str, Any]) -> dict[str, Any]:
        """See `FamilyConfig`."""
        del tensors
        fields.expect("n_special", (0,), default=0)
        inner = fields.get("n_inner", int, None)
        return {"d_ff": 4 * read["d_model"] if inner is None else inner}
