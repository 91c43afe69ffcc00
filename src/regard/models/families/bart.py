"""BART (Lewis et al. 2020), and the encoder-decoders built like it: mBART and Marian."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import nn

from regard.blocks import (
    CountFrom,
    DecoderLayer,
    Embeddings,
    FeedForward,
    MultiHeadAttention,
    Pattern,
    PostNorm,
    PreNorm,
    SelfAttentionLayer,
    Stack,
)
from regard.checkpoints import Fields, HeadKind, KeyMap, Rename
from regard.core import Causal
from regard.models._config import FamilyConfig, Rate, Size, Small, check_sizes, hf
from regard.models._heads import Head, LanguageModelHead, output_layer
from regard.models._init import Scheme, Sinusoids, XavierUniform
from regard.models._transformer import Transformer
from regard.models.families._encoder_decoder import SHARED_RULES, Parts, end_classifier, names_of_attention
from regard.models.families._family import Family
from regard.positions import LearnedPositions, SinusoidalPositions


@dataclass(frozen=True, kw_only=True)
class BartConfig(FamilyConfig):
    """A BART, an mBART or a Marian model; the defaults are those of bart-large.

    Args:
        model_type: which of the three, "bart", "mbart" or "marian".
        vocab_size: rows of the encoder's table of learned embeddings, and the decoder's where they share it.
        decoder_vocab_size: rows of the decoder's.
        num_layers, num_decoder_layers: layers of the encoder and the decoder.
        num_heads, num_decoder_heads: heads a layer.
        d_ff, d_decoder_ff: size inside the feed-forward networks.
        max_seq_len: the most positions (`max_position_embeddings`).
        scale_embedding: whether learned embeddings are multiplied by sqrt(d_model).
        share_embeddings: whether encoder and decoder have one table.
        tie_word_embeddings: whether the output layer is the decoder's table.
        dropout_p, attention_dropout_p, activation_dropout_p: in training, on sublayers, attention weights and
            inside the feed-forward networks.
        stores_positions: whether Marian's sinusoids stand in the checkpoint, which then gives them.
        has_logits_bias: whether the language-model head has one (`final_logits_bias`).
        num_labels, classifier_dropout_p: of a classifier.
        decoder_start_token_id: what the decoder reads first; None where the text's language says (mBART).
        eos_token_id: where a classifier reads.
        starts_xavier: whether weights begin as Xavier's uniform matrices, not of width `initializer_range`
            (`init_std`); no file says it.

    The others are those of `FamilyConfig`.
    """

    STEMS = {"bart": "Bart", "mbart": "MBart", "marian": "Marian"}
    ENDINGS = {
        None: "Model",
        "language-model": "ForConditionalGeneration",
        "sequence": "ForSequenceClassification",
    }
    # What changes nothing here; `num_hidden_layers` repeats `encoder_layers`. The others are fields of
    # fairseq, of the generator (which token is forced first) and of distillation, and what acts in training.
    IGNORED_FIELDS = frozenset(
        {
            *("classif_dropout", "decoder_layerdrop", "encoder_layerdrop", "extra_pos_embeddings"),
            *("force_bos_token_to_be_generated", "num_hidden_layers", "replacing_rate"),
            *("student_decoder_layers", "student_encoder_layers"),
        }
    )

    model_type: Literal["bart", "mbart", "marian"] = hf("model_type", "bart")
    vocab_size: Size = hf("vocab_size", 50265, is_required=True)
    # Its own only in Marian.
    decoder_vocab_size: Size = 50265
    d_model: Size = hf("d_model", 1024, is_required=True)
    num_layers: Size = hf("encoder_layers", 12, is_required=True)
    num_decoder_layers: Size = hf("decoder_layers", 12, is_required=True)
    num_heads: Size = hf("encoder_attention_heads", 16, is_required=True)
    num_decoder_heads: Size = hf("decoder_attention_heads", 16, is_required=True)
    d_ff: Size = hf("encoder_ffn_dim", 4096, is_required=True)
    d_decoder_ff: Size = hf("decoder_ffn_dim", 4096, is_required=True)
    max_seq_len: Size = hf("max_position_embeddings", 1024, is_required=True)
    activation: str = hf("activation_function", "gelu")
    scale_embedding: bool = hf("scale_embedding", False)
    share_embeddings: bool = True
    dropout_p: Rate = hf("dropout", 0.1)
    attention_dropout_p: Rate = hf("attention_dropout", 0.0, null=0.0)
    activation_dropout_p: Rate = hf("activation_dropout", 0.0)
    stores_positions: bool = False
    head: HeadKind | None = "language-model"
    has_logits_bias: bool = True
    num_labels: Size = 3
    classifier_dropout_p: Rate = hf("classifier_dropout", 0.0)
    decoder_start_token_id: int | None = hf("decoder_start_token_id", 2, is_derived=True)
    pad_token_id: int = hf("pad_token_id", 1, is_derived=True)
    eos_token_id: int = hf("eos_token_id", 2, is_derived=True)
    initializer_range: Small = hf("init_std", 0.02, null=0.02, is_shown=False)
    starts_xavier: bool = field(default=False, repr=False, compare=False)

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
        # Fields that follow from others, or stand in the names of tensors.
        model_type, vocab_size = read["model_type"], read["vocab_size"]
        fields.expect("is_encoder_decoder", (True,), default=True)
        fields.expect("is_decoder", (False,), default=False)
        # Spellings of configs written before transformers 4; each at the only value that its family can have.
        is_mbart, is_marian = model_type == "mbart", model_type == "marian"
        for name, value in {
            "add_bias_logits": False,
            "add_final_layer_norm": is_mbart,
            "normalize_before": is_mbart,
            "normalize_embedding": not is_marian,
            "static_position_embeddings": is_marian,
        }.items():
            fields.expect(name, (value,), default=value)
        # What the classes of transformers have where a file says nothing.
        start, pad, end = {"bart": (2, 1, 2), "mbart": (None, 1, 2), "marian": (58100, 58100, 0)}[model_type]
        # Since transformers 5 an output layer of its own comes with a table for each stack.
        tables = {f"{stack}.embed_tokens.weight" for stack in ("encoder", "decoder")}
        own_tables = tables <= {name.removeprefix("model.") for name in tensors}
        derived = {
            "decoder_vocab_size": vocab_size,
            "share_embeddings": read["tie_word_embeddings"] or not own_tables,
            "has_logits_bias": "final_logits_bias" in tensors,
            "decoder_start_token_id": fields.get("decoder_start_token_id", int, start),
            "pad_token_id": fields.get("pad_token_id", int, pad),
            "eos_token_id": fields.get("eos_token_id", int, end),
        }
        if is_marian:
            derived["decoder_vocab_size"] = fields.get("decoder_vocab_size", int, None) or vocab_size
            derived["share_embeddings"] &= fields.get("share_encoder_decoder_embeddings", bool, True)
            derived["stores_positions"] = any("embed_positions" in name for name in tensors)
        return derived

    @property
    def initial_std(self) -> float:
        """With Xavier's matrices the tables have 1 / sqrt(d_model), which the embeddings' scale makes 1."""
        return self.d_model**-0.5 if self.starts_xavier else self.initializer_range

    def initial(self) -> Scheme:
        """Queries, keys and values begin as one Xavier matrix of three: by sqrt(2) smaller than alone.

        A layer adds nearly the same to every position before it has learned where to look. Were that larger,
        four layers would make the positions of a text the same, and training would have to undo it.

        Source: fairseq (Ott et al. 2019, arXiv 1904.01038) and `torch.nn.MultiheadAttention`, in their code;
        the collapse: Noci et al. 2022, arXiv 2206.03126.
        """
        sinusoids: Scheme = {"*.positions.weight": Sinusoids("half")} if self.has_sinusoids else {}
        if not self.starts_xavier:
            return sinusoids
        inputs = dict.fromkeys((f"*attention.{name}.weight" for name in "qkv"), XavierUniform(joined=3))
        names = ("*attention.output.weight", "*.ffn.*.weight", "head.hidden.weight", "head.score.weight")
        return {**sinusoids, **inputs, **dict.fromkeys(names, XavierUniform())}

    def endings(self) -> Mapping[HeadKind | None, str]:
        is_marian = self.model_type == "marian"
        return {**self.ENDINGS, "language-model": "MTModel"} if is_marian else self.ENDINGS

    def extra(self) -> dict[str, Any]:
        of_marian = {
            "decoder_vocab_size": self.decoder_vocab_size,
            "share_encoder_decoder_embeddings": self.share_embeddings,
        }
        return {"is_encoder_decoder": True, **(of_marian if self.model_type == "marian" else {})}


# The first two rows of the table of learned positions are never read: fairseq kept them for padding.
_FIRST_POSITION = 2


def build(config: BartConfig) -> Transformer:
    """An encoder-decoder from text to text.

    Source: Lewis et al. 2020, arXiv 1910.13461; mBART: Liu et al. 2020, arXiv 2001.08210; Marian:
    Junczys-Dowmunt et al. 2018, arXiv 1804.00344.
    """
    check_sizes(config)
    # One table for both stacks, unless the checkpoint has two.
    tokens = nn.Embedding(config.vocab_size, config.d_model, padding_idx=config.pad_row)
    targets = tokens
    if not config.share_embeddings:
        pad = config.pad_row if config.pad_token_id < config.decoder_vocab_size else None
        targets = nn.Embedding(config.decoder_vocab_size, config.d_model, padding_idx=pad)
    # The stacks may differ in depth, heads and width.
    encoder = _parts(config, config.num_heads, config.d_ff).encoder_layers(config.num_layers)
    parts = _parts(config, config.num_decoder_heads, config.d_decoder_ff)
    return Transformer(
        config,
        encoder=_stack(config, tokens, encoder, Pattern()),
        decoder=_stack(
            config, targets, parts.decoder_layers(config.num_decoder_layers), Pattern(mask=Causal())
        ),
        head=_head(config, targets),
        start_id=config.decoder_start_token_id,
    )


def original_transformer(
    vocab_size: int,
    *,
    d_model: int = 512,
    num_layers: int = 6,
    num_heads: int = 8,
    d_ff: int = 2048,
    dropout_p: float = 0.1,
    max_seq_len: int = 1024,
    pad_token_id: int = 0,
    eos_token_id: int = 1,
    decoder_start_token_id: int = 0,
) -> BartConfig:
    """The encoder-decoder of "Attention is all you need"; the defaults are its base model.

    Norms after the residual sums and none after the last layer, sinusoids, ReLU, and one table for source,
    target and output, scaled by sqrt(d_model). Written, it is a Marian model to `transformers`. The sines of
    a position stand before its cosines, not between them, as in the paper's code: with learned embeddings
    that is only another order of columns. Weights begin as Xavier's uniform matrices, queries, keys
    and values as one of three (fairseq, torch), and a table of width 1 / sqrt(d_model).

    Args:
        vocab_size: rows of the table.
        d_model, num_layers, num_heads, d_ff: sizes, of encoder and decoder alike.
        dropout_p: on sublayers and embeddings, in training.
        max_seq_len: the most positions.
        pad_token_id, eos_token_id, decoder_start_token_id: what fills up, ends a text, begins the decoder's.

    Example:
        >>> from regard.models import new_network
        >>> config = original_transformer(vocab_size=11, d_model=6, num_layers=1, num_heads=2, d_ff=13)
        >>> network = new_network(config)
        >>> network.head.output.weight is network.encoder.embeddings.tokens.weight, network.encoder.norm
        (True, None)

    Source: Vaswani et al. 2017, arXiv 1706.03762, sections 3 and 5; its code: Vaswani et al. 2018, arXiv
    1803.07416.
    """
    return BartConfig(
        # Marian: no norm after the embeddings, sinusoids, post-norm layers.
        model_type="marian",
        vocab_size=vocab_size,
        decoder_vocab_size=vocab_size,
        d_model=d_model,
        num_layers=num_layers,
        num_decoder_layers=num_layers,
        num_heads=num_heads,
        num_decoder_heads=num_heads,
        d_ff=d_ff,
        d_decoder_ff=d_ff,
        max_seq_len=max_seq_len,
        activation="relu",
        scale_embedding=True,
        dropout_p=dropout_p,
        pad_token_id=pad_token_id,
        eos_token_id=eos_token_id,
        decoder_start_token_id=decoder_start_token_id,
        starts_xavier=True,
    )


def _parts(config: BartConfig, num_heads: int, d_ff: int) -> Parts:
    residual = PreNorm if config.norm_first else PostNorm
    return Parts(
        attention=lambda: MultiHeadAttention(config.d_model, num_heads, dropout_p=config.attention_dropout_p),
        ffn=lambda: FeedForward(
            config.d_model, d_ff, activation=config.activation, dropout_p=config.activation_dropout_p
        ),
        residual=lambda: residual(_norm(config), dropout_p=config.dropout_p),
    )


def _stack(
    config: BartConfig,
    tokens: nn.Embedding,
    layers: Sequence[SelfAttentionLayer | DecoderLayer],
    pattern: Pattern,
) -> Stack:
    positions: nn.Module
    # Learned, stored sinusoids, or sinusoids that are worked out.
    if not config.has_sinusoids:
        positions = LearnedPositions(config.max_seq_len + _FIRST_POSITION, config.d_model)
    elif config.stores_positions:
        positions = LearnedPositions(config.max_seq_len, config.d_model).requires_grad_(False)  # sinusoids
    else:
        positions = SinusoidalPositions(config.max_seq_len, config.d_model, layout="half")
    embeddings = Embeddings(
        tokens.num_embeddings,
        config.d_model,
        tokens=tokens,
        positions=positions,
        norm=_norm(config) if config.has_embedding_norm else None,
        # sqrt(d_model): Vaswani et al. 2017, section 3.4.
        scale=math.sqrt(config.d_model) if config.scale_embedding else 1.0,
        dropout_p=config.dropout_p,
    )
    return Stack(
        embeddings,
        layers,
        patterns=[pattern] * len(layers),
        norm=_norm(config) if config.norm_first else None,
        numbering=CountFrom(0 if config.has_sinusoids else _FIRST_POSITION),
    )


def _norm(config: BartConfig) -> nn.LayerNorm:
    return nn.LayerNorm(config.d_model, eps=config.norm_eps)


def _head(config: BartConfig, tokens: nn.Embedding) -> Head | None:
    match config.head:
        case "language-model":
            output = output_layer(tokens, is_tied=config.tie_word_embeddings)
            # One row, as it is stored.
            bias = torch.zeros(1, tokens.num_embeddings) if config.has_logits_bias else None
            return LanguageModelHead(output, bias=bias)
        case "sequence":
            return end_classifier(config, pad_id=config.pad_token_id)
    return None


_NAMES = "{0}.q_proj {0}.k_proj {0}.v_proj {0}.out_proj {0}_layer_norm"
_DECODER = "decoder.layers.{layer}"


def _names_of_stack(stack: str) -> tuple[Rename, ...]:
    # Both stacks have the same names within a layer.
    at = f"{stack}.layers.{{layer}}"
    return (
        Rename(f"{stack}.embed_positions.weight", f"{stack}.embeddings.positions.weight"),
        Rename(f"{stack}.layernorm_embedding.{{part}}", f"{stack}.embeddings.norm.{{part}}"),
        *names_of_attention(at, f"{at}.attention", _NAMES.format("self_attn")),
        Rename(f"{at}.fc1.{{part}}", f"{at}.ffn.hidden.{{part}}"),
        Rename(f"{at}.fc2.{{part}}", f"{at}.ffn.output.{{part}}"),
        Rename(f"{at}.final_layer_norm.{{part}}", f"{at}.ffn_residual.norm.{{part}}"),
        # mBART has a norm after the last layer.
        Rename(f"{stack}.layer_norm.{{part}}", f"{stack}.norm.{{part}}"),
    )


BART_KEYS = KeyMap(
    rules=(
        *SHARED_RULES,
        *_names_of_stack("encoder"),
        *_names_of_stack("decoder"),
        *names_of_attention(_DECODER, f"{_DECODER}.cross_attention", _NAMES.format("encoder_attn")),
        Rename("final_logits_bias", "head.bias"),
    ),
    prefixes=("model.",),
    heads=("lm_head.", "final_logits_bias", "classification_head.", "qa_outputs."),
    # fairseq's, and Marian's sinusoids, which follow from the sizes.
    buffers={
        f"{stack}.{name}": lambda at, _: True
        for stack in ("encoder", "decoder")
        for name in ("version", "embed_positions._float_tensor")
    },
)
"""BART's names on disk and in the network."""

FAMILIES = (
    Family("bart", BartConfig, build, BART_KEYS),
    Family("marian", BartConfig, build, BART_KEYS),
    Family("mbart", BartConfig, build, BART_KEYS),
)
