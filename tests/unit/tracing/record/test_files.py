"""Saving and opening: every family's trace comes back to the last bit, and nothing else is taken for one."""

import copy
import json
import math
import pickle
import struct
import subprocess
import sys
from dataclasses import fields, is_dataclass, replace
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import torch

import lens_models
import regard
from regard.checkpoints import write_tensors
from regard.core import (
    AttentionInputs,
    BiasOfHeads,
    Causal,
    Conjunction,
    DenseBias,
    Padding,
    Predicate,
    Segments,
    TensorMask,
    Window,
)
from regard.core.errors import CheckpointError, InputError, OutputError
from regard.foreign import lens
from regard.models import Loaded
from regard.positions import Alibi
from regard.text import Encoding
from regard.tracing import AttentionTrace, KeepPolicy, Trace, TracedStack, kept_bytes, trace_ids, trace_text
from regard.tracing.record import _files
from regard.tracing.record._files import SCHEMA, Writer
from tolerances import FP32_OF_LARGEST, assert_close_to_largest
from unit.models import folders, tiny
from unit.tracing.conftest import TEXT

IDS, TARGET = [3, 1, 4, 1, 5, 9, 2], [4, 7, 1, 28, 2]


def loaded(network: Any, family: str = "none", dtype: torch.dtype = torch.float32) -> Loaded:
    return tiny.loaded(network.to(dtype), family=family)


def traced(model: Loaded, **keeping: Any) -> Trace:
    both = len(model.network.prefixes) == 2
    return trace_ids(model, IDS, TARGET if both else None, keeping=KeepPolicy(**keeping))


def check_same(again: Trace, trace: Trace) -> None:
    """Both give the same numbers, to the last bit."""
    assert repr(again) == repr(trace)
    assert (again.model, again.kinds) == (trace.model, trace.kinds)
    for kind in trace.kinds:
        assert again.layers_of(kind) == trace.layers_of(kind)
        for layer in trace.layers_of(kind):
            ours, theirs = again.attention_of(layer, kind).inputs, trace.attention_of(layer, kind).inputs
            assert (ours.scale, ours.softcap, type(ours)) == (theirs.scale, theirs.softcap, type(theirs))
            assert torch.equal(again.weights(layer, kind=kind), trace.weights(layer, kind=kind))
            assert torch.equal(again.scores(layer, -1, kind=kind), trace.scores(layer, -1, kind=kind))
            if trace.source.keeping.values:
                assert torch.equal(again.context(layer, kind=kind), trace.context(layer, kind=kind))
        if kind != "cross" and trace.source.keeping.hidden and trace.source.keeping.layers is None:
            for layer in (0, "input", 1, -1):
                ours_, theirs_ = again.embeddings(layer, kind=kind), trace.embeddings(layer, kind=kind)
                assert torch.equal(ours_, theirs_)


@pytest.mark.parametrize("family", folders.TRACED)
def test_every_family_comes_back(tmp_path: Path, family: str) -> None:
    torch.manual_seed(1)
    model = loaded(folders.network(family), family)
    whole = traced(model)
    file = tmp_path / "trace.safetensors"
    traces = [whole]
    if family in ("bert", "llama", "bart", "bahdanau"):  # what is kept is kept alike in the others
        traces += [
            traced(model, keep="qk", layers=[-1], dtype=torch.bfloat16),
            traced(model, keep="residual"),
            traced(model, keep="qkv"),
        ]
    for trace in traces:
        assert trace.save(file) == file
        again = regard.Trace.open(file, model)
        check_same(again, trace)
        assert again.require_model() is model
        # Nothing is written twice, and nothing grows on the way.
        assert kept_bytes(again) <= kept_bytes(trace)
        assert file.stat().st_size < kept_bytes(trace) + 60_000
        again.save(file)
        check_same(Trace.open(file), trace)
    assert [each.name for each in tmp_path.iterdir()] == ["trace.safetensors"]


def test_one_token_of_every_family_comes_back(tmp_path: Path) -> None:
    """DeBERTa's table of distances is then a single number."""
    for family in folders.TRACED:
        model = loaded(folders.network(family), family)
        trace = trace_ids(model, [3], [4] if len(model.network.prefixes) == 2 else None)
        again = regard.Trace.open(trace.save(tmp_path / "trace"), model)
        assert all(
            torch.equal(again.scores(0, kind=kind), trace.scores(0, kind=kind)) for kind in trace.kinds
        )


