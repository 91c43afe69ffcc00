"""Which words are commoner here than there, and how sure that is."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def likelihood(counts_a: Any, counts_b: Any) -> NDArray[np.float64]:
    """How sure each word differs between two lists of counts; above 0 where it is commoner in the first.

        G2 = 2 sum O ln(O / E), over the table (this word, the others) x (first, second)

    Beyond 3.84, 6.63 and 10.83 it is rarer than .05, .01 and .001 by chance, for a word chosen beforehand.

    Args:
        counts_a, counts_b: how often each word occurs, in the same order.

    Example:
        >>> likelihood([10, 90], [2, 98]).round(2).tolist()
        [6.16, -6.16]

    Source: Dunning 1993, "Accurate methods for the statistics of surprise and coincidence".
    """
    of_word = np.array([counts_a, counts_b], np.float64)
    total = of_word.sum(1, keepdims=True)
    table = np.stack([of_word, total - of_word])
    expected = table.sum(1, keepdims=True) * total / max(total.sum(), 1)
    ratio = np.divide(table, expected, out=np.ones_like(table), where=table > 0)
    rates = of_word / np.maximum(total, 1)
    terms: NDArray[np.float64] = (table * np.log(ratio)).sum((0, 1))
    return np.where(rates[0] >= rates[1], 2.0, -2.0) * terms
