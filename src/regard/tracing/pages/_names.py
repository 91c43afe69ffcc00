"""What each head does on a page's text, for the page: the names that `heads` gives, in plain values."""

import math
from collections.abc import Mapping
from typing import Any

from regard.models import Kind
from regard.tracing.patterns import HeadCard, default_patterns, heads_of_trace
from regard.tracing.record import Trace

MOST_WEIGHTS, MOST_OF_A_WIDGET = 1 << 25, 1 << 22
"""Weights that are read to name heads: a page of 512 tokens takes 0.3 s for them, a widget less than 0.1."""

THRESHOLD, LEVEL, RESAMPLES, SEED = 0.1, 0.95, 400, 0
"""How surely a head follows a pattern that it is named by: see `HeadOptions`."""

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
    if sum(weights_of(trace, kind) for kind in kinds) > most:
        return {"said": MANY, "patterns": [], "kinds": {}}
    tables = {
        kind: heads_of_trace(
            trace, kind=kind, threshold=THRESHOLD, level=LEVEL, resamples=RESAMPLES, seed=SEED
        )
        for kind in kinds
    }
    named: dict[Kind, list[list[list[dict[str, Any]]]]] = {}
    for kind, table in tables.items():
        layers: dict[int, list[list[dict[str, Any]]]] = {}
        for card in table:
            layers.setdefault(card.layer, []).append(_shown(card, table.threshold))
        named[kind] = list(layers.values())
    findings = (finding for table in tables.values() for card in table for finding in card.findings)
    told = any(not math.isnan(finding.low) for finding in findings)
    patterns = {each.name: each.says for kind in kinds for each in default_patterns(kind)}
    return {
        "said": ONE_TEXT if told else FEW,
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
