"""T5 (Raffel et al. 2020) and FLAN-T5."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from torch import nn

from regard.blocks import (
    DecoderLayer,
    Embeddings,
    FeedForward,
    GatedFeedForward,
    MultiHeadAttention,
    Pattern,
    PreNorm,
    RMSNorm,
    SelfAttentionLayer,
    Stack,
)
from regard.checkpoints import Fields, GGUFFile, HeadKind, KeyMap, Rename
from regard.core import Causal
from regard.core.errors import CheckpointError, InputError
from regard.models._config import FamilyConfig, Rate, Size, Small, check_sizes, hf
from regard.models._heads import Head, LanguageModelHead, output_layer, token_classifier
from regard.models._init import Constant, Normal, Scheme
from regard.models._transformer import Transformer
from regard.models.families._encoder_decoder import SHARED_RULES, Parts, end_classifier, names_of_attention
from regard.models.families._family import Family
from regard.models.families._gguf import Architecture, has_gates
from regard.positions import RelativeBias

_WITH_DECODER = ("T5Model", "ForConditionalGeneration", "ForSequenceClassification", "WithLMHeadModel")


@dataclass(frozen=True, kw_only=True)
class T5Config(FamilyConfig):
    """A T5; the defaults are those of t5-small.

    Args:
        num_decoder_layers: layers of the decoder.
        head_dim: size of a query, key and value (`d_kv`).
        num_buckets: distances that the relative bias tells apart (`relative_attention_num_buckets`).
        max_distance: from which on it tells none apart (`relative_attention_max_distance`).
        activation: of the feed-forward network (`feed_forward_proj`, "relu" or "gated-gelu").
        is_gated: whether that is gated.
        norm_eps: added to the mean of squares by every norm (`layer_norm_epsilon`).
        dropout_p: in training, everywhere (`dropout_rate`).
        has_decoder: False for an encoder alone.
        classifier_dropout_p: before a classifier, in training.
        scale_decoder_outputs: whether the decoder's output is divided by sqrt(d_model) before it.
        decoder_start_token_id: what the decoder reads first.
        eos_token_id: where a classifier of texts reads.
        initializer_range: what all weights are multiplied by before training (`initializer_factor`).

    The others are those of `FamilyConfig`.
    """

    STEMS = {"t5": "T5"}
    ENDINGS = {**FamilyConfig.ENDINGS, "language-model": "ForConditionalGeneration"}
    # Written by the first T5 files, read by no code.
    IGNORED_FIELDS = frozenset({"n_positions"})

    vocab_size: Size = hf("vocab_size", 32128, is_required=True)
    d_model: Size = hf("d_model", 512, is_required=True)
    num_layers: Size = hf("num_layers", 6, is_required=True)
    num_decoder_layers: Size = hf("num_decoder_layers", 6, is_derived=True)
    num_heads: Size = hf("num_heads", 8, is_required=True)
    head_dim: Size = hf("d_kv", 64, is_required=True)
    d_ff: Size = hf("d_ff", 2048, is_required=True)
    num_buckets: int = hf("relative_attention_num_buckets", 32)
    max_distance: int = hf("relative_attention_max_distance", 128)
    activation: str = "relu"
    is_gated: bool = False
    norm_eps: Small = hf("layer_norm_epsilon", 1e-6)
    dropout_p: Rate = hf("dropout_rate", 0.1)
    has_decoder: bool = True
    head: HeadKind | None = "language-model"
    classifier_dropout_p: Rate = hf("classifier_dropout", 0.0)
    tie_word_embeddings: bool = hf("tie_word_embeddings", True, is_derived=True)
    scale_decoder_outputs: bool = hf("scale_decoder_outputs", True, is_derived=True)
    decoder_start_token_id: int = hf("decoder_start_token_id", 0, is_derived=True)
    eos_token_id: int = hf("eos_token_id", 1)
    initializer_range: Small = hf("initializer_factor", 1.0, is_shown=False)

    @property
    def max_seq_len(self) -> None:
        """None: a relative bias has no last position."""
        return None

    def with_head(self, head: HeadKind, num_labels: int | None, labels: Sequence[str]) -> Self:
        """See `FamilyConfig`; a classifier of tokens reads an encoder alone, the others have a decoder."""
        # Labels for tokens are read off the encoder; all other heads off the decoder.
        if (head == "token") == self.has_decoder:
            have, need = ("a decoder", "an encoder alone") if self.has_decoder else ("no decoder", "one")
            raise InputError(f"head must fit the stacks: {head!r} needs {need}; got a model with {have}.")
        return super().with_head(head, num_labels, labels)

    @classmethod
    def derived(cls, fields: Fields, tensors: Collection[str], read: Mapping[str, Any]) -> dict[str, Any]:
        """See `FamilyConfig`; the tensors say that the output layer is tied, and that there is no decoder."""
        # A class that has a decoder says so, also where a half-downloaded file lacks it: it is missing then.
        # The class first, then the names of the tensors.
        written_by = fields.list_of("architectures", str, None) or [""]
        has_decoder = written_by[0].endswith(_WITH_DECODER) or any(
            name.removeprefix("transformer.").startswith("decoder.") for name in tensors
        )
        fields.expect("is_encoder_decoder", (True, False) if not has_decoder else (True,), default=True)
        fields.expect("is_decoder", (False,), default=False)
        activation, is_gated = _activation(fields)
        # In T5 1.1 and FLAN-T5 the field says that outputs are not scaled; that is what it stands for since
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
        return self.ENDINGS if self.has_decoder else {**self.ENDINGS, None: "EncoderModel"}

    def initial(self) -> Scheme:
        """Adafactor scales a step by the weights, so that each matrix has the size that its use asks for.

        Source: Raffel et al. 2020, in their code (Mesh TensorFlow).
        """
        # As in transformers: by the number of inputs of each matrix.
        factor, width = self.initializer_range, self.d_model**-0.5
        return {
            "*norm.weight": Constant(factor),
            "*attention.q.weight": Normal(factor * width * self.head_dim**-0.5),
            "*attention.output.weight": Normal(factor * (self.num_heads * self.head_dim) ** -0.5),
            "*.ffn.output.weight": Normal(factor * self.d_ff**-0.5),
            **dict.fromkeys(
                ("*attention.[kv].weight", "*.ffn.*.weight", "*.bias.table.weight", "head.hidden.weight"),
                Normal(factor * width),
            ),
            "head.score.weight": Normal(factor * width),
        }

    def extra(self) -> dict[str, Any]:
        # Their name for the tanh approximation.
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
    # "gated-silu": what stands before the dash, and after it.
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


def build(config: T5Config) -> Transformer:
    """An encoder-decoder from text to text; or its encoder alone.

    Source: Raffel et al. 2020, arXiv 1910.10683, section 2.1; the gated feed-forward of T5 1.1: Shazeer 2020,
    arXiv 2002.05202.
    """
    check_sizes(config)
    # One table for encoder, decoder and, where tied, the head.
    tokens = nn.Embedding(config.vocab_size, config.d_model)
    parts, decoder = _parts(config), None
    if config.has_decoder:
        layers = parts.decoder_layers(config.num_decoder_layers)
        decoder = _stack(config, tokens, layers, Pattern(mask=Causal()), is_bidirectional=False)
    return Transformer(
        config,
        encoder=_stack(
            config, tokens, parts.encoder_layers(config.num_layers), Pattern(), is_bidirectional=True
        ),
        decoder=decoder,
        head=_head(config, tokens),
        start_id=config.decoder_start_token_id if config.has_decoder else None,
    )


def _parts(config: T5Config) -> Parts:
    ffn = GatedFeedForward if config.is_gated else FeedForward
    return Parts(
        # The scores are not scaled: the initial weights make up for it.
        attention=lambda: MultiHeadAttention(
            config.d_model,
            config.num_heads,
            head_dim=config.head_dim,
            use_bias=False,
            scale=1.0,
            dropout_p=config.dropout_p,
        ),
        ffn=lambda: ffn(
            config.d_model,
            config.d_ff,
            activation=config.activation,
            use_bias=False,
            dropout_p=config.dropout_p,
        ),
        residual=lambda: PreNorm(_norm(config), dropout_p=config.dropout_p),
    )


def _stack(
    config: T5Config,
    tokens: nn.Embedding,
    layers: Sequence[SelfAttentionLayer | DecoderLayer],
    pattern: Pattern,
    *,
    is_bidirectional: bool,
) -> Stack:
    return Stack(
        Embeddings(config.vocab_size, config.d_model, tokens=tokens, dropout_p=config.dropout_p),
        layers,
        patterns=[pattern] * len(layers),
        norm=_norm(config),
        # One table for all layers of a stack; a decoder has only buckets for the past.
        bias=RelativeBias(
            config.num_heads, config.num_buckets, config.max_distance, bidirectional=is_bidirectional
        ),
        dropout_p=config.dropout_p,
    )


def _norm(config: T5Config) -> RMSNorm:
    return RMSNorm(config.d_model, eps=config.norm_eps)


def _head(config: T5Config, tokens: nn.Embedding) -> Head | None:
    match config.head:
        case "language-model":
            # A tied table is as large as embeddings need, too large for logits.
            scale = config.d_model**-0.5 if config.scale_decoder_outputs else 1.0
            return LanguageModelHead(output_layer(tokens, is_tied=config.tie_word_embeddings), scale=scale)
        case "sequence":
            return end_classifier(config, pad_id=None)
        case "token":
            return token_classifier(config.d_model, config.num_labels, dropout_p=config.classifier_dropout_p)
    return None


_NAMES = "{0}.q {0}.k {0}.v {0}.o layer_norm"


def _names_of_stack(stack: str, *, ffn: int) -> tuple[Rename, ...]:
    """The names that both stacks have, under their own; `ffn` is the number of the feed-forward sublayer."""
    # Sublayers have numbers: 0 attention, 1 cross-attention in a decoder, then feed-forward.
    theirs, ours = f"{stack}.block.{{layer}}.layer", f"{stack}.layers.{{layer}}"
    # The first layer stores the table that all layers of the stack read.
    first = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    return (
        Rename(first, f"{stack}.bias.table.weight"),
        *names_of_attention(f"{theirs}.0", f"{ours}.attention", _NAMES.format("SelfAttention")),
        Rename(f"{theirs}.{ffn}.layer_norm.weight", f"{ours}.ffn_residual.norm.weight"),
        Rename(f"{theirs}.{ffn}.DenseReluDense.wi.weight", f"{ours}.ffn.hidden.weight"),
        Rename(f"{theirs}.{ffn}.DenseReluDense.wi_0.weight", f"{ours}.ffn.gate.weight"),
        Rename(f"{theirs}.{ffn}.DenseReluDense.wi_1.weight", f"{ours}.ffn.up.weight"),
        Rename(f"{theirs}.{ffn}.DenseReluDense.wo.weight", f"{ours}.ffn.output.weight"),
        Rename(f"{stack}.final_layer_norm.weight", f"{stack}.norm.weight"),
    )


T5_KEYS = KeyMap(
    rules=(
        *SHARED_RULES,
        *_names_of_stack("encoder", ffn=1),
        *_names_of_stack("decoder", ffn=2),
        *names_of_attention(
            "decoder.block.{layer}.layer.1",
            "decoder.layers.{layer}.cross_attention",
            _NAMES.format("EncDecAttention"),
        ),
        Rename("classifier.{part}", "head.labels.{part}"),
    ),
    prefixes=("transformer.",),
    heads=("classification_head.", "classifier.", "qa_outputs."),
    left_out=(
        "lm_head.",
        # Stored by the first T5 files, read by none: cross-attention has no relative bias.
        "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.",
    ),
)
"""T5's names on disk and in the network."""


