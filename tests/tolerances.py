"""How close is close enough: the one table that every test takes its tolerances from."""

from __future__ import annotations

from typing import Any

import numpy as np

FP64 = 1e-12
"""The same formula in double precision, summed in another order: some 4500 units in the last place of 1."""

FP32_OF_LARGEST = 5e-6
"""Fused against reference in single precision, forward and gradient, relative to the largest entry (core's
promise): some 40 units in the last place, which sums over thousands of keys lose to their order. A single
entry may cancel to nothing, so the largest one is the measure."""

WEIGHT_CODES_OF_LARGEST = 5e-4
"""Attention with whole numbers against its own formula in double precision, relative to the largest entry: a
few codes of weights, 1/8191 each, that another rounding of the exponential puts one higher or lower."""

PARITY_FP32 = 1e-5
"""A whole model against `transformers` in single precision, relative to the largest entry: several layers of
the above on top of one another."""

VARIANCE_OF_DISTANCE = 2e-3
"""Of a row of weights in single precision, absolute, in tokens squared: the keys are taken 128 at a time, and
one that lies 64 from their middle adds 64^2 p, whose last place is 64^2 x 2^-23 = 5e-4. (Measured: 4e-4.)"""

TRAINED_FP32 = 1e-4
"""Losses, norms and scores of a tiny run in single precision whose sums have another order, after ten steps:
AdamW divides each gradient by its own size, so that rounding near zero moves a parameter at once."""

WEIGHTS = 1e-6
"""Attention weights, absolute: they lie in [0, 1] and a row sums to 1, in single precision."""

BF16 = 0.04
"""A whole tiny model in bfloat16 against the same weights in double precision, relative to the largest entry:
8 bits of mantissa round by 2^-9 = 0.002 each time, some twenty times in a row. (Measured: 0.024.)"""

INT16_COSINE = 0.99999
"""The smallest cosine of hidden states in codes of 16 bits to those in float32: products are rounded by some
2e-4 of a row's norm, and a few layers add that up to 1e-3, which is 1 - 5e-7 as a cosine."""

INT8_COSINE = 0.999
"""The smallest cosine of the default model's hidden states in codes of 8 bits to those in float32, of a few
texts; of 26,990 tokens of the Brown corpus it is 0.9986. (Each product is rounded by 0.9 percent.)"""

PAGE = 1e-3
"""Weights as the page computes them in the browser, absolute: it holds q and k rounded to fewer bits."""


def assert_close_to_largest(actual: Any, expected: Any, tol: float) -> None:
    """Fail unless arrays or tensors differ by at most `tol` times the largest finite magnitude in `expected`.

    Infinities (masked scores) have to stand in the same places with the same sign; a NaN is never close.

    >>> assert_close_to_largest([1000.0, 0.001], [1000.0, 0.0], 5e-6)
    >>> assert_close_to_largest([1.0, 0.001], [1.0, 0.0], 5e-6)
    Traceback (most recent call last):
    AssertionError: 0.001 apart at (1,), allowed 5e-06 ...
    """
    ours, theirs = _float64(actual), _float64(expected)
    assert ours.shape == theirs.shape, f"shape {ours.shape} instead of {theirs.shape}"
    assert not np.isnan(ours).any(), f"{np.isnan(ours).sum()} NaN of {ours.size} in the actual values"
    assert not np.isnan(theirs).any(), f"{np.isnan(theirs).sum()} NaN of {theirs.size} in the expected values"
    finite = np.isfinite(theirs)
    assert np.array_equal(ours[~finite], theirs[~finite]), "infinities in other places or of another sign"
    if not finite.any():
        return
    largest = np.abs(theirs[finite]).max()
    apart = np.zeros(theirs.shape)
    apart[finite] = np.abs(ours[finite] - theirs[finite])
    worst = np.unravel_index(int(apart.argmax()), apart.shape)
    place = tuple(int(i) for i in worst)
    assert apart[worst] <= tol * largest, (
        f"{apart[worst]:g} apart at {place}, allowed {tol * largest:g} "
        f"({tol:g} of the largest, {largest:g}): {ours[worst]:g} instead of {theirs[worst]:g}"
    )


def _float64(values: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    if hasattr(values, "detach"):  # a tensor, of any type (numpy has no bfloat16) and on any device
        values = values.detach().cpu().double().numpy()
    return np.asarray(values, dtype=np.float64)