def test_a_model_that_differs_in_one_number_is_refused(tmp_path: Path) -> None:
    """In the config alone, or in one entry of one parameter."""
    model = loaded(folders.network("llama"), "llama")
    file = traced(model).save(tmp_path / "trace")
    assert Trace.open(file, model).require_model() is model
    rotary = replace(folders.CONFIGS["llama"].rotary, base=7.0)
    turned = folders.network("llama", rotary=rotary)
    turned.load_state_dict(model.network.state_dict())
    with pytest.raises(InputError, match="its config, or the names and shapes of its parameters, are others"):
        Trace.open(file, loaded(turned, "llama"))
    with torch.no_grad():
        list(model.network.parameters())[3].view(-1)[11] += 5
    with pytest.raises(InputError, match="its parameters have other values"):
        Trace.open(file, model)


def test_words_and_spans_come_back(tmp_path: Path, loaded: Loaded) -> None:
    for trace in (trace_text(loaded, TEXT), trace_text(loaded, "river \u2014 bank \U0001f41f", "money .")):
        again = Trace.open(trace.save(tmp_path / "a"))
        assert again.encoding == trace.encoding
        assert torch.equal(again.weights(0, query="bank"), trace.weights(0, query="bank"))
        assert torch.equal(again.embedding("bank"), trace.embedding("bank"))
        again.explain("bank", 1, 2)


def masked(**fields: Any) -> Trace:
    """A trace of one layer with any mask and bias."""
    torch.manual_seed(5)
    q, k, v = (torch.randn(1, 3, 7, 5) for _ in "qkv")
    inputs = AttentionInputs(q=q, k=k, v=v, **fields)
    layer = AttentionTrace(inputs=inputs, context=torch.randn(3, 7, 5))
    return Trace(model="made", encoder=TracedStack(encoding=Encoding.from_ids(IDS), attention=(layer, layer)))


REAL = torch.tensor([[True] * 5 + [False] * 2])
SEGMENTS = torch.tensor([[0, 0, 1, 1, 1, 2, 2]])
MASKS = [
    None,
    Causal(),
    Causal(offset=2),
    Window(left=2),
    Window(left=1, right=None, offset=1) & Causal(),
    Padding(REAL),
    Segments(SEGMENTS),
    Segments(SEGMENTS, SEGMENTS.flip(1)),
    Conjunction((Causal(), Padding(REAL), Segments(SEGMENTS))),
    Causal() & Padding(REAL),
    TensorMask(torch.rand(1, 3, 7, 7) > 0.3),
    TensorMask(torch.where(torch.rand(1, 1, 7, 7) > 0.3, 0.0, torch.finfo(torch.float32).min)),
]
BIASES = [
    None,
    DenseBias(torch.randn(1, 3, 7, 7)),
    DenseBias(torch.randn(1, 1, 7, 7)),
    Alibi(3),
    Alibi(3, steepest=4.0),
    BiasOfHeads(Alibi(5), (4, 0, 2)),
    BiasOfHeads(DenseBias(torch.randn(1, 5, 7, 7)), (1, 3, 4)),
]


@pytest.mark.parametrize("mask", MASKS, ids=lambda mask: type(mask).__name__)
def test_every_mask_comes_back(tmp_path: Path, mask: Any) -> None:
    trace = masked(mask=mask)
    again = Trace.open(trace.save(tmp_path / "a"))
    assert torch.equal(again.weights(1), trace.weights(1))
    if mask is not None:
        found = again.attention_of(0).inputs.mask
        assert found is not None
        assert torch.equal(found.dense(7, 7), mask.dense(7, 7))
        assert [type(part) for part in found.parts()] == [type(part) for part in mask.parts()]
        assert found is again.attention_of(1).inputs.mask


@pytest.mark.parametrize("bias", BIASES, ids=lambda bias: type(bias).__name__)
def test_every_bias_comes_back(tmp_path: Path, bias: Any) -> None:
    trace = masked(bias=bias, scale=0.3, softcap=2.0, sinks=torch.randn(3))
    again = Trace.open(trace.save(tmp_path / "a"))
    assert torch.equal(again.weights(0), trace.weights(0))
    assert again.attention_of(0).inputs.bias is again.attention_of(1).inputs.bias
    inputs = again.attention_of(0).inputs
    assert (inputs.factor, inputs.softcap) == (0.3, 2.0)


def test_masks_of_long_texts_take_no_square(tmp_path: Path) -> None:
    trace = masked(mask=Causal() & Window(left=2) & Padding(REAL), bias=Alibi(3))
    with_none = masked()
    sizes = [each.save(tmp_path / "a").stat().st_size for each in (trace, with_none)]
    assert sizes[0] - sizes[1] < 1000


