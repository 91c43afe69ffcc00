"""What is decided once, before the first vector: what computes, in which type, and on how many cores."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from regard.blocks import is_native
from regard.core.errors import InputError
from regard.core.tensors import cosine
from regard.embedding._embeddings import Computed, Loss
from regard.embedding._engine import Engine, NetworkEngine, stack_of
from regard.embedding._packs import cores
from regard.embedding._post_norm import PostNormEngine
from regard.embedding._quantized import (
    float32_is_best,
    in_float32,
    in_int8,
    in_int16,
    int8_is_best,
    int16_is_best,
    kernel_of,
)
from regard.embedding._request import Precision, Request
from regard.models import Loaded, Network, Transformer

# 0.999 is promised for all vectors; those of other texts may be a little further apart than the probe's.
_WITH_A_MARGIN = 0.9995
# An average over tokens is as a rule nearer than they are.
_OF_AVERAGES = 0.999

# Types that weights can be converted to.
_FLOATS: dict[str, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}
# Types of whole numbers: how the engine is made.
_WHOLE_NUMBERS: dict[str, Callable[[Transformer, Sequence[int]], Engine]] = {
    "int16": in_int16,
    "int8": in_int8,
}


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """What was decided.

    Attributes:
        engine: what computes.
        threads: on how many cores.
        computed: in what, and what it costs.
        record: the same in words, for a manifest.
    """

    engine: Engine
    threads: int
    computed: Computed
    record: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Choice:
    engine: Engine
    kernel: str
    computed: Computed


def choose_engine(
    loaded: Loaded, request: Request, layers: Sequence[int], *, averaged: bool = False
) -> EngineChoice:
    """Decide for a model and a request.

    Args:
        loaded: the model.
        request: which vectors.
        layers: those that the engine is to give.
        averaged: whether all vectors are means over the tokens of a text.

    Raises:
        InputError: a precision that the model cannot be run in here.
        MissingExtraError: llvmlite is needed for it, and not installed.
    """
    network = loaded.network
    device = next(network.parameters()).device
    # A GPU gets one pack after the other.
    threads = (request.threads or cores()) if device.type == "cpu" else 1
    if request.precision == "fast":
        chosen = _fastest(network, layers, averaged)
    else:
        chosen = _in_precision(network, layers, request.precision)
    record = {
        "kernel": chosen.kernel,
        "precision": chosen.computed.precision,
        "device": device.type,
        "threads": threads,
    }
    return EngineChoice(chosen.engine, threads, chosen.computed, record)


def _in_precision(network: Network, layers: Sequence[int], precision: Precision) -> _Choice:
    """The network in one precision, or an error that says why it cannot be had here."""
    # Weights that are converted; below, engines of whole numbers.
    if precision in _FLOATS:
        own = _as(network, _FLOATS[precision], precision)
        narrow, kernel = _in_floats(own, layers, precision)
        if precision == "float32":
            return _Choice(narrow, kernel, Computed(precision))
        if not isinstance(network, Transformer):
            return _as_it_is(network, layers)
    else:
        if not isinstance(network, Transformer) or next(network.parameters()).device.type != "cpu":
            raise InputError(
                f"precision must not be {precision!r} for a model on a GPU, with edits or seen through the "
                "lens; give 'float32', or 'fast'."
            )
        narrow = _WHOLE_NUMBERS[precision](_as(network, torch.float32, precision), layers)
        kernel = kernel_of(precision)
    # What the narrow one is compared with.
    wide = NetworkEngine(_as(network, torch.float32, precision), layers)
    return _Choice(narrow, kernel, Computed(precision, _loss(network, wide, narrow)))


def _in_floats(network: Network, layers: Sequence[int], precision: Precision) -> tuple[Engine, str]:
    """The fastest for a network in the type that it has, and what it is called."""
    if not PostNormEngine.takes(network):
        return NetworkEngine(network, layers), NetworkEngine.__name__
    assert isinstance(network, Transformer), "only such are taken"
    if precision == "float32" and float32_is_best():
        return in_float32(network, layers), kernel_of(precision)
    return PostNormEngine(network, layers), PostNormEngine.__name__


def _as_it_is(network: Network, layers: Sequence[int]) -> _Choice:
    """A model that cannot be converted, in the type that it has."""
    name = str(next(network.parameters()).dtype).removeprefix("torch.")
    note = "the model's own type" + ("" if name == "float32" else "; its loss was not measured")
    return _Choice(NetworkEngine(network, layers), NetworkEngine.__name__, Computed(name, note=note))


def _fastest(network: Network, layers: Sequence[int], averaged: bool) -> _Choice:
    """What this processor is fastest in, if no cosine to float32 suffers; else float32."""
    if not isinstance(network, Transformer):
        return _as_it_is(network, layers)
    device = next(network.parameters()).device
    # From the fastest; each with the cosine it must reach.
    may: list[tuple[Precision, float, bool]] = [
        ("int8", _OF_AVERAGES, averaged and PostNormEngine.takes(network) and int8_is_best()),
        ("int16", _WITH_A_MARGIN, device.type == "cpu" and int16_is_best()),
        ("bfloat16", _WITH_A_MARGIN, _has_bfloat16(device)),
    ]
    tried = []
    for precision, least, is_faster in may:
        if is_faster:
            chosen = _in_precision(network, layers, precision)
            loss = chosen.computed.loss
            assert loss is not None, "measured"
            # The first that loses little enough.
            if loss.smallest_cosine >= least:
                return chosen
            tried.append(f"{precision}, {loss}")
    # Said in the report, so that nobody wonders.
    why = "nothing installed is faster on this processor"
    if tried:
        why = f"not good enough: {'; '.join(tried)}"
    exact = _in_precision(network, layers, "float32")
    return replace(exact, computed=Computed("float32", note=why))


def _has_bfloat16(device: torch.device) -> bool:
    """Whether what computes there has arithmetic for bfloat16, as far as torch can tell."""
    return torch.cuda.is_bf16_supported() if device.type == "cuda" else is_native(torch.bfloat16)


def _as(network: Network, dtype: torch.dtype, precision: str) -> Any:
    """The network in a type; itself where it is."""
    if all(each.dtype == dtype for each in network.parameters()):
        return network
    if not isinstance(network, Transformer):
        raise InputError(
            f"precision {precision!r} needs a model in {dtype}, since one that is seen through the lens is "
            f"run as it is; this one is in {next(network.parameters()).dtype}. Convert it first, or give "
            "precision='fast'."
        )
    # The caller's model stays as it is.
    return copy.deepcopy(network).to(dtype)


def _loss(network: Network, wide: Engine, narrow: Engine) -> Loss:
    """What the narrow engine loses against the wide one, over all vectors of a few rows of random ids."""
    # The same probe each time: the same model gets the same choice.
    generator = torch.Generator().manual_seed(0)
    limit = network.limit(stack_of(network))
    rows, length = 4, 24 if limit is None else min(24, limit)
    ids = torch.randint(network.config.vocab_size, (rows * length,), generator=generator)
    with torch.inference_mode():
        states = [engine.hidden(ids, [(rows, length)]) for engine in (wide, narrow)]
        cosines = torch.cat([cosine(a.float(), b.float()) for a, b in zip(*states, strict=True)])
    return Loss(float(cosines.min()), float(cosines.mean()))
