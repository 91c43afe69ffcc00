"""A system without memory left ends a process without a word: what cannot fit is refused before."""

import torch

from regard.core.errors import InputError
from regard.models import FamilyConfig, count_parameters
from regard.tracing.record import free_bytes, told

CPU = torch.device("cpu")
"""A GPU that has no memory left says so."""


def check_network(config: FamilyConfig) -> None:
    """Refuse a new network that could not be trained here: weights, gradients and one moment at least.

    Raises:
        InputError: they need more memory than is free.
    """
    count = count_parameters(config)
    check_room(
        12 * count, f"a network of {count:,} parameters", "lower batch.length or the sizes under model"
    )


def check_room(needed: int, what: str, way_out: str) -> None:
    """Refuse what needs more memory than is free.

    Args:
        needed: bytes.
        what: needs them.
        way_out: what to ask for instead.
    """
    free = free_bytes(CPU)
    if free is not None and needed > free:
        raise InputError(f"{what} needs {told(needed)} of memory, and {told(free)} are free; {way_out}.")
