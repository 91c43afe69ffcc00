"""GELU, in LLVM's representation."""

from dataclasses import dataclass
from typing import Any, Final

from regard.kernels._ir import (
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
from regard.kernels._target import Target


@dataclass(frozen=True, slots=True)
class Normal:
    """A polynomial of the normal distribution: Phi(x) = 1/2 + x p(2 x^2 / limit^2 - 1) for |x| <= limit.

    Beyond, Phi is that of the limit. `powers` are the coefficients of p, the constant first.
    """

    limit: float
    powers: tuple[float, ...]


FINE: Final = Normal(
    5.0,
    (
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
    ),
)
"""x Phi(x) is off by 4e-7 at most, and by 3e-7 |x| beyond."""

COARSE: Final = Normal(
    4.0,
    (
        0.1759477507461593,
        -0.08435746978890413,
        0.05605081212238022,
        -0.03649538012369407,
        0.021621703546572852,
        -0.013259975854914332,
        0.0082112868601762,
        -0.0027290168883547425,
    ),
)
"""x Phi(x) is off by 3.9e-5 at most, and by 4.2e-5 |x| beyond: a hundredth of a code of 8 bits."""


def gelu(module: Any, target: Target, normal: Normal) -> Any:
    """A function gelu(x, rows, width, step) that writes x Phi(x) over x, rows of so many floats a step apart.

    What is not a number stays so. width is a multiple of the lanes.

    Source: Hendrycks and Gimpel 2016, arXiv 1606.08415, section 2.
    """
    floats = vector(F32, target.lanes)
    function, b = internal(module, "gelu", PTR, I64, I64, I64)
    x, rows, width, step = function.args
    highest, lowest = filled(floats, normal.limit), filled(floats, -normal.limit)
    with loop(b, whole(0), rows, whole(1)) as row:
        entries = place(b, x, b.mul(row, step), F32)
        with loop(b, whole(0), width, whole(target.lanes)) as column:
            own = load(b, entries, column, floats)
            near = b.select(b.fcmp_ordered("<", highest, own), highest, own)
            near = b.select(b.fcmp_ordered("<", near, lowest), lowest, near)
            squared, step_of = b.fmul(near, near), filled(floats, 2 / normal.limit**2)
            place_of = fma(module, b, squared, step_of, filled(floats, -1.0))
            value = filled(floats, normal.powers[-1])
            for power in normal.powers[-2::-1]:
                value = fma(module, b, value, place_of, filled(floats, power))
            share = fma(module, b, near, value, filled(floats, 0.5))
            store(b, b.fmul(own, share), entries, column)
    b.ret_void()
    return function
