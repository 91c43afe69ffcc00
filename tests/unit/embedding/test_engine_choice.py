"""float32 unless another is asked for, what "fast" chooses, and that every report says which at what loss."""

import importlib.util
import re
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertModel

import regard
from regard import kernels
from regard.checkpoints import Source
from regard.core.errors import InputError
from regard.embedding import Embedder, Kind, Level, Precision, Request
from regard.embedding import _quantized as quantized
from regard.embedding._embeddings import Loss
from regard.embedding._engine_choice import choose_engine
from regard.embedding._quantized import int8_is_best, int16_is_best
from regard.kernels import Target
from regard.models import Loaded
from tolerances import PARITY_FP32, assert_close_to_largest
from unit.kernels.targets import needs_vnni
from unit.models import folders

SOURCE = Source(name="tiny", folder=Path("tiny"), kind="folder")
AVX = torch.backends.cpu.get_cpu_capability().startswith("AVX")


@pytest.mark.parametrize(
    ("capability", "vnni", "amx", "llvmlite", "in_16", "in_8"),
    [
        ("AVX2", False, False, True, True, False),
        ("AVX2", True, False, True, True, False),
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
    monkeypatch.setattr(kernels, "here", lambda: Target(lanes, vnni))
    monkeypatch.setattr(quantized, "_has_amx", lambda: amx)
    real = importlib.util.find_spec
    absent = None if llvmlite else "llvmlite"
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == absent else real(name, *rest)
    )
    assert (int16_is_best(), int8_is_best()) == (in_16, in_8)


@pytest.mark.skipif(not AVX, reason="the processor has no AVX2")
@pytest.mark.parametrize(
    ("in_8", "in_16", "level", "pooling", "precision"),
    [
        pytest.param(True, True, "sentence", None, "int8", marks=needs_vnni),
        pytest.param(True, True, "sentence", "mean", "int8", marks=needs_vnni),
        (True, True, "sentence", "cls", "int16"),  # one token, which nothing is averaged with
        (True, True, "word", None, "int16"),
        (False, True, "sentence", None, "int16"),
        (False, False, "sentence", None, "float32"),
    ],
)
def test_what_fast_is(
    in_8: bool,
    in_16: bool,
    level: Level,
    pooling: Kind | None,
    precision: str,
    model: regard.Model,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("regard.embedding._engine_choice.int8_is_best", lambda: in_8)
    monkeypatch.setattr("regard.embedding._engine_choice.int16_is_best", lambda: in_16)
    monkeypatch.setattr("regard.embedding._engine_choice.is_native", lambda _: False)
    made = Embedder(model.loaded, Request(level=level, pooling=pooling, precision="fast"))
    assert made.settled["precision"] == made.computed.precision == precision
    assert (made.computed.loss is None) == (precision == "float32")
    assert made.computed.loss is None or made.settled["kernel"].endswith(precision)
    exact = Embedder(model.loaded, Request(level=level, pooling=pooling))
    assert str(exact.computed) == "float32, exact"


@needs_vnni
def test_what_loses_too_much_is_not_chosen(model: regard.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("int8_is_best", "int16_is_best"):
        monkeypatch.setattr(f"regard.embedding._engine_choice.{name}", lambda: True)
    monkeypatch.setattr("regard.embedding._engine_choice.is_native", lambda _: False)
    loaded, request = model.loaded, Request(precision="fast")
    monkeypatch.setattr("regard.embedding._engine_choice._OF_AVERAGES", 1.0)
    assert Embedder(loaded, request).computed.precision == "int16"
    monkeypatch.setattr("regard.embedding._engine_choice._WITH_A_MARGIN", 1.0)
    assert re.fullmatch(
        r"float32, exact \(not good enough: int8, smallest .* 0\.99\d\d; int16, smallest .* 0\.99999\d\d\)",
        str(Embedder(loaded, request).computed),
    )


def test_the_default_is_exact_whatever_is_installed(
    model: regard.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where everything faster is there, and good enough."""
    for name in ("int8_is_best", "int16_is_best"):
        monkeypatch.setattr(f"regard.embedding._engine_choice.{name}", lambda: True)
    monkeypatch.setattr("regard.embedding._engine_choice.is_native", lambda _: True)
    texts = ["A river bank.", "He fishes on the bank of a river, far from any bank."]
    means = torch.stack([model.trace(text).embeddings(-1).mean(0) for text in texts])
    assert_close_to_largest(model.embed(texts), torch.nn.functional.normalize(means), PARITY_FP32)


def test_the_probe_fits_a_short_table_of_positions() -> None:
    network = folders.network("bert", max_seq_len=11)
    loaded = Loaded(network=network, tokenizer=None, source=SOURCE, family="bert", left_out=())
    loss = choose_engine(loaded, Request(precision="bfloat16"), [1]).computed.loss
    assert loss is not None
    assert 0.999 < loss.smallest_cosine < loss.mean_cosine < 1.0


@pytest.mark.parametrize(
    "precision", ["float32", "bfloat16", "int16", pytest.param("int8", marks=needs_vnni), "fast"]
)
def test_every_report_names_its_precision_and_its_loss(model: regard.Model, precision: Precision) -> None:
    if precision.startswith("int") and not AVX:
        pytest.skip("the processor has no AVX2")
    sentences = model.embed(["a bank"], precision=precision)
    words = model.embed(["a bank"], level="word", precision=precision)
    for report in (sentences.report, words.report):
        assert report is not None
        computed = report.computed
        assert computed.precision == precision or precision == "fast"
        if computed.precision == "float32":
            assert computed.loss is None
            assert "computed in float32, exact" in repr(report)
        else:
            assert computed.loss is not None
            assert f"computed in {computed.precision}, smallest cosine to float32 0.99" in repr(report)


def test_a_model_through_the_lens_is_run_as_it_is() -> None:
    config = BertConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, vocab_size=30522
    )
    hf_model = BertModel(config, add_pooling_layer=False).eval()
    for dtype, told in (
        (torch.float32, "float32, exact (the model's own type)"),
        (torch.bfloat16, "bfloat16 (the model's own type; its loss was not measured)"),
    ):
        loaded = regard.lens(hf_model.to(dtype)).loaded
        assert str(choose_engine(loaded, Request(precision="fast"), [1]).computed) == told
    with pytest.raises(InputError, match=r"'float32' needs a model in .* is in torch\.bfloat16"):
        choose_engine(loaded, Request(), [1])
    assert choose_engine(loaded, Request(precision="bfloat16"), [1]).computed.precision == "bfloat16"


@pytest.mark.parametrize(("smallest", "precision"), [(0.9994, "float32"), (0.9996, "int16")])
def test_what_was_measured_keeps_a_margin_to_what_is_promised(
    smallest: float, precision: str, model: regard.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0.999 for all vectors: those of the probe must be nearer."""
    choice = "regard.embedding._engine_choice"
    monkeypatch.setattr(f"{choice}.int8_is_best", lambda: False)
    monkeypatch.setattr(f"{choice}.int16_is_best", lambda: True)
    monkeypatch.setattr(f"{choice}.is_native", lambda _: False)
    monkeypatch.setattr(f"{choice}._loss", lambda *_: Loss(smallest, 0.9999))
    request = Request(level="word", precision="fast")
    assert Embedder(model.loaded, request).computed.precision == precision
