"""What a live page needs to name heads as `heads` does: the patterns as data, and the start of the draws."""

from typing import Any

from regard.core.errors import InputError
from regard.models import Kind
from regard.tracing.pages._names import FEW, LEVEL, MANY, MOST_WEIGHTS, ONE_TEXT, RESAMPLES, SEED, THRESHOLD
from regard.tracing.patterns import (
    FEWEST_UNITS,
    Broadcast,
    DelimiterSink,
    DuplicateToken,
    HeadPattern,
    Induction,
    Offset,
    default_patterns,
    query_draws,
)


def live_names(kind: Kind) -> dict[str, Any]:
    """The facts that static/live/naming.js reads, for the default patterns of a kind."""
    patterns = default_patterns(kind)
    names = [each.name for each in patterns]
    # JSON has no whole numbers of 128 bits.
    start: dict[str, Any] = dict(query_draws(SEED).bit_generator.state["state"])
    return {
        "patterns": [
            {
                "name": each.name,
                "detail": each.detail,
                "says": each.says,
                "tail": (1 - LEVEL) / names.count(each.name) / 2,
                "rule": _rule(each),
            }
            for each in patterns
        ],
        "said": {"one": ONE_TEXT, "few": FEW, "many": MANY},
        "most": MOST_WEIGHTS,
        "threshold": THRESHOLD,
        "resamples": RESAMPLES,
        "fewest": FEWEST_UNITS,
        "draws": {name: hex(number) for name, number in start.items()},
    }


def _rule(pattern: HeadPattern) -> dict[str, Any]:
    match pattern:
        case Offset():
            return {"offset": pattern.offset}
        case DuplicateToken() | Induction():
            return {"occurrence": int(isinstance(pattern, Induction))}
        case DelimiterSink():
            return {"sink": True}
        case Broadcast():
            return {"broadcast": pattern.keys}
    raise InputError(f"a live page does not have the pattern {pattern.name}.")
