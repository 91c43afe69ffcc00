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


def learning(name: str) -> Any:
    """A module of scikit-learn, or of what it needs.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise missing("senses need", error, "scikit-learn") from error


class Head:
    """Logistic regression on vectors: p(sense) = softmax(W v + b).

    Attributes:
        names: of the senses, in the order of the probabilities.
    """

    def __init__(self, fitted: Any) -> None:
        self._fitted = fitted
        self.names = tuple(map(str, fitted.classes_))

    def probabilities(self, vectors: Vectors) -> NDArray[np.float64]:
        """(uses, senses), the rows of which sum to 1."""
        return np.asarray(self._fitted.predict_proba(vectors), np.float64)


def fit(vectors: Vectors, labels: Sequence[str]) -> Head:
    """A head for one word, from uses whose sense is known; two of each sense are enough to begin with.

    It minimises the cross-entropy plus |W|^2 / (2 C), with C = 300.

    Args:
        vectors: (uses, d), each of length 1.
        labels: the sense of each.

    Raises:
        InputError: there are not two senses.
        MissingExtraError: scikit-learn is not installed.

    Example:
        >>> vectors = np.eye(4, dtype=np.float32)
        >>> fit(vectors, ["river", "river", "money", "money"]).probabilities(vectors[:1]).round(2).tolist()
        [[0.01, 0.99]]
    """
    if len(set(labels)) < 2:
        raise InputError(f"labels must be of two senses or more; got {len(set(labels))}.")
    model = learning("sklearn.linear_model").LogisticRegression(C=_C, max_iter=1000)
    return Head(model.fit(np.asarray(vectors, np.float64), np.array(labels, str)))


def next_use(vectors: Vectors, asked: Sequence[int], head: Head | None) -> int | None:
    """The use whose label would decide most; None where all have been asked about.

    The greatest product of: how unsure the head is of it (1 - its largest probability), how far it is from
    the nearest use that was asked about, and how near to all uses on average, so that it speaks for others.

    Args:
        vectors: of all uses.
        asked: those that were asked about.
        head: what has been learned so far; None at first.
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
