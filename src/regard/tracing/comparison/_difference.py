"""Two traces side by side: what a page needs to show how they differ."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from regard.core.errors import InputError
from regard.models import Kind
from regard.tracing.comparison._comparison import cosines_of, words_alike
from regard.tracing.comparison._divergence import Divergence, divergence, partners_of, told_texts
from regard.tracing.record import Trace
from regard.views import plain

_Floats = npt.NDArray[np.float64]

_MOST_NEAR = 128
"""Words of both texts, of which a page holds each to each."""

Pairs = tuple[tuple[int, int], ...]
"""The places of partners, in the one and in the other."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class KindDifference:
    """How one kind of attention differs; NaN where there is no head."""

    queries: Pairs  # which tokens are partners
    keys: Pairs
    divergence: _Floats  # (layers, heads), Jensen-Shannon, in bits
    compared: _Floats  # (layers, heads), the share of attention that lies on keys with partners
    most: _Floats  # (layers, heads), the largest difference of two weights, without its sign


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class WordLikeness:
    """How alike the vectors of the words are that two texts share."""

    words: tuple[str, ...]
    places: tuple[int, ...]  # where each word begins among the tokens of the first text
    layers: tuple[str, ...]  # what each embedding layer is called
    cosines: _Floats  # (words, layers), NaN where a vector is zero


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Difference:
    """How two runs differ: the second less the first."""

    between: Literal["texts", "models"]
    names: tuple[str, str]
    kinds: Mapping[Kind, KindDifference]  # of attention that both have
    likeness: WordLikeness | None = None  # None where the texts share no word
    near: _Floats | None = None  # (words, words) of both texts, one after the other: cosines of their ends
    apart: float | None = None  # how far two different words of one text end apart, 1 - cosine
    left_out: Mapping[str, str]  # what is missing, each with the reason

    def facts(self) -> dict[str, Any]:
        """What a page holds of it: plain values, with six digits."""
        likeness = self.likeness
        return {
            "between": self.between,
            "names": list(self.names),
            "kinds": {kind: _facts(each) for kind, each in self.kinds.items()},
            "likeness": None if likeness is None else _facts(likeness),
            "near": None if self.near is None else plain(self.near, 4),
            "apart": plain(self.apart, 4),
            "leftOut": [{"name": name, "reason": reason} for name, reason in self.left_out.items()],
        }


def _facts(record: KindDifference | WordLikeness) -> dict[str, Any]:
    """Its fields: arrays as lists, with None for what is no number."""
    found = {field.name: getattr(record, field.name) for field in fields(record)}
    return {name: plain(each) if isinstance(each, np.ndarray) else [*each] for name, each in found.items()}


def difference(one: Trace, other: Trace) -> Difference:
    """How two traces differ: of two checkpoints on the same tokens, or of two texts.

    Args:
        one, other: two traces of models with as many layers and heads. Differences are the second less the
            first, over the tokens that both have, as in `divergence`.

    Returns:
        The record that a page shows.

    Raises:
        InputError: models whose layers or heads differ in number, or texts without a token in common.

    Example:
        >>> from regard.tracing import difference
        >>> import regard
        >>> model = regard.load()
        >>> river, money = model.trace("He sat by the river bank."), model.trace("He sat by the money bank.")
        >>> found = difference(river, money)
        >>> found.between, found.kinds["encoder"].divergence.shape, found.likeness.words[-2]
        ('texts', (6, 12), 'bank')
    """
    kinds: dict[Kind, KindDifference] = {}
    left: dict[str, str] = {}
    # Every kind that both have; what cannot be compared is told.
    for kind in one.kinds:
        try:
            kinds[kind] = _of_kind(one, other, divergence(one, other, kind))
        except InputError as error:
            # A decoder's texts may share nothing where the encoder's share much. One kind has to be left.
            left[f"{kind} attention"] = str(error)
            if kind == one.kinds[-1] and not kinds:
                raise
    # One text in two models, or two texts in one.
    same = told_texts(one) == told_texts(other)
    likeness, near, apart = None, None, None
    if same:
        names = one.model, other.model
    else:
        names = told_texts(one), told_texts(other)
        try:
            likeness = _likeness(one, other)
            near, apart = _near(one, other), 1 - words_alike([one, other])
        except InputError as error:
            left["likeness of words"] = str(error)
    return Difference(
        between="models" if same else "texts",
        names=names,
        kinds=kinds,
        likeness=likeness,
        near=near,
        apart=apart,
        left_out=left,
    )


