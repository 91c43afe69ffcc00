"""Layer normalisation, in LLVM's representation."""

from functools import reduce
from typing import Any, Final

from llvmlite import ir  # type: ignore[import-untyped, unused-ignore]

from regard.embedding._llvm._ir import (
    F32,
    I64,
    PTR,
    exported,
    fma,
    intrinsic,
    load,
    loop,
    over_lanes,
    place,
    spread,
    store,
    summing,
    vector,
    whole,
    zeros,
)
from regard.embedding._llvm._target import Target

TOGETHER: Final = 4
"""Registers that are summed side by side: no sum waits for the one before."""


def kernels(target: Target) -> Any:
    """The module, to be compiled, with the function norm(x, weight, shift, rows, width, eps), which writes

        weight (x - mean) / sqrt(variance + eps) + shift

    over x: float32 (rows, width), width a multiple of `TOGETHER` registers.

    Source: Ba et al. 2016, arXiv 1607.06450, section 3.
    """
    module, lanes, floats = ir.Module(), target.lanes, vector(F32, target.lanes)
    root = intrinsic(module, "llvm.sqrt.f32", F32, F32)
    function, b = exported(module, "norm", PTR, PTR, PTR, I64, I64, F32)
    x, weight, shift, rows, width, eps = function.args
    share = b.fdiv(ir.Constant(F32, 1.0), b.sitofp(width, F32))

    def average(sums: list[Any]) -> Any:
        total = over_lanes(b, reduce(b.fadd, sums), lambda b, *pair: b.fadd(*pair))
        return b.fmul(total, share)

    with loop(b, whole(0), rows, whole(1)) as row:
        entries = place(b, x, b.mul(row, width), F32)
        with summing(b, width, lanes * TOGETHER, [zeros(floats)] * TOGETHER) as (k, totals, out):
            for number, total in enumerate(totals):
                out.append(b.fadd(total, load(b, entries, b.add(k, whole(lanes * number)), floats)))
        mean = spread(b, average(out), floats)
        with summing(b, width, lanes * TOGETHER, [zeros(floats)] * TOGETHER) as (k, totals, out):
            for number, total in enumerate(totals):
                off = b.fsub(load(b, entries, b.add(k, whole(lanes * number)), floats), mean)
                out.append(fma(module, b, off, off, total))
        deviation = b.call(root, [b.fadd(average(out), eps)])
        scale = spread(b, b.fdiv(ir.Constant(F32, 1.0), deviation), floats)
        with loop(b, whole(0), width, whole(lanes)) as k:
            off = b.fmul(b.fsub(load(b, entries, k, floats), mean), scale)
            store(b, fma(module, b, off, load(b, weight, k, floats), load(b, shift, k, floats)), entries, k)
    b.ret_void()
    return module
