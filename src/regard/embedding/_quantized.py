"""Models whose products are of whole numbers, of 16 and of 8 bits, where the processor has such products."""

import copy
import importlib.util
from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import groupby
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from regard.core.errors import InputError
from regard.core.extras import missing
from regard.embedding._engine import (
    AttentionBackend,
    Engine,
    MakeProduct,
    NetworkEngine,
    Product,
    TorchProduct,
    stack_of,
)
from regard.embedding._post_norm import PostNormEngine
from regard.models import Transformer

if TYPE_CHECKING:
    from regard.kernels import Attention

# Tokens, with those of the frame.
_SHORT = 8


def int16_is_best() -> bool:
    """Whether products in 16 bits are the fastest that are nearly exact.

    AVX-512 doubles float32 as well, and they are faster there by VNNI only. A processor with AMX is faster in
    bfloat16.
    """
    # Where AMX is there, bfloat16 is faster.
    return _has_kernels() and (_capability() == "AVX2" or _has_vnni()) and not _has_amx()


def int8_is_best() -> bool:
    """Whether products in 8 bits are the fastest of all.

    Not beside AMX, and not yet with AVX-VNNI and without AVX-512, since nobody has measured it there.
    """
    return _has_kernels() and _capability() == "AVX512" and _has_vnni() and not _has_amx()


def float32_is_best() -> bool:
    """Whether regard's own products in float32, and its attention, are faster than torch's."""
    return _has_kernels()


def kernel_of(precision: str) -> str:
    """What works the products of a precision out here, in words."""
    from regard.kernels import here

    registers = "AVX-512" if here().lanes == 16 else "AVX2"
    return f"{registers}{' VNNI' if here().vnni else ''} {precision}"


def in_float32(network: Transformer, layers: Sequence[int]) -> Engine:
    """An engine, for an encoder of BERT's kind, whose linear maps and attention are regard's own kernels."""
    return _engine("float32", network, layers)


def in_int16(network: Transformer, layers: Sequence[int]) -> Engine:
    """An engine whose linear maps are `Int16Product`, but for those of sizes that it does not take.

    The network is in float32, on the CPU. Without AVX2 it is refused, and without llvmlite.
    """
    return _engine("int16", network, layers)


def in_int8(network: Transformer, layers: Sequence[int]) -> Engine:
    """The same with `Int8Product`, and with attention of long texts by `INT8`.

    In encoders of BERT's kind two things are in 16 bits:

    * the values of the upper half of the layers. A third of what the vectors of all-MiniLM-L6-v2 lose would
      come from there, for a twenty-fourth of the work: what is wrong with the values goes into the residual
      stream as it is, while attention evens out what is wrong with the scores; and what is wrong in the lower
      layers the upper ones even out;
    * rows of up to 8 tokens, a fiftieth of what there is to do for sentences. Where few tokens are averaged,
      what is wrong with each does not average out: of 8,000 single words and all sentences of Brown those
      nearest to 0.999, and the one below it, were such.
    """
    # Short texts in 16 bits: _SHORT says up to which length.
    long = _engine("int8", network, layers, of_values="int16")
    if not isinstance(long, PostNormEngine):
        return long
    return ByLength(_engine("int16", network, layers), long, most=_SHORT)


def _engine(
    precision: str, network: Transformer, layers: Sequence[int], of_values: str | None = None
) -> Engine:
    if not _capability().startswith("AVX"):
        raise InputError(
            f"precision must not be {precision!r} on this machine: its products need a processor with AVX2. "
            "Give 'float32', or 'fast'."
        )
    try:
        # Only here: llvmlite is not always installed, and takes its time.
        from regard.kernels import FLOAT32, INT8, here
    except ImportError as error:
        raise missing(f"precision={precision!r} needs", error, "llvmlite") from error
    if precision == "int8" and not here().vnni:
        raise InputError(
            "precision must not be 'int8' on this machine: its products need a processor with VNNI. Give "
            "'int16', which loses less, or 'fast'."
        )
    # The class of products of that type.
    kind = _product(precision)
    # BERT's kind has an engine of its own; others get other linear maps.
    if PostNormEngine.takes(network):
        values = None if of_values is None else _fitting(_product(of_values))
        attentions = (INT8, FLOAT32) if precision == "int8" else (FLOAT32,)
        return PostNormEngine(network, layers, _fitting(kind), values, KernelAttention(*attentions))

    network = copy.deepcopy(network).float()
    for module in list(network.stack(stack_of(network)).layers.modules()):
        for name, child in list(module.named_children()):
            # Sizes that the kernel does not take stay torch's.
            if isinstance(child, nn.Linear) and kind.takes(child.weight):
                setattr(module, name, ProductLinear(child, kind))
    return NetworkEngine(network, layers)