def _of_kind(one: Trace, other: Trace, found: Divergence) -> KindDifference:
    for layer in found.layers:
        # A page draws head beside head.
        ours, theirs = (trace.attention_of(layer, found.kind).inputs.num_heads for trace in (one, other))
        if ours != theirs:
            raise InputError(
                f"layer {layer} has {ours} heads in the one and {theirs} in the other, and a page draws all "
                "heads of both; `divergence`, or regard compare --heads without --page, compares the heads "
                "that both have."
            )
    return KindDifference(
        queries=found.queries,
        keys=found.keys,
        divergence=found.heads.numpy(),
        compared=found.compared.numpy(),
        most=found.most.numpy(),
    )


def _likeness(one: Trace, other: Trace) -> WordLikeness:
    """The cosines of the words whose tokens are all partners, at embedding layers 0 to L."""
    if one.model != other.model:
        raise InputError("the texts are of two models, whose vectors are not of one space.")
    kind = one.kinds[0]  # of the stack that reads the text
    assert kind != "cross"
    # Places of tokens in the one and in the other.
    partners = dict(partners_of(one, other, kind)[0])
    words = _shared(one, other, partners)
    if not words:
        raise InputError("no word is the same in both, with all its tokens.")
    depth = len(one.source.hidden)
    if not depth or not len(other.source.hidden):
        raise InputError('this needs hidden states; trace with keep="all".')
    cosines = np.full((len(words), depth), np.nan)
    for layer in range(depth):
        ours, theirs = (trace.embeddings(layer, kind=kind).double() for trace in (one, other))
        for number, (_, places) in enumerate(words):
            # A word of several tokens is their mean.
            a = ours[places].mean(dim=0)
            b = theirs[[partners[place] for place in places]].mean(dim=0)
            cosines[number, layer] = cosines_of(torch.stack([a, b]))[0, 1]
    layers = ("0 learned", *map(str, range(1, depth - 1)), f"{depth - 1} contextual")
    return WordLikeness(
        words=tuple(word for word, _ in words),
        places=tuple(places[0] for _, places in words),
        layers=layers,
        cosines=cosines,
    )


def _near(one: Trace, other: Trace) -> _Floats | None:
    """The cosines of all words of both, by their ends; None of pairs, of two stacks, or of too many words."""
    # Vectors of pairs and of encoder-decoders are of several texts.
    if any(len(trace.kinds) > 1 or len(trace.encoding.texts) != 1 for trace in (one, other)):
        return None
    vectors = []
    for trace in (one, other):
        encoding, rows = trace.encoding, trace.embeddings(kind=trace.kinds[0]).double()
        for number in range(len(encoding.words)):
            places = [token.index for token in encoding.tokens if token.word == number]
            # A word without a token has no vector: NaN.
            vectors.append(rows[places].mean(dim=0))
    if len(vectors) > _MOST_NEAR:
        return None
    near: _Floats = cosines_of(torch.stack(vectors)).numpy()
    return near


def _shared(one: Trace, other: Trace, partners: dict[int, int]) -> list[tuple[str, list[int]]]:
    """The words that are whole in both, each with its places in the one."""
    ours, theirs = one.encoding, other.encoding
    words = []
    for number, word in enumerate(ours.words):
        places = [token.index for token in ours.tokens if token.word == number]
        # The words that the partners belong to in the other.
        there = {theirs.tokens[partners[place]].word for place in places if place in partners}
        if not places or any(place not in partners for place in places) or len(there) != 1 or None in there:
            continue
        whole = [token.index for token in theirs.tokens if token.word in there]
        # Whole in both: no token is missing on either side.
        if [partners[place] for place in places] == whole:
            words.append((word.text, places))
    return words
