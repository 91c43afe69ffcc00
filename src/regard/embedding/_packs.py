"""Which texts run together: those of equal length, up to a budget of tokens.

Nothing is ever padded, so a text's vectors are a function of the text: what runs beside it decides only the
order in which the processor adds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

# What one pack may have: more tokens do not make the matrix products faster, and fewer stay in the caches.
BATCH_TOKENS = 1024

# Tokens squared, summed over the rows of a pack: what attention that is written out would need of memory.
_MOST_SCORES = 2**22


@dataclass(frozen=True, slots=True)
class Run:
    """Rows of equal length that lie side by side.

    Attributes:
        rows: their numbers among the rows that are packed.
        length: the tokens of each.
    """

    rows: tuple[int, ...]
    length: int


Pack = tuple[Run, ...]
"""What one call of an engine computes."""


def pack(lengths: Sequence[int], *, tokens: int = BATCH_TOKENS, mixed: bool = False) -> list[Pack]:
    """Rows into packs, the longest first.

    Args:
        lengths: the tokens of each row.
        tokens: the most of a pack, but for one row that is longer by itself.
        mixed: whether an engine takes runs of different lengths in one pack.

    Returns:
        The packs; a function of the arguments alone.

    Example:
        >>> pack([2, 3, 2, 2], tokens=5)
        [(Run(rows=(1,), length=3),), (Run(rows=(0, 2), length=2),), (Run(rows=(3,), length=2),)]
        >>> pack([2, 3, 2, 2], tokens=5, mixed=True)
        [(Run(rows=(1,), length=3), Run(rows=(0,), length=2)), (Run(rows=(2, 3), length=2),)]
    """
    packs: list[Pack] = []
    runs: list[Run] = []
    rows: list[int] = []
    held = scores = 0
    # sorted is stable: rows of equal length stay in the order of the texts.
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        length = lengths[row]
        other = bool(rows) and lengths[rows[0]] != length
        full = held + length > tokens or scores + length * length > _MOST_SCORES
        if rows and (full or other):
            runs.append(Run(tuple(rows), lengths[rows[0]]))
            rows = []
            if full or not mixed:
                packs.append(tuple(runs))
                runs, held, scores = [], 0, 0
        rows.append(row)
        held += length
        scores += length * length
    if rows:
        runs.append(Run(tuple(rows), lengths[rows[0]]))
    if runs:
        packs.append(tuple(runs))
    return packs
