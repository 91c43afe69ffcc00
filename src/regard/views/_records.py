"""What the views are given: tokens, and what the weights of every layer are a function of.

Plain values and numpy arrays, for any model: an encoder, a decoder, and the attention from the one to the
other, each layer with shapes, scale, mask and bias of its own. The weights of query head h are

    softmax over keys and sink of cap(scale * q[h] @ k[h // group].T) + bias[h], where the mask allows

(v[h] . tanh(q[h] + k[h // group]) in the place of the product where the scorer is additive),

with group = heads // kv_heads, and cap(s) = softcap * tanh(s / softcap) where there is one. A query that may
attend to nothing has weights of zero. Weights from another library are given as they are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from regard.core.errors import InputError
from regard.views._layer_record import LayerRecord

SHOWN = 32
"""Numbers of each vector that a page has: as many as a head of the default model has dimensions."""

StoryPart = Literal["embedding", "attention", "cross-attention", "feed-forward", "final", "output"]

_Floats = npt.NDArray[np.float32]
_Integers = npt.NDArray[np.int32]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class StoryRow:
    """One vector of each token.

    Attributes:
        name: What it is: "learned", "x + attention", "LayerNorm".
        part: Where on the way.
        layer: Its layer; None for the embedding.
        values: float32 (tokens, at most `SHOWN`), the first numbers.
        lengths: float32 (tokens,), of the whole vectors.
        dim: Numbers of the whole vector.
        total: The places of the rows whose sum it is; () for none.
        hidden: The layer that reads it, or the number of layers for the contextual embedding; None for what
            is not the residual stream between layers.
    """

    name: str
    part: StoryPart
    layer: int | None
    values: _Floats
    lengths: _Floats
    dim: int
    total: tuple[int, ...] = ()
    hidden: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class StoryNeurons:
    """What is inside the feed-forward networks, after the activation.

    Attributes:
        layers: The layers.
        count: Neurons of a layer.
        places: int32 (layers, tokens, some), those with the largest values, whatever their sign.
        values: float32, of the same shape.
        active: int32 (layers, tokens), how many are above 0.
    """

    layers: tuple[int, ...]
    count: int
    places: _Integers
    values: _Floats
    active: _Integers


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class StoryRecord:
    """The way of some tokens through one stack.

    Attributes:
        tokens: Their places.
        ids: Their rows in the table of learned embeddings.
        vocabulary: Rows of that table; None where it is not known.
        rows: All vectors, in order.
        moved: float32 (2, 3, states, tokens): cosine and distance, of each row with `hidden`, to the learned
            embedding (NaN where its size differs), to what enters layer 0, and to the state before.
        neurons: Of the feed-forward networks; None where they cannot be seen.
        heads: Of each attention, by (kind, layer), float32 (tokens, heads): the length of what each head adds
            to its output.
        ending: What the contextual embeddings are for, as plain values: the likeliest `next` tokens, or the
            `movement` of a word that stands in another sentence too; None for nothing.
    """

    tokens: tuple[int, ...]
    ids: tuple[int, ...]
    vocabulary: int | None
    rows: tuple[StoryRow, ...]
    moved: _Floats
    neurons: StoryNeurons | None
    heads: dict[tuple[str, int], _Floats]
    ending: Mapping[str, Any] | None = None


RecordKind = Literal["encoder", "decoder", "cross"]
"""Which attention: the encoder's, the decoder's own, or from the decoder to the encoder."""

HeadStatistics = Mapping[str, npt.NDArray[np.float32]]
"""Means over a text's queries, by the names of `regard.tracing.Statistics`: (layers, heads), NaN for none."""

KINDS: tuple[RecordKind, ...] = ("encoder", "decoder", "cross")


@dataclass(frozen=True, kw_only=True, slots=True)
class PageToken:
    """One token, as it is to be read.

    Attributes:
        text: The token's text. Any string: it is shown as text and never as markup.
        special: Whether the model added it (`[CLS]`, `[SEP]`), so that a reader may hide it.
        sequence: 0 in the first text, 1 in the second, None for a special token that is in neither.
        word: Index of the word it is a piece of; neighbours with the same index are drawn joined.
        surface: The characters that it stands for ("bank" for "Ġbank"); by default its text.
        bytes: Where it is a part of a character, what it is: "<0xE6>".
        unknown: Whether the vocabulary lacks them, so that the model has read its text ("[UNK]").
    """

    text: str
    special: bool = False
    sequence: int | None = None
    word: int | None = None
    surface: str | None = None
    bytes: str | None = None
    unknown: bool = False


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PositionsRecord:
    """How one stack knows positions.

    Attributes:
        said: In words, "learned (512)"; None where nothing is known of it.
        table: float32 (positions, d): what is added to the embedding at each position; None for nothing.
    """

    said: str | None = None
    table: npt.NDArray[np.float32] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """What one stack reads.

    Attributes:
        text: The text, as it was typed; None where only token ids were given.
        pair: The second text, or None.
        tokens: The tokens in order, specials included.
        words: The text of each word, by the index that tokens name; () joins the pieces instead.
        positions: How it knows positions; None where that is not to be shown.
    """

    text: str | None
    pair: str | None = None
    tokens: tuple[PageToken, ...]
    words: tuple[str, ...] = ()
    positions: PositionsRecord | None = None


MeasureName = Literal["norm", "value_zeroing", "rollout", "gradient"]
"""A measure that a page can draw: what they are stands in `regard.tracing`, under these names."""

