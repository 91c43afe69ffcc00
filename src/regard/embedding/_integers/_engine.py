"""Whether products in 16 bits are to be had here, and a model with them; llvmlite is imported only then."""

import importlib.util
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from regard.core.errors import InputError, MissingExtraError
from regard.embedding._engine import Engine, NetworkEngine
from regard.embedding._linears import with_linears
from regard.embedding._post_norm import PostNormEngine
from regard.embedding._products import Float32Product, Product
from regard.models import Transformer


def is_best() -> bool:
    """Whether they are faster than float32 here: with AVX2, without AVX-512, which doubles float32 too."""
    return torch.backends.cpu.get_cpu_capability() == "AVX2" and bool(importlib.util.find_spec("llvmlite"))


def in_int16(network: Transformer, layers: Sequence[int]) -> Engine:
    """An engine whose linear maps are `Int16Product`, but for those of sizes that it does not take.

    Args:
        network: in float32, on the CPU.
        layers: those that are read.

    Raises:
        InputError: the processor has no AVX2.
        MissingExtraError: llvmlite is not installed.
    """
    if not torch.backends.cpu.get_cpu_capability().startswith("AVX"):
        raise InputError("dtype must not be int16 on this machine: its products need a processor with AVX2.")
    kind = _module("_product").Int16Product

    def product(weight: Tensor, bias: Tensor | None) -> Product:
        made: Callable[[Tensor, Tensor | None], Product]
        made = kind if kind.takes(weight) else Float32Product
        return made(weight, bias)

    if PostNormEngine.takes(network):
        return PostNormEngine(network, layers, product)

    def linear(own: nn.Linear) -> nn.Module:
        made: nn.Module = _module("_linear").Int16Linear(own) if kind.takes(own.weight) else own
        return made

    return NetworkEngine(with_linears(network, linear), layers)


def _module(name: str) -> Any:
    try:
        return import_module(f"{__package__}.{name}")
    except ImportError as error:
        raise MissingExtraError(
            "dtype=torch.int16 needs llvmlite, which is not installed; run: pip install 'regard[embed]'"
        ) from error
