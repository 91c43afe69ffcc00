"""Products in 8 bits against the formula and float64, and what a model loses by them."""

import math
import sys

import numpy as np
import pytest
import torch
from torch import Tensor

import regard
from regard import InputError
from regard.embedding._engine import NetworkEngine
from regard.embedding._post_norm import PostNormEngine
from regard.embedding._quantized import ByLength, in_int8, in_int16
from regard.kernels import _int8 as int8
from regard.kernels._int8 import Int8Product
from regard.kernels._target import Target
from regard.models import Transformer, load_checkpoint
from tolerances import FP32_OF_LARGEST, INT8_COSINE, assert_close_to_largest
from unit.kernels.targets import WITH_VNNI, needs_vnni

pytestmark = needs_vnni
on_every_target = pytest.mark.usefixtures("target")

TEXTS = ["She sat on the bank of the river.", "fish", "The bank raised its interest rates, unexpectedly!"]


@pytest.fixture(params=WITH_VNNI, ids=str)
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(int8, "here", lambda: request.param)


def _made(weight: Tensor, x: Tensor, bias: Tensor | None = None) -> Tensor:
    out = torch.full((len(x), len(weight)), math.nan)
    return Int8Product(weight, bias).into(out, x)


def _hadamard() -> Tensor:
    """(128, 128): signs of places whose upper five of seven bits are mixed; its product with itself is 32."""
    places = np.arange(128)
    common = np.bitwise_and(places[:, None] // 4, places // 4)
    signs = np.vectorize(lambda number: -1.0 if number.bit_count() % 2 else 1.0)(common)
    return torch.from_numpy(signs * (places[:, None] % 4 == places % 4)).float()


def _with_codes(rows: int, depth: int, generator: torch.Generator) -> Tensor:
    """Rows whose mixtures are whole numbers up to 127, times a power of two for each block."""
    codes = torch.randint(-100, 101, (rows, depth // 128, 128), generator=generator).float()
    codes[:, :, 37] = 127.0
    scales = 2.0 ** torch.randint(-9, 10, (rows, depth // 128, 1), generator=generator)
    return ((codes * scales) @ _hadamard()).view(rows, depth)


@on_every_target
@pytest.mark.parametrize(("width", "depth"), [(32, 128), (96, 384), (64, 1536)])
def test_sums_are_those_of_whole_numbers(width: int, depth: int) -> None:
    """Where nothing is rounded, the product is exact."""
    generator = torch.Generator().manual_seed(0)
    x, weight = (_with_codes(rows, depth, generator) for rows in (29, width))
    x[3], weight[5], x[7, :128] = 0.0, 0.0, 0.0
    bias = torch.randn(width, generator=generator)
    exact = x.double() @ weight.double().T + bias
    for row, expected in zip(_made(weight, x, bias), exact, strict=True):
        assert_close_to_largest(row, expected, FP32_OF_LARGEST)


@on_every_target
def test_the_largest_sums_are_exact() -> None:
    """Codes of 127 and -127 everywhere, in each of which 16 bits would overflow."""
    wanted = torch.where(torch.arange(128) % 3 == 0, -127.0, 127.0)
    row = (wanted @ _hadamard() / 32).repeat(12)[None]
    found = _made(row.repeat(32, 1) * torch.tensor([1.0, -1.0]).repeat(16)[:, None], row.repeat(5, 1))
    exact = 12 * 128 * 127.0**2 / 32
    assert_close_to_largest(found, np.tile([exact, -exact], (5, 16)), FP32_OF_LARGEST)


@on_every_target
@pytest.mark.parametrize(("width", "depth"), [(1152, 384), (384, 1536)])
def test_how_far_a_row_is_from_float64(width: int, depth: int) -> None:
    torch.manual_seed(0)
    weight, x = torch.randn(width, depth), torch.randn(101, depth)
    x[:, 3] = 60.0  # as networks have them: an entry far above the others
    exact = x.double() @ weight.double().T
    error = (_made(weight, x).double() - exact).norm(dim=1) / exact.norm(dim=1)
    assert 0.004 < error.min() < error.max() < 0.012


@on_every_target
def test_rows_of_all_sizes() -> None:
    torch.manual_seed(0)
    weight = torch.randn(32, 128)
    x = torch.randn(8, 128) * torch.tensor([0.0, 1e-44, 1e-39, 1e-30, 1e-10, 1.0, 1e10, 1e30])[:, None]
    exact = x.double() @ weight.double().T
    error = (_made(weight, x).double() - exact).norm(dim=1)
    assert (error <= 0.02 * exact.norm(dim=1) + 1e-36).all()


def test_a_models_vectors_in_int8() -> None:
    model = regard.load()
    found = model.embed(TEXTS, precision="int8")
    loss = found.report.computed.loss  # type: ignore[union-attr]
    assert loss is not None
    assert INT8_COSINE < loss.smallest_cosine < loss.mean_cosine < 0.9999
    cosines = (found * model.embed(TEXTS)).sum(1)  # both of length 1
    assert INT8_COSINE < cosines.min() < 0.99999  # not float32 under another name
    alone = np.concatenate([model.embed([text], precision="int8") for text in TEXTS])
    assert np.array_equal(alone, found)
    words = model.embed(TEXTS, level="word", layer=[0, 3], precision="int8")
    assert words.report.computed == words.of(1).report.computed
    assert_close_to_largest(words.vectors[:, 0], model.embed(TEXTS, level="word", layer=0).vectors, 0.0)


def test_the_upper_values_are_in_sixteen_bits() -> None:
    """Their part of the first product is nearer than that of the keys."""
    network = load_checkpoint().network
    assert isinstance(network, Transformer)
    ids = torch.randint(999, 30_000, (3 * 11,), generator=torch.Generator().manual_seed(0))
    narrow, wide = in_int8(network, [0, 6]), NetworkEngine(network, [0, 6])
    assert isinstance(narrow, ByLength)
    assert isinstance(narrow._long, PostNormEngine)
    (static, ours), (same, theirs) = narrow.hidden(ids, [(3, 11)]), wide.hidden(ids, [(3, 11)])
    assert torch.equal(static, same)
    assert torch.cosine_similarity(ours.double(), theirs.double(), dim=1).min() > INT8_COSINE
    layer = narrow._long._layers[-1]
    x = torch.randn(3, 384)
    qkv = layer.qkv.into(torch.empty(3, 1152), x)
    weight = torch.cat([getattr(network.stack("encoder").layers[-1].attention, name).weight for name in "kv"])  # type: ignore[union-attr]
    exact = x.double() @ weight.double().T
    offset = (qkv[:, 384:] - exact).mean(0)  # biases are folded
    errors = [
        (qkv[:, 384:] - exact - offset)[:, part].norm() / exact[:, part].norm()
        for part in (slice(0, 384), slice(384, 768))
    ]
    assert errors[0] > 2e-3 > 1e-3 > errors[1]


def test_short_rows_are_in_sixteen_bits() -> None:
    """To the last bit, wherever they stand in a call."""
    network = load_checkpoint().network
    assert isinstance(network, Transformer)
    shape = [(2, 8), (1, 9), (3, 5), (2, 13), (1, 3)]
    ids = torch.randint(999, 30_000, (69,), generator=torch.Generator().manual_seed(0))
    assert sum(rows * length for rows, length in shape) == len(ids)
    narrow, wide = in_int8(network, [0, 6]), in_int16(network, [0, 6])
    together, start = narrow.hidden(ids, shape), 0
    for rows, length in shape:
        own = ids[start : start + rows * length]
        nearly = wide.hidden(own, [(rows, length)])
        for layer, states in enumerate(narrow.hidden(own, [(rows, length)])):
            assert torch.equal(together[layer][start : start + rows * length], states)
            assert torch.equal(states, nearly[layer]) == (length <= 8 or layer == 0)
        start += rows * length


def test_where_it_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    model = regard.load()
    with monkeypatch.context() as patched:
        patched.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
        with pytest.raises(InputError, match=r"precision must not be 'int8' on this machine.*AVX2"):
            model.embed(TEXTS, precision="int8")
    monkeypatch.setattr(sys.modules["regard.kernels"], "here", lambda: Target(8, False))
    with pytest.raises(InputError, match=r"precision must not be 'int8' .* VNNI\. Give 'int16'"):
        model.embed(TEXTS, precision="int8")
