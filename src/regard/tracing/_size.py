"""How much memory a trace takes."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from torch import Tensor

from regard.core.errors import InputError
from regard.models import Loaded
from regard.tracing._run import trace_ids
from regard.tracing._trace import Trace


def kept_bytes(trace: Trace) -> int:
    """What a trace holds in memory; tensors that share memory count once.

    Example:
        >>> import regard
        >>> kept_bytes(regard.load().trace("time flies like an arrow"))
        430080
    """
    storages = {
        storage.data_ptr(): storage.nbytes()
        for tensor in _tensors(trace)
        if (storage := tensor.untyped_storage()).nbytes()
    }
    return sum(storages.values())


def bytes_at(loaded: Loaded, num_tokens: int) -> int:
    """What a trace of so many tokens will hold; for an encoder-decoder, so many on either side.

    Each token adds the same, so two short traces tell what a long one takes: in O(N) memory, never N x N.
    It is at most this where a table of relative positions stops growing with the text (DeBERTa).

    Raises:
        InputError: fewer tokens than one, or more than the model takes.

    Example:
        >>> import regard
        >>> model = regard.load()
        >>> bytes_at(model.loaded, 7) == kept_bytes(model.trace("time flies like an arrow"))
        True
    """
    network = loaded.network
    limits = [limit for kind in network.prefixes if (limit := network.limit(kind)) is not None]
    if num_tokens < 1 or any(num_tokens > limit for limit in limits):
        wanted = f"from 1 to {min(limits)}, the model's limit" if limits else "at least 1"
        raise InputError(f"num_tokens must be {wanted}; got {num_tokens}.")
    both = len(network.prefixes) == 2
    one, two = (kept_bytes(trace_ids(loaded, [0] * count, [0] * count if both else None)) for count in (1, 2))
    return one + (num_tokens - 1) * (two - one)


def _tensors(value: object) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple):
        for each in value:
            yield from _tensors(each)
    elif is_dataclass(value):
        for field in fields(value):
            yield from _tensors(getattr(value, field.name))
