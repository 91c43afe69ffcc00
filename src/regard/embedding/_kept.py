"""An embedder that is kept from one call to the next, while what it was made of is as it was."""

import io
import pickle
from typing import Any

import torch
from torch import Tensor

from regard.embedding._embedder import Embedder
from regard.embedding._request import Request
from regard.models import Loaded, Network

# Tensors of fewer entries, and those of other numbers than floats, are copied.
_FEW = 2**12


class KeptEmbedder:
    """The embedder of a model's last call.

    To make one takes a tenth of a second: weights are folded and made codes, and a probe decides in which
    type; a short text itself takes thousandths. It holds folded weights, and is made again as soon as
    anything of the network is another: a weight, also one that was written to in place, or an attribute of a
    module. To see that takes as long as to read all weights once.

    Example:
        >>> from regard.models import load_checkpoint
        >>> loaded, kept = load_checkpoint(), KeptEmbedder()
        >>> first = kept.of(loaded, Request())
        >>> kept.of(loaded, Request()) is first
        True
        >>> kept.of(loaded, Request(layer=2)) is first
        False
    """

    def __init__(self) -> None:
        self._last: tuple[Loaded, _State, Embedder] | None = None

    def of(self, loaded: Loaded, request: Request) -> Embedder:
        """The embedder of a request.

        Raises:
            InputError, CheckpointError: see `Embedder`.
        """
        state = _State(loaded.network, request)
        last = self._last  # other threads may put theirs there
        if last is not None and last[0] is loaded and last[1] == state:
            return last[2]
        embedder = Embedder(loaded, request)
        self._last = (loaded, state, embedder) if state.is_known else None
        return embedder


class _State:
    """What a network and a request are at a time, to be told from what they are later."""

    def __init__(self, network: Network, request: Request) -> None:
        structure = io.BytesIO()
        pickler = _Structure(structure)
        try:
            pickler.dump((request, network))
        except (pickle.PicklingError, AttributeError, TypeError, ValueError, RecursionError):
            self.is_known = False  # such as a function without a name
            return
        self.is_known = True
        self._structure = structure.getvalue()
        with torch.inference_mode():
            self._tensors = [_told(each) for each in pickler.tensors]

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _State)
            and self.is_known
            and other.is_known
            and self._structure == other._structure
            and all(map(_same, self._tensors, other._tensors))
        )

    __hash__ = None  # type: ignore[assignment]


class _Structure(pickle.Pickler):
    """All of an object but its tensors, which it collects."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self.tensors: list[Tensor] = []

    def persistent_id(self, obj: Any) -> Any:
        """A tensor's number, type, shape and place."""
        if not isinstance(obj, Tensor):
            return None
        self.tensors.append(obj)
        return len(self.tensors), str(obj.dtype), tuple(obj.shape), str(obj.device)


def _told(tensor: Tensor) -> tuple[Tensor, ...]:
    """The tensor, or the sums of its rows and of its columns.

    What is written to a tensor changes them, but for changes that are lost in the rounding of a sum, and for
    such that cancel in all rows and all columns.
    """
    own = tensor.detach()
    if own.numel() < _FEW or not own.is_floating_point():
        return (own.clone(),)
    rows, dtype = own.reshape(-1, own.shape[-1]), torch.promote_types(own.dtype, torch.float32)
    return rows.sum(1, dtype=dtype), rows.sum(0, dtype=dtype)


def _same(one: tuple[Tensor, ...], other: tuple[Tensor, ...]) -> bool:
    return all(map(torch.equal, one, other))
