"""What computes hidden states: by default the network itself; and what other engines are made of."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.core import Taps
from regard.core.errors import InputError
from regard.models import Network, StackKind


class Projection(Protocol):
    """x W^T + bias.

    Attributes:
        width: the entries of what comes out.
    """

    width: int

    def into(self, out: Tensor, x: Tensor) -> Tensor:
        """out = x W^T + bias; x (rows, depth) lies without gaps, out (rows, width) with none within rows."""
        ...


class Product(Projection, Protocol):
    """The same, followed by something or added to something."""

    def gelu_into(self, out: Tensor, x: Tensor) -> Tensor:
        """out = gelu(x W^T + bias); as `into`."""
        ...

    def add_to(self, residual: Tensor, x: Tensor) -> None:
        """residual += x W^T, in its own memory; without the bias."""
        ...


MakeProduct = Callable[[Tensor, Tensor | None], Product]
"""What makes a linear map of a weight (width, depth) and a bias (width,)."""


class TorchProduct:
    """By torch: a weight (width, depth) and a bias (width,), of the type of what they are multiplied with."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight, self._bias = weight, bias
        self.width = len(weight)

    def into(self, out: Tensor, x: Tensor) -> Tensor:
        """See `Product`."""
        if self._bias is None:
            return torch.mm(x, self._weight.t(), out=out)
        return torch.addmm(self._bias, x, self._weight.t(), out=out)

    def gelu_into(self, out: Tensor, x: Tensor) -> Tensor:
        """See `Product`."""
        made: Tensor = torch.ops.aten.gelu_(self.into(out, x), approximate="none")
        return made

    def add_to(self, residual: Tensor, x: Tensor) -> None:
        """See `Product`."""
        residual.addmm_(x, self._weight.t())


class SideBySide:
    """The columns of one product of some rows, then those of another."""

    def __init__(self, first: Projection, second: Projection) -> None:
        self._first, self._second = first, second
        self.width = first.width + second.width

    def into(self, out: Tensor, x: Tensor) -> Tensor:
        """See `Projection`."""
        at = self._first.width
        # Each product writes its own columns.
        self._first.into(out[:, :at], x)
        self._second.into(out[:, at:], x)
        return out


class AttentionBackend:
    """Attention by torch's kernel."""

    def attend(self, qkv: Tensor, context: Tensor, shape: Sequence[tuple[int, int]]) -> Tensor:
        """context = softmax(q k^T) v, for each head of each text.

        Args:
            qkv: float32 (tokens, 3, heads, head_dim), without gaps, the queries scaled.
            context: (tokens, heads x head_dim), without gaps; written and given back.
            shape: for each run how many texts, and how many tokens each of them has.
        """
        _, _, heads, head_dim = qkv.shape
        start = 0
        # Texts of one length at a time: no padding, no mask.
        for rows, length in shape:
            here = slice(start, start + rows * length)
            # (3, rows, heads, length, head_dim)
            q, k, v = qkv[here].view(rows, length, 3, heads, head_dim).permute(2, 0, 3, 1, 4)
            # scale=1: the queries' weights have the scale in them.
            joined = F.scaled_dot_product_attention(q, k, v, scale=1.0).transpose(1, 2)
            context[here].view(rows, length, heads, head_dim).copy_(joined)
            start += rows * length
        return context


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
        # Taps where the layers' vectors are offered.
        self._points = [prefix + _point(layer, depth) for layer in layers]
        order = {name: place for place, name in enumerate(network.tap_names())}
        missing = [name for name in self._points if name not in order]
        if missing:
            raise InputError(f"this model has no point {missing[0]}, where a layer's vectors are read.")
        # The last in the order of the forward pass: nothing after it is computed.
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
            # The exception leaves the forward pass.
            if point == self._last:
                raise _Reached

        taps = Taps({point: partial(keep, point) for point in self._points})
        # What a decoder beside an encoder reads does not matter: the pass ends before it runs.
        target = ids[:, :1] if self._two_stacks else None
        with suppress(_Reached):
            self._network(ids, decoder_token_ids=target, logits=False, taps=taps)
        # Fixed tables may have one row for all texts.
        return [seen[point].expand(rows, length, -1).reshape(rows * length, -1) for point in self._points]


class _Reached(Exception):
    """The highest layer is there."""


def _point(layer: int, depth: int) -> str:
    if layer == 0:
        return "embeddings.tokens"
    return "output" if layer == depth else f"layers.{layer - 1}.output"
