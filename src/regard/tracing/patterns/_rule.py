"""How surely a head must follow a pattern to be named by it: read by Python, and by the page as data."""

from typing import Final, NamedTuple

from regard.views import claims


class Rule(NamedTuple):
    """See `HeadOptions` for what each means."""

    threshold: float
    level: float
    resamples: int
    seed: int


RULE: Final = Rule(threshold=claims()["effect"], level=0.95, resamples=400, seed=0)