MEASURES: tuple[MeasureName, ...] = ("norm", "value_zeroing", "rollout", "gradient")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class MeasureRecord:
    """One measure of one kind of attention.

    Attributes:
        name: Which.
        layers: float32, for each layer in order. Of "norm" (heads, keys), the size of each transformed value,
            which a page multiplies its weights by; of "gradient" (heads, queries, keys); of the others, which
            are of whole layers, (1, queries, keys).
        of: What a gradient is of, in words; "" where it is of nothing.

    Example:
        >>> MeasureRecord(name="rollout", layers=(np.eye(3, dtype=np.float32)[None],)).by
        'layer'
    """

    name: MeasureName
    layers: tuple[npt.NDArray[np.float32], ...]
    of: str = ""

    @property
    def by(self) -> str:
        """Whether a head or only a layer has a matrix of its own."""
        return "head" if self.name in ("norm", "gradient") else "layer"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class AttentionRecord:
    """Everything that a page shows of one run.

    Attributes:
        model: The model's name.
        encoder, decoder: What each stack reads; None where the model has none.
        layers: The layers of each kind of attention that there is, in order.
        statistics: Of each head, for the kinds where they are known; the page works out those of the others.
        measures: What can be drawn in the place of the weights.
        left_out: Measures that it does not have, each with the reason.
        names: What each head does, as plain values: `said`, what the names are of; `patterns`, each with its
            `name` and what it `says`; and `kinds`: for each a list of layers, of heads, of what a head shows,
            strongest first, each with `name`, `detail` and `effect`. None where nothing is known.
        story: The way of some tokens through each stack, where that is to be shown.
        without: What is left of the run without a head (`kind`, `layer`, `head`), or where no other word
            looks at one (`kind`, `unseen`, its first token), as plain values: `cosine` of each last hidden
            state to what it becomes; and of a decoder `next`, what it goes on with `before` and `after`.
        messages: Of a chat, each message and the answer, as plain values: `role`, `text`, and its tokens:
            `frame`, the first of what introduces it, and those of its content from `first` to `last`.
        apart: How far two different words of the text are apart, 1 - cosine: what to hold both against; None
            where there are no two.
        why: Of one head (`kind`, `layer`, `head`), what raises its scores over their row's mean, as plain
            values: `parts` in words; `pairs`, each [query, key, difference, [[part, source token, value],
            ...]]; `feeds`, of its `query` and `key` the earlier heads, each [layer, head, value]; `value`, of
            which these are.
        instead: What a head (`kind`, `layer`, `head`) gives, `from` a word, to others in the place of one, as
            plain values: the first tokens of both, and `words`, each its `text` and `share`.
        start: What a page of all heads opens on, as `find_start` has it; None where nobody has looked for it.
    """

    model: str
    encoder: Side | None = None
    decoder: Side | None = None
    layers: Mapping[RecordKind, tuple[LayerRecord, ...]] = field(default_factory=dict)
    statistics: Mapping[RecordKind, HeadStatistics] = field(default_factory=dict)
    measures: Mapping[RecordKind, tuple[MeasureRecord, ...]] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, Any] | None = None
    story: Mapping[Literal["encoder", "decoder"], StoryRecord] = field(default_factory=dict)
    without: Sequence[Mapping[str, Any]] = ()
    messages: Sequence[Mapping[str, Any]] = ()
    apart: float | None = None
    why: Mapping[str, Any] | None = None
    instead: Mapping[str, Any] | None = None
    start: Mapping[str, Any] | None = None

    @property
    def kinds(self) -> tuple[RecordKind, ...]:
        """The kinds of attention that there are, in a fixed order."""
        return tuple(kind for kind in KINDS if kind in self.layers)

    def sides(self, kind: RecordKind) -> tuple[Side, Side]:
        """Whose tokens the queries are, and whose the keys."""
        of_queries = self.encoder if kind == "encoder" else self.decoder
        of_keys = self.decoder if kind == "decoder" else self.encoder
        assert of_queries is not None, f"{kind} attention without the tokens that it reads"
        assert of_keys is not None, f"{kind} attention without the tokens that it reads"
        return of_queries, of_keys


@dataclass(frozen=True, slots=True)
class Subject:
    """What a page is about besides its runs; it opens with it.

    Attributes:
        kind: What the facts are of, and their name in the page: the "movement" of one word through all runs;
            how the second of two runs differs from the first, "compared"; the steps of a "training", of each
            of which there is a run; how a decoder's text was written, the "writing"; or a word's uses in
            groups, the "senses", of some of which there is a run.
        facts: Plain values, as JSON has them.
    """

    kind: Literal["movement", "compared", "training", "writing", "senses"]
    facts: Mapping[str, Any]


HeadName = tuple[RecordKind, int, int]
"""A head: kind, layer, head."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldHeads:
    """The heads that a page holds."""

    heads: Mapping[tuple[RecordKind, int], tuple[int, ...]]  # of each (kind, layer), in order
    every: bool  # whether these are all

    def of_layer(self, kind: RecordKind, layer: LayerRecord) -> tuple[int, ...]:
        """Those of a layer."""
        return self.heads.get((kind, layer.layer), ())


def every_head(record: AttentionRecord) -> HeldHeads:
    """All heads of a run."""
    heads = {
        (kind, layer.layer): tuple(range(layer.heads))
        for kind, layers in record.layers.items()
        for layer in layers
    }
    return HeldHeads(heads=heads, every=True)


def check_measures(names: Sequence[str]) -> list[MeasureName]:
    """The measures that are asked for, each once, in a fixed order.

    Raises:
        InputError: One that there is not.

    Example:
        >>> check_measures(["rollout", "norm", "rollout"])
        ['norm', 'rollout']
    """
    if isinstance(names, str) or not all(name in MEASURES for name in names):
        raise InputError(f"measures must be a list of {', '.join(MEASURES)}; got {names!r}.")
    return [name for name in MEASURES if name in names]
