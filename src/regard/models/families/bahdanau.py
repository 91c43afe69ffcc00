"""RNNsearch (Bahdanau et al. 2015): the recurrent encoder-decoder for which attention was invented."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from regard.blocks import AlignedDecoderLayer, Embeddings, Pattern, RecurrentLayer, Stack
from regard.checkpoints import Fields, HeadKind, KeyMap, Rename
from regard.core import Causal
from regard.models._config import FamilyConfig, Rate, Size, Small, check_sizes, hf
from regard.models._heads import LanguageModelHead, output_layer
from regard.models._init import Constant, Normal, Orthogonal, Scheme, XavierUniform
from regard.models._transformer import Transformer
from regard.models.families._family import Family


@dataclass(frozen=True, kw_only=True)
class BahdanauConfig(FamilyConfig):
    """A bidirectional recurrent encoder, and a recurrent decoder with additive attention to it.

    Args:
        vocab_size, decoder_vocab_size: rows of the tables of the source's and the target's embeddings.
        d_model: of embeddings, annotations (half for each direction), the decoder's state and what it tells;
            in the paper these are m = 620, 2n = 2000, n = 1000 and l = 500.
        d_alignment: hidden units of the alignment model, n' = 1000 in the paper.
        dropout_p: in training, on embeddings, annotations and what the decoder tells; the paper has none.
        decoder_start_token_id, eos_token_id: what the decoder reads first, and what ends a text.
        starts_xavier: whether weights begin by Xavier's rule, which fits any width; else as in the paper,
            whose numbers are made for n = 1000: narrower networks then learn slowly. No file says it.

    The others are those of `FamilyConfig`; there are no layers, heads or inner size to choose.
    `transformers` has no such model, and refuses its files.
    """

    STEMS = {"bahdanau": "Bahdanau"}
    ENDINGS = {None: "Model", "language-model": "ForConditionalGeneration"}

    ABSENT = frozenset({"num_layers", "num_heads", "d_ff", "activation"})

    vocab_size: Size = hf("vocab_size", 30000, is_required=True)
    decoder_vocab_size: Size = hf("decoder_vocab_size", 30000, is_required=True)
    d_model: Size = hf("hidden_size", 1000, is_required=True)
    d_alignment: int = hf("alignment_size", 1000, is_required=True)
    dropout_p: Rate = hf("dropout", 0.0)
    head: HeadKind | None = "language-model"
    tie_word_embeddings: bool = hf("tie_word_embeddings", False)
    decoder_start_token_id: int = hf("decoder_start_token_id", 0)
    eos_token_id: int = hf("eos_token_id", 2)
    initializer_range: Small = hf("initializer_range", 0.01, null=0.01, is_shown=False)
    starts_xavier: bool = field(default=True, repr=False, compare=False)
    # What the rest of regard asks of every config: one layer, one head.
    num_layers: Size = field(default=1, init=False, repr=False)
    num_heads: Size = field(default=1, init=False, repr=False)
    d_ff: Size = field(default=1, init=False, repr=False)
    activation: str = field(default="tanh", init=False, repr=False)

    @property
    def max_seq_len(self) -> None:
        """None: it reads texts of any length."""
        return

    @classmethod
    def derived(cls, fields: Fields, tensors: Collection[str], read: Mapping[str, Any]) -> dict[str, Any]:
        fields.expect("is_encoder_decoder", (True,), default=True)
        return {}

    def extra(self) -> dict[str, Any]:
        return {"is_encoder_decoder": True}

    def initial(self) -> Scheme:
        """Source: Bahdanau et al. 2015, arXiv 1409.0473, appendix B.1; Xavier: Glorot and Bengio 2010."""
        # Recurrent matrices are orthogonal in either scheme.
        units: Scheme = {"*.gates.weight": Orthogonal(), "*.proposal.weight": Orthogonal()}
        if self.starts_xavier:
            return {**units, "*.scorer_v": XavierUniform(), "*.layers.*.weight": XavierUniform()}
        return {**units, "*.scorer_v": Constant(0.0), "*.cross_attention.*.weight": Normal(0.001)}

    @property
    def initial_std(self) -> float:
        """With Xavier's matrices the tables have 1 / sqrt(d_model)."""
        return self.d_model**-0.5 if self.starts_xavier else self.initializer_range


def build(config: BahdanauConfig) -> Transformer:
    """An encoder-decoder from text to text.

    Raises:
        InputError: sizes that no network can have, or an odd d_model.

    Source: Bahdanau et al. 2015, arXiv 1409.0473, section 3 and appendix A.2.
    """
    check_sizes(config)
    # Each language has its own table.
    sources = nn.Embedding(config.vocab_size, config.d_model, padding_idx=config.pad_row)
    targets = nn.Embedding(config.decoder_vocab_size, config.d_model, padding_idx=_pad_of_target(config))
    head = None
    if config.head is not None:
        head = LanguageModelHead(output_layer(targets, is_tied=config.tie_word_embeddings))
    return Transformer(
        config,
        # Both directions: no mask.
        encoder=_stack(config, sources, RecurrentLayer(config.d_model), Pattern()),
        # Causal by itself; the mask says so to the rest of regard.
        decoder=_stack(
            config,
            targets,
            AlignedDecoderLayer(config.d_model, config.d_alignment),
            Pattern(mask=Causal()),
        ),
        head=head,
        start_id=config.decoder_start_token_id,
    )


def _pad_of_target(config: BahdanauConfig) -> int | None:
    pad = config.pad_row
    # The target's table may be too short for the source's padding.
    return pad if pad is not None and pad < config.decoder_vocab_size else None


def _stack(
    config: BahdanauConfig,
    tokens: nn.Embedding,
    layer: RecurrentLayer | AlignedDecoderLayer,
    pattern: Pattern,
) -> Stack:
    embeddings = Embeddings(tokens.num_embeddings, config.d_model, tokens=tokens, dropout_p=config.dropout_p)
    return Stack(embeddings, [layer], patterns=[pattern], dropout_p=config.dropout_p)


def _same(names: str) -> tuple[Rename, ...]:
    # Nobody else has published this network: its names on disk are its own.
    return tuple(Rename(name, name) for name in names.split())


_DIRECTIONS = " ".join(
    f"encoder.layers.0.inputs.{side}.{{part}} encoder.layers.0.units.{side}.gates.{{part}} "
    f"encoder.layers.0.units.{side}.proposal.{{part}}"
    for side in (0, 1)
)
_PARTS = "cross_attention.q cross_attention.k initial unit.gates unit.proposal of_word of_context"
_OUTPUTS = "output.state output.word output.context"

BAHDANAU_KEYS = KeyMap(
    rules=(
        *_same("encoder.embeddings.tokens.weight decoder.embeddings.tokens.weight head.output.{part}"),
        *_same(_DIRECTIONS),
        *_same(" ".join(f"decoder.layers.0.{name}.{{part}}" for name in f"{_PARTS} {_OUTPUTS}".split())),
        *_same("decoder.layers.0.cross_attention.scorer_v"),
    ),
    heads=("head.",),
)
"""The network's own names."""

FAMILIES = (Family("bahdanau", BahdanauConfig, build, BAHDANAU_KEYS),)
