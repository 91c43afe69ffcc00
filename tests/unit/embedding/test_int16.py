"""Products in 16 bits against whole numbers and float64, and what a model loses by them."""

import math
import sys

import numpy as np
import pytest
import torch
from torch import Tensor

import regard
from regard import InputError, MissingExtraError
from regard.embedding._engine import NetworkEngine
from regard.embedding._post_norm import PostNormEngine
from regard.embedding._quantized import in_int16
from regard.kernels import _int16 as int16
from regard.kernels._int16 import Int16Product
from regard.models import Transformer, load_checkpoint
from tolerances import FP32_OF_LARGEST, INT16_COSINE, assert_close_to_largest
from unit.kernels.targets import TARGETS

CAPABILITY = torch.backends.cpu.get_cpu_capability()
on_every_target = pytest.mark.usefixtures("target")
pytestmark = pytest.mark.skipif(not CAPABILITY.startswith("AVX"), reason="the processor has no AVX2")

TEXTS = ["She sat on the bank of the river.", "fish", "The bank raised its interest rates, unexpectedly!"]


@pytest.fixture(params=TARGETS, ids=str)
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(int16, "here", lambda: request.param)


def _made(weight: Tensor, x: Tensor, bias: Tensor | None = None) -> Tensor:
    out = torch.full((len(x), len(weight)), math.nan)
    return Int16Product(weight, bias).into(out, x)


