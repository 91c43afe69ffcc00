"""What is chosen where nobody asks for a type."""

import importlib.util
from pathlib import Path

import pytest
import torch

from regard.checkpoints import Source
from regard.embedding import Embedder, Kind, Level, Request
from regard.embedding._integers import _engine as integers
from regard.embedding._integers import int8_is_best, int16_is_best
from regard.embedding._llvm import _target
from regard.embedding._llvm._target import Target
from regard.embedding._settle import settle
from regard.models import Loaded, load_checkpoint
from unit.models import folders

SOURCE = Source(name="tiny", folder=Path("tiny"), kind="folder")
AVX = torch.backends.cpu.get_cpu_capability().startswith("AVX")


@pytest.mark.parametrize(
    ("capability", "vnni", "amx", "llvmlite", "in_16", "in_8"),
    [
        ("AVX2", False, False, True, True, False),
        ("AVX2", True, False, True, True, True),
        ("AVX512", False, False, True, False, False),
        ("AVX512", True, False, True, True, True),
        ("AVX512", True, True, True, False, False),  # bfloat16 is faster there
        ("AVX512", True, False, False, False, False),
        ("AVX2", False, False, False, False, False),
        ("DEFAULT", False, False, True, False, False),
    ],
)
def test_where_whole_numbers_are_fastest(
    capability: str,
    vnni: bool,
    amx: bool,
    llvmlite: bool,
    in_16: bool,
    in_8: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    lanes = 16 if capability == "AVX512" else 8
    monkeypatch.setattr(_target, "here", lambda: Target(lanes, vnni))
    monkeypatch.setattr(integers, "_has_amx", lambda: amx)
    real = importlib.util.find_spec
    absent = None if llvmlite else "llvmlite"
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == absent else real(name, *rest)
    )
    assert (int16_is_best(), int8_is_best()) == (in_16, in_8)


@pytest.mark.skipif(not AVX, reason="the processor has no AVX2")
@pytest.mark.parametrize(
    ("in_8", "in_16", "level", "pooling", "dtype"),
    [
        (True, True, "sentence", None, "int8"),
        (True, True, "sentence", "mean", "int8"),
        (True, True, "sentence", "cls", "int16"),  # one token, which nothing is averaged with
        (True, True, "word", None, "int16"),
        (False, True, "sentence", None, "int16"),
        (False, False, "sentence", None, "float32"),
    ],
)
def test_what_is_chosen(
    in_8: bool,
    in_16: bool,
    level: Level,
    pooling: Kind | None,
    dtype: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("regard.embedding._settle.int8_is_best", lambda: in_8)
    monkeypatch.setattr("regard.embedding._settle.int16_is_best", lambda: in_16)
    monkeypatch.setattr("regard.embedding._settle.is_native", lambda _: False)
    made = Embedder(load_checkpoint(), Request(level=level, pooling=pooling))
    assert made.settled["dtype"] == dtype
    assert (made.loss is None) == (dtype == "float32")
    assert made.loss is None or made.settled["kernel"].endswith(dtype)


@pytest.mark.skipif(not AVX, reason="the processor has no AVX2")
def test_what_loses_too_much_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("int8_is_best", "int16_is_best"):
        monkeypatch.setattr(f"regard.embedding._settle.{name}", lambda: True)
    monkeypatch.setattr("regard.embedding._settle.is_native", lambda _: False)
    monkeypatch.setattr("regard.embedding._settle._OF_AVERAGES", 1.0)
    assert Embedder(load_checkpoint(), Request()).settled["dtype"] == "int16"
    monkeypatch.setattr("regard.embedding._settle._WITH_A_MARGIN", 1.0)
    assert Embedder(load_checkpoint(), Request()).settled["dtype"] == "float32"


def test_the_probe_fits_a_short_table_of_positions() -> None:
    network = folders.network("bert", max_seq_len=11)
    loaded = Loaded(network=network, tokenizer=None, source=SOURCE, family="bert", left_out=())
    settled = settle(loaded, Request(dtype=torch.float32), [1])
    assert settled.loss is None
    if AVX:
        settled = settle(loaded, Request(dtype=torch.int16), [1])
        assert settled.loss is not None
        assert settled.loss.smallest_cosine > 0.9999
