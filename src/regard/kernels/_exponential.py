"""Exponentials of registers, in LLVM's representation."""

from typing import Any, Final

from regard.kernels._ir import I32, ROUNDS, filled, fma, vector

# 2^r = 1 + r (p_1 + r (p_2 + ...)) for |r| <= 1/2, within 1.6e-7: the polynomial of degree 5 whose largest
# relative error is the smallest, by the algorithm of Remez.
_POWERS: Final = (
    1.327647199e-3,
    9.675541334e-3,
    5.550713273e-2,
    2.402211972e-1,
    6.931469671e-1,
    1.0,
)
_LOWEST: Final = -126.0  # below it 2^x is 0 to a sum that 1 belongs to
_BIAS: Final = 127  # of the exponent of a float


def exp2(module: Any, b: Any, x: Any) -> Any:
    """2^x for x <= 0, and 2^-126 for what is below; what is not a number stays so.

    2^x = 2^n 2^r, where n is the whole number nearest to x, and r what is left.
    """
    kind = x.type
    lowest, rounds = filled(kind, _LOWEST), filled(kind, ROUNDS + _BIAS)
    x = b.select(b.fcmp_ordered("<", x, lowest), lowest, x)
    shifted = b.fadd(x, rounds)
    r = b.fsub(x, b.fsub(shifted, rounds))
    p = filled(kind, _POWERS[0])
    for power in _POWERS[1:]:
        p = fma(module, b, p, r, filled(kind, power))
    # The lowest bits of the shifted number are n + 127; moved up, they are the float 2^n.
    bits = vector(I32, kind.count)
    return b.fmul(p, b.bitcast(b.shl(b.bitcast(shifted, bits), filled(bits, 23)), kind))