def _gguf_names(stack: str, theirs: str, *, ffn: int) -> tuple[Rename, ...]:
    """The names of one stack, `enc` or `dec`; `ffn` is the number of the feed-forward sublayer."""
    # From the names of GGUF to those of a folder.
    block, layer = f"{theirs}.blk.{{layer}}", f"{stack}.block.{{layer}}.layer"
    attention = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    return (
        Rename(f"{theirs}.blk.0.attn_rel_b.weight", attention),
        *(
            Rename(f"{block}.{gguf}.weight", f"{layer}.{name}.weight")
            for gguf, name in {
                **{f"attn_{each}": f"0.SelfAttention.{each}" for each in "qkvo"},
                **{f"cross_attn_{each}": f"1.EncDecAttention.{each}" for each in "qkvo"},
                "attn_norm": "0.layer_norm",
                "cross_attn_norm": "1.layer_norm",
                "ffn_norm": f"{ffn}.layer_norm",
                "ffn_gate": f"{ffn}.DenseReluDense.wi_0",
                "ffn_up": f"{ffn}.DenseReluDense.wi_1",
                "ffn_down": f"{ffn}.DenseReluDense.wo",
                "cross_attn_rel_b": "1.EncDecAttention.relative_attention_bias",
            }.items()
        ),
        Rename(f"{theirs}.output_norm.weight", f"{stack}.final_layer_norm.weight"),
    )


