"""An embedder that is kept from one call to the next, while what it was made of is as it was."""

from typing import Any

import torch
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
        >>> first = kept.of(loaded, Request())
        >>> kept.of(loaded, Request()) is first
        True
        >>> kept.of(loaded, Request(layer=2)) is first
        False
    """

    def __init__(self) -> None:
        self._last: tuple[Loaded, Request, _State, Embedder] | None = None

    def of(self, loaded: Loaded, request: Request) -> Embedder:
        """The embedder of a request.

        Raises:
            InputError, CheckpointError: see `Embedder`.
        """
        state = _State(loaded.network)
        last = self._last  # other threads may put theirs there
        if last is not None and last[0] is loaded and last[1] == request and last[2].is_same(state):
            return last[3]
        embedder = Embedder(loaded, request)
        self._last = (loaded, request, state, embedder)
        return embedder


class _State:
    """Everything that a network is made of at a time, piece by piece.

    What is no module, tensor or collection of such counts as another where it is another object, or, of
    numbers and strings, where it is not equal.
    """

    def __init__(self, network: nn.Module) -> None:
        self._pieces: list[Any] = []
        self._memory: list[Tensor] = []  # kept, so that no other tensor can come to lie there
        self._seen: set[int] = set()
        self._add(network)

    def is_same(self, other: "_State") -> bool:
        """Whether nothing has changed in between."""
        return len(self._pieces) == len(other._pieces) and all(map(_same, self._pieces, other._pieces))

    def _add(self, value: Any) -> None:
        if isinstance(value, Tensor):
            self._memory.append(value.detach())
            self._pieces += (value, value.data_ptr(), value._version, value.dtype, value.shape)
        elif isinstance(value, dict):
            self._pieces.append(len(value))
            for name, each in value.items():
                self._pieces.append(name)
                self._add(each)
        elif isinstance(value, list | tuple | set):
            self._pieces.append(len(value))
            for each in value:
                self._add(each)
        else:
            self._pieces.append(value)
            if isinstance(value, nn.Module) and id(value) not in self._seen:
                self._seen.add(id(value))
                self._add(vars(value))


def _same(one: Any, other: Any) -> bool:
    return one is other or (isinstance(one, int | float | str | torch.Size) and one == other)
