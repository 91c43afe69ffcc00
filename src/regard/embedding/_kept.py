"""An embedder that is kept from one call to the next, while its model and request are unchanged."""

from collections.abc import Iterable
from itertools import chain
from operator import is_
from typing import Any

from torch import Tensor, nn

from regard.embedding._embedder import Embedder
from regard.embedding._request import Request
from regard.models import Loaded


class KeptEmbedder:
    """The embedder of a model's last call.

    To make one takes up to a tenth of a second: weights are folded and made codes, their loss is measured.
    It is made again as soon as the request or the network is another: a module, an attribute of one, or a
    weight, also one that was written to in place. Only what is written through `weight.data[...]` or a NumPy
    array of the same memory is not seen, as autograd does not see it either: write through the weight itself,
    under `torch.no_grad()`.

    Example:
        >>> from regard.models import load_checkpoint
        >>> loaded, kept = load_checkpoint(), KeptEmbedder()
        >>> first = kept.embedder_for(loaded, Request())
        >>> kept.embedder_for(loaded, Request()) is first
        True
        >>> kept.embedder_for(loaded, Request(layer=2)) is first
        False
    """

    def __init__(self) -> None:
        self._last: tuple[Loaded, Request, _State, Embedder] | None = None

    def __reduce__(self) -> tuple[type, tuple[()]]:
        # A copy of a model, or the same in another process, makes its own.
        return type(self), ()

    def embedder_for(self, loaded: Loaded, request: Request) -> Embedder:
        """The embedder of a request."""
        last = self._last  # other threads may put theirs there
        # The same object; an equal request.
        is_same = last is not None and last[0] is loaded and last[1] == request
        if last is not None and is_same and last[2].is_as_it_was(loaded.network):
            return last[3]
        state = _State(loaded.network)
        embedder = Embedder(loaded, request)
        # One tuple, so that other threads see all of it or nothing.
        self._last = (loaded, request, state, embedder)
        return embedder


class _State:
    """Everything that a network is made of at a time: what its modules, collections and tensors hold.

    They are found once. Nothing can be put beside them later but into one of them, where it is seen.
    """

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self._held: list[tuple[Any, tuple[Any, ...]]] = []
        self._empty: list[Any] = []  # most are: a module has a dozen, of hooks
        self._tensors: list[tuple[Tensor, tuple[Any, ...]]] = []
        self._memory: list[Tensor] = []  # kept, so that no other tensor can come to lie there
        self._seen: set[int] = set()
        self._add(network)

    def is_as_it_was(self, network: nn.Module) -> bool:
        """Whether nothing has changed since."""
        return (
            network is self._network
            # Most collections were empty, and must still be.
            and not any(self._empty)
            and all(
                _size(each) == len(held) and all(map(is_, _parts(each), held)) for each, held in self._held
            )
            and all(_facts(tensor) == facts for tensor, facts in self._tensors)
        )

    def _add(self, value: Any) -> None:
        if isinstance(value, Tensor):
            self._tensors.append((value, _facts(value)))
            # A tensor on the same memory keeps it from being used again.
            self._memory.append(value.detach())
        elif isinstance(value, dict | list | tuple | set):
            parts = tuple(_parts(value))
            if parts:
                self._held.append((value, parts))
                for each in parts:
                    self._add(each)
            else:
                self._empty.append(value)
        # A module once, however often it is referred to.
        elif isinstance(value, nn.Module) and id(value) not in self._seen:
            self._seen.add(id(value))
            self._add(vars(value))


def _parts(of: Any) -> Iterable[Any]:
    return chain(of.keys(), of.values()) if isinstance(of, dict) else of


def _size(of: Any) -> int:
    return 2 * len(of) if isinstance(of, dict) else len(of)


def _facts(tensor: Tensor) -> tuple[Any, ...]:
    # torch counts up the version with each change in place.
    return tensor.data_ptr(), tensor._version, tensor.dtype, tensor.shape
