"""Vectors cut, brought to the length 1, and stored in fewer bits."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from regard.core.errors import InputError, RegardError
from regard.embedding import Dense, Unit, finished, packed
from tolerances import FP64, assert_close_to_largest

VECTORS = torch.tensor([[3.0, 4.0, 12.0], [0.0, 0.0, 0.0]], dtype=torch.float64)


def test_steps_run_in_order_then_the_cut_then_the_length() -> None:
    double = Dense(weight=torch.eye(3) * 2, activation="Identity")
    out = finished(VECTORS, [double, Unit(), double])
    assert_close_to_largest(out[0], np.array([3.0, 4.0, 12.0]) * 2 / 13, FP64)
    cut = finished(VECTORS, [Unit()], truncate_dim=2)
    assert_close_to_largest(cut[0], np.array([3.0, 4.0]) / 13, FP64)
    whole = finished(VECTORS, [Unit()], truncate_dim=2, normalize=True)
    assert_close_to_largest(whole, [[0.6, 0.8], [0.0, 0.0]], FP64)


def test_normalize_false_leaves_out_only_the_last_step() -> None:
    assert torch.equal(finished(VECTORS, [Unit()], normalize=False), VECTORS)
    double = Dense(weight=torch.eye(3) * 2, activation="Identity")
    kept = finished(VECTORS, [Unit(), double, Unit()], normalize=False)
    assert_close_to_largest(kept[0], np.array([3.0, 4.0, 12.0]) * 2 / 13, FP64)


@pytest.mark.parametrize("truncate_dim", [0, 4, -1])
def test_a_cut_that_is_none_is_refused(truncate_dim: int) -> None:
    with pytest.raises(InputError, match=f"truncate_dim must be from 1 to 3.*got {truncate_dim}"):
        finished(VECTORS, truncate_dim=truncate_dim)


def test_int8_keeps_each_vector_within_half_a_step() -> None:
    given = np.random.default_rng(0).normal(size=(13, 2, 101)).astype(np.float32)
    given[0, 0] *= 1e-30
    small = packed(given, "int8")
    assert small.vectors.dtype == np.int8
    assert small.scales is not None
    assert small.scales.shape == (13, 2)
    assert small.scales.dtype == np.float32
    assert (np.abs(small.vectors).max(axis=-1) == 127).all()
    back = small.vectors.astype(np.float64) * small.scales[..., None].astype(np.float64)
    assert (np.abs(back - given) <= 0.5001 * small.scales[..., None]).all()
    alone = packed(given[5], "int8")
    assert np.array_equal(alone.vectors, small.vectors[5])


def test_int8_of_nothing_is_nothing() -> None:
    for given in (np.zeros((1, 3)), np.full((1, 3), 1e-44)):
        small = packed(given, "int8")
        assert small.scales is not None
        back = small.vectors * small.scales[:, None].astype(np.float64)
        assert np.abs(back - given).max() <= 1e-44
    assert packed(np.zeros((0, 3)), "int8").vectors.shape == (0, 3)


def test_bits_are_one_where_an_entry_is_above_zero() -> None:
    given = np.array([[1.0, 0.0, -1.0, 2.0, -0.0, 5.0, -1e-9, 1e-9, 3.0]])
    assert packed(given, "ubinary").vectors.tolist() == [[0b10010101, 0b10000000]]
    assert packed(given, "ubinary").vectors.dtype == np.uint8


def test_float16_is_rounded_and_float32_kept() -> None:
    given = torch.randn(3, 5, dtype=torch.bfloat16)
    assert np.array_equal(packed(given, "float32").vectors, given.float().numpy())
    assert np.array_equal(packed(given, "float16").vectors, given.half().numpy())
    assert packed(given, "float16").scales is None


def test_a_number_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="storage='float16' has no number for an entry above 65504"):
        packed(np.array([[0.0, 65520.0]]), "float16")


@pytest.mark.parametrize("storage", ["float32", "float16", "int8", "ubinary"])
@pytest.mark.parametrize("entry", [math.inf, -math.inf, math.nan])
def test_what_is_not_finite_leaves_in_no_storage(storage: Any, entry: float) -> None:
    for vectors in (np.array([[0.0, entry], [1.0, 2.0]]), torch.tensor([[[0.0], [entry]], [[1.0], [2.0]]])):
        with pytest.raises(RegardError, match="1 of 2 vectors have numbers that are not finite"):
            packed(vectors, storage)


def test_an_unknown_storage_is_refused() -> None:
    with pytest.raises(InputError, match="ubinary; got 'int4'"):
        packed(np.zeros((1, 2)), "int4")  # type: ignore[arg-type]
