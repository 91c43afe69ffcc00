"""A word's way from its learned to its contextual embedding, in several sentences, in one flat picture.

Its first axis is the way that the word goes in all the sentences alike, its second what sets the sentences
apart. (The two largest principal components of all the points would both be of the common way, which is much
the longer, and draw the sentences on top of each other.) Three different words or more have no way in common:
of them the axes are the two in which their contextual embeddings differ most. It is a shadow: distances in it
are never longer than the true ones, and how far they can be believed is worked out and said with it, in
float64.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from regard.core.errors import InputError
from regard.tracing.comparison._comparison import found_words
from regard.tracing.record import Trace
from regard.views import plain

_Floats = npt.NDArray[np.float64]

# What is left of a sum of squares by rounding alone.
_NOTHING = 1e-20

# More paths than that cannot be told apart.
MOST_TEXTS = 16


@dataclass(frozen=True, kw_only=True, eq=False)
class Projection:
    """Points in many dimensions, drawn in two.

    Attributes:
        points: (texts, steps, 2).
        ends: Whether the axes are those in which the last step's points differ most; else the first is the
            common way.
        share: Of the variance of all points, the part that each of the two axes keeps, from 0 to 1.
        apart: Of the variance between the texts at equal steps, the part that the second axis keeps; with
            `ends`, of that between the last points the part that both axes keep. None where they do not
            differ.
        true, drawn: (steps, texts, texts), the distances between the texts at each step, in all dimensions
            and in the picture.
        agreement: Pearson's correlation of the true and the drawn distances over all pairs of points; None
            where one of them does not vary.
        length: What drawn distances make of the true ones, all added up, from 0 to 1.
    """

    points: _Floats
    ends: bool
    share: tuple[float, float]
    apart: float | None
    true: _Floats
    drawn: _Floats
    agreement: float | None
    length: float


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Movement:
    """One word's vectors at every step of a model, in several texts.

    Args:
        model: Whose vectors.
        words, texts: The word, for each text; and the texts.
        steps: What each step is called; the first is where the word starts.
        vectors: (texts, steps, d).

    Raises:
        InputError: Too many texts, or numbers that are not finite.

    Example:
        >>> vectors = np.zeros((2, 3, 5))
        >>> vectors[0, 1:, 0], vectors[1, 2, 1] = 2.0, 1.0
        >>> movement = Movement(
        ...     model="m", words=("a", "a"), texts=("x", "y"), steps=("0", "1", "2"), vectors=vectors
        ... )
        >>> projection = movement.project()
        >>> projection.points.shape, round(sum(projection.share), 6)
        ((2, 3, 2), 1.0)
        >>> projection.true[:, 0, 1].round(3).tolist()
        [0.0, 2.0, 2.236]
    """

    model: str
    words: tuple[str, ...]
    texts: tuple[str, ...]
    steps: tuple[str, ...]
    vectors: _Floats

    def __post_init__(self) -> None:
        if not 1 <= len(self.texts) <= MOST_TEXTS:
            raise InputError(f"texts must be 1 to {MOST_TEXTS}; got {len(self.texts)}; give fewer")
        if not np.isfinite(self.vectors).all():
            raise InputError("vectors must be finite numbers; got others; run the model in float32")

    def __repr__(self) -> str:
        words = " / ".join(dict.fromkeys(self.words))
        return f"Movement({words!r} in {len(self.texts)} texts, {len(self.steps)} steps)"

    def similarity(self) -> _Floats:
        """Cosine similarities of the texts at each step, (steps, texts, texts); NaN for a zero vector."""
        with np.errstate(invalid="ignore", divide="ignore"):
            units = self.vectors / np.linalg.norm(self.vectors, axis=-1, keepdims=True)
        # (steps, texts, texts)
        clipped: _Floats = np.clip(np.einsum("asd,bsd->sab", units, units), -1, 1)
        return clipped

    def project(self, *, directions: bool = False) -> Projection:
        """Project all the points onto what is common to the texts, and what sets them apart.

        The first axis is the largest principal component of the mean over the texts at each step. The second
        is that of the texts' differences from this mean, less what lies along the first; of one text, or of
        texts that do not differ, it is the next component of the mean. Of three different words or more the
        axes are the two largest principal components of the last step's points: what ends close is drawn
        close.

        Args:
            directions: project the vectors scaled to length 1, which differ as their cosines do; a zero
                vector stays zero.
        """
        vectors = self.vectors.astype(np.float64)
        if directions:
            lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
            # Only the direction: vectors of length 1.
            vectors = vectors / np.where(lengths > 0, lengths, 1)
        texts, steps, width = vectors.shape
        flat = vectors.reshape(-1, width)
        # All points around their mean.
        centred = flat - flat.mean(axis=0)
        # What is common: the mean of the texts at each step; and what sets them apart.
        mean = vectors.mean(axis=0)
        differences = (vectors - mean).reshape(-1, width)
        last = vectors[:, -1] - vectors[:, -1].mean(axis=0)
        # Words that differ: then what matters is where they end.
        ends = texts > 2 and len({word.partition("#")[0].casefold() for word in self.words}) > 1
        # The two axes: the way that all go and the main difference, or the main differences of the ends.
        axes = _axes(last, last) if ends else _axes(mean - mean.mean(axis=0), differences)
        rows, kept = (last, axes) if ends else (differences, axes[1:])
        points = centred @ axes.T
        total, between = float((centred**2).sum()), float((differences**2).sum())
        # The share of each axis in the sum of squares.
        share = [float(part) / total if total > 0 else 0.0 for part in (points**2).sum(axis=0)]
        # More than rounding.
        differ = between > _NOTHING * total
        shaped = _turned(points.reshape(texts, steps, 2))
        true, drawn = _distances(flat), _distances(shaped.reshape(-1, 2))
        # Each pair of points once.
        pairs = np.triu_indices(len(flat), 1)
        longest = float(true[pairs].sum()) if len(pairs[0]) else 0.0
        return Projection(
            points=shaped,
            ends=ends,
            share=(share[0], share[1]),
            apart=float(((rows @ kept.T) ** 2).sum() / (rows**2).sum()) if differ else None,
            true=_by_step(true, texts, steps),
            drawn=_by_step(drawn, texts, steps),
            agreement=_correlation(true[pairs], drawn[pairs]),
            # How long the drawn distances are beside the true ones.
            length=float(drawn[pairs].sum()) / longest if longest > 0 else 1.0,
        )

    def facts(self) -> dict[str, Any]:
        """What a page holds of it: plain values, with seven digits."""
        ways = {"vectors": self.project(), "directions": self.project(directions=True)}
        return {
            "words": list(self.words),
            "texts": list(self.texts),
            "steps": list(self.steps),
            "similarity": plain(self.similarity(), 7),
            "projections": {
                name: {"ends": each.ends}
                | {key: plain(value, 7) for key, value in vars(each).items() if key != "ends"}
                for name, each in ways.items()
            },
        }


def movement(traces: Sequence[Trace], word: str | Sequence[str]) -> Movement:
    """One word's vectors from its learned to its contextual embedding, in several texts.

    Args:
        traces: of texts, by one model.
        word: the word, in all texts, or one for each ("bank#2" chooses among several).

    Returns:
        The steps: the learned embedding, what layer 0 reads (with its position; left out where that is the
        same), and the output of every layer, the last after the final norm. A model whose learned embeddings
        are of another width starts with what layer 0 reads.

    Raises:
        InputError: no text, traces of different models, a word that is not in a text.

    Example:
        >>> from regard.tracing import movement
        >>> import regard
        >>> model = regard.load()
        >>> fishing = model.trace("Write a poem about a man fishing on a river bank.")
        >>> money = model.trace("Write a poem about a man withdrawing money from a bank.")
        >>> movement([fishing, money], "bank").steps[:3]
        ('learned', 'position', '1')
    """
    _, words = found_words(traces, word)
    return movement_of(
        traces, words, [trace.encoding.find(each) for trace, each in zip(traces, words, strict=True)]
    )


def movement_of(traces: Sequence[Trace], words: Sequence[str], tokens: Sequence[Sequence[int]]) -> Movement:
    """`movement` of what is known to be there: a name, and the places of its tokens, in each text."""
    kind = traces[0].kinds[0]  # of the stack that reads the text
    last = len(traces[0].source.hidden) - 1
    # The row of the table, the input of the first layer, and what each layer hands on.
    layers: list[int | str] = [0, "input", *range(1, last + 1)]
    names = ["learned", "position", *map(str, range(1, last)), f"{last} contextual"]
    rows = [
        [trace.embeddings(layer, kind=kind)[list(places)].mean(dim=0).double() for layer in layers]
        for trace, places in zip(traces, tokens, strict=True)
    ]
    # A learned embedding of another width cannot be a point among the others.
    if any(row[0].shape != row[1].shape for row in rows):
        first, steps = 1, [names[1], *names[2:]]
    # Without positions and norm the input is the learned embedding itself.
    elif all(torch.equal(row[0], row[1]) for row in rows):
        rows = [[row[0], *row[2:]] for row in rows]
        first, steps = 0, [names[0], *names[2:]]
    else:
        first, steps = 0, names
    return Movement(
        model=traces[0].model,
        words=tuple(words),
        texts=tuple(" | ".join(trace.encoding.texts) for trace in traces),
        steps=tuple(steps),
        vectors=torch.stack([torch.stack(row[first:]) for row in rows]).numpy(),
    )


def _axes(common: _Floats, differences: _Floats) -> _Floats:
    """Two directions at right angles, (2, d); a row of zeros where nothing is left to have one."""
    axes = np.zeros((2, common.shape[1]))
    for number, wanted in enumerate(((common, differences), (differences, common))):
        # The second axis is at right angles to the first.
        for rows in wanted:
            left = rows - (rows @ axes[0])[:, None] * axes[0]
            if (left**2).sum() > _NOTHING * ((common**2).sum() + (differences**2).sum()):
                # The first right singular vector: the direction of most variance.
                axes[number] = np.linalg.svd(left, full_matrices=False)[2][0]
                break
    return axes


def _turned(points: _Floats) -> _Floats:
    """The axes of a projection have no sign: words move right, and the first text ends above the last."""
    signs = np.ones(2)
    if points[:, -1, 0].mean() < points[:, 0, 0].mean():
        signs[0] = -1
    ends = points[:, -1, 1]
    if ends[0] < ends[-1] or (len(ends) == 1 and ends[0] < points[0, 0, 1]):
        signs[1] = -1
    return points * signs


def _distances(points: _Floats) -> _Floats:
    return np.array([np.linalg.norm(points - point, axis=1) for point in points])


def _by_step(distances: _Floats, texts: int, steps: int) -> _Floats:
    of = distances.reshape(texts, steps, texts, steps)
    # (steps, texts, texts): the distances at the same step.
    return np.array([of[:, step, :, step] for step in range(steps)])


def _correlation(true: _Floats, drawn: _Floats) -> float | None:
    # Without spread there is no correlation.
    if len(true) < 2 or true.std() == 0 or drawn.std() == 0:
        return None
    return float(np.corrcoef(true, drawn)[0, 1])
