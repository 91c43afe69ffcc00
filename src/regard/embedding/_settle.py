"""What is decided once, before the first vector: what computes, in which type, and on how many cores."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from regard.blocks import is_native
from regard.core.errors import InputError
from regard.embedding._cores import cores
from regard.embedding._embeddings import Loss
from regard.embedding._engine import Engine, NetworkEngine, stack_of
from regard.embedding._integers import in_int8, in_int16, int8_is_best, int16_is_best, kernel_of
from regard.embedding._openvino import OpenVinoEngine
from regard.embedding._post_norm import PostNormEngine
from regard.embedding._request import Request
from regard.models import Loaded, Network, Transformer

# 0.999 is promised for all vectors; those of other texts may be a little further apart than the probe's.
_WITH_A_MARGIN = 0.9995
# An average over tokens is as a rule nearer than they are.
_OF_AVERAGES = 0.999


_Kind = TypeVar("_Kind", bound=Network)


@dataclass(frozen=True, slots=True)
class Settled:
    """What was decided.

    Attributes:
        engine: what computes.
        threads: on how many cores.
        loss: of int8 and int16, against float32.
        record: the same in words, for a manifest.
    """

    engine: Engine
    threads: int
    loss: Loss | None
    record: dict[str, Any]


def settle(loaded: Loaded, request: Request, layers: Sequence[int], *, averaged: bool = False) -> Settled:
    """Decide for a model and a request.

    Args:
        loaded: the model.
        request: which vectors.
        layers: those that the engine is to give.
        averaged: whether all vectors are means over the tokens of a text.

    Raises:
        InputError: an engine or a type that the model cannot be run with.
    """
    network = loaded.network
    device = next(network.parameters()).device
    threads = (request.threads or cores()) if device.type == "cpu" else 1
    if request.engine == "openvino":
        chosen = _openvino(network, layers, request.dtype, threads)
    elif request.dtype is None:
        chosen = _fastest(network, layers, averaged)
    else:
        chosen = _of(network, layers, request.dtype)
    return Settled(
        chosen.engine,
        threads,
        chosen.loss,
        {
            "engine": request.engine,
            "kernel": chosen.kernel,
            "dtype": str(chosen.dtype).removeprefix("torch."),
            "device": device.type,
            "threads": threads,
        },
    )


# Types of whole numbers, whose loss is measured: how the engine is made.
_WHOLE_NUMBERS: dict[torch.dtype, Callable[[Transformer, Sequence[int]], Engine]] = {
    torch.int16: in_int16,
    torch.int8: in_int8,
}


@dataclass(frozen=True, slots=True)
class _Choice:
    engine: Engine
    kernel: str
    dtype: torch.dtype
    loss: Loss | None = None


def _of(network: Network, layers: Sequence[int], dtype: torch.dtype) -> _Choice:
    """What was asked for."""
    if dtype in _WHOLE_NUMBERS:
        wide = _wide(network, dtype)
        narrow = _WHOLE_NUMBERS[dtype](wide, layers)
        loss = _loss(wide, NetworkEngine(wide, layers), narrow)
        return _Choice(narrow, kernel_of(dtype), dtype, loss)
    network = _as(network, dtype)
    folds = PostNormEngine.takes(network)
    engine = PostNormEngine(network, layers) if folds else NetworkEngine(network, layers)
    return _Choice(engine, type(engine).__name__, dtype)


def _fastest(network: Network, layers: Sequence[int], averaged: bool) -> _Choice:
    """What this processor is fastest in, if no cosine to float32 suffers; else float32."""
    first = next(network.parameters())
    if not isinstance(network, Transformer):
        return _of(network, layers, first.dtype)
    on_cpu = first.device.type == "cpu"
    whole_numbers = (
        (torch.int8, _OF_AVERAGES, averaged and PostNormEngine.takes(network) and int8_is_best()),
        (torch.int16, _WITH_A_MARGIN, on_cpu and int16_is_best()),
    )
    for dtype, least, may in whole_numbers:
        if may:
            chosen = _of(network, layers, dtype)
            if chosen.loss is not None and chosen.loss.smallest_cosine >= least:
                return chosen
    return _of(network, layers, torch.bfloat16 if _bfloat16_is_good(network, layers) else torch.float32)


def _bfloat16_is_good(network: Network, layers: Sequence[int]) -> bool:
    if not _has_bfloat16(next(network.parameters()).device):
        return False
    wide, narrow = (NetworkEngine(_as(network, dtype), layers) for dtype in (torch.float32, torch.bfloat16))
    return _loss(network, wide, narrow).smallest_cosine >= _WITH_A_MARGIN


def _has_bfloat16(device: torch.device) -> bool:
    """Whether what computes there has arithmetic for bfloat16, as far as torch can tell."""
    return torch.cuda.is_bf16_supported() if device.type == "cuda" else is_native(torch.bfloat16)


def _openvino(network: Network, layers: Sequence[int], dtype: torch.dtype | None, threads: int) -> _Choice:
    if dtype is None:
        able = isinstance(network, Transformer) and OpenVinoEngine.has_arithmetic(torch.bfloat16)
        dtype = torch.bfloat16 if able and _bfloat16_is_good(network, layers) else torch.float32
    engine = OpenVinoEngine(network, layers, dtype=dtype, threads=threads)
    return _Choice(engine, f"OpenVINO {engine.version}", dtype)


def _as(network: _Kind, dtype: torch.dtype) -> _Kind:
    """The network in a type; itself where it is."""
    if all(each.dtype == dtype for each in network.parameters()):
        return network
    if not isinstance(network, Transformer):
        raise InputError(
            f"dtype must be what the model has, {next(network.parameters()).dtype}, for one seen through the "
            f"lens or with edits; got {dtype}. Convert the model first."
        )
    return copy.deepcopy(network).to(dtype)


def _wide(network: Network, dtype: torch.dtype) -> Transformer:
    """A network for products of whole numbers, in float32."""
    if isinstance(network, Transformer) and next(network.parameters()).device.type == "cpu":
        return _as(network, torch.float32)
    name = str(dtype).removeprefix("torch.")
    raise InputError(f"dtype must not be {name} for a model on a GPU, with edits or seen through the lens.")


def _loss(network: Network, wide: Engine, narrow: Engine) -> Loss:
    """Between two engines of a network, of all vectors of rows of ids spread over the table."""
    generator = torch.Generator().manual_seed(0)
    limit = network.limit(stack_of(network))
    rows, length = 4, 24 if limit is None else min(24, limit)
    ids = torch.randint(network.config.vocab_size, (rows * length,), generator=generator)
    with torch.inference_mode():
        states = [engine.hidden(ids, [(rows, length)]) for engine in (wide, narrow)]
        cosines = torch.cat(
            [torch.cosine_similarity(a.float(), b.float(), dim=1) for a, b in zip(*states, strict=True)]
        )
    return Loss(float(cosines.min()), float(cosines.mean()))
