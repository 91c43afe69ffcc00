"""One text that a decoder wrote."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """One text that a decoder wrote.

    Args:
        token_ids: the new tokens, without the one that ended them.
        log_probability: the sum of log p of each new token given all before it, the end's included.
        score: what texts were ranked by: `log_probability`, divided by what a length counts for.
        ended: whether it came to an end, and not to the most tokens that it could have.
    """

    token_ids: tuple[int, ...]
    log_probability: float
    score: float
    ended: bool
