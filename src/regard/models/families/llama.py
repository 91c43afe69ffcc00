"""Llama (Touvron et al. 2023) and the decoders built like it: Mistral, Qwen 2 and Qwen 3."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from regard.blocks import (
    Embeddings,
    GatedFeedForward,
    MultiHeadAttention,
    Pattern,
    PreNorm,
    RMSNorm,
    SelfAttentionLayer,
    Stack,
)
from regard.checkpoints import Fields, GGUFFile, KeyMap, Rename
from regard.core import Causal, Window
from regard.models._attentions import CAUSAL, TakesAttention
from regard.models._config import DecoderConfig, check_sizes, hf
from regard.models._heads import decoder_head
from regard.models._transformer import Transformer
from regard.models.families._gguf import Architecture, rope_of, sizes_of_heads
from regard.models.families._layer_types import (
    FULL,
    SLIDING,
    AllLayers,
    LaterLayers,
    LayerRule,
    read_layer_types,
    read_window,
)
from regard.models.families._rope import ROTARY_BUFFERS, read_rope, write_rope
from regard.positions import Rotary


@dataclass(frozen=True, kw_only=True)
class _Member:
    """What the code of one `model_type` fixes, or lets its files say.

    Args:
        layers: which layers slide.
        qkv_bias, output_bias: whether projections have a bias; None where the file says.
        has_ffn_bias: whether the file may ask for biases in the feed-forward network.
        has_head_dim: whether the file may give the size of a head.
        qk_norm: whether queries and keys are normed.
        has_window: whether the file may give one, in `sliding_window`.
        window_switch: the field that turns it on.
        num_kv_heads, head_dim, max_seq_len: the defaults; None for as many as query heads, and for what they
            leave each.
    """

    layers: LayerRule
    qkv_bias: bool | None = None
    output_bias: bool | None = None
    has_ffn_bias: bool = False
    qk_norm: bool = False
    has_window: bool = True
    window_switch: str | None = "use_sliding_window"
    num_kv_heads: int | None = 32
    head_dim: int | None = None
    max_seq_len: int = 32768


_MEMBERS = {
    "llama": _Member(
        has_ffn_bias=True,
        has_window=False,
        window_switch=None,
        layers=AllLayers(),
        num_kv_heads=None,
        max_seq_len=2048,
    ),
    "mistral": _Member(
        qkv_bias=False,
        output_bias=False,
        window_switch=None,
        layers=AllLayers(),
        num_kv_heads=8,
        max_seq_len=4096 * 32,
    ),
    "qwen2": _Member(layers=LaterLayers("max_window_layers", 28), qkv_bias=True, output_bias=False),
    "qwen3": _Member(layers=LaterLayers("max_window_layers", 28), qk_norm=True, head_dim=128),
}


@dataclass(frozen=True, kw_only=True)
class LlamaConfig(DecoderConfig, TakesAttention):
    """A decoder built like Llama; the defaults are those of Llama 7B.

    Args:
        model_type: "llama", "mistral", "qwen2" or "qwen3".
        num_kv_heads: key and value heads a layer (`num_key_value_heads`).
        head_dim: size of a query, key and value.
        max_seq_len: the length it was made for (`max_position_embeddings`); longer texts are not refused.
        rotary: how positions turn queries and keys.
        layer_types: for each layer "full_attention" or "sliding_attention".
        sliding_window: how many tokens, itself included, a query of a sliding layer sees; None without one.
        norm_eps: added to the mean of squares by every norm (`rms_norm_eps`).
        qkv_bias, output_bias, ffn_bias: whether linear layers have a bias.
        qk_norm: whether queries and keys are normed.
        attention_dropout_p: in training, on attention weights.

    The others are those of `DecoderConfig` and `TakesAttention`.
    """

    ATTENTIONS = CAUSAL
    STEMS = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}
    # SmolLM's training code writes the first. The second is the first Llamas' name for
    # `max_position_embeddings`, which no rotary embedding needs. The third says into how many parts an old
    # version splits a matrix product.
    IGNORED_FIELDS = frozenset({"is_llama_config", "max_sequence_length", "pretraining_tp"})

    model_type: Literal["llama", "mistral", "qwen2", "qwen3"] = hf("model_type", "llama")
    vocab_size: int = hf("vocab_size", 32000, is_required=True)
    d_model: int = hf("hidden_size", 4096, is_required=True)
    num_layers: int = hf("num_hidden_layers", 32, is_required=True)
    num_heads: int = hf("num_attention_heads", 32, is_required=True)
    num_kv_heads: int = hf("num_key_value_heads", 32, is_derived=True)
    head_dim: int = 128
    d_ff: int = hf("intermediate_size", 11008, is_required=True)
    max_seq_len: int = hf("max_position_embeddings", 2048, is_derived=True)
    rotary: Rotary = field(default_factory=lambda: Rotary(128, base=10_000.0))
    layer_types: tuple[str, ...] = (FULL,) * 32
    sliding_window: int | None = None
    activation: str = hf("hidden_act", "silu")
    norm_eps: float = hf("rms_norm_eps", 1e-6)
    qkv_bias: bool = False
    output_bias: bool = False
    ffn_bias: bool = False
    qk_norm: bool = False
    attention_dropout_p: float = hf("attention_dropout", 0.0, null=0.0)
    tie_word_embeddings: bool = hf("tie_word_embeddings", False)

    @classmethod
    def derived(cls, fields: Fields, tensors: Collection[str], read: Mapping[str, Any]) -> dict[str, Any]:
        member, num_heads, num_layers = _MEMBERS[read["model_type"]], read["num_heads"], read["num_layers"]
        head_dim = fields.get("head_dim", int, None)
        if head_dim is None:
            head_dim = member.head_dim or read["d_model"] // max(1, num_heads)
        max_seq_len = fields.get("max_position_embeddings", int, member.max_seq_len)
        window = None
        if member.has_window:
            window = read_window(fields, "sliding_window", 4096, switch=member.window_switch)
        bias = fields.get("attention_bias", bool, False) if member.qkv_bias is None else None
        # Switched on they mean other rotary embeddings: of neighbours (SmolLM), of several axes (Qwen2).
        fields.expect("rope_interleaved", (False,), default=False)
        fields.expect("use_mrope", (False,), default=False)
        kv_heads = fields.get_or_null("num_key_value_heads", int, member.num_kv_heads)
        return {
            "num_kv_heads": num_heads if kv_heads is None else kv_heads,
            "head_dim": head_dim,
            "max_seq_len": max_seq_len,
            "rotary": read_rope(fields, head_dim=head_dim, max_seq_len=max_seq_len)[FULL],
            "layer_types": read_layer_types(fields, member.layers, num_layers=num_layers, window=window),
            "sliding_window": window,
            "qkv_bias": bool(bias if member.qkv_bias is None else member.qkv_bias),
            "output_bias": bool(bias if member.output_bias is None else member.output_bias),
            "ffn_bias": fields.get("mlp_bias", bool, False) if member.has_ffn_bias else False,
            "qk_norm": member.qk_norm,
        }

    def extra(self) -> dict[str, Any]:
        member = _MEMBERS[self.model_type]
        written = write_rope({FULL: self.rotary, SLIDING: self.rotary})
        # Qwen2Config has no such field, but its attention obeys one that is there.
        if self.model_type != "qwen2" or self.head_dim * self.num_heads != self.d_model:
            written["head_dim"] = self.head_dim
        if member.qkv_bias is None:
            written["attention_bias"] = self.qkv_bias
        if member.has_ffn_bias:
            written["mlp_bias"] = self.ffn_bias
        if member.has_window:
            written["sliding_window"] = self.sliding_window
        if member.window_switch is not None:
            written["use_sliding_window"] = self.sliding_window is not None
            written["layer_types"] = list(self.layer_types)
        return written


def build(config: LlamaConfig) -> Transformer:
    """A decoder that predicts the next token.

    Source: Touvron et al. 2023, arXiv 2302.13971, section 2.2; grouped heads: Ainslie et al. 2023, arXiv
    2305.13245; the window: Jiang et al. 2023 (Mistral), arXiv 2310.06825, section 2; norms of queries and
    keys: Yang et al. 2025 (Qwen 3), arXiv 2505.09388, section 2.
    """
    check_sizes(config)
    embeddings = Embeddings(config.vocab_size, config.d_model, pad_id=config.pad_row)
    # The width counts the query itself.
    window = Causal() if config.sliding_window is None else Causal() & Window(left=config.sliding_window - 1)
    patterns = {
        FULL: Pattern(mask=config.masked(Causal()), rotary=config.rotary),
        SLIDING: Pattern(mask=config.masked(window), rotary=config.rotary),
    }
    stack = Stack(
        embeddings,
        [_layer(config, index) for index in range(config.num_layers)],
        patterns=[patterns[kind] for kind in config.layer_types],
        norm=_norm(config, config.d_model),
    )
    return Transformer(config, decoder=stack, head=decoder_head(config, embeddings.tokens))


def _layer(config: LlamaConfig, index: int) -> SelfAttentionLayer:
    return SelfAttentionLayer(
        MultiHeadAttention(
            config.d_model,
            config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            use_bias=config.qkv_bias,
            output_bias=config.output_bias,
            q_norm=_norm(config, config.head_dim) if config.qk_norm else None,
            k_norm=_norm(config, config.head_dim) if config.qk_norm else None,
            dropout_p=config.attention_dropout_p,
            kernel=config.kernel_of(index),
        ),
        GatedFeedForward(config.d_model, config.d_ff, activation=config.activation, use_bias=config.ffn_bias),
        attention_residual=PreNorm(_norm(config, config.d_model)),
        ffn_residual=PreNorm(_norm(config, config.d_model)),
    )


def _norm(config: LlamaConfig, size: int) -> RMSNorm:
    return RMSNorm(size, eps=config.norm_eps)


_LAYER = "decoder.layers.{layer}"

LLAMA_RULES = (
    Rename("embed_tokens.weight", "decoder.embeddings.tokens.weight"),
    Rename("layers.{layer}.self_attn.q_proj.{part}", f"{_LAYER}.attention.q.{{part}}"),
    Rename("layers.{layer}.self_attn.k_proj.{part}", f"{_LAYER}.attention.k.{{part}}"),
    Rename("layers.{layer}.self_attn.v_proj.{part}", f"{_LAYER}.attention.v.{{part}}"),
    Rename("layers.{layer}.self_attn.o_proj.{part}", f"{_LAYER}.attention.output.{{part}}"),
    Rename("layers.{layer}.self_attn.q_norm.weight", f"{_LAYER}.attention.q_norm.weight"),
    Rename("layers.{layer}.self_attn.k_norm.weight", f"{_LAYER}.attention.k_norm.weight"),
    Rename("norm.weight", "decoder.norm.weight"),
    Rename("lm_head.weight", "head.output.weight"),
    Rename("score.{part}", "head.score.{part}"),
    Rename("layers.{layer}.mlp.gate_proj.{part}", f"{_LAYER}.ffn.gate.{{part}}"),
    Rename("layers.{layer}.mlp.up_proj.{part}", f"{_LAYER}.ffn.up.{{part}}"),
    Rename("layers.{layer}.mlp.down_proj.{part}", f"{_LAYER}.ffn.output.{{part}}"),
)
"""All but the norms around the sublayers, as Gemma has them too."""

LLAMA_KEYS = KeyMap(
    rules=(
        *LLAMA_RULES,
        Rename("layers.{layer}.input_layernorm.weight", f"{_LAYER}.attention_residual.norm.weight"),
        Rename("layers.{layer}.post_attention_layernorm.weight", f"{_LAYER}.ffn_residual.norm.weight"),
    ),
    prefixes=("model.",),
    heads=("lm_head.", "score.", "qa_outputs."),
    buffers=ROTARY_BUFFERS,
)
"""Llama's names on disk and in the network."""


