"""Products in float32 by a kernel against float64, and the engine that is made of them."""

import copy
import importlib.util
import itertools
import math
import threading

import numpy as np
import pytest
import torch
from torch import Tensor

from regard.embedding import Embedder, Request
from regard.embedding._engine import NetworkEngine
from regard.embedding._engine_choice import choose_engine
from regard.embedding._post_norm import PostNormEngine
from regard.embedding._quantized import in_float32
from regard.kernels import _attention as attention
from regard.kernels import _float32 as float32
from regard.kernels._float32 import Float32Product
from regard.models import Transformer, load_checkpoint
from tolerances import FP32_OF_LARGEST, PARITY_FP32, assert_close_to_largest
from unit.kernels.targets import TARGETS
from unit.models.tiny import IDS, encoder

CAPABILITY = torch.backends.cpu.get_cpu_capability()
on_every_target = pytest.mark.usefixtures("target")
pytestmark = pytest.mark.skipif(not CAPABILITY.startswith("AVX"), reason="the processor has no AVX2")


@pytest.fixture(params=TARGETS, ids=str)
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(float32, "here", lambda: request.param)


def _made(weight: Tensor, x: Tensor, bias: Tensor | None = None) -> Tensor:
    out = torch.full((len(x), len(weight)), math.nan)
    return Float32Product(weight, bias).into(out, x)


@on_every_target
@pytest.mark.parametrize(("width", "depth"), [(32, 1), (32, 30), (96, 160), (1152, 384), (384, 1536)])
def test_it_is_the_product_and_the_bias(width: int, depth: int) -> None:
    torch.manual_seed(0)
    weight, bias, x = torch.randn(width, depth), torch.randn(width), torch.randn(101, depth)
    exact = x.double() @ weight.double().T
    assert_close_to_largest(_made(weight, x, bias), exact + bias, FP32_OF_LARGEST)
    assert_close_to_largest(_made(weight, x), exact, FP32_OF_LARGEST)


@on_every_target
def test_it_adds_to_rows_that_lie_apart() -> None:
    torch.manual_seed(0)
    weight, x, stream = torch.randn(64, 96), torch.randn(77, 96), torch.randn(77, 80)
    before = stream.double()
    Float32Product(weight, None).add_to(stream[:, 5:69], x)
    assert_close_to_largest(
        stream[:, 5:69], before[:, 5:69] + x.double() @ weight.double().T, FP32_OF_LARGEST
    )
    assert torch.equal(stream[:, :5], before[:, :5].float())
    assert torch.equal(stream[:, 69:], before[:, 69:].float())


@on_every_target
def test_gelu() -> None:
    torch.manual_seed(0)
    weight, bias, x = torch.randn(96, 384), torch.randn(96) * 3, torch.randn(211, 384) * 0.3
    plain = _made(weight, x, bias)
    assert plain.min() < -9
    assert plain.max() > 9  # beyond where the distribution is 0 or 1
    out = torch.full((211, 160), math.nan)
    Float32Product(weight, bias).gelu_into(out[:, 32:128], x)
    exact = torch.nn.functional.gelu(plain.double())
    assert (out[:, 32:128] - exact).abs().le(2e-7 * plain.abs().clamp(min=1.0)).all()
    assert out[:, :32].isnan().all()
    assert out[:, 128:].isnan().all()
    x[3, 5] = math.nan
    Float32Product(weight, bias).gelu_into(out[:, 32:128], x)
    assert out[3, 32:128].isnan().all()
    assert not out[[2, 4], 32:128].isnan().any()


@on_every_target
@pytest.mark.parametrize("depth", [384, 1536])
def test_a_row_does_not_depend_on_the_others(depth: int) -> None:
    """At every number of rows that is left over by tiles, and across blocks."""
    torch.manual_seed(0)
    weight, x = torch.randn(32, depth), torch.randn(409, depth)
    whole = _made(weight, x)
    for rows in (slice(0, 1), *(slice(3, 3 + n) for n in range(1, 14)), slice(47, 49), slice(380, 409)):
        assert torch.equal(_made(weight, x[rows].clone()), whole[rows])


