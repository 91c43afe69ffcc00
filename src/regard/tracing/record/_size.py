"""How much memory a trace holds."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from torch import Tensor

from regard.tracing.record._keep import Partial
from regard.tracing.record._passage import Passage
from regard.tracing.record._stacks import Stacks


def kept_bytes(trace: Stacks | tuple[Passage | Tensor, ...]) -> int:
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