_BLOCK, _THEIRS = "blk.{layer}", "layers.{layer}"

GGUF_LLAMA_NAMES = (
    Rename("token_embd.weight", "embed_tokens.weight"),
    Rename("output_norm.weight", "norm.weight"),
    Rename("output.weight", "lm_head.weight"),
    *(
        Rename(f"{_BLOCK}.{gguf}.{{part}}", f"{_THEIRS}.{name}.{{part}}")
        for gguf, name in {
            "attn_q": "self_attn.q_proj",
            "attn_k": "self_attn.k_proj",
            "attn_v": "self_attn.v_proj",
            "attn_output": "self_attn.o_proj",
            "attn_q_norm": "self_attn.q_norm",
            "attn_k_norm": "self_attn.k_norm",
            "ffn_gate": "mlp.gate_proj",
            "ffn_up": "mlp.up_proj",
            "ffn_down": "mlp.down_proj",
            "attn_norm": "input_layernorm",
        }.items()
    ),
)
"""The names of GGUF files, but for the other norms around the sublayers, as those of Gemma have them too."""

GGUF_LLAMA_FIELDS = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
}
"""The fields of GGUF files and of config.json, as those of Gemma have them too."""


def gguf_sizes(fields: Fields, file: GGUFFile) -> dict[str, Any]:
    """What follows from other fields, and from the tensors, in files of all decoders built like Llama."""
    fields.expect("expert_count", (0,), default=0)
    return {
        "vocab_size": file.shape("token_embd.weight")[0] if "token_embd.weight" in file.names() else 0,
        "tie_word_embeddings": "output.weight" not in file.names(),
        **sizes_of_heads(fields),
        **rope_of(fields, file),
    }