def _gguf_sizes(fields: Fields, file: GGUFFile) -> dict[str, Any]:
    """The kind of feed-forward network, which the tensors show: that of T5 1.1 and FLAN-T5 is gated."""
    names = file.names()
    # Keys and values must be as T5 has them.
    heads, size = fields.require("attention.head_count", int), fields.require("attention.key_length", int)
    fields.expect("attention.value_length", (size,), default=size)
    fields.expect("attention.head_count_kv", (heads,), default=heads)
    is_tied = "output.weight" not in names
    return {
        "vocab_size": file.shape("token_embd.weight")[0] if "token_embd.weight" in names else 0,
        "feed_forward_proj": "gated-gelu" if has_gates(names) else "relu",
        "tie_word_embeddings": is_tied,
        "scale_decoder_outputs": is_tied,
        "is_encoder_decoder": any(name.startswith("dec.") for name in names),
    }


_FIELDS = {
    "block_count": "num_layers",
    "decoder_block_count": "num_decoder_layers",
    "embedding_length": "d_model",
    "feed_forward_length": "d_ff",
    "attention.head_count": "num_heads",
    "attention.key_length": "d_kv",
    "attention.relative_buckets_count": "relative_attention_num_buckets",
    "attention.layer_norm_rms_epsilon": "layer_norm_epsilon",
    "attention.layer_norm_epsilon": "layer_norm_epsilon",
    "decoder_start_token_id": "decoder_start_token_id",
}

T5_GGUF = {
    name: Architecture(
        model_type="t5",
        class_name=class_name,
        fields=_FIELDS,
        names=(
            Rename("token_embd.weight", "shared.weight"),
            Rename("output.weight", "lm_head.weight"),
            *_gguf_names("encoder", "enc", ffn=1),
            *_gguf_names("decoder", "dec", ffn=2),
        ),
        without_gates=tuple(
            Rename(
                f"{gguf}.blk.{{layer}}.ffn_up.weight",
                f"{stack}.block.{{layer}}.layer.{ffn}.DenseReluDense.wi.weight",
            )
            for gguf, stack, ffn in (("enc", "encoder", 1), ("dec", "decoder", 2))
        ),
        more=_gguf_sizes,
        inert=frozenset({"context_length"}),  # a relative bias has no last position
    )
    for name, class_name in (("t5", "T5ForConditionalGeneration"), ("t5encoder", "T5EncoderModel"))
}
"""Files of T5."""

# In transformers its layers hand the bias of all heads on to the next layer, which no code beside it can cut;
# version 4 has the method for `pruned_heads`, and fails in it.
FAMILIES = (Family("t5", T5Config, build, T5_KEYS, pruned_by_code=False),)
