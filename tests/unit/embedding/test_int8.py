"""Products in int8 against the same sums in whole numbers, and what a model loses by them."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import regard
from regard import InputError
from regard.embedding import Embedder, Request
from regard.embedding import _int8 as int8
from regard.embedding._int8 import Int8Linear
from regard.embedding._linears import with_linears
from regard.models import load_checkpoint
from tolerances import FP32_OF_LARGEST, assert_close_to_largest
from unit.models.tiny import decoder

TEXTS = ["She sat on the bank of the river.", "fish", "The bank raised its interest rates, unexpectedly!"]


def _by_hand(x: Tensor, linear: nn.Linear) -> Tensor:
    """The formula, entry by entry, in float64 but for the codes."""
    weight, bias = linear.weight, linear.bias
    out = torch.zeros(len(x), len(weight), dtype=torch.float64)
    for i, row in enumerate(x):
        s = row.abs().max().item() / 127 or 1.0
        for o, of in enumerate(weight):
            t = of.abs().max().item() / 63 or 1.0
            total = sum(round(float(row[j]) / s) * round(float(of[j]) / t) for j in range(len(row)))
            out[i, o] = s * t * total + (0.0 if bias is None else bias[o].item())
    return out


@pytest.mark.parametrize("bias", [True, False])
def test_the_product_is_that_of_the_formula(bias: bool) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(13, 7, bias=bias).requires_grad_(False)
    x = torch.randn(5, 13) * torch.tensor([[1e-6], [1.0], [0.0], [300.0], [1e4]])  # each row has its scale
    linear.weight[2] = 0.0
    linear.weight[3] *= 100.0
    for row, expected in zip(Int8Linear(linear)(x[None])[0], _by_hand(x, linear), strict=True):
        assert_close_to_largest(row, expected, FP32_OF_LARGEST)


def test_sums_of_the_largest_codes_do_not_overflow() -> None:
    """Two products of bytes do not fit 16 bits when both have 8: without VNNI they would be cut off."""
    linear = nn.Linear(1536, 3, bias=False).requires_grad_(False)
    nn.init.ones_(linear.weight)
    given = Int8Linear(linear)(torch.tensor([[127.0], [-127.0]]).expand(2, 1536))
    assert_close_to_largest(given, [[127.0 * 1536] * 3, [-127.0 * 1536] * 3], FP32_OF_LARGEST)


def test_a_row_does_not_depend_on_the_others() -> None:
    torch.manual_seed(0)
    made = Int8Linear(nn.Linear(384, 96).requires_grad_(False))
    x = torch.randn(257, 384) * torch.logspace(-3, 3, 257)[:, None]
    whole = made(x)
    for rows in (slice(0, 1), slice(3, 10), slice(100, 257)):
        assert torch.equal(made(x[rows]), whole[rows])


def test_a_models_vectors_in_int8() -> None:
    model = regard.load()
    found = model.embed(TEXTS, dtype=torch.int8)
    loss = found.report.loss  # type: ignore[union-attr]
    assert loss is not None
    assert 0.95 < loss.smallest_cosine < loss.mean_cosine < 0.999
    assert f"cosines to float32 from {loss.smallest_cosine:.4f}" in repr(found.report)
    cosines = (found * model.embed(TEXTS, dtype=torch.float32)).sum(1)  # both of length 1
    assert 0.97 < cosines.min() < 0.9999  # not float32 under another name
    alone = np.concatenate([model.embed([text], dtype=torch.int8) for text in TEXTS])
    assert_close_to_largest(alone, found, FP32_OF_LARGEST)
    words = model.embed(TEXTS, level="word", layer=[0, 3], dtype=torch.int8)
    assert words.report.loss == words.of(1).report.loss
    assert words.report.loss is not None
    assert_close_to_largest(words.vectors[:, 0], model.embed(TEXTS, level="word", layer=0).vectors, 0.0)


def test_the_loss_is_measured_beforehand_and_named_where_it_was_asked_for() -> None:
    loaded = load_checkpoint()
    made = Embedder(loaded, Request(dtype=torch.int8))
    assert made.settled["dtype"] == "int8"
    assert made.loss is not None
    assert Embedder(loaded, Request(dtype=torch.float32)).loss is None
    assert Embedder(loaded, Request()).settled["dtype"] != "int8"


def test_other_kinds_of_networks_keep_their_own_weights() -> None:
    network = decoder().float()
    before = {name: each.clone() for name, each in network.state_dict().items()}
    made = with_linears(network, Int8Linear)
    linear = [each for each in made.modules() if isinstance(each, Int8Linear)]
    assert len(linear) == sum(
        isinstance(each, nn.Linear) for each in network.stack("decoder").layers.modules()
    )
    assert all(torch.equal(each, before[name]) for name, each in network.state_dict().items())


def test_where_sums_are_not_exact_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = regard.load()
    monkeypatch.setattr(int8, "_WEIGHTS", 127)  # as if sums of two did not fit, whatever the processor
    monkeypatch.setattr(int8, "_ACTIVATIONS", 128)
    with pytest.raises(InputError, match=r"dtype must be float32 or bfloat16 on this machine"):
        model.embed(TEXTS, dtype=torch.int8)
    with pytest.raises(InputError, match=r"dtype must be float32 or bfloat16 with engine='openvino'"):
        model.embed(TEXTS, dtype=torch.int8, engine="openvino")
