"""Products in float32 by a kernel against float64, and the engine that is made of them."""

import copy
import importlib.util
import math
import threading

import pytest
import torch
from torch import Tensor

from regard.embedding import Request
from regard.embedding._engine import NetworkEngine
from regard.embedding._engine_choice import choose_engine
from regard.embedding._post_norm import PostNormEngine
from regard.embedding._quantized import in_float32
from regard.kernels import _attention as attention
from regard.kernels import _float32 as float32
from regard.kernels._float32 import Float32Product
from regard.models import Transformer, load_checkpoint
from tolerances import FP32_OF_LARGEST, assert_close_to_largest
from unit.kernels.targets import TARGETS

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