def _product(precision: str) -> Any:
    return getattr(import_module("regard.kernels"), f"{precision.title()}Product")


def _fitting(kind: Any) -> MakeProduct:
    """Products of this kind for the weights whose sizes it takes, float32 for others."""

    def product(weight: Tensor, bias: Tensor | None) -> Product:
        made: Product = (kind if kind.takes(weight) else TorchProduct)(weight, bias)
        return made

    return product


def _capability() -> str:
    return torch.backends.cpu.get_cpu_capability()


def _has_kernels() -> bool:
    return _capability().startswith("AVX") and bool(importlib.util.find_spec("llvmlite"))


def _has_vnni() -> bool:
    from regard.kernels import here

    return here().vnni


def _has_amx() -> bool:
    return torch.cpu._is_amx_tile_supported()


class KernelAttention(AttentionBackend):
    """By kernels of regard's own, whose scores stay in caches: the first that takes a text, else torch's."""

    def __init__(self, *attentions: "Attention") -> None:
        self._attentions = attentions

    def attend(self, qkv: Tensor, context: Tensor, shape: Sequence[tuple[int, int]]) -> Tensor:
        """See `AttentionBackend`."""
        # Only here: llvmlite is not always installed.
        from regard.kernels import attend_by, here

        target, (_, _, heads, head_dim) = here(), qkv.shape
        for each in (qkv, context):  # the kernels get nothing but addresses
            assert each.dtype == torch.float32, each.dtype
            assert each.is_contiguous(), each.stride()

        def chosen(run: tuple[int, int]) -> "Attention | None":
            return next((each for each in self._attentions if each.takes(target, head_dim, run[1])), None)

        start = 0
        # Runs that the same kernel takes go in one call.
        for attention, group in groupby(shape, key=chosen):
            runs = list(group)
            tokens = slice(start, start + sum(rows * length for rows, length in runs))
            start = tokens.stop
            if attention is None:
                super().attend(qkv[tokens], context[tokens], runs)
                continue
            # One piece of memory for the longest.
            room = max(attention.scratch(target, head_dim, length) for _, length in runs)
            scratch, pairs = torch.empty(room, dtype=torch.uint8), torch.tensor(runs)
            addresses = (each.data_ptr() for each in (qkv[tokens], context[tokens], pairs))
            attend_by(attention, target, head_dim)(*addresses, len(runs), heads, scratch.data_ptr())
        return context


class ProductLinear(nn.Module):
    """A linear map in float32 on the CPU, worked out by another product of its weight and bias."""

    def __init__(self, linear: nn.Linear, product: Callable[[Tensor, Tensor | None], Product]) -> None:
        super().__init__()
        self._product = product(linear.weight, linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) -> (..., out), float32."""
        rows = x.reshape(-1, x.shape[-1]).contiguous()
        return self._product.into(rows.new_empty(len(rows), self._product.width), rows).view(
            *x.shape[:-1], -1
        )


class ByLength:
    """Rows of up to `most` tokens by one engine, longer ones by another: by which depends on the row alone.

    Both take rows of different lengths in one call, and give the same layers.
    """

    mixed = True

    def __init__(self, short: Engine, long: Engine, *, most: int) -> None:
        self._short, self._long, self._most = short, long, most

    def hidden(self, token_ids: Tensor, shape: Sequence[tuple[int, int]]) -> list[Tensor]:
        """See `Engine.hidden`."""
        states, start = [], 0
        # Neighbours of one kind together; the order stays.
        for is_short, group in groupby(shape, key=lambda run: run[1] <= self._most):
            runs = list(group)
            stop = start + sum(rows * length for rows, length in runs)
            engine = self._short if is_short else self._long
            states.append(engine.hidden(token_ids[start:stop], runs))
            start = stop
        return states[0] if len(states) == 1 else [torch.cat(parts) for parts in zip(*states, strict=True)]