def test_an_arbitrary_rule_is_refused_by_name(tmp_path: Path) -> None:
    trace = masked(mask=Causal() & Predicate(lambda query, key: (query - key) % 2 == 0))
    with pytest.raises(
        InputError, match=r"encoder\.attention\.0\.inputs\.mask\.masks\.1 .* is a Predicate, which"
    ):
        trace.save(tmp_path / "a")
    assert not list(tmp_path.iterdir())

    class Strange:
        def block(self, queries: Any, keys: Any) -> Any:
            return torch.zeros(1, 1, len(queries), len(keys))

        def learned(self) -> tuple[Any, ...]:
            return ()

    with pytest.raises(InputError, match=r"inputs\.bias of this trace is a Strange"):
        masked(bias=Strange()).save(tmp_path / "a")


def test_the_order_in_memory_comes_back(tmp_path: Path) -> None:
    trace = traced(loaded(tiny.decoder()))
    again = Trace.open(trace.save(tmp_path / "a"))
    for ours, theirs in zip(again.attention(), trace.attention(), strict=True):
        for name in "qkv":
            one, other = getattr(ours.inputs, name), getattr(theirs.inputs, name)
            strides = [
                [stride for size, stride in zip(each.shape, each.stride(), strict=True) if size > 1]
                for each in (one, other)
            ]
            assert strides[0] == strides[1]


