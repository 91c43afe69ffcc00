"""Llama (Touvron et al. 2023) and the decoders built like it: Mistral, Phi-3, Qwen 2 and Qwen 3."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
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
from regard.models._config import DecoderConfig, Rate, Size, Small, check_sizes, hf
from regard.models._heads import decoder_head
from regard.models._transformer import Transformer
from regard.models.families._family import Family
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
from regard.models.families._rope import ROTARY_BUFFERS, RopeSpelling, read_rope, write_rope
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
        num_kv_heads, head_dim, max_seq_len, window, norm_eps, pad_id: the defaults; None for as many as query
            heads, and for what they leave each.
        rope: how its files speak of rotary embeddings.
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
    window: int | None = 4096
    norm_eps: float = 1e-6
    pad_id: int | None = None
    rope: RopeSpelling = field(default_factory=RopeSpelling)


_PHI3_CODE = {
    "AutoConfig": "configuration_phi3.Phi3Config",
    "AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM",
}
_PHI4_CODE = _PHI3_CODE | {"AutoTokenizer": "Xenova/gpt-4o"}
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
    "phi3": _Member(
        qkv_bias=False,
        output_bias=False,
        window_switch=None,
        layers=AllLayers(),
        num_kv_heads=None,
        max_seq_len=4096,
        window=None,
        norm_eps=1e-5,
        pad_id=32000,
        rope=RopeSpelling(is_partial=True, original=4096),
    ),
    "qwen2": _Member(layers=LaterLayers("max_window_layers", 28), qkv_bias=True, output_bias=False),
    "qwen3": _Member(layers=LaterLayers("max_window_layers", 28), qk_norm=True, head_dim=128),
}


@dataclass(frozen=True, kw_only=True)
class LlamaConfig(DecoderConfig, TakesAttention):
    """A decoder built like Llama; the defaults are those of Llama 7B.

    Args:
        model_type: "llama", "mistral", "phi3", "qwen2" or "qwen3".
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
        dropout_p: in training, on sublayers (`resid_pdrop` of Phi-3).

    The others are those of `DecoderConfig` and `TakesAttention`.
    """

    ATTENTIONS = CAUSAL
    STEMS = {"llama": "Llama", "mistral": "Mistral", "phi3": "Phi3", "qwen2": "Qwen2", "qwen3": "Qwen3"}
    # SmolLM's training code writes the first. The second is the first Llamas' name for
    # `max_position_embeddings`, which no rotary embedding needs. The third says into how many parts an old
    # version splits a matrix product.
    IGNORED_FIELDS = frozenset({"is_llama_config", "max_sequence_length", "pretraining_tp"})

    model_type: Literal["llama", "mistral", "phi3", "qwen2", "qwen3"] = hf("model_type", "llama")
    vocab_size: Size = hf("vocab_size", 32000, is_required=True)
    d_model: Size = hf("hidden_size", 4096, is_required=True)
    num_layers: Size = hf("num_hidden_layers", 32, is_required=True)
    num_heads: Size = hf("num_attention_heads", 32, is_required=True)
    num_kv_heads: Size = hf("num_key_value_heads", 32, is_derived=True)
    head_dim: Size = 128
    d_ff: Size = hf("intermediate_size", 11008, is_required=True)
    max_seq_len: Size = hf("max_position_embeddings", 2048, is_derived=True)
    rotary: Rotary = field(default_factory=lambda: Rotary(128, base=10_000.0))
    layer_types: tuple[str, ...] = (FULL,) * 32
    sliding_window: int | None = None
    activation: str = hf("hidden_act", "silu")
    norm_eps: Small = hf("rms_norm_eps", 1e-6, is_derived=True)
    qkv_bias: bool = False
    output_bias: bool = False
    ffn_bias: bool = False
    qk_norm: bool = False
    attention_dropout_p: Rate = hf("attention_dropout", 0.0, null=0.0)
    dropout_p: Rate = 0.0
    pad_token_id: int | None = hf("pad_token_id", None, is_derived=True)
    tie_word_embeddings: bool = hf("tie_word_embeddings", False)

    @classmethod
    def derived(cls, fields: Fields, tensors: Collection[str], read: Mapping[str, Any]) -> dict[str, Any]:
        member, num_heads, num_layers = _MEMBERS[read["model_type"]], read["num_heads"], read["num_layers"]
        # The file's, the family's, or d_model / heads.
        head_dim = fields.get("head_dim", int, None)
        if head_dim is None:
            head_dim = member.head_dim or read["d_model"] // max(1, num_heads)
        max_seq_len = fields.get("max_position_embeddings", int, member.max_seq_len)
        window = None
        if member.has_window:
            window = read_window(fields, "sliding_window", member.window, switch=member.window_switch)
        # Some families' code fixes it; then the file is not asked.
        bias = fields.get("attention_bias", bool, False) if member.qkv_bias is None else None
        dropout_p = 0.0
        if read["model_type"] == "phi3":
            dropout_p = fields.get("resid_pdrop", float, 0.0)
            fields.get("embd_pdrop", float, None)  # which no code reads
            # The code in the published folders, which became the class of transformers.
            fields.expect("auto_map", (None, _PHI3_CODE, _PHI4_CODE), default=None)
        # Switched on they mean other rotary embeddings: of neighbours (SmolLM), of several axes (Qwen2).
        fields.expect("rope_interleaved", (False,), default=False)
        fields.expect("use_mrope", (False,), default=False)
        # null is as many as query heads.
        kv_heads = fields.get_or_null("num_key_value_heads", int, member.num_kv_heads)
        return {
            "num_kv_heads": num_heads if kv_heads is None else kv_heads,
            "head_dim": head_dim,
            "max_seq_len": max_seq_len,
            "rotary": read_rope(fields, member.rope, head_dim=head_dim, max_seq_len=max_seq_len)[FULL],
            "norm_eps": fields.get("rms_norm_eps", float, member.norm_eps),
            "pad_token_id": fields.get_or_null("pad_token_id", int, member.pad_id),
            "layer_types": read_layer_types(fields, member.layers, num_layers=num_layers, window=window),
            "sliding_window": window,
            "qkv_bias": bool(bias if member.qkv_bias is None else member.qkv_bias),
            "output_bias": bool(bias if member.output_bias is None else member.output_bias),
            "ffn_bias": fields.get("mlp_bias", bool, False) if member.has_ffn_bias else False,
            "qk_norm": member.qk_norm,
            "dropout_p": dropout_p,
        }

    def extra(self) -> dict[str, Any]:
        # Each family's files have the fields that its code reads.
        member = _MEMBERS[self.model_type]
        written = write_rope({FULL: self.rotary, SLIDING: self.rotary}, member.rope)
        if member.rope.original is not None and hasattr(self.rotary.scaling, "original_max_seq_len"):
            # Where the code of Phi-3 looks for it.
            written["original_max_position_embeddings"] = self.rotary.scaling.original_max_seq_len
        # Their configs have no such field, but the attention obeys one that is there.
        if self.model_type not in ("phi3", "qwen2") or self.head_dim * self.num_heads != self.d_model:
            written["head_dim"] = self.head_dim
        if self.model_type == "phi3":
            written["resid_pdrop"] = self.dropout_p
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
    # Two at most; a layer takes that of its type.
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
            # Over each head by itself, before the rotation (Qwen3).
            q_norm=_norm(config, config.head_dim) if config.qk_norm else None,
            k_norm=_norm(config, config.head_dim) if config.qk_norm else None,
            dropout_p=config.attention_dropout_p,
            kernel=config.kernel_of(index),
        ),
        GatedFeedForward(config.d_model, config.d_ff, activation=config.activation, use_bias=config.ffn_bias),
        attention_residual=PreNorm(_norm(config, config.d_model), dropout_p=config.dropout_p),
        ffn_residual=PreNorm(_norm(config, config.d_model), dropout_p=config.dropout_p),
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

PHI3_KEYS = replace(
    LLAMA_KEYS,
    rules=(
        Rename(
            "layers.{layer}.self_attn.qkv_proj.weight", tuple(f"{_LAYER}.attention.{x}.weight" for x in "qkv")
        ),
        Rename(
            "layers.{layer}.mlp.gate_up_proj.weight", (f"{_LAYER}.ffn.gate.weight", f"{_LAYER}.ffn.up.weight")
        ),
        *(rule for rule in LLAMA_KEYS.rules if not re.search(r"\.(q|k|v|gate|up)_proj", rule.hf)),
    ),
)
"""Phi-3's, whose query, key and value lie in one matrix, and the halves of the gated layer in another."""


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
    return gguf_vocabulary(fields, file) | sizes_of_heads(fields) | rope_of(fields, file)


