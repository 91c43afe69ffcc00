"""Python's garbage collector, while much is made that stays, or nothing that needs it."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_paused() -> Iterator[None]:
    """Nothing is collected inside: each time it would look through all of torch, for a tenth of a second."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            _to_oldest()
            gc.enable()


def _to_oldest() -> None:
    """Move all objects to the collector's oldest generation, so that the next collection is a small one."""
    if not gc.get_freeze_count():  # else somebody froze objects, and they are to stay so
        gc.freeze()
        gc.unfreeze()
