"""What is decided once, before the first vector: what computes, in which type, and on how many cores."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from regard.blocks import is_native
from regard.core.errors import InputError
from regard.embedding._cores import cores
from regard.embedding._embeddings import Loss
from regard.embedding._engine import Engine, NetworkEngine
from regard.embedding._int8 import in_int8
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
        loss: of int8, against float32.
        record: the same in words, for a manifest.
    """

    engine: Engine
    threads: int
    loss: Loss | None
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
    loss = None
    if request.engine == "openvino":
        if request.dtype is None and not OpenVinoEngine.has_arithmetic(dtype):
            dtype = torch.float32
        engine = OpenVinoEngine(network, layers, dtype=dtype, threads=threads)
        kernel = f"OpenVINO {engine.version}"
    elif dtype == torch.int8:
        wide, narrow = _as(network, torch.float32), in_int8(_on_cpu(network))
        engine = NetworkEngine(narrow, layers)
        loss = _loss(wide, narrow, layers)
        kernel = "oneDNN int8"
    else:
        network = _as(network, dtype)
        folds = PostNormEngine.takes(network)
        engine = PostNormEngine(network, layers) if folds else NetworkEngine(network, layers)
        kernel = type(engine).__name__
    return Settled(
        engine,
        threads,
        loss,
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
    first = next(network.parameters())
    if not isinstance(network, Transformer):
        return first.dtype
    if not _has_bfloat16(first.device):
        return torch.float32
    wide, narrow = _as(network, torch.float32), _as(network, torch.bfloat16)
    good = _loss(wide, narrow, layers).smallest_cosine >= _WITH_A_MARGIN
    return torch.bfloat16 if good else torch.float32


def _has_bfloat16(device: torch.device) -> bool:
    """Whether what computes there has arithmetic for bfloat16, as far as torch can tell."""
    return torch.cuda.is_bf16_supported() if device.type == "cuda" else is_native(torch.bfloat16)


def _on_cpu(network: Network) -> Transformer:
    if not isinstance(network, Transformer) or next(network.parameters()).device.type != "cpu":
        raise InputError("dtype must not be int8 for a model on a GPU, with edits or seen through the lens.")
    return network


def _loss(wide: Network, narrow: Network, layers: Sequence[int]) -> Loss:
    """Between the two, of all vectors of rows of ids spread over the table."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(wide.config.vocab_size, (8, 24), generator=generator).flatten()
    with torch.inference_mode():
        states = [NetworkEngine(each, layers).hidden(ids, [(8, 24)]) for each in (wide, narrow)]
        cosines = torch.cat(
            [torch.cosine_similarity(a.float(), b.float(), dim=1) for a, b in zip(*states, strict=True)]
        )
    return Loss(float(cosines.min()), float(cosines.mean()))
