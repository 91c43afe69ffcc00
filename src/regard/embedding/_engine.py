"""What computes hidden states: by default the network itself."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

from torch import Tensor

from regard.core import Taps
from regard.core.errors import InputError
from regard.models import Network, StackKind


class Engine(Protocol):
    """Hidden states of packed rows, at the layers that it was made for.

    Attributes:
        mixed: whether rows of different lengths may come in one call.
    """

    mixed: bool

    def hidden(self, token_ids: Tensor, shape: Sequence[tuple[int, int]]) -> list[Tensor]:
        """Run the model up to the highest layer asked for.

        Args:
            token_ids: int64 (tokens,), the rows one after the other.
            shape: for each run how many rows, and how many tokens each of them has.

        Returns:
            For each layer (tokens, width), on the device of the model.
        """
        ...


def stack_of(network: Network) -> StackKind:
    """The stack whose hidden states embed a text: the encoder where there is one."""
    return "encoder" if "encoder" in network.prefixes else "decoder"


class NetworkEngine:
    """The network's own forward pass, ended where the highest of the layers, 0 to L, is there."""

    mixed = False

    def __init__(self, network: Network, layers: Sequence[int]) -> None:
        self._network = network
        kind = stack_of(network)
        depth = network.depth(kind)
        prefix = network.prefixes[kind]
        self._points = [prefix + _point(layer, depth) for layer in layers]
        order = {name: place for place, name in enumerate(network.tap_names())}
        missing = [name for name in self._points if name not in order]
        if missing:
            raise InputError(f"this model has no point {missing[0]}, where a layer's vectors are read.")
        self._last = max(self._points, key=order.__getitem__)
        self._two_stacks = len(network.prefixes) == 2

    def hidden(self, token_ids: Tensor, shape: Sequence[tuple[int, int]]) -> list[Tensor]:
        """See `Engine.hidden`; one run."""
        ((rows, length),) = shape
        ids = token_ids.view(rows, length)
        device = next(self._network.parameters()).device
        ids = ids.to(device)
        seen: dict[str, Tensor] = {}

        def keep(point: str, value: Tensor) -> None:
            seen[point] = value
            if point == self._last:
                raise _Reached

        taps = Taps({point: partial(keep, point) for point in self._points})
        # What a decoder beside an encoder reads does not matter: the pass ends before it runs.
        target = ids[:, :1] if self._two_stacks else None
        with suppress(_Reached):
            self._network(ids, decoder_token_ids=target, logits=False, taps=taps)
        return [seen[point].expand(rows, length, -1).reshape(rows * length, -1) for point in self._points]


class _Reached(Exception):
    """The highest layer is there."""


def _point(layer: int, depth: int) -> str:
    if layer == 0:
        return "embeddings.tokens"
    return "output" if layer == depth else f"layers.{layer - 1}.output"
