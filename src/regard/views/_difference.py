"""How two runs differ, as a page is given it: which tokens are partners, and numbers for each head."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from regard.views._blocks import plain

if TYPE_CHECKING:
    from regard.views._records import RecordKind

_Floats = npt.NDArray[np.float64]

Pairs = tuple[tuple[int, int], ...]
"""The places of partners, in the one and in the other."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class KindDifference:
    """How one kind of attention differs.

    Attributes:
        queries, keys: Which tokens are partners.
        divergence: (layers, heads), the Jensen-Shannon divergence in bits; NaN where there is no head.
        compared: (layers, heads), the share of attention that lies on keys with partners.
        most: (layers, heads), the largest difference of two weights, whatever its sign.
    """

    queries: Pairs
    keys: Pairs
    divergence: _Floats
    compared: _Floats
    most: _Floats


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class WordLikeness:
    """How alike the vectors of the words are that two texts share.

    Attributes:
        words: The words, in order.
        layers: What each embedding layer is called.
        cosines: (words, layers), NaN where a vector is zero.
    """

    words: tuple[str, ...]
    layers: tuple[str, ...]
    cosines: _Floats


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Difference:
    """How two runs differ: the second less the first.

    Attributes:
        between: "texts" or "models".
        names: What the two are.
        kinds: The kinds of attention that both have.
        likeness: Of the words that two texts share; None where there is none.
        left_out: What is not there, each with the reason.
    """

    between: Literal["texts", "models"]
    names: tuple[str, str]
    kinds: "Mapping[RecordKind, KindDifference]"
    likeness: WordLikeness | None = None
    left_out: Mapping[str, str]


def difference_facts(difference: Difference) -> dict[str, Any]:
    """What the page holds of it: plain values, with six digits."""
    likeness = difference.likeness
    return {
        "between": difference.between,
        "names": list(difference.names),
        "kinds": {
            kind: {
                "queries": [list(pair) for pair in each.queries],
                "keys": [list(pair) for pair in each.keys],
                "divergence": plain(each.divergence),
                "compared": plain(each.compared),
                "most": plain(each.most),
            }
            for kind, each in difference.kinds.items()
        },
        "likeness": None
        if likeness is None
        else {
            "words": list(likeness.words),
            "layers": list(likeness.layers),
            "cosines": plain(likeness.cosines),
        },
        "leftOut": [{"name": name, "reason": reason} for name, reason in difference.left_out.items()],
    }
