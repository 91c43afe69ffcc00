"""What a network's weights are before training: none yet, or each family's own published scheme, as data."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.blocks import RMSNorm
from regard.positions import LearnedPositions, sinusoidal_encoding
from regard.positions import SinusoidalLayout as Layout


class WithoutValues(TorchFunctionMode):
    """Within it, modules have memory for their parameters, whatever that holds: `torch.nn.init` is skipped.

    Its random fills of a meta tensor would make torch import its compiler, which takes seconds.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        # The tensor as it is: it gets its values from a file, or by `fill`.
        if getattr(func, "__module__", "") == "torch.nn.init":
            return kwargs.get("tensor", args[0] if args else None)
        return func(*args, **kwargs)


@contextmanager
def blank() -> Iterator[None]:
    """Within it, modules are made on the meta device: no memory, no initial values, only shapes."""
    # Both: on the meta device initial values would be worked out for nothing.
    with torch.device("meta"), WithoutValues():
        yield


class Draw(Protocol):
    """How one parameter begins."""

    def __call__(self, shape: tuple[int, ...], generator: torch.Generator | None) -> Tensor:
        """Its values, float32 of that shape, on the CPU."""
        ...


@dataclass(frozen=True)
class Normal:
    """N(0, std^2); with a `cutoff` c, drawn again beyond c std."""

    std: float
    cutoff: float | None = None

    def __call__(self, shape: tuple[int, ...], generator: torch.Generator | None) -> Tensor:
        # The device is named: within `with torch.device(...)` another is the default.
        values = torch.empty(shape, device="cpu")
        if self.cutoff is None or not self.std:
            return nn.init.normal_(values, std=self.std, generator=generator)
        # Cut at `cutoff` standard deviations on either side.
        end = self.cutoff * self.std
        return nn.init.trunc_normal_(values, std=self.std, a=-end, b=end, generator=generator)


@dataclass(frozen=True)
class XavierUniform:
    """U(-a, a) with a = sqrt(6 / (joined rows + columns)); q, k and v in one matrix are 3 joined.

    Source: Glorot and Bengio 2010, equation 16.
    """

    joined: int = 1

    def __call__(self, shape: tuple[int, ...], generator: torch.Generator | None) -> Tensor:
        rows, columns = shape
        # Glorot and Bengio 2010, eq. 16.
        end = math.sqrt(6.0 / (self.joined * rows + columns))
        return nn.init.uniform_(torch.empty(shape, device="cpu"), -end, end, generator=generator)


@dataclass(frozen=True)
class RandomProjection:
    """N(0, 1 / rows): products keep their sizes in the mean. Source: Wang et al. 2020, arXiv 2006.04768,
    Theorem 2."""

    def __call__(self, shape: tuple[int, ...], generator: torch.Generator | None) -> Tensor:
        return Normal(shape[0] ** -0.5)(shape, generator)


@dataclass(frozen=True)
class Orthogonal:
    """Random orthogonal matrices, one below the other where there are more rows than columns.

    Source: Saxe, McClelland and Ganguli 2014, arXiv 1312.6120, section 3.
    """

    def __call__(self, shape: tuple[int, ...], generator: torch.Generator | None) -> Tensor:
        rows, columns = shape
        # One square matrix for each gate.
        each = [torch.empty(columns, columns, device="cpu") for _ in range(rows // columns)]
        return torch.cat([nn.init.orthogonal_(matrix, generator=generator) for matrix in each])


@dataclass(frozen=True)
class Constant:
    """The same number everywhere."""

    value: float

    def __call__(self, shape: tuple[int, ...], generator: torch.Generator | None) -> Tensor:
        del generator
        return torch.full(shape, self.value, device="cpu")


@dataclass(frozen=True)
class Sinusoids:
    """The sinusoidal matrix, of a table of positions that is stored."""

    layout: Layout = "interleaved"

    def __call__(self, shape: tuple[int, ...], generator: torch.Generator | None) -> Tensor:
        del generator
        return sinusoidal_encoding(*shape, layout=self.layout).float()


Scheme = Mapping[str, Draw]
"""By patterns of the network's names, such as `*.ffn.output.weight`; the first that fits counts."""


def fill(
    network: nn.Module,
    scheme: Scheme,
    *,
    std: float,
    generator: torch.Generator | None,
    only: Collection[str] | None = None,
) -> None:
    """Give parameters their first values: by the scheme, else norms 1, biases 0, and the rest N(0, std^2).

    The row that a table pads with is 0, where no pattern names the table.

    Args:
        only: the names of those meant; None for all.
    """
    # In the network's order, so that a seed gives the same numbers each time.
    for name, parameter, owner in _parameters(network):
        if only is not None and name not in only:
            continue
        # The first pattern that fits; else what modules of this kind begin with.
        draw = next((draw for pattern, draw in scheme.items() if fnmatchcase(name, pattern)), None)
        values = (draw or _usual(owner, name, std))(tuple(parameter.shape), generator)
        # Padding has no meaning to learn: zeros, as torch has them.
        row = owner.padding_idx if isinstance(owner, nn.Embedding | LearnedPositions) else None
        if row is not None and draw is None:
            values[row] = 0.0
        with torch.no_grad():
            # Drawn on the CPU: the same numbers on any device.
            parameter.copy_(values)


def _parameters(network: nn.Module) -> list[tuple[str, nn.Parameter, nn.Module]]:
    """Each once, under its first name, with the module that has it."""
    # named_parameters gives tied ones once.
    owners = dict(network.named_modules())
    return [
        (name, parameter, owners[name.rpartition(".")[0]]) for name, parameter in network.named_parameters()
    ]


def _usual(owner: nn.Module, name: str, std: float) -> Draw:
    if name.endswith("bias"):
        return Constant(0.0)
    if isinstance(owner, RMSNorm):  # it multiplies by weight + offset
        return Constant(1.0 - owner.offset)
    return Constant(1.0) if isinstance(owner, nn.LayerNorm) else Normal(std)


def residual_std(std: float, num_layers: int) -> float:
    """std / sqrt(2 L), of what is added to the residual stream 2 L times.

    Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.3.
    """
    return std / math.sqrt(2 * num_layers)
