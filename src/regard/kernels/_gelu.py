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
    5.3,
    (
        0.1333925604,
        -0.06651844212,
        0.04926440161,
        -0.03959146553,
        0.03207535772,
        -0.02526934998,
        0.01895271968,
        -0.01333034728,
        0.008746403396,
        -0.005479495657,
        0.003261397954,
        -0.001599632605,
        0.0006358675612,
        -0.0004169994007,
        0.0003121798393,
        -9.554415505e-05,
    ),
)
"""x Phi(x) is off by 1e-8 at most, and by 6e-8 |x| beyond: less than float32 rounds."""

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
    # Clamp to [-limit, limit]; beyond, x Phi(limit) is close enough to x or to 0.
    highest, lowest = filled(floats, normal.limit), filled(floats, -normal.limit)
    with loop(b, whole(0), rows, whole(1)) as row:
        entries = place(b, x, b.mul(row, step), F32)
        with loop(b, whole(0), width, whole(target.lanes)) as column:
            own = load(b, entries, column, floats)
            # Written so that what is not a number is not replaced: comparisons with it are false.
            near = b.select(b.fcmp_ordered("<", highest, own), highest, own)
            near = b.select(b.fcmp_ordered("<", near, lowest), lowest, near)
            # t = 2 x^2 / limit^2 - 1, in [-1, 1] for |x| <= limit: there the coefficients stay of a
            # size.
            squared, step_of = b.fmul(near, near), filled(floats, 2 / normal.limit**2)
            place_of = fma(module, b, squared, step_of, filled(floats, -1.0))
            # Horner's scheme for p(t).
            value = filled(floats, normal.powers[-1])
            for power in normal.powers[-2::-1]:
                value = fma(module, b, value, place_of, filled(floats, power))
            # Phi(x) = 1/2 + x p(t); the product below takes x itself, not the clamped one.
            share = fma(module, b, near, value, filled(floats, 0.5))
            store(b, b.fmul(own, share), entries, column)
    b.ret_void()
    return function
