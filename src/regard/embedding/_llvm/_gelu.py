"""GELU, in LLVM's representation."""

from typing import Any, Final

from regard.embedding._llvm._ir import (
    F32,
    I64,
    PTR,
    filled,
    fma,
    internal,
    load,
    loop,
    place,
    store,
    vector,
    whole,
)
from regard.embedding._llvm._target import Target

# (Phi(x) - 1/2) / x for |x| <= 5 as a polynomial of 2 x^2 / 25 - 1, fitted so that x Phi(x) is nowhere
# further off than 4e-7; Phi is the normal distribution, and 3e-7 or less from 0 or 1 beyond.
_LIMIT: Final = 5.0
_POWERS: Final = (
    0.14136378045902187,
    -0.07029665239331849,
    0.05152142089488315,
    -0.040432949198184354,
    0.031426229044556483,
    -0.023336733087762546,
    0.016497659332260887,
    -0.010973225643371491,
    0.006165422538553001,
    -0.0029156806298698676,
    0.002001869523745999,
    -0.0015141504805258501,
    0.0004929655895497586,
)


def gelu(module: Any, target: Target) -> Any:
    """A function gelu(x, rows, width, step) that writes x Phi(x) over x, rows of so many floats a step apart.

    What is not a number stays so. width is a multiple of the lanes.

    Source: Hendrycks and Gimpel 2016, arXiv 1606.08415, section 2.
    """
    floats = vector(F32, target.lanes)
    function, b = internal(module, "gelu", PTR, I64, I64, I64)
    x, rows, width, step = function.args
    highest, lowest = filled(floats, _LIMIT), filled(floats, -_LIMIT)
    with loop(b, whole(0), rows, whole(1)) as row:
        entries = place(b, x, b.mul(row, step), F32)
        with loop(b, whole(0), width, whole(target.lanes)) as column:
            own = load(b, entries, column, floats)
            near = b.select(b.fcmp_ordered("<", highest, own), highest, own)
            near = b.select(b.fcmp_ordered("<", near, lowest), lowest, near)
            place_of = fma(module, b, b.fmul(near, near), filled(floats, 2 / _LIMIT**2), filled(floats, -1.0))
            value = filled(floats, _POWERS[-1])
            for power in _POWERS[-2::-1]:
                value = fma(module, b, value, place_of, filled(floats, power))
            share = fma(module, b, near, value, filled(floats, 0.5))
            store(b, b.fmul(own, share), entries, column)
    b.ret_void()
    return function
