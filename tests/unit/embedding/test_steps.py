"""What a checkpoint does to a pooled vector, and how it is read."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.checkpoints import write_tensors
from regard.core.errors import CheckpointError
from regard.embedding import Dense, Norm
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


def test_a_norm_is_that_of_torch() -> None:
    x, weight, bias = torch.randn(2, 7), torch.randn(7), torch.randn(7)
    theirs = nn.LayerNorm(7)
    theirs.load_state_dict({"weight": weight, "bias": bias})
    assert torch.equal(Norm(weight=weight, bias=bias)(x), theirs(x))


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"activation_function": "torch.nn.modules.activation.Softsign"},
            "'activation_function' must be .*; got 'torch.nn.*Softsign'",
        ),
        ({"activation_function": "mine.Tanh"}, "'activation_function' must be .*; got 'mine.Tanh'"),
        ({"activation_function": None}, "'activation_function' must be a text; got None"),
        ({"in_features": "3"}, "'in_features' must be a whole number; got '3'"),
        ({"in_features": 4}, r"linear.weight of shape \(5, 4\); got .*linear.weight of shape \(5, 3\)"),
        ({"bias": False}, r"must be linear.weight of shape \(5, 3\); got linear.bias"),
        ({"use_residual": True}, r"residual.weight of shape \(5, 3\); got"),
        ({"module_input_name": "token_embeddings"}, "'module_input_name' must be .* got 'token_embeddings'"),
        ({"scale": 2.0}, "scale = 2.0"),
    ],
)
def test_what_is_not_this_layer_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    folder = stored(tmp_path, DENSE | change, {"linear.weight": W, "linear.bias": B})
    with pytest.raises(CheckpointError, match=message):
        read_dense(folder)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config.json: no such file"):
        read_dense(tmp_path)
    with pytest.raises(CheckpointError, match="no weights"):
        read_dense(stored(tmp_path, DENSE, {}))


def test_a_norm_is_read(tmp_path: Path) -> None:
    norm = read_norm(stored(tmp_path, {"dimension": 5}, {"norm.weight": B, "norm.bias": -B}))
    assert torch.equal(norm.weight, B)
    assert torch.equal(norm.bias, -B)


def test_normalising_tokens_is_refused(tmp_path: Path) -> None:
    read_unit(tmp_path)
    read_unit(stored(tmp_path, {"module_input_name": "sentence_embedding", "module_output_name": None}, {}))
    with pytest.raises(CheckpointError, match=r"'module_input_name' must be .* got 'token_embeddings'"):
        read_unit(stored(tmp_path, {"module_input_name": "token_embeddings"}, {}))
