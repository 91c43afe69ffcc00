"""The cases that the forms of attention are held to the oracle over."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from unit.core import oracle
from unit.core.cases import BIASES, MASKS, Case, Made

EXTRAS = [(None, False), (1.5, False), (None, True), (0.7, True)]
SCALES = [None, 1.3, -0.7, None, 0.0]
KV_HEADS = [6, 1, 3, 2, 6, 2, 3]
SHAPES = [(7, 11, 3, 5), (7, 7, 5, 3), (5, 7, 3, 3), (5, 5, 2, 2), (7, 5, 2, 1), (5, 7, 2, 3)]
LAYOUTS = ["plain", "projected", "transposed"]


def _grid() -> list[Case]:
    """Every pair of mask, bias and cap or dropout: a quarter of all mixtures. The rest takes turns."""
    cases = []
    mixtures = itertools.product(enumerate(MASKS), enumerate(BIASES), enumerate(EXTRAS))
    for number, ((m, mask), (b, bias), (e, (softcap, dropped))) in enumerate(mixtures):
        if (m + b + e) % 4:
            continue
        # The mask's own stride breaks the beat, so that no mask meets the same few companions only.
        turn = number // 4 + number // 24
        queries, keys, d_k, d_v = SHAPES[turn % len(SHAPES)]
        cases.append(
            Case(
                mask=mask,
                bias=bias,
                softcap=softcap,
                dropped=dropped,
                scale=SCALES[turn % len(SCALES)],
                kv_heads=KV_HEADS[turn % len(KV_HEADS)],
                queries=queries,
                keys=keys,
                d_k=d_k,
                d_v=d_v,
                layout=LAYOUTS[(turn // 2) % len(LAYOUTS)],
                sinks=turn % 5 == 2,
            )
        )
    return cases


GRID = _grid()


# Without bias, cap and dropout everything goes through torch's kernel, which is particular about shapes.
PLAIN = [
    Case(mask=mask, kv_heads=kv_heads, scale=scale, queries=q, keys=k, d_k=d_k, d_v=d_v, layout=layout)
    for (mask, kv_heads), (scale, (q, k, d_k, d_v), layout) in zip(
        itertools.product(MASKS, (1, 2, 3, 6)),
        itertools.cycle(itertools.product(SCALES, SHAPES, LAYOUTS)),
        strict=False,
    )
]

SINGLE = {*PLAIN, *GRID[::5]}
"""Those that single precision is held to as well. It takes the same ways, but for torch's kernel."""


@cache
def worked_out(case: Case) -> tuple[Made, oracle.Result]:
    """The case's numbers, and what the oracle makes of them."""
    made = Made(case)
    return made, made.expected()


@contextmanager
def named(case: Case) -> Iterator[None]:
    """A failure inside says which case it is of: one test goes through many."""
    try:
        yield
    except Exception as error:
        error.add_note(repr(case))
        raise
