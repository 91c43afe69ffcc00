"""What each head does on a page's text: the names that `heads` gives, and how a live page finds them."""

import math
from collections.abc import Mapping
from typing import Any

from regard.core.errors import InputError
from regard.models import Kind
from regard.tracing.patterns import (
    FEWEST_UNITS,
    RULE,
    Broadcast,
    DelimiterSink,
    DuplicateToken,
    HeadCard,
    HeadPattern,
    Induction,
    Offset,
    default_patterns,
    heads_of_trace,
    query_draws,
)
from regard.tracing.record import Trace

MOST_WEIGHTS, MOST_OF_A_WIDGET = 1 << 25, 1 << 22
"""Weights that are read to name heads: a page of 512 tokens takes 0.3 s for them, a widget less than 0.1."""

ONE_TEXT = (
    "What each head does on this text, and how many do it. The effect of a head is the share of its "
    "attention that goes to such tokens, over chance."
)
FEW = "The text has too few words to name its heads by: a name needs eight."
MANY = "The text is too long to name its heads in passing; `regard heads` and trace.heads() do."


def names_of(trace: Trace, most: int) -> Mapping[str, Any]:
    """The names of all heads, as `AttentionRecord.names` has them.

    Args:
        trace: the text.
        most: weights that may be read for it; of a longer text heads get no names.
    """
    kinds = [kind for kind in trace.kinds if _is_told(trace, kind)]
    # Naming needs all weights of all heads.
    if sum(weights_of(trace, kind) for kind in kinds) > most:
        return {"said": MANY, "patterns": [], "kinds": {}}
    # The same names as `trace.heads` gives.
    tables = {kind: heads_of_trace(trace, kind=kind) for kind in kinds}
    named: dict[Kind, list[list[list[dict[str, Any]]]]] = {}
    for kind, table in tables.items():
        layers: dict[int, list[list[dict[str, Any]]]] = {}
        # By layer, then by head, as the page reads them.
        for card in table:
            layers.setdefault(card.layer, []).append(_shown(card, table.threshold))
        named[kind] = list(layers.values())
    findings = (finding for table in tables.values() for card in table for finding in card.findings)
    # NaN where there were too few words for an interval.
    has_intervals = any(not math.isnan(finding.low) for finding in findings)
    patterns = {each.name: each.says for kind in kinds for each in default_patterns(kind)}
    return {
        "said": ONE_TEXT if has_intervals else FEW,
        "patterns": [{"name": name, "says": says} for name, says in patterns.items()],
        "kinds": named,
    }


def _is_told(trace: Trace, kind: Kind) -> bool:
    """Whether there is anything to see: a decoder that reads its start token alone shows nothing."""
    return kind == "encoder" or trace.encoder is None or len(trace.stack("decoder").tokens) > 1


def weights_of(trace: Trace, kind: Kind) -> int:
    """How many weights all heads of a kind have."""
    queries, keys = (len(side.tokens) for side in trace.sides(kind))
    heads = sum(trace.attention_of(layer, kind).inputs.num_heads for layer in trace.layers_of(kind))
    return heads * queries * keys


def _shown(card: HeadCard, threshold: float) -> list[dict[str, Any]]:
    """What a head shows for certain, strongest first."""
    return [
        {
            "name": finding.pattern,
            **({"detail": finding.detail} if finding.detail else {}),
            "effect": round(finding.effect, 4),
        }
        for finding in card.findings
        if finding.low > threshold
    ]


def live_names(kind: Kind) -> dict[str, Any]:
    """The facts that static/live/naming.js reads, for the default patterns of a kind."""
    patterns = default_patterns(kind)
    names = [each.name for each in patterns]
    # JSON has no whole numbers of 128 bits.
    start: dict[str, Any] = dict(query_draws(RULE.seed).bit_generator.state["state"])
    return {
        "patterns": [
            {
                "name": each.name,
                "detail": each.detail,
                "says": each.says,
                # Each of several findings of one pattern has a part of the error (Bonferroni).
                "tail": (1 - RULE.level) / names.count(each.name) / 2,
                "rule": _rule(each),
            }
            for each in patterns
        ],
        "said": {"one": ONE_TEXT, "few": FEW, "many": MANY},
        "most": MOST_WEIGHTS,
        "threshold": RULE.threshold,
        "resamples": RULE.resamples,
        "fewest": FEWEST_UNITS,
        "draws": {name: hex(number) for name, number in start.items()},
    }


def _rule(pattern: HeadPattern) -> dict[str, Any]:
    # What the page's JavaScript has to know of a pattern to test it.
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
