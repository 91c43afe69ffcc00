"""Two traces side by side: what a page needs to show how they differ."""

import numpy as np
import torch
from torch import Tensor

from regard.core import AttentionInputs
from regard.core.errors import InputError
from regard.models import Kind
from regard.tracing.comparison._divergence import Divergence, cells_of, divergence, partners_of, told_texts
from regard.tracing.record import Trace
from regard.views import Difference, KindDifference, WordLikeness

# Weights of one trace that are worked out at once.
_ENTRIES = 2**20


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
        >>> import regard
        >>> model = regard.load()
        >>> river, money = model.trace("He sat by the river bank."), model.trace("He sat by the money bank.")
        >>> found = difference(river, money)
        >>> found.between, found.kinds["encoder"].divergence.shape, found.likeness.words[-2]
        ('texts', (6, 12), 'bank')
    """
    kinds: dict[Kind, KindDifference] = {}
    left: dict[str, str] = {}
    for kind in one.kinds:
        try:
            kinds[kind] = _of_kind(one, other, divergence(one, other, kind))
        except InputError as error:
            # A decoder's texts may share nothing where the encoder's share much; something has to be shared.
            left[f"{kind} attention"] = str(error)
            if kind == one.kinds[-1] and not kinds:
                raise
    same = told_texts(one) == told_texts(other)
    likeness = None
    if same:
        names = one.model, other.model
    else:
        names = told_texts(one), told_texts(other)
        try:
            likeness = _likeness(one, other)
        except InputError as error:
            left["likeness of words"] = str(error)
    return Difference(
        between="models" if same else "texts", names=names, kinds=kinds, likeness=likeness, left_out=left
    )


def _of_kind(one: Trace, other: Trace, found: Divergence) -> KindDifference:
    most = np.full(found.heads.shape, np.nan)
    for place, layer in enumerate(found.layers):
        pair = [trace.attention_of(layer, found.kind).inputs for trace in (one, other)]
        if pair[0].num_heads != pair[1].num_heads:
            raise InputError(
                f"layer {layer} has {pair[0].num_heads} heads in the one and {pair[1].num_heads} in the "
                "other, and a page draws all heads of both; `divergence`, or regard compare --heads without "
                "--page, compares the heads that both have."
            )
        with torch.no_grad():  # a bias may be learned
            largest = _largest(pair, found)
        most[place, : len(largest)] = largest.numpy()
    return KindDifference(
        queries=found.queries,
        keys=found.keys,
        divergence=found.heads.numpy(),
        compared=found.compared.numpy(),
        most=most,
    )


def _largest(pair: list[AttentionInputs], found: Divergence) -> Tensor:
    """The largest difference of two weights between partners, of each head."""
    heads = pair[0].num_heads
    largest = torch.zeros(heads, dtype=torch.float64)
    size = max(1, _ENTRIES // (heads * max(inputs.num_columns for inputs in pair)))
    for start in range(0, len(found.queries), size):
        block = found.queries[start : start + size]
        ours, theirs = (
            cells_of(inputs, [places[side] for places in block], [places[side] for places in found.keys])
            for side, inputs in enumerate(pair)
        )
        apart = (theirs - ours)[..., : len(found.keys)].abs()
        largest = torch.maximum(largest, apart.amax(dim=(1, 2)))
    return largest


def _likeness(one: Trace, other: Trace) -> WordLikeness:
    """The cosines of the words whose tokens are all partners, at embedding layers 0 to L."""
    if one.model != other.model:
        raise InputError("the texts are of two models, whose vectors are not of one space.")
    kind = one.kinds[0]  # of the stack that reads the text
    assert kind != "cross"
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
            a = ours[places].mean(dim=0)
            b = theirs[[partners[place] for place in places]].mean(dim=0)
            norm = float(a.norm() * b.norm())
            if norm > 0:
                cosines[number, layer] = min(1.0, max(-1.0, float(a @ b) / norm))
    layers = ("0 learned", *map(str, range(1, depth - 1)), f"{depth - 1} contextual")
    return WordLikeness(words=tuple(word for word, _ in words), layers=layers, cosines=cosines)


def _shared(one: Trace, other: Trace, partners: dict[int, int]) -> list[tuple[str, list[int]]]:
    """The words that are whole in both, each with its places in the one."""
    ours, theirs = one.encoding, other.encoding
    found = []
    for number, word in enumerate(ours.words):
        places = [token.index for token in ours.tokens if token.word == number]
        there = {theirs.tokens[partners[place]].word for place in places if place in partners}
        if not places or any(place not in partners for place in places) or len(there) != 1 or None in there:
            continue
        whole = [token.index for token in theirs.tokens if token.word in there]
        if [partners[place] for place in places] == whole:
            found.append((word.text, places))
    return found
