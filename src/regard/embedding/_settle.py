"""What is decided once, before the first vector: what computes, in which type, and on how many cores."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from regard.blocks import is_native
from regard.core.errors import InputError
from regard.embedding._cores import cores
from regard.embedding._engine import Engine, NetworkEngine
from regard.embedding._openvino import OpenVinoEngine
from regard.embedding._post_norm import PostNormEngine
from regard.embedding._request import Request
from regard.models import Loaded, Network, Transformer

# 0.999 is promised for all vectors; those of other texts may be a little further apart than the probe's.
_WITH_A_MARGIN = 0.9995


@dataclass(frozen=True, slots=True)
class Settled:
    """What was decided.

    Attributes:
        engine: what computes.
        threads: on how many cores.
        record: the same in words, for a manifest.
    """

    engine: Engine
    threads: int
    record: dict[str, Any]


def settle(loaded: Loaded, request: Request, layers: Sequence[int]) -> Settled:
    """Decide for a model and a request; `layers` are those that the engine is to give.

    Raises:
        InputError: an engine or a type that the model cannot be run with.
    """
    network = loaded.network
    device = next(network.parameters()).device
    threads = (request.threads or cores()) if device.type == "cpu" else 1
    dtype = request.dtype or _fastest(network, layers)
    engine: Engine
    if request.engine == "openvino":
        if request.dtype is None and not OpenVinoEngine.has_arithmetic(dtype):
            dtype = torch.float32
        engine = OpenVinoEngine(network, layers, dtype=dtype, threads=threads)
        kernel = f"OpenVINO {engine.version}"
    else:
        network = _as(network, dtype)
        folds = PostNormEngine.takes(network)
        engine = PostNormEngine(network, layers) if folds else NetworkEngine(network, layers)
        kernel = type(engine).__name__
    return Settled(
        engine,
        threads,
        {
            "engine": request.engine,
            "kernel": kernel,
            "dtype": str(dtype).removeprefix("torch."),
            "device": device.type,
            "threads": threads,
        },
    )


def _as(network: Network, dtype: torch.dtype) -> Network:
    """The network in a type; itself where it is."""
    if all(each.dtype == dtype for each in network.parameters()):
        return network
    if not isinstance(network, Transformer):
        raise InputError(
            f"dtype must be what the model has, {next(network.parameters()).dtype}, for one seen through the "
            f"lens or with edits; got {dtype}. Convert the model first."
        )
    return copy.deepcopy(network).to(dtype)


def _fastest(network: Network, layers: Sequence[int]) -> torch.dtype:
    """bfloat16 where the processor has arithmetic for it and no cosine suffers; else float32."""
    own = next(network.parameters()).dtype
    if not isinstance(network, Transformer):
        return own
    if not is_native(torch.bfloat16) or _smallest_cosine(network, layers) < _WITH_A_MARGIN:
        return torch.float32
    return torch.bfloat16


def _smallest_cosine(network: Transformer, layers: Sequence[int]) -> float:
    """Between the two types, of all vectors of rows of ids spread over the table."""
    table = network.config.vocab_size
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(table, (8, 24), generator=generator)
    states = []
    with torch.inference_mode():
        for dtype in (torch.float32, torch.bfloat16):
            engine = NetworkEngine(_as(network, dtype), layers)
            states.append([each.float() for each in engine.hidden(ids.flatten(), [(8, 24)])])
    return min(
        float(torch.cosine_similarity(wide, narrow, dim=1).min())
        for wide, narrow in zip(*states, strict=True)
    )
