"""Why one head looks from each word at each: the largest parts of every pair of tokens, for a page."""

from typing import Any

import torch

from regard.core.errors import InputError
from regard.models import Kind
from regard.tracing.reasons._heads import why_heads
from regard.tracing.reasons._scores import Scores
from regard.tracing.reasons._seen import side_of
from regard.tracing.reasons._side import most_of
from regard.tracing.record import Trace

_LEAST = 0.05
"""Weights below this are not asked about."""

_LONGEST = 256
"""Tokens: every part has a number for each pair of them."""

_MOST = 3
"""Parts that are told of a pair."""

_FEEDS, _APART = 4, 2.0
"""Earlier heads that are told of each side, so many standard deviations from chance."""


def pairs_of_head(trace: Trace, layer: int, head: int, kind: Kind) -> dict[str, Any]:
    """What raises, or lowers, each score of a head over the mean of its row, by what wrote the key.

    Returns:
        Plain values: `parts`, in words; and `pairs`, each with the query, the key, the difference, a list of
        its largest parts in that direction, each the number of a part, the token that a head took it from
        (else None) and its value, as `why` has them, and the sum of all parts in that direction. Pairs with
        less than 5 % of the weight are left out.
        `feeds`: of its queries and keys the earlier heads that feed them most, as `why_heads` has them, each
        its layer, its number, and how far from chance it is; `value`, what all is together.

    Raises:
        InputError: as `why`; or a text of more than 256 tokens.
    """
    if max(len(side.tokens) for side in trace.sides(kind)) > _LONGEST:
        raise InputError(f"pairs are split of texts of at most {_LONGEST} tokens; ask trace.why of one pair.")
    with torch.no_grad():
        of_head = Scores(trace, layer, head, kind)
        # All rows of the head: (queries, keys).
        scores, ratios, bias = of_head.rows(torch.arange(len(of_head.q), device=of_head.q.device))
        keys = side_of(trace, layer, head, kind, "k", range(len(of_head.k)))
        written, tables = [], []
        for part in keys.parts():
            written.append(part)
            # What this writer's part of each key adds to each score.
            tables.append(ratios * of_head.factor * (of_head.q @ keys.turned(part.values).mT))
        seen = scores.isfinite()
        table = torch.stack([*tables, bias]).masked_fill(~seen, 0.0)
        # Less the mean of the row: what raises a score over the others.
        table = table - table.sum(dim=2, keepdim=True) / seen.sum(dim=1, keepdim=True)
        pairs, parts = [], dict[str, int]()
        # Only pairs with some weight are told.
        for query, key in (torch.softmax(scores, dim=1) >= _LEAST).nonzero().tolist():
            total = float(table[:, query, key].sum())
            # A score below the mean is explained by what lowers it.
            sign = 1.0 if total >= 0 else -1.0
            toward = of_head.factor * float(ratios[query, key]) * of_head.q[query]
            along, largest = sign * table[:, query, key], []
            summed = sign * float(along.clamp(min=0).sum())
            for place in along.topk(min(_MOST, len(table))).indices.tolist():
                # The bias has no writer, and stands behind all parts.
                taken = written[place].taken if place < len(written) else None
                source = None if taken is None else most_of(taken(key, toward))
                said = str(written[place].writer) if place < len(written) else "their distance"
                value = round(float(table[place, query, key]), 2)
                # Names once, by number.
                largest.append([parts.setdefault(said, len(parts)), source, value])
            pairs.append([query, key, round(total, 2), largest, round(summed, 2)])
    composition = why_heads(trace, layer, head, kind=kind)
    feeds = {"query": composition.query_feeds, "key": composition.key_feeds}
    return {
        "parts": [*parts],
        "pairs": pairs,
        "value": round(composition.value, 2),
        "feeds": {
            side: [
                [each.writer.layer, each.writer.head, round(each.value - each.chance, 2)]
                for each in of
                # Earlier heads alone, and clearly beyond chance.
                if each.writer.name == "head" and each.writer.kind == kind and abs(each.times) >= _APART
            ][:_FEEDS]
            for side, of in feeds.items()
        },
    }
