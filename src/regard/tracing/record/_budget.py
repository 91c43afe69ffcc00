"""What would take too long or too much memory is refused before it is begun, with the numbers."""

import torch

from regard.core.errors import InputError
from regard.core.memory import check_room

MOST_SECONDS = 600.0
"""What no call should take that could be asked for in parts."""


def check_cost(what: str, *, seconds: float, num_bytes: float, device: torch.device, way_out: str) -> None:
    """Refuse what takes more than ten minutes, or more memory than is free, by a forecast for two cores.

    `what` is it, and `way_out` what to ask for instead, both for the message.
    """
    if seconds > MOST_SECONDS:
        raise InputError(f"{what} would take about {seconds:.0f} s, more than {MOST_SECONDS:.0f}; {way_out}.")
    check_room(what, num_bytes, device, way_out)


# To ask the system how much is free takes as long as the weights of some hundred tokens.
_LITTLE = 2**26


def check_pairs(what: str, pairs: int, device: torch.device) -> None:
    """Refuse weights or scores, float32, that memory would not hold."""
    if 4 * pairs >= _LITTLE:
        check_cost(
            what,
            seconds=0.0,
            num_bytes=4.0 * pairs,
            device=device,
            way_out="ask for some of them with query=, key=, head= or layer=, or for trace.statistics(), "
            "which makes no N x N",
        )
