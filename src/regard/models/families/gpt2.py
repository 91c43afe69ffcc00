"""GPT-2 (Radford et al. 2019)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from regard.blocks import (
    Embeddings,
    FeedForward,
    MultiHeadAttention,
    Pattern,
    PreNorm,
    SelfAttentionLayer,
    Stack,
)
from regard.checkpoints import Fields, GGUFFile, KeyMap, Rename
from regard.core import Causal
from regard.models._attentions import CAUSAL, TakesAttention
from regard.models._config import DecoderConfig, Rate, Size, Small, check_sizes, hf
from regard.models._heads import decoder_head
from regard.models._init import Normal, Scheme, residual_std
from regard.models._transformer import Transformer
from regard.models.families._family import Family
from regard.models.families._gguf import Architecture
from regard.positions import LearnedPositions


@dataclass(frozen=True, kw_only=True)
class Gpt2Config(DecoderConfig, TakesAttention):
    """A GPT-2; the defaults are those of the smallest, `gpt2`.

    Args:
        d_ff: size inside the feed-forward network (`n_inner`, or 4 d_model).
        max_seq_len: rows of the table of positions.
        norm_eps: added to the variance by every layer norm.
        scale_by_head_dim: whether scores are divided by sqrt(head_dim).
        scale_by_layer: whether also by the layer's number from 1.
        dropout_p, embedding_dropout_p, attention_dropout_p: in training, on sublayers, embeddings, weights.

    The others are those of `DecoderConfig` and `TakesAttention`.
    """

    ATTENTIONS = CAUSAL
    STEMS = {"gpt2": "GPT2"}
    ENDINGS = {**DecoderConfig.ENDINGS, "language-model": "LMHeadModel"}
    # The summary belongs to a head for multiple choice. Upcasting only says in which type the same numbers
    # are computed. `predict_special_tokens` is about tokens that `n_special` counts, and there are none.
    IGNORED_FIELDS = frozenset(
        {
            *("n_ctx", "predict_special_tokens", "reorder_and_upcast_attn", "summary_activation"),
            *("summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj"),
        }
    )

    vocab_size: Size = hf("vocab_size", 50257, is_required=True)
    d_model: Size = hf("n_embd", 768, is_required=True)
    num_layers: Size = hf("n_layer", 12, is_required=True)
    num_heads: Size = hf("n_head", 12, is_required=True)
    d_ff: Size = hf("n_inner", 3072, is_derived=True)
    max_seq_len: Size = hf("n_positions", 1024, is_required=True)
    activation: str = hf("activation_function", "gelu_new")
    norm_eps: Small = hf("layer_norm_epsilon", 1e-5)
    scale_by_head_dim: bool = hf("scale_attn_weights", True)
    scale_by_layer: bool = hf("scale_attn_by_inverse_layer_idx", False)
    dropout_p: Rate = hf("resid_pdrop", 0.1)
    embedding_dropout_p: Rate = hf("embd_pdrop", 0.1)
    attention_dropout_p: Rate = hf("attn_pdrop", 0.1)

    @classmethod
    def derived(cls, fields: Fields, tensors: Collection[str], read: Mapping[str, Any]) -> dict[str, Any]:
        fields.expect("n_special", (0,), default=0)
        # null is four times the width.
        inner = fields.get("n_inner", int, None)
        return {"d_ff": 4 * read["d_model"] if inner is None else inner}

    def initial(self) -> Scheme:
        # Radford et al. 2019, section 2.3: what is added to the residual stream starts smaller.
        out = Normal(residual_std(self.initializer_range, self.num_layers))
        return {"*.attention.output.weight": out, "*.ffn.output.weight": out}


def build(config: Gpt2Config) -> Transformer:
    """A decoder that predicts the next token.

    Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.3.
    """
    check_sizes(config)
    # Tokens and learned positions; the norm comes first in each layer.
    embeddings = Embeddings(
        config.vocab_size,
        config.d_model,
        positions=LearnedPositions(config.max_seq_len, config.d_model),
        dropout_p=config.embedding_dropout_p,
    )
    pattern = Pattern(mask=config.masked(Causal()))
    stack = Stack(
        embeddings,
        [_layer(config, index) for index in range(config.num_layers)],
        patterns=[pattern] * config.num_layers,
        norm=_norm(config),
    )
    return Transformer(
        config, decoder=stack, head=decoder_head(config, embeddings.tokens, of_tokens="labels")
    )


def _layer(config: Gpt2Config, index: int) -> SelfAttentionLayer:
    # With more heads than sizes the quotient is 0; MultiHeadAttention says what is wrong with that.
    scale = max(1, config.d_model // config.num_heads) ** -0.5 if config.scale_by_head_dim else 1.0
    if config.scale_by_layer:
        # Later layers are divided by their number, counted from 1.
        scale /= index + 1
    return SelfAttentionLayer(
        MultiHeadAttention(
            config.d_model,
            config.num_heads,
            scale=scale,
            dropout_p=config.attention_dropout_p,
            kernel=config.kernel_of(index),
        ),
        FeedForward(config.d_model, config.d_ff, activation=config.activation),
        attention_residual=PreNorm(_norm(config), dropout_p=config.dropout_p),
        ffn_residual=PreNorm(_norm(config), dropout_p=config.dropout_p),
    )


def _norm(config: Gpt2Config) -> nn.LayerNorm:
    return nn.LayerNorm(config.d_model, eps=config.norm_eps)


_ATTENTION = "decoder.layers.{layer}.attention"

# Transposed are the weights of Conv1D, in which GPT-2 multiplies from the other side: (d_in, d_out).
GPT2_KEYS = KeyMap(
    rules=(
        Rename("wte.weight", "decoder.embeddings.tokens.weight"),
        Rename("wpe.weight", "decoder.embeddings.positions.weight"),
        Rename("h.{layer}.ln_1.{part}", "decoder.layers.{layer}.attention_residual.norm.{part}"),
        Rename(
            "h.{layer}.attn.c_attn.{part}",
            (f"{_ATTENTION}.q.{{part}}", f"{_ATTENTION}.k.{{part}}", f"{_ATTENTION}.v.{{part}}"),
            transposed=True,
        ),
        Rename("h.{layer}.attn.c_proj.{part}", f"{_ATTENTION}.output.{{part}}", transposed=True),
        Rename("h.{layer}.ln_2.{part}", "decoder.layers.{layer}.ffn_residual.norm.{part}"),
        Rename("h.{layer}.mlp.c_fc.{part}", "decoder.layers.{layer}.ffn.hidden.{part}", transposed=True),
        Rename("h.{layer}.mlp.c_proj.{part}", "decoder.layers.{layer}.ffn.output.{part}", transposed=True),
        Rename("ln_f.{part}", "decoder.norm.{part}"),
        Rename("lm_head.weight", "head.output.weight"),
        Rename("score.weight", "head.score.weight"),
        Rename("classifier.{part}", "head.labels.{part}"),
    ),
    prefixes=("transformer.",),
    heads=("lm_head.", "score.", "classifier.", "qa_outputs.", "multiple_choice_head."),
    # The causal mask, and the number that stood in for minus infinity: written by transformers before 4.31.
    buffers={
        "h.{layer}.attn.bias": lambda at, _: torch.equal(at != 0, torch.ones(at.shape).tril() != 0),
        "h.{layer}.attn.masked_bias": lambda at, _: (at <= -1e4).all(),
    },
)
"""GPT-2's names on disk and in the network."""