def _gguf_llama(fields: Fields, file: GGUFFile) -> dict[str, Any]:
    """Of Llama the tensors say whether there are biases, too."""
    names = file.names()
    fields.expect("expert_used_count", (0,), default=0)
    return gguf_sizes(fields, file) | {
        "attention_bias": "blk.0.attn_q.bias" in names,
        "mlp_bias": "blk.0.ffn_up.bias" in names,
    }


_NAMES = (
    *GGUF_LLAMA_NAMES,
    Rename(f"{_BLOCK}.ffn_norm.weight", f"{_THEIRS}.post_attention_layernorm.weight"),
)

LLAMA_GGUF = {
    "llama": Architecture(
        model_type="llama",
        class_name="LlamaForCausalLM",
        fields=GGUF_LLAMA_FIELDS,
        names=_NAMES,
        more=_gguf_llama,
        in_pairs=True,
    ),
    "qwen2": Architecture(
        model_type="qwen2",
        class_name="Qwen2ForCausalLM",
        fields=GGUF_LLAMA_FIELDS,
        names=_NAMES,
        more=gguf_sizes,
    ),
    "qwen3": Architecture(
        model_type="qwen3",
        class_name="Qwen3ForCausalLM",
        fields=GGUF_LLAMA_FIELDS,
        names=_NAMES,
        more=gguf_sizes,
    ),
}
"""Files of Llama, which those of Mistral call themselves too, and of Qwen."""