@on_every_target
def test_sums_are_those_of_whole_numbers() -> None:
    """An entry of 32,766 makes the scale 1, so that codes are the entries themselves."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(-700, 701, (13, 96), generator=generator)
    weight = torch.randint(-700, 701, (32, 96), generator=generator)
    x[:, 5], weight[:, 5] = 32766, 0
    weight[:, 11] = torch.where(torch.arange(32) % 2 == 0, 32766, -32766)
    bias = torch.randint(-700, 701, (32,), generator=generator)
    expected = x @ weight.T + bias  # int64
    found = _made(weight.float(), x.float(), bias.float())
    for row, exact in zip(found, expected, strict=True):
        assert_close_to_largest(row, exact, FP32_OF_LARGEST)


@on_every_target
@pytest.mark.parametrize("depth", [32, 384, 1536, 4096])
def test_the_largest_sums_do_not_overflow(depth: int) -> None:
    """Rows against weights of the same direction: the sum is the product of the norms, just below 2^31."""
    generator = torch.Generator().manual_seed(depth)
    hot = torch.zeros(depth)
    hot[3] = 1.0
    two = hot.roll(4) - hot
    rows = torch.stack([torch.ones(depth), hot, two, torch.randn(depth, generator=generator)])
    weight = torch.cat([rows, -rows, rows.roll(1, 1), rows * 1e4]).repeat(2, 1)
    exact = rows.double() @ weight.double().T
    bound = rows.double().norm(dim=1)[:, None] * weight.double().norm(dim=1) * 2 * math.sqrt(depth) / 32766
    assert (_made(weight, rows).double() - exact).abs().le(bound).all()


@on_every_target
@pytest.mark.parametrize(("width", "depth"), [(32, 32), (96, 160), (1152, 384), (384, 1536)])
def test_a_row_is_within_the_stated_bound_of_float64(width: int, depth: int) -> None:
    torch.manual_seed(0)
    weight, bias, x = torch.randn(width, depth), torch.randn(width), torch.randn(101, depth)
    x[7, 3], weight[2, 5] = 200.0, 100.0  # as networks have them: an entry far above the others
    exact = x.double() @ weight.double().T
    moved = (_made(weight, x, bias).double() - bias.double() - exact).norm(dim=1)
    step = torch.maximum(x.norm(dim=1) / 46300, x.abs().amax(1) / 32766)
    of_rows = math.sqrt(depth) / 2 * step * torch.linalg.matrix_norm(weight, 2)
    of_weights = math.sqrt(depth) / 2 * weight.norm() / 32766 * x.norm(dim=1)
    assert (moved < (of_rows + of_weights) * 1.01).all()
    assert moved.median() > 1e-6 * exact.norm(dim=1).median()  # not float32 under another name
    assert moved.median() < 5e-4 * exact.norm(dim=1).median()


@on_every_target
def test_rows_of_all_sizes() -> None:
    """Also those whose squares float32 cannot hold, each beside all others."""
    torch.manual_seed(0)
    weight = torch.randn(32, 96)
    weight[3] = 0.0
    weight[5] *= 1e-25
    scales = [1e-33, 1e-25, 1e-20, 1e-18, 1e-13, 1e-12, 1e-10, 1.0, 1e10, 1e18, 2e18, 1e19, 1e20, 1e33]
    x = torch.randn(14, 96) * torch.tensor(scales)[:, None]
    exact = x.double() @ weight.double().T
    found = _made(weight, x).double()
    assert ((found - exact).norm(dim=1) <= 3e-4 * exact.norm(dim=1)).all()
    assert (found[:, 3] == 0.0).all()


@on_every_target
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_stays_in_its_row(bad: float) -> None:
    x = torch.ones(5, 96)
    x[1], x[3, 7] = 0.0, bad
    found = _made(torch.ones(32, 96), x)
    assert not found[3].isfinite().any()
    assert torch.equal(found[1], torch.zeros(32))
    assert_close_to_largest(found[[0, 2, 4]], np.full((3, 32), 96.0), 1e-3)


@on_every_target
def test_small_weights_do_not_overflow_either() -> None:
    """The squares of their entries are 0 in float32, but not their norm."""
    found = _made(torch.full((32, 96), 1e-25), torch.ones(5, 96))
    assert_close_to_largest(found, np.full((5, 32), 96e-25), 1e-3)


def test_a_models_vectors() -> None:
    model = regard.load()
    found = model.embed(TEXTS, precision="int16")
    wide = model.embed(TEXTS)
    loss = found.report.computed.loss  # type: ignore[union-attr]
    assert loss is not None
    assert INT16_COSINE < loss.smallest_cosine < loss.mean_cosine < 1.0
    cosines = (np.asarray(found, np.float64) * wide).sum(1)  # both of length 1
    assert (1 - cosines < 1 - INT16_COSINE).all()
    assert np.abs(found - wide).max() > 1e-6
    words = model.embed(TEXTS, level="word", layer=[0, 3], precision="int16")
    assert_close_to_largest(words.vectors[:, 0], model.embed(TEXTS, level="word", layer=0).vectors, 0.0)


@pytest.mark.parametrize("folded", [True, False])
def test_folded_weights_and_a_networks_own_pass(folded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    network = load_checkpoint().network
    assert isinstance(network, Transformer)
    before = {name: each.clone() for name, each in network.state_dict().items()}
    if not folded:
        monkeypatch.setattr(PostNormEngine, "takes", lambda _: False)
    narrow, wide = in_int16(network, [0, 3, 6]), NetworkEngine(network, [0, 3, 6])
    assert type(narrow) is (PostNormEngine if folded else NetworkEngine)
    ids = torch.randint(999, 30_000, (5 * 7,), generator=torch.Generator().manual_seed(0))
    static, *contextual = zip(narrow.hidden(ids, [(5, 7)]), wide.hidden(ids, [(5, 7)]), strict=True)
    assert torch.equal(*static)
    for ours, theirs in contextual:
        assert torch.cosine_similarity(ours.double(), theirs.double(), dim=1).min() > INT16_COSINE
        assert (ours - theirs).abs().max() > FP32_OF_LARGEST * theirs.abs().max()
    assert all(torch.equal(each, before[name]) for name, each in network.state_dict().items())


def test_where_it_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    model = regard.load()
    with monkeypatch.context() as patched:
        patched.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
        with pytest.raises(InputError, match=r"precision must not be 'int16' on this machine.*AVX2"):
            model.embed(TEXTS, precision="int16")
    for name in [each for each in sys.modules if each.startswith("regard.kernels")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("llvmlite", "llvmlite.ir", "llvmlite.binding"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=r"pip install llvmlite"):
        model.embed(TEXTS, precision="int16")
