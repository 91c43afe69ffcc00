"""What the views are given: tokens, and what the weights of every layer are a function of.

Plain values and numpy arrays, for any model: an encoder, a decoder, and the attention from the one to the
other, each layer with shapes, scale, mask and bias of its own. The weights of query head h are

    softmax over keys and sink of cap(scale * q[h] @ k[h // group].T) + bias[h], where the mask allows

with group = heads // kv_heads, and cap(s) = softcap * tanh(s / softcap) where there is one. A query that may
attend to nothing has weights of zero. Weights from another library are given as they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from regard.core.errors import InputError
from regard.views._layer_record import LayerRecord, check_array
from regard.views._measure_records import MeasureRecord
from regard.views._position_records import PositionsRecord

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
    """

    text: str
    special: bool = False
    sequence: int | None = None
    word: int | None = None
    surface: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise InputError(f"text: wanted a str, got {type(self.text).__name__}; decode the token first")
        if self.sequence not in (None, 0, 1):
            raise InputError(
                f"sequence: wanted 0 (first text), 1 (second) or None, got {self.sequence!r}; "
                "a view shows one text or a pair"
            )


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

    def __post_init__(self) -> None:
        if not self.tokens:
            raise InputError("tokens: wanted at least one, got none; give a text that has tokens")
        if self.pair is None and any(token.sequence == 1 for token in self.tokens):
            raise InputError(
                "pair: wanted the second text, got None though a token has sequence=1; "
                "give pair=, or mark every token sequence=0"
            )
        unnamed = [token.word for token in self.tokens if token.word is not None and self.words]
        if any(not 0 <= word < len(self.words) for word in unnamed):
            raise InputError(
                f"words: wanted a text for every word that a token names, got {len(self.words)}; "
                "give words=() to join the pieces"
            )


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

    Raises:
        InputError: Layers that do not fit their tokens; the message names the argument.
    """

    model: str
    encoder: Side | None = None
    decoder: Side | None = None
    layers: Mapping[RecordKind, tuple[LayerRecord, ...]] = field(default_factory=dict)
    statistics: Mapping[RecordKind, HeadStatistics] = field(default_factory=dict)
    measures: Mapping[RecordKind, tuple[MeasureRecord, ...]] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.layers:
            raise InputError("layers: wanted the layers of at least one kind, got none; give the encoder's")
        for kind, layers in self.layers.items():
            if kind not in KINDS:
                raise InputError(f"layers: wanted kinds of {', '.join(KINDS)}, got {kind!r}; choose one")
            of_queries, of_keys = self.sides(kind)
            if not layers:
                raise InputError(f"layers: wanted at least one {kind} layer, got none; leave the kind out")
            numbers = [each.layer for each in layers]
            if numbers != sorted(set(numbers)) or numbers[0] < 0:
                raise InputError(f"layers: wanted numbers from 0 that grow, got {numbers}; sort them")
            for each in layers:
                for name, found, tokens in (
                    ("q", each.queries, len(of_queries.tokens)),
                    ("k", each.keys, len(of_keys.tokens)),
                ):
                    if found != tokens:
                        raise InputError(
                            f"{name}: wanted {tokens} tokens in {kind} layer {each.layer}, got {found}; "
                            "q, k and tokens must come from the same run on one text"
                        )
            for measure in self.measures.get(kind, ()):
                measure.check(layers)
            heads = max(each.heads for each in layers)
            for name, values in self.statistics.get(kind, {}).items():
                if values.shape != (len(layers), heads):
                    raise InputError(
                        f"statistics: wanted {name} of {kind} attention in shape {(len(layers), heads)}, "
                        f"layers and heads, got {values.shape}; NaN stands for a head that is not there"
                    )

    @property
    def kinds(self) -> tuple[RecordKind, ...]:
        """The kinds of attention that there are, in a fixed order."""
        return tuple(kind for kind in KINDS if kind in self.layers)

    def sides(self, kind: RecordKind) -> tuple[Side, Side]:
        """Whose tokens the queries are, and whose the keys.

        Raises:
            InputError: The record has layers of this kind, and no tokens for them.
        """
        of_queries = self.encoder if kind == "encoder" else self.decoder
        of_keys = self.decoder if kind == "decoder" else self.encoder
        if of_queries is None or of_keys is None:
            missing = "encoder" if kind == "encoder" or of_queries is not None else "decoder"
            raise InputError(f"{missing}: wanted the tokens that {kind} attention reads, got None; give them")
        return of_queries, of_keys


def encoder_record(
    *,
    text: str,
    pair: str | None = None,
    model: str,
    tokens: tuple[PageToken, ...],
    q: npt.NDArray[np.float32],
    k: npt.NDArray[np.float32],
    scale: float,
) -> AttentionRecord:
    """The record of a plain encoder, whose layers are alike and have neither mask nor bias.

    Args:
        text, pair, tokens: As in `Side`.
        model: The model's name.
        q: float32 (layers, heads, tokens, head_dim).
        k: float32 (layers, kv_heads, tokens, head_dim).
        scale: As in `LayerRecord`.

    Returns:
        The record.

    Raises:
        InputError: As `LayerRecord` and `AttentionRecord`.

    Example:
        >>> q, k = np.random.default_rng(0).standard_normal((2, 1, 2, 3, 5), dtype=np.float32)
        >>> tokens = tuple(PageToken(text=text, sequence=0) for text in ("a", "river", "bank"))
        >>> record = encoder_record(text="a river bank", model="tiny", tokens=tokens, q=q, k=k, scale=5**-0.5)
        >>> record.kinds, record.layers["encoder"][0].heads
        (('encoder',), 2)
    """
    for name, array in (("q", q), ("k", k)):
        check_array(name, array)
        if array.ndim != 4 or 0 in array.shape:
            raise InputError(
                f"{name}: wanted shape (layers, heads, tokens, head_dim), all at least 1, got {array.shape}; "
                "one text at a time, without a batch axis"
            )
    if len(q) != len(k):
        raise InputError(f"k: wanted {len(q)} layers as q has, got {len(k)}; take both from the same run")
    layers = tuple(LayerRecord(layer=layer, q=q[layer], k=k[layer], scale=scale) for layer in range(len(q)))
    side = Side(text=text, pair=pair, tokens=tokens)
    return AttentionRecord(model=model, encoder=side, layers={"encoder": layers})