_RSS = """
import sys
from pathlib import Path
import regard, torch
from regard.tracing import Trace

def resident():
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))

Trace.open(sys.argv[2]).weights(0)
before = resident()
trace = Trace.open(sys.argv[1])
opened = resident()
trace.attention_of(0).inputs.q.sum()
print(opened - before, resident() - opened)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="resident memory is read from /proc")
def test_what_is_opened_stays_in_the_file_until_it_is_used(tmp_path: Path) -> None:
    layer = AttentionTrace(
        inputs=AttentionInputs(**{name: torch.randn(1, 4, 40_000, 16) for name in "qkv"}),
        context=torch.randn(4, 40_000, 16),
    )
    size = 4 * 4 * 40_000 * 16
    passage = TracedStack(encoding=Encoding.from_ids([1] * 7), attention=(layer,))
    trace = Trace(model="made", encoder=passage)
    trace.save(tmp_path / "large")
    masked().save(tmp_path / "small")
    assert (tmp_path / "large").stat().st_size > 4 * size
    done = subprocess.run(
        [sys.executable, "-c", _RSS, str(tmp_path / "large"), str(tmp_path / "small")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    opened, used = map(int, done.stdout.split())
    assert opened < size / 2
    assert size / 2 < used < 2 * size


def test_the_model_is_checked(tmp_path: Path) -> None:
    model = loaded(tiny.encoder(), "bert")
    file = traced(model).save(tmp_path / "a")
    assert Trace.open(file).loaded is None
    with pytest.raises(InputError, match=r"needs the parameters of tiny.*regard.Trace.open\(path, model\)"):
        Trace.open(file).require_model()
    assert Trace.open(file, regard.Model(model)).require_model() is model
    halved = loaded(copy.deepcopy(model.network), "bert", torch.bfloat16)
    assert Trace.open(file, halved).require_model() is halved
    of_half = traced(halved).save(tmp_path / "half")
    assert Trace.open(of_half, model).require_model() is model
    others = {
        "it is of a bert, and the model a gpt2": loaded(model.network, "gpt2"),
        "d_model is 30 there and 15 in the model": loaded(folders.network("bert"), "bert"),
        "its parameters have other values": loaded(tiny.encoder(), "bert"),
        "its parameters, float64 in place of float32, have": loaded(tiny.encoder(), "bert", torch.float64),
    }
    for message, other in others.items():
        with pytest.raises(InputError, match=f"model must be the one .*: {message}"):
            Trace.open(file, other)
    with torch.no_grad():
        model.network.encoder.layers[1].ffn.output.weight.add_(0.001)  # type: ignore[union-attr]
    with pytest.raises(InputError, match="its parameters have other values"):
        Trace.open(file, model)
    with pytest.raises(InputError, match=r"model must be a regard.Model, or None; got str"):
        Trace.open(file, "bert")  # type: ignore[arg-type]
    made = masked().save(tmp_path / "b")
    with pytest.raises(InputError, match="does not say which model it is of"):
        Trace.open(made, model)


def test_a_trace_that_came_without_its_model_still_says_which_it_was(tmp_path: Path) -> None:
    model = loaded(tiny.encoder(), "bert")
    file = traced(model).save(tmp_path / "a")
    Trace.open(file).save(file)
    assert Trace.open(file, model).require_model() is model


def test_the_lens_and_a_model_of_regard_s_own_are_told_apart(tmp_path: Path) -> None:
    seen = lens(lens_models.gpt2(), None)
    own = loaded(tiny.decoder(), seen.family)
    made = traced(seen).save(tmp_path / "seen")
    assert Trace.open(made, lens(lens_models.gpt2(), None)).require_model().family == seen.family
    with pytest.raises(InputError, match="the trace was made through the lens, and the model is"):
        Trace.open(made, own)
    with pytest.raises(InputError, match="the model is seen through the lens, and the trace was made by"):
        Trace.open(traced(own).save(tmp_path / "own"), seen)


def test_a_pickle_leaves_the_model_out(tmp_path: Path) -> None:
    model = loaded(tiny.encoder(), "bert")
    trace = traced(model)
    pickled = pickle.dumps(trace)
    again = pickle.loads(pickled)
    assert len(pickled) < kept_bytes(trace) + 60_000
    check_same(again, trace)
    with pytest.raises(InputError, match=r"came without the model, from a file or a pickle"):
        again.require_model()
    assert Trace.open(again.save(tmp_path / "a"), model).require_model() is model
    assert copy.deepcopy(trace) is copy.copy(trace) is trace
    assert trace.require_model() is model


GOLDEN = {
    "model": "by hand",
    "origin": None,
    "encoder": {
        "is": "Passage",
        "encoding": {
            "texts": [],
            "tokens": [[3, "a", None, None, None, 0, False, "a"], [4, "b", None, None, None, 0, False, "b"]],
            "words": [],
        },
        "attention": [
            {
                "is": "AttentionTrace",
                "inputs": {
                    "is": "AttentionInputs",
                    "q": {"tensor": "q", "shape": [1, 1, 2, 2], "order": [2, 3]},
                    "k": {"tensor": "k", "shape": [1, 1, 2, 2], "order": [2, 3]},
                    "v": {"tensor": "v", "shape": [1, 1, 2, 1], "order": [2]},
                    "mask": {"object": 0},
                    "bias": None,
                    "scale": 1.0,
                    "softcap": None,
                    "dropout": None,
                    "sinks": None,
                    "weights": None,
                    "written": None,
                },
                "context": {"tensor": "encoder.attention.0.context", "shape": [1, 2, 1], "order": [1]},
                "output": None,
                "written_heads": [],
                "output_written": False,
            }
        ],
        "cross_attention": [],
        "cross_layers": None,
        "hidden": [],
        "learned": None,
        "scaled": None,
        "positions": None,
        "token_types": None,
        "keeping": {"is": "Keeping", "keep": "qkv", "layers": None, "dtype": None},
    },
    "decoder": None,
    "edits": [],
    "objects": [{"is": "Causal", "offset": 0}],
}
"""A file of format 1, as it was when that format was made. It must open for as long as VERSION is 1."""


def test_a_file_of_this_format_opens_and_is_written_again_alike(tmp_path: Path) -> None:
    tensors = {"q": torch.tensor([[1.0, 0.0], [0.0, 2.0]]), "v": torch.tensor([5.0, 7.0])}
    about = torch.frombuffer(bytearray(json.dumps(GOLDEN).encode()), dtype=torch.uint8)
    tensors |= {"k": tensors["q"].clone(), "encoder.attention.0.context": torch.tensor([5.0, 6.9])}
    _files._write(tmp_path / "golden", tensors | {"trace": about})
    trace = Trace.open(tmp_path / "golden")
    e = math.exp(4.0)
    assert_close_to_largest(
        trace.weights(0, 0), torch.tensor([[1.0, 0.0], [1 / (1 + e), e / (1 + e)]]), FP32_OF_LARGEST
    )
    writer = Writer()
    written = writer.write(trace.encoder, "encoder")
    assert json.loads(json.dumps(written).replace('"encoder.attention.0.inputs.', '"')) == GOLDEN["encoder"]
    assert writer.objects == GOLDEN["objects"]


@pytest.mark.parametrize("name", SCHEMA)
def test_the_schema_names_every_field(name: str) -> None:
    """A field that is renamed or added is another format: change SCHEMA and VERSION together."""
    kind, names = SCHEMA[name]
    unwritten = {"ScoreTrace": {"context", "output", "written_heads", "output_written"}, "ScoreInputs": {"v"}}
    inherited = unwritten.get(name, set())
    given = fields(kind) if is_dataclass(kind) else ()
    own = {each.name for each in given if each.init} or set(signature(kind).parameters)
    assert set(names.split()) == own - inherited


def rewritten(file: Path, **changes: Any) -> Path:
    """The file with other metadata."""
    data = file.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header["__metadata__"] |= changes
    told = json.dumps(header).encode()
    other = file.with_name("other")
    other.write_bytes(struct.pack("<Q", len(told)) + told + data[8 + length :])
    return other


def test_other_files_are_refused(tmp_path: Path) -> None:
    file = masked().save(tmp_path / "a")
    with pytest.raises(CheckpointError, match=r"format 2, and this regard reads format 1"):
        Trace.open(rewritten(file, version="2"))
    with pytest.raises(CheckpointError, match="is not a trace"):
        Trace.open(rewritten(file, format="pt"))
    foreign = write_tensors({"a": torch.ones(3)}, tmp_path / "foreign")
    with pytest.raises(CheckpointError, match=r"is not a trace: trace.save did not write it"):
        Trace.open(foreign)
    (tmp_path / "text").write_text("not a trace at all")
    for wrong in (tmp_path / "text", tmp_path / "missing", tmp_path):
        with pytest.raises(CheckpointError, match="cannot be opened as a trace") as refused:
            Trace.open(wrong)
        assert isinstance(refused.value, FileNotFoundError) == (not wrong.exists())
        message = str(refused.value)
        assert message.count(wrong.name) == 1
        assert "download" not in message
        assert ("it is none, or damaged" in message) == (wrong.name == "text")
    data = file.read_bytes()
    for length in (0, 7, 100, len(data) // 2, len(data) - 1):
        (tmp_path / "short").write_bytes(data[:length])
        with pytest.raises(CheckpointError, match="cannot be opened as a trace"):
            Trace.open(tmp_path / "short")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"is": "Causal"', b'"is": "Casual"'),
        (b'"offset": 0', b'"offsat": 0'),
        (b'"tensor": "encoder.attention.0.inputs.q"', b'"tensor": "encoder.attention.0.inputs.z"'),
        (b'"shape": [1, 3, 7, 5]', b'"shape": [1, 3, 5, 9]'),
        (b'"encoder": {', b'"encoder": ['),
        (b'{"object": 0}', b'{"object": 9}'),
        (b'"model": "made"', b'"madel": "made"'),
        (b'"dtype": null', b'"dtype": "ab"'),
    ],
)
def test_damage_is_named(tmp_path: Path, old: bytes, new: bytes) -> None:
    file = masked(mask=Causal()).save(tmp_path / "a")
    data = file.read_bytes()
    assert old in data
    assert len(old) == len(new)
    file.write_bytes(data.replace(old, new))
    with pytest.raises(CheckpointError, match="is a damaged trace"):
        Trace.open(file)


def test_half_of_a_surrogate_pair_is_damage(tmp_path: Path) -> None:
    file = Trace(model="madeup", encoder=masked(mask=Causal()).encoder).save(tmp_path / "a")
    file.write_bytes(file.read_bytes().replace(b'"madeup"', b'"\\ud800"'))
    with pytest.raises(CheckpointError, match="is a damaged trace"):
        Trace.open(file)


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    file = masked().save(tmp_path / "a")
    before = file.read_bytes()
    with pytest.raises(OutputError, match="cannot be written"):
        masked().save(tmp_path / "no" / "such" / "folder")
    with pytest.raises(InputError):
        masked(mask=Predicate(lambda query, key: query >= key)).save(file)
    assert file.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def test_other_tools_can_read_the_file(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    trace = traced(loaded(tiny.encoder()))
    stored = load_file(trace.save(tmp_path / "a"))
    q = trace.attention_of(1).inputs.q
    assert torch.equal(stored["encoder.attention.1.inputs.q"].transpose(0, 1), q[0])


def test_a_record_with_weights_of_an_edit_comes_back(tmp_path: Path) -> None:
    trace = masked()
    edited = replace(trace.attention_of(0).inputs, weights=torch.rand(1, 3, 7, 7))
    layer = AttentionTrace(inputs=edited, context=torch.randn(3, 7, 5))
    passage = TracedStack(encoding=Encoding.from_ids(IDS), attention=(layer,))
    again = Trace.open(Trace(model="made", encoder=passage).save(tmp_path / "a"))
    assert torch.equal(again.weights(0), edited.weights[0])  # type: ignore[index]
