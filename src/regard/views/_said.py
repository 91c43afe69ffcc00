"""Numbers as words, for the command line: no claim is of what chance gives. The page has base/said.js."""

import json
import math
from collections.abc import Sequence
from functools import cache

from regard.views._assets import read


@cache
def claims() -> dict[str, float]:
    """What a number must reach before a sentence claims it, here and on the page: static/claims.json.

    * `odds`: a word "gives" a share s where s / (1 - s) is so many times e / (1 - e), e being an even share
      of what the word may see. Before training the largest was 4.6, in 112,000 rows of models of base size.
    * `even`: attention is spread evenly where no key has so many times its even odds.
    * `hardly`: what moves by less of what two different words of the text are apart hardly moves.
    * `effect`: a head has a name where the lower end of its effect's interval is above it.
    """
    thresholds: dict[str, float] = json.loads(read("claims.json"))
    return thresholds


def moved(moves: Sequence[float], apart: float) -> str:
    """How far a word moves from text to text, beside how far two different words of one text are apart.

    Args:
        moves: 1 - cosine, of each pair of texts.
        apart: the same of two different words; NaN where there are none.

    Example:
        >>> moved([0.153], 0.588)
        'The word moves by 0.15 (1 - cosine); two different words of one text are 0.59 apart (others).'
    """
    # One number where both ends are the same.
    far = " to ".join(dict.fromkeys(f"{each:.2f}" for each in (min(moves), max(moves))))
    hardly = "hardly moves, by" if max(moves) < claims()["hardly"] * apart else "moves by"
    usual = "no text has two different words"
    if not math.isnan(apart):
        usual = f"two different words of one text are {apart:.2f} apart (others)"
    return f"The word {hardly} {far} (1 - cosine); {usual}."
