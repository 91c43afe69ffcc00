"""How much memory a trace holds; and what would take too much, or too long, is refused before it is begun."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

import torch
from torch import Tensor

from regard.core.errors import InputError
from regard.core.memory import check_room
from regard.tracing.record._keep import Partial
from regard.tracing.record._stacks import Stacks, TracedStack

MOST_SECONDS = 600.0
"""What no call should take that could be asked for in parts."""


def check_cost(what: str, *, seconds: float, num_bytes: float, device: torch.device, way_out: str) -> None:
    """Refuse what takes more than ten minutes, or more memory than is free, by a forecast for two cores.

    `what` is asked for, and `way_out` is what to ask for instead: both are for the message.
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


def kept_bytes(trace: Stacks | tuple[TracedStack | Tensor, ...]) -> int:
    """What a trace holds of its stacks in memory; tensors that share memory count once.

    Example:
        >>> import regard
        >>> kept_bytes(regard.load().trace("time flies like an arrow"))
        430080
    """
    stacks = (trace.encoder, trace.decoder) if isinstance(trace, Stacks) else trace
    storages = {
        storage.data_ptr(): storage.nbytes()
        for tensor in tensors_of(stacks)
        if (storage := tensor.untyped_storage()).nbytes()
    }
    return sum(storages.values())


def tensors_of(value: object) -> Iterator[Tensor]:
    """Every tensor that a record holds."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for each in value:
            yield from tensors_of(each)
    elif isinstance(value, Partial):
        yield from tensors_of(tuple(value.kept.values()))
    elif is_dataclass(value) and not isinstance(value, type):
        # Of what lies in the record itself: a field that was not kept is none.
        inside = getattr(value, "__dict__", None)
        for field in fields(value):
            yield from tensors_of(getattr(value, field.name) if inside is None else inside.get(field.name))