def _gguf_sizes(fields: Fields, file: GGUFFile) -> dict[str, Any]:
    names = file.names()
    return {
        "vocab_size": file.shape("token_embd.weight")[0] if "token_embd.weight" in names else 0,
        "tie_word_embeddings": "output.weight" not in names,
    }


_BLOCK = "blk.{layer}"

GPT2_GGUF = {
    "gpt2": Architecture(
        model_type="gpt2",
        class_name="GPT2LMHeadModel",
        fields={
            "block_count": "n_layer",
            "context_length": "n_positions",
            "embedding_length": "n_embd",
            "feed_forward_length": "n_inner",
            "attention.head_count": "n_head",
            "attention.layer_norm_epsilon": "layer_norm_epsilon",
        },
        names=(
            Rename("token_embd.weight", "wte.weight"),
            Rename("position_embd.weight", "wpe.weight"),
            Rename("output_norm.{part}", "ln_f.{part}"),
            Rename("output.weight", "lm_head.weight"),
            Rename(f"{_BLOCK}.attn_norm.{{part}}", "h.{layer}.ln_1.{part}"),
            Rename(f"{_BLOCK}.attn_qkv.{{part}}", "h.{layer}.attn.c_attn.{part}"),
            Rename(f"{_BLOCK}.attn_output.{{part}}", "h.{layer}.attn.c_proj.{part}"),
            Rename(f"{_BLOCK}.ffn_norm.{{part}}", "h.{layer}.ln_2.{part}"),
            Rename(f"{_BLOCK}.ffn_up.{{part}}", "h.{layer}.mlp.c_fc.{part}"),
            Rename(f"{_BLOCK}.ffn_down.{{part}}", "h.{layer}.mlp.c_proj.{part}"),
        ),
        more=_gguf_sizes,
    )
}
"""Files of GPT-2, in which all matrices are (d_out, d_in)."""

FAMILIES = (Family("gpt2", Gpt2Config, build, GPT2_KEYS, pruned_in_4=True, live=True),)