def gguf_vocabulary(fields: Fields, file: GGUFFile) -> dict[str, Any]:
    """The rows of the table, and whether the output layer is that; mixtures of experts are refused."""
    fields.expect("expert_count", (0,), default=0)
    return {
        "vocab_size": file.shape("token_embd.weight")[0] if "token_embd.weight" in file.names() else 0,
        "tie_word_embeddings": "output.weight" not in file.names(),
    }


def _gguf_llama(fields: Fields, file: GGUFFile) -> dict[str, Any]:
    """The fields of Llama, whose tensors also say whether there are biases."""
    names = file.names()
    fields.expect("expert_used_count", (0,), default=0)
    return gguf_sizes(fields, file) | {
        "attention_bias": "blk.0.attn_q.bias" in names,
        "mlp_bias": "blk.0.ffn_up.bias" in names,
    }


def _gguf_phi3(fields: Fields, file: GGUFFile) -> dict[str, Any]:
    """A part of each head may be turned, and LongRoPE's divisors are tensors."""
    heads, width = fields.require("attention.head_count", int), fields.require("embedding_length", int)
    size = width // max(1, heads)
    for each in ("attention.key_length", "attention.value_length"):
        fields.expect(each, (size,), default=size)
    part = fields.get("rope.dimension_count", int, size) / size
    original = fields.get("rope.scaling.original_context_length", int, 4096)
    amplitude = fields.get("rope.scaling.attn_factor", float, 1.0)
    values = gguf_vocabulary(fields, file) | {"original_max_position_embeddings": original}
    # Phi-4 mini turns three quarters of a head.
    if part != 1.0:
        values["partial_rotary_factor"] = part
    tensors = {f"{name}_factor": f"rope_factors_{name}.weight" for name in ("short", "long")}
    if factors := {
        field: file.read(name).tolist() for field, name in tensors.items() if name in file.names()
    }:
        values["rope_scaling"] = {"rope_type": "longrope", "attention_factor": amplitude, **factors}
    return values


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
    "phi3": Architecture(
        model_type="phi3",
        class_name="Phi3ForCausalLM",
        fields=GGUF_LLAMA_FIELDS | {"attention.sliding_window": "sliding_window"},
        names=(
            Rename(f"{_BLOCK}.attn_qkv.weight", f"{_THEIRS}.self_attn.qkv_proj.weight"),
            Rename(f"{_BLOCK}.ffn_up.weight", f"{_THEIRS}.mlp.gate_up_proj.weight"),
            *(name for name in _NAMES if not re.search(r"\.(attn_[qkv]|ffn_gate|ffn_up)\.", name.hf)),
        ),
        more=_gguf_phi3,
        dropped=frozenset({"rope_factors_short.weight", "rope_factors_long.weight"}),
    ),
}
"""Files of Llama, which those of Mistral call themselves too, of Qwen and of Phi-3."""

FAMILIES = (
    Family("llama", LlamaConfig, build, LLAMA_KEYS, heads_divide=True, live=True),
    Family("mistral", LlamaConfig, build, LLAMA_KEYS, read_by="LlamaTokenizer", live=True),
    # Its layers in transformers part queries from keys by the numbers of heads that the config has for all.
    Family("phi3", LlamaConfig, build, PHI3_KEYS, pruned_by_code=False),
    Family("qwen2", LlamaConfig, build, LLAMA_KEYS, live=True),
    Family("qwen3", LlamaConfig, build, LLAMA_KEYS, read_by="Qwen2Tokenizer", live=True),
)
