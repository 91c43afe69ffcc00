"""What would take too long or too much memory is refused before it is begun, with the numbers."""

import torch

from regard.core.errors import InputError
from regard.tracing.record import free_bytes, told

MOST_SECONDS = 600.0
"""What no call should take that could be asked for in parts."""


def check_cost(what: str, *, seconds: float, num_bytes: float, device: torch.device, way_out: str) -> None:
    """Refuse what is forecast not to fit.

    Args:
        what: it is, for the message.
        seconds: a forecast, for two cores.
        num_bytes: what it holds at once.
        device: where.
        way_out: what to ask for instead.

    Raises:
        InputError: more than ten minutes, or more memory than is free.
    """
    free = free_bytes(device)
    if seconds > MOST_SECONDS:
        raise InputError(f"{what} would take about {seconds:.0f} s, more than {MOST_SECONDS:.0f}; {way_out}.")
    if free is not None and num_bytes > free:
        raise InputError(
            f"{what} would take {told(int(num_bytes))} of memory, of which {told(free)} are free; {way_out}."
        )
