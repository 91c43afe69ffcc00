"""What becomes of a pooled vector: steps, the cut, the length 1, and fewer bits."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from regard.checkpoints import write_tensors
from regard.core.errors import CheckpointError, InputError, RegardError
from regard.embedding import Dense, Norm, Unit, finished, packed
from regard.embedding._steps import ACTIVATIONS, read_dense, read_norm, read_unit
from tolerances import FP64, assert_close_to_largest

W, B, P = torch.randn(5, 3), torch.randn(5), torch.randn(5, 3)
DENSE = {
    "in_features": 3,
    "out_features": 5,
    "bias": True,
    "activation_function": "torch.nn.modules.activation.Tanh",
}


def stored(folder: Path, config: dict[str, Any], tensors: dict[str, Tensor]) -> Path:
    (folder / "config.json").write_text(json.dumps(config))
    if tensors:
        write_tensors(tensors, folder / "model.safetensors")
    return folder


def test_a_dense_layer_is_its_formula() -> None:
    x = torch.randn(2, 7, 3, dtype=torch.float64)
    plain = x @ W.double().T + B.double()
    assert_close_to_largest(Dense(weight=W, bias=B)(x), plain.tanh(), FP64)
    assert_close_to_largest(Dense(weight=W, activation="Identity")(x), x @ W.double().T, FP64)
    added = Dense(weight=W, bias=B, activation="ReLU", adds_input=True, projection=P)(x)
    assert_close_to_largest(added, plain.relu() + x @ P.double().T, FP64)
    square = torch.randn(3, 3)
    kept = Dense(weight=square, activation="Identity", adds_input=True)(x)
    assert_close_to_largest(kept, x @ square.double().T + x, FP64)


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_each_activation_is_that_of_torch(name: str) -> None:
    x = torch.linspace(-3, 3, 31)
    assert torch.equal(ACTIVATIONS[name](x), getattr(nn, name)()(x))


@pytest.mark.parametrize("scale", [1.0, 1e20, 1e38])
def test_a_norm_is_that_of_torch_in_double_precision(scale: float) -> None:
    """In single precision the variance of the large ones is infinite, and what is left is the bias."""
    x, weight, bias = torch.randn(2, 7) * scale, torch.randn(7), torch.randn(7)
    theirs = nn.LayerNorm(7, dtype=torch.float64)
    theirs.load_state_dict({"weight": weight, "bias": bias})
    assert torch.equal(Norm(weight=weight, bias=bias)(x), theirs(x.double()).float())


def test_a_dense_layer_is_read(tmp_path: Path) -> None:
    dense = read_dense(stored(tmp_path, DENSE, {"linear.weight": W.half(), "linear.bias": B}))
    assert dense.activation == "Tanh"
    assert dense.weight.dtype == torch.float32
    assert torch.equal(dense.weight, W.half().float())
    assert dense.bias is not None
    assert torch.equal(dense.bias, B)


def test_tanh_is_what_an_absent_activation_means(tmp_path: Path) -> None:
    bare = {"in_features": 3, "out_features": 5, "bias": False, "use_residual": True}
    dense = read_dense(stored(tmp_path, bare, {"linear.weight": W, "residual.weight": P}))
    assert dense.activation == "Tanh"
    assert dense.bias is None
    assert dense.adds_input
    assert dense.projection is not None
    assert torch.equal(dense.projection, P)


def dense_file(folder: Path, **change: Any) -> Dense:
    return read_dense(stored(folder, DENSE | change, {"linear.weight": W, "linear.bias": B}))


SOFTSIGN = "torch.nn.modules.activation.Softsign"


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda at: dense_file(at, activation_function=SOFTSIGN), "must be .*; got 'torch.nn.*Softsign'"),
        (lambda at: dense_file(at, activation_function="mine.Tanh"), "must be .*; got 'mine.Tanh'"),
        (lambda at: dense_file(at, activation_function=None), "_function' must be a text; got None"),
        (lambda at: dense_file(at, in_features="3"), "'in_features' must be a whole number; got '3'"),
        (lambda at: dense_file(at, in_features=4), r"\(5, 4\); got .*linear.weight of shape \(5, 3\)"),
        (lambda at: dense_file(at, bias=False), r"must be linear.weight of shape \(5, 3\); got linear.bias"),
        (lambda at: dense_file(at, use_residual=True), r"residual.weight of shape \(5, 3\); got"),
        (lambda at: dense_file(at, module_input_name="x"), "'module_input_name' must be .* got 'x'"),
        (lambda at: dense_file(at, scale=2.0), "scale = 2.0"),
        (read_dense, "config.json: no such file"),
        (lambda at: read_dense(stored(at, DENSE, {})), "no weights"),
        (lambda at: read_unit(stored(at, {"module_input_name": "x"}, {})), "'module_input_name' .* got 'x'"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, read: Callable[[Path], object], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        read(tmp_path)


def test_a_norm_is_read(tmp_path: Path) -> None:
    read_unit(tmp_path)
    norm = read_norm(stored(tmp_path, {"dimension": 5}, {"norm.weight": B, "norm.bias": -B}))
    assert torch.equal(norm.weight, B)
    assert torch.equal(norm.bias, -B)
    read_unit(stored(tmp_path, {"module_input_name": "sentence_embedding", "module_output_name": None}, {}))


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


@pytest.mark.parametrize(
    ("call", "message"),
    [
        *((lambda n=n: finished(VECTORS, truncate_dim=n), f"be from 1 to 3.*got {n}") for n in (0, 4, -1)),
        (
            lambda: packed(np.array([[65520.0]]), "float16"),
            "'float16' has no number for an entry above 65504",
        ),
        (lambda: packed(np.zeros((1, 2)), "int4"), "ubinary; got 'int4'"),
    ],
)
def test_what_cannot_be_finished(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


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


@pytest.mark.parametrize("storage", ["float32", "float16", "int8", "ubinary"])
@pytest.mark.parametrize("entry", [math.inf, -math.inf, math.nan])
def test_what_is_not_finite_leaves_in_no_storage(storage: Any, entry: float) -> None:
    for vectors in (np.array([[0.0, entry], [1.0, 2.0]]), torch.tensor([[[0.0], [entry]], [[1.0], [2.0]]])):
        with pytest.raises(RegardError, match="1 of 2 vectors have numbers that are not finite"):
            packed(vectors, storage)