def test_the_kernel_gets_no_address_of_anything_else() -> None:
    product = Float32Product(torch.randn(32, 64), None)
    out, x = torch.empty(5, 32), torch.randn(5, 64)
    for other_out, other_x in (
        (out, x.double()),
        (out, torch.randn(64, 5).t()),
        (out, torch.randn(5, 65)),
        (out.double(), x),
        (torch.empty(4, 32), x),
        (torch.empty(32, 5).t(), x),
    ):
        with pytest.raises(AssertionError):
            product.into(other_out, other_x)


def test_the_default_model() -> None:
    """Against the network itself in float64: not twice as far as with torch's products."""
    network = load_checkpoint().network
    assert isinstance(network, Transformer)
    lengths = [(2, 67), (3, 12), (1, 1)]
    ids = torch.randint(999, 30_000, (171,), generator=torch.Generator().manual_seed(0))
    engines = in_float32(network, range(7)), PostNormEngine(network, range(7))
    ours, theirs = (engine.hidden(ids, lengths) for engine in engines)
    wide, start, parts = NetworkEngine(copy.deepcopy(network).double(), range(7)), 0, []
    for rows, length in lengths:
        parts.append(wide.hidden(ids[start : start + rows * length], [(rows, length)]))
        start += rows * length
    for one, other, *of_rows in zip(ours, theirs, *parts, strict=True):
        exact = torch.cat(of_rows)
        assert_close_to_largest(one, exact, FP32_OF_LARGEST)
        assert (one - exact).norm() <= 2 * (other - exact).norm()


def test_maps_of_other_sizes_are_left_to_torch() -> None:
    network = encoder().float()  # 30 entries, and not 32
    ours = in_float32(network, [1, 2]).hidden(IDS.flatten(), [(2, 7)])
    theirs = PostNormEngine(network, [1, 2]).hidden(IDS.flatten(), [(2, 7)])
    for one, other in zip(ours, theirs, strict=True):
        assert_close_to_largest(one, other, PARITY_FP32)


def test_vectors_are_the_same_bits_in_any_company() -> None:
    texts = [" ".join(words) for words in itertools.permutations(["a", "river", "bank", "unexpectedly"])]
    texts = [*texts, *(text[:20] for text in texts)]
    embedder = Embedder(load_checkpoint(), Request())
    if not embedder.settled["kernel"].endswith(" float32"):
        pytest.skip("torch's products are taken here")
    together = embedder.sentences(texts).vectors
    alone = np.concatenate([embedder.sentences([text]).vectors for text in texts])
    assert np.array_equal(together, alone)


@pytest.mark.parametrize(
    ("capability", "llvmlite", "kernel"),
    [
        ("AVX2", True, " float32"),
        ("AVX2", False, "PostNormEngine"),
        ("AVX512", True, " float32"),
        ("AVX512", False, "PostNormEngine"),
        ("DEFAULT", True, "PostNormEngine"),
    ],
)
def test_where_it_is_taken(
    capability: str, llvmlite: bool, kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kernel == " float32" and capability != CAPABILITY:
        pytest.skip("the kernels of this processor are others")
    loaded = load_checkpoint()
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    real = importlib.util.find_spec
    absent = None if llvmlite else "llvmlite"
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == absent else real(name, *rest)
    )
    made = choose_engine(loaded, Request(), [6])
    assert made.record["kernel"].endswith(kernel)
    assert str(made.computed) == "float32, exact"
    assert choose_engine(loaded, Request(precision="bfloat16"), [6]).record["kernel"] == "PostNormEngine"


def test_attention_is_compiled_once_by_threads_that_begin_together(monkeypatch: pytest.MonkeyPatch) -> None:
    attention._attend_by.cache_clear()
    made: list[str] = []
    gate = threading.Barrier(4)

    def compiled(make: object, name: str, *kinds: object) -> object:
        made.append(name)
        threading.Event().wait(0.05)
        return made

    def ask() -> None:
        gate.wait()
        attention.attend_by(attention_of, TARGETS[0], 32)

    attention_of = attention.Attention(lambda *_: True, lambda *_: 0, lambda *_: None)
    monkeypatch.setattr(attention, "compiled", compiled)
    threads = [threading.Thread(target=ask) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert made == ["attend"]
