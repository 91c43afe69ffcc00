"""Senses learned from labels: a logistic head on the vectors of uses, and which use to ask about next."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from regard.concordance._vectors import Vectors
from regard.core.errors import InputError
from regard.core.extras import missing

# The inverse weight of the penalty, for vectors of length 1. With it probabilities are right as they are
# (expected calibration error on *line* and *serve* .06 and .04 with 5 labels a sense, .02 with 20); with 10
# they are too timid (.33, .25). A choice by cross-validation is worse calibrated, and no more accurate.
_C: Final = 300.0

# What a use's neighbours say counts as much as what the head says of it. Averages are timid: the power makes
# them as bold as they are right (on *line* and *serve* from 1.25 to 1.5 does).
_NEAREST, _POWER, _ROWS_AT_ONCE = 10, 1.35, 1024


def learning(name: str) -> Any:
    """A module of scikit-learn, or of what it needs."""
    try:
        return import_module(name)
    except ImportError as error:
        raise missing("senses and calibration need", error, "scikit-learn") from error


class Head:
    """Logistic regression on vectors: p(sense) = softmax(W v + b), in the order of `names`."""

    def __init__(self, fitted: Any) -> None:
        self._fitted = fitted
        self.names = tuple(map(str, fitted.classes_))

    def probabilities(self, vectors: Vectors) -> NDArray[np.float64]:
        """(uses, senses), the rows of which sum to 1."""
        return np.asarray(self._fitted.predict_proba(vectors), np.float64)


def fit(vectors: Vectors, labels: Sequence[str]) -> Head:
    """A head for one word, from uses whose sense is known; two of each sense are enough to begin with.

    It minimises the cross-entropy plus |W|^2 / (2 C), with C = 300, of vectors of length 1.
    """
    if len(set(labels)) < 2:
        raise InputError(f"labels must be of two senses or more; got {len(set(labels))}.")
    model = learning("sklearn.linear_model").LogisticRegression(C=_C, max_iter=1000)
    return Head(model.fit(np.asarray(vectors, np.float64), np.array(labels, str)))


def shared(probabilities: NDArray[np.float64], vectors: Vectors) -> NDArray[np.float64]:
    """Probabilities of all uses of a word, each averaged with those of its ten nearest uses.

        p'(sense) ~ (p(sense) + mean of p(sense) over the nearest) ** 1.35, which sums to 1

    Few labels say little of a use that is unlike all of them; its neighbours say more.

    Source: Zhou et al. 2004, "Learning with local and global consistency", one step of it.
    """
    nearest = min(_NEAREST, len(vectors) - 1)
    if nearest < 1:
        return probabilities
    around = np.empty_like(probabilities)
    for at in range(0, len(vectors), _ROWS_AT_ONCE):
        likeness = vectors[at : at + _ROWS_AT_ONCE] @ vectors.T
        rows = np.arange(len(likeness))
        likeness[rows, at + rows] = -2  # not itself
        found = np.argpartition(-likeness, nearest - 1, axis=1)[:, :nearest]
        around[at + rows] = probabilities[found].mean(1)
    sharp = (probabilities + around) ** _POWER
    return np.asarray(sharp / sharp.sum(1, keepdims=True), np.float64)


def next_use(vectors: Vectors, asked: Sequence[int], head: Head | None) -> int | None:
    """The use whose label would decide most; None where all have been asked about.

    The greatest product of: how unsure the head is of it (1 - its largest probability), how far it is from
    the nearest use that was asked about, and how near to all uses on average, so that it speaks for others.
    """
    if len(asked) == len(vectors):
        return None
    worth = np.clip(vectors @ vectors.mean(0), 1e-6, None).astype(np.float64)
    if asked:
        worth *= np.clip(1 - (vectors @ vectors[asked].T).max(1), 1e-6, None)
    if head is not None:
        worth *= 1 - head.probabilities(vectors).max(1)
    worth[asked] = -1
    return int(worth.argmax())
