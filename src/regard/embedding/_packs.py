"""Which texts run together: those of equal length, up to a budget of tokens.

Nothing is ever padded, so a text's vectors are a function of the text: what runs beside it decides only the
order in which the processor adds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

# What one pack may have: more tokens do not make the matrix products faster, and fewer stay in the caches.
BATCH_TOKENS = 512

# Towards the end packs get smaller, so that no core is left alone with a large one: so small a part of what
# is left. Not by the cores that there are: the same packs give the same bits on any machine of a kind.
_PART = 8
_FEWEST_TOKENS = 256  # a pack of fewer is slow

# Tokens squared, summed over the rows of a pack: what attention that is written out would need of memory.
_MOST_SCORES = 2**22


@dataclass(frozen=True, slots=True)
class Run:
    """Rows of equal length, by their numbers among the rows that are packed."""

    rows: tuple[int, ...]
    length: int


Pack = tuple[Run, ...]
"""What one call of an engine computes."""


def pack(lengths: Sequence[int], *, tokens: int = BATCH_TOKENS, mixed: bool = False) -> list[Pack]:
    """Rows of so many tokens into packs, the longest rows first; the last packs are smaller.

    A pack has at most `tokens`, but for one row that is longer by itself. A `mixed` engine takes runs of
    different lengths in one pack. The packs follow from the arguments alone.
    """
    packs: list[Pack] = []
    runs: list[Run] = []
    rows: list[int] = []
    held = scores = 0
    left = sum(lengths)
    budget = _budget(left, tokens)
    # sorted is stable: rows of equal length stay in the order of the texts.
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        length = lengths[row]
        other = bool(rows) and lengths[rows[0]] != length
        full = held + length > budget or scores + length * length > _MOST_SCORES
        if rows and (full or other):
            runs.append(Run(tuple(rows), lengths[rows[0]]))
            rows = []
            if full or not mixed:
                packs.append(tuple(runs))
                left -= held
                runs, held, scores, budget = [], 0, 0, _budget(left, tokens)
        rows.append(row)
        held += length
        scores += length * length
    if rows:
        runs.append(Run(tuple(rows), lengths[rows[0]]))
    if runs:
        packs.append(tuple(runs))
    return packs


def _budget(left: int, tokens: int) -> int:
    return min(tokens, max(_FEWEST_TOKENS, left // _PART))
