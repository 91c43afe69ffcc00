"""Key maps both ways, and loading: everything, or one error that lists all that does not fit."""

from __future__ import annotations

import re
from collections import Counter
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest
import torch
from torch import Tensor, nn

from regard import models
from regard.checkpoints import (
    ID_BUFFERS,
    KeyMap,
    LoadReport,
    Rename,
    Shared,
    find,
    load_into,
    read_tensors,
    to_hf,
)
from regard.checkpoints._keymap import shape_on_disk, taken_apart
from regard.core.errors import CheckpointError, InputError
from unit.checkpoints.stored import on_disk


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)


class Network(nn.Module):
    """Small, with the parts that a key map meets: a table, layers, norms."""

    def __init__(self, num_layers: int = 2) -> None:
        super().__init__()
        self.tokens = nn.Embedding(5, 4)
        self.layers = nn.ModuleList(Layer() for _ in range(num_layers))


KEYMAP = KeyMap(
    rules=(
        Rename("embeddings.word_embeddings.weight", "tokens.weight"),
        Rename("encoder.layer.{layer}.attention.self.query.{part}", "layers.{layer}.q.{part}"),
        Rename("encoder.layer.{layer}.output.LayerNorm.{part}", "layers.{layer}.norm.{part}"),
    ),
    prefixes=("bert.",),
    aliases=((".gamma", ".weight"), (".beta", ".bias")),
    left_out=("cls.", "pooler."),
    buffers=ID_BUFFERS,
)


def stored(num_layers: int = 2) -> dict[str, Tensor]:
    return to_hf(Network(num_layers), KEYMAP)


def meta_network(num_layers: int = 2) -> Network:
    with torch.device("meta"):
        return Network(num_layers)


# The map


@pytest.mark.parametrize(
    ("hf", "ours"),
    [
        ("embeddings.word_embeddings.weight", "tokens.weight"),
        ("encoder.layer.0.attention.self.query.weight", "layers.0.q.weight"),
        ("encoder.layer.11.attention.self.query.bias", "layers.11.q.bias"),
        ("encoder.layer.105.output.LayerNorm.weight", "layers.105.norm.weight"),
    ],
)
def test_both_ways(hf: str, ours: str) -> None:
    assert KEYMAP.to_ours(hf) == (ours,)
    assert KEYMAP.to_ours(f"bert.{hf}") == (ours,)
    assert KEYMAP.to_hf(ours) == hf


def test_aliases_are_read_and_not_written() -> None:
    assert KEYMAP.to_ours("bert.encoder.layer.1.output.LayerNorm.gamma") == ("layers.1.norm.weight",)
    assert KEYMAP.to_ours("encoder.layer.1.output.LayerNorm.beta") == ("layers.1.norm.bias",)
    assert KEYMAP.to_hf("layers.1.norm.bias") == "encoder.layer.1.output.LayerNorm.bias"


@pytest.mark.parametrize(
    "name",
    [
        "encoder.layer.x.attention.self.query.weight",
        "encoder.layer.-1.attention.self.query.weight",
        "encoder.layer.01.attention.self.query.weight",
        "encoder.layer.٣.attention.self.query.weight",
        "encoder.layer.1.attention.self.query.scale",
        "encoder_layer.1.attention.self.query.weight",
        "encoder.layer.1.attention.self.query.weight.more",
        "encoder.layer.1.attention.self.query.weight\n",
        "bert.bert.embeddings.word_embeddings.weight",
        "cls.predictions.bias",
        "",
    ],
    ids=repr,
)
def test_names_that_no_rule_has(name: str) -> None:
    assert KEYMAP.to_ours(name) == ()


def test_a_network_name_that_no_rule_has() -> None:
    for ask in (lambda: KEYMAP.to_hf("bias"), lambda: to_hf(nn.Linear(1, 1), KEYMAP)):
        with pytest.raises(CheckpointError, match=r"no name on disk for the network's '(bias|weight)'"):
            ask()


@pytest.mark.parametrize("prefix", ["", "bert."])
def test_what_is_left_out_and_what_is_a_buffer(prefix: str) -> None:
    assert KEYMAP.leaves_out(f"{prefix}pooler.dense.weight")
    assert KEYMAP.buffer(f"{prefix}embeddings.position_ids")
    assert not KEYMAP.leaves_out(f"{prefix}embeddings.position_ids")
    assert not KEYMAP.buffer(f"{prefix}embeddings.position_ids.more")
    assert not KeyMap(rules=()).leaves_out(f"{prefix}pooler.dense.weight")


MODULES = [import_module(each.name) for each in walk_packages(models.__path__, "regard.models.")]
OF_FAMILIES = {
    id(each): each for module in MODULES for each in vars(module).values() if isinstance(each, KeyMap)
}


@pytest.mark.parametrize("keymap", OF_FAMILIES.values(), ids=lambda keymap: str(keymap.rules[0].hf))
def test_every_rule_of_every_family_goes_there_and_back_and_is_the_only_one(keymap: KeyMap) -> None:
    on_disk, ours = Counter[str](), Counter[str]()
    for rule in keymap.rules:
        if isinstance(rule, Shared):
            on_disk[rule.hf] += rule.is_written
            assert len(set(rule.ours)) == len(rule.ours)
            continue
        names: dict[str, tuple[str, ...]] = {}
        for values in ({"layer": "0", "part": "weight"}, {"layer": "10", "part": "bias"}):
            names[rule.hf.format(**values)] = tuple(piece.format(**values) for piece in rule.pieces)
        for hf, pieces in names.items():
            assert keymap.to_ours(hf) == pieces
            assert all(keymap.to_hf(piece) == hf for piece in pieces)
        on_disk.update(list(names))
        ours.update(piece for pieces in set(names.values()) for piece in pieces)
    assert on_disk.most_common(1)[0][1] == 1
    assert ours.most_common(1)[0][1] == 1


HEADED = KeyMap(
    rules=(Rename("h.{layer}.{part}", "layers.{layer}.{part}"), Rename("lm_head.weight", "head.weight")),
    prefixes=("transformer.", "model."),
    heads=("lm_head.", "score.{layer}."),
    left_out=("h.{layer}.old.",),
    buffers={"h.{layer}.mask": lambda at, _: True},
)


def test_heads_stand_beside_the_prefix() -> None:
    module = nn.Module()
    module.layers = nn.ModuleList([nn.LayerNorm(2)])
    assert sorted(to_hf(module, HEADED)) == ["h.0.bias", "h.0.weight"]
    module.head = nn.Linear(2, 3, bias=False)
    assert sorted(to_hf(module, HEADED)) == [
        "lm_head.weight",
        "transformer.h.0.bias",
        "transformer.h.0.weight",
    ]
    assert sorted(to_hf(module, HEADED, prefix="x.")) == ["lm_head.weight", "x.h.0.bias", "x.h.0.weight"]
    module.head.weight = nn.Parameter(torch.ones(2))
    module.layers[0].weight = module.head.weight
    assert sorted(to_hf(module, HEADED)) == ["transformer.h.0.bias", "transformer.h.0.weight"]


@pytest.mark.parametrize("prefix", ["", "transformer.", "model."])
def test_templates_for_what_is_not_loaded(prefix: str) -> None:
    assert HEADED.buffer(f"{prefix}h.11.mask")
    assert not HEADED.buffer(f"{prefix}h.x.mask")
    assert HEADED.leaves_out(f"{prefix}h.11.old.weight")
    assert HEADED.leaves_out(f"{prefix}score.3.weight")
    assert not HEADED.leaves_out(f"{prefix}h.older.old.weight")


def test_a_missing_tensor_has_the_prefix_of_the_others_unless_it_is_a_heads(tmp_path: Path) -> None:
    module = nn.Module()
    module.layers = nn.ModuleList([nn.LayerNorm(2)])
    module.head = nn.Linear(2, 3, bias=False)
    with pytest.raises(CheckpointError, match=r"missing: lm_head\.weight, model\.h\.0\.bias$"):
        load_into(module, on_disk(tmp_path, {"model.h.0.weight": torch.ones(2)}), HEADED)
    written = {"model.h.0.weight": torch.ones(2), "lm_head.weight": torch.ones(3, 2)}
    with pytest.raises(CheckpointError, match=r"missing: model\.h\.0\.bias$"):
        load_into(module, on_disk(tmp_path, written), HEADED)


# Loading


@pytest.mark.parametrize("network", [Network, meta_network])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_a_round_trip_is_exact(tmp_path: Path, network: type[Network], dtype: torch.dtype) -> None:
    written = {name: tensor.to(dtype) for name, tensor in stored().items()}
    module = network()
    assert load_into(module, on_disk(tmp_path, written), KEYMAP) == LoadReport(left_out=(), buffers=())
    back = to_hf(module, KEYMAP)
    assert back.keys() == written.keys()
    assert all(back[name].dtype is dtype and torch.equal(back[name], written[name]) for name in written)


def test_no_second_copy(tmp_path: Path) -> None:
    reader = on_disk(tmp_path, stored())
    module = meta_network()
    load_into(module, reader, KEYMAP)
    for name, parameter in module.named_parameters():
        assert parameter.data_ptr() == reader.read(KEYMAP.to_hf(name)).data_ptr()


def test_training_does_not_change_the_file(tmp_path: Path) -> None:
    reader = on_disk(tmp_path, stored())
    before = (tmp_path / "model.safetensors").read_bytes()
    module = meta_network()
    load_into(module, reader, KEYMAP)
    with torch.no_grad():
        module.tokens.weight.add_(1)
    assert (tmp_path / "model.safetensors").read_bytes() == before


def test_requires_grad_stays(tmp_path: Path) -> None:
    module = meta_network()
    module.tokens.weight.requires_grad_(False)
    load_into(module, on_disk(tmp_path, stored()), KEYMAP)
    frozen = [name for name, parameter in module.named_parameters() if not parameter.requires_grad]
    assert frozen == ["tokens.weight"]
    assert all(isinstance(parameter, nn.Parameter) for parameter in module.parameters())


def test_dtype_and_device(tmp_path: Path) -> None:
    written = stored()
    module = meta_network()
    load_into(module, on_disk(tmp_path, written), KEYMAP, dtype=torch.bfloat16, device="cpu")
    loaded = to_hf(module, KEYMAP)
    assert all(torch.equal(loaded[name], written[name].to(torch.bfloat16)) for name in written)
    assert {parameter.device.type for parameter in module.parameters()} == {"cpu"}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("asked", [True, False])
def test_onto_a_gpu(tmp_path: Path, asked: bool) -> None:
    written = stored()
    module = meta_network() if asked else Network().cuda()
    load_into(module, on_disk(tmp_path, written), KEYMAP, device="cuda" if asked else None)
    loaded = to_hf(module, KEYMAP)
    assert all(loaded[name].is_cuda and torch.equal(loaded[name].cpu(), written[name]) for name in written)


def test_prefixes_and_old_spellings(tmp_path: Path) -> None:
    written = stored()
    old = {
        f"bert.{name}".replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): tensor
        for name, tensor in written.items()
    }
    assert "bert.encoder.layer.0.output.LayerNorm.gamma" in old
    module = meta_network()
    load_into(module, on_disk(tmp_path, old), KEYMAP)
    loaded = to_hf(module, KEYMAP)
    assert all(torch.equal(loaded[name], written[name]) for name in written)


def test_what_is_left_out_is_reported(tmp_path: Path) -> None:
    more = {
        "pooler.dense.weight": torch.ones(1),
        "cls.predictions.bias": torch.ones(1),
        "embeddings.position_ids": torch.arange(5),
    }
    report = load_into(Network(), on_disk(tmp_path, stored() | more), KEYMAP)
    assert report == LoadReport(
        left_out=("cls.predictions.bias", "pooler.dense.weight"), buffers=("embeddings.position_ids",)
    )


def test_a_rule_for_a_tensor_that_only_some_networks_hold(tmp_path: Path) -> None:
    keymap = KeyMap(rules=(Rename("w", "weight"), Rename("head.bias", "bias")), left_out=("head.",))
    reader = on_disk(tmp_path, {"w": torch.ones(1, 2), "head.bias": torch.ones(1)})
    assert load_into(nn.Linear(2, 1), reader, keymap).left_out == ()
    assert load_into(nn.Linear(2, 1, bias=False), reader, keymap).left_out == ("head.bias",)


def test_all_problems_come_at_once_and_nothing_is_assigned(tmp_path: Path) -> None:
    written = {f"bert.{name}": tensor for name, tensor in stored(3).items()}
    del written["bert.encoder.layer.1.attention.self.query.weight"]
    del written["bert.encoder.layer.0.attention.self.query.bias"]
    written["bert.embeddings.word_embeddings.weight"] = torch.ones(6, 4)
    written["bert.encoder.layer.0.output.LayerNorm.weight"] = torch.ones(4, dtype=torch.int64)
    written["bert.encoder.layer.0.output.LayerNorm.gamma"] = torch.ones(4)
    written["bert.encoder.layer.1.output.LayerNorm.bias"] = torch.ones(4).half()
    module = Network()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    layer = "bert.encoder.layer"
    message = (
        f"{tmp_path}: the weights do not fit the network; "
        f"missing: {layer}.0.attention.self.query.bias, {layer}.1.attention.self.query.weight; "
        f"unexpected: {layer}.2.attention.self.query.bias, {layer}.2.attention.self.query.weight, "
        f"{layer}.2.output.LayerNorm.bias, {layer}.2.output.LayerNorm.weight; "
        f"different, though names of one tensor: {layer}.0.output.LayerNorm.gamma and "
        f"{layer}.0.output.LayerNorm.weight; "
        "of the wrong shape: bert.embeddings.word_embeddings.weight (wanted [5, 4], got [6, 4]); "
        f"of the wrong type: {layer}.0.output.LayerNorm.weight (wanted a floating type, got torch.int64); "
        "stored in several types (5 in torch.float32, 1 in torch.float16): pass dtype= to choose one"
    )
    with pytest.raises(CheckpointError, match=rf"\A{re.escape(message)}\Z"):
        load_into(module, on_disk(tmp_path, written), KEYMAP)
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())


def test_one_tensor_with_and_without_the_prefix(tmp_path: Path) -> None:
    written, twin = stored(), "bert.embeddings.word_embeddings.weight"
    table = written["embeddings.word_embeddings.weight"]
    module = Network()
    load_into(module, on_disk(tmp_path, written | {twin: table.clone()}), KEYMAP)
    assert torch.equal(module.tokens.weight, table)
    for other in (table + 1, table.double(), table[1:]):
        with pytest.raises(
            CheckpointError, match=r"names of one tensor: bert\.embeddings\..* and embeddings\."
        ):
            load_into(Network(), on_disk(tmp_path, written | {twin: other}), KEYMAP, dtype=torch.float32)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("prefix", ["", "bert."])
def test_constants_are_compared(tmp_path: Path, prefix: str, dtype: torch.dtype) -> None:
    """Half precision does not count to 5,000."""
    right = {"position_ids": torch.arange(5000).to(dtype), "token_type_ids": torch.zeros(1, 7, dtype=dtype)}
    written = {f"{prefix}embeddings.{name}": tensor for name, tensor in right.items()}
    report = load_into(Network(), on_disk(tmp_path, stored() | written), KEYMAP)
    assert report.buffers == tuple(written)
    for name in written:
        wrong = stored() | written | {name: written[name] + 1}
        with pytest.raises(CheckpointError, match=rf"not the constant that the network has: {name}$"):
            load_into(Network(), on_disk(tmp_path, wrong), KEYMAP)


def test_what_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"dtype must be a floating type .*; got torch\.int8"):
        load_into(Network(), on_disk(tmp_path, stored()), KEYMAP, dtype=torch.int8)
    with pytest.raises(CheckpointError, match=r"missing: encoder\.layer\.1\.[^;]* and 23 more$"):
        load_into(meta_network(8), on_disk(tmp_path, stored(1)), KEYMAP)


def test_mixed_types_need_a_choice(tmp_path: Path) -> None:
    written = stored()
    written["embeddings.word_embeddings.weight"] = written["embeddings.word_embeddings.weight"].bfloat16()
    reader = on_disk(tmp_path, written)
    with pytest.raises(
        CheckpointError, match=r"\(8 in torch\.float32, 1 in torch\.bfloat16\): pass dtype= to"
    ):
        load_into(Network(), reader, KEYMAP)
    module = Network()
    load_into(module, reader, KEYMAP, dtype=torch.float32)
    assert torch.equal(module.tokens.weight, written["embeddings.word_embeddings.weight"].float())


def test_buffers_that_the_network_stores(tmp_path: Path) -> None:
    class Counted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(2, dtype=torch.int64))
            self.register_buffer("scale", torch.zeros(2))
            self.register_buffer("derived", torch.zeros(2), persistent=False)

    keymap = KeyMap(rules=(Rename("n", "count"), Rename("s", "scale")))
    module = Counted()
    reader = on_disk(tmp_path, {"n": torch.tensor([3, 4]), "s": torch.ones(2)})
    load_into(module, reader, keymap, dtype=torch.float64)
    assert torch.equal(module.get_buffer("count"), torch.tensor([3, 4]))
    assert torch.equal(module.get_buffer("scale"), torch.ones(2, dtype=torch.float64))
    assert not isinstance(module.get_buffer("scale"), nn.Parameter)
    wrong = on_disk(tmp_path, {"n": torch.tensor([3, 4], dtype=torch.int32), "s": torch.ones(2)})
    with pytest.raises(
        CheckpointError, match=r"of the wrong type: n \(wanted torch\.int64, got torch\.int32\)"
    ):
        load_into(module, wrong, keymap)


def test_what_no_checkpoint_can_fill(tmp_path: Path) -> None:
    class Counted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dense = nn.Linear(2, 1)
            self.register_buffer("angles", torch.arange(3.0), persistent=False)

    keymap = KeyMap(rules=(Rename("{part}", "dense.{part}"),))
    reader = on_disk(tmp_path, {"weight": torch.ones(1, 2), "bias": torch.ones(1)})
    with torch.device("meta"):
        module = Counted()
    with pytest.raises(
        InputError, match=r"module: angles would stay on the meta device, .* persistent buffer"
    ):
        load_into(module, reader, keymap)
    assert module.dense.weight.is_meta
    load_into(Counted(), reader, keymap)


# Tied parameters


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(3, 2)
        self.head = nn.Linear(2, 3, bias=False)
        self.head.weight = self.tokens.weight


TIED = KeyMap(rules=(Rename("wte.weight", "tokens.weight"), Rename("lm_head.weight", "head.weight")))
ONE_NAME = KeyMap(rules=(Rename("lm_head.weight", "head.weight"),))
TABLE = torch.arange(6.0).reshape(3, 2)


@pytest.mark.parametrize(
    "names", [("wte.weight",), ("lm_head.weight",), ("wte.weight", "lm_head.weight")], ids=str
)
@pytest.mark.parametrize("on_meta", [True, False])
def test_tied_parameters_stay_tied(tmp_path: Path, names: tuple[str, ...], on_meta: bool) -> None:
    with torch.device("meta" if on_meta else "cpu"):
        module = Tied()
    load_into(module, on_disk(tmp_path, dict.fromkeys(names, TABLE)), TIED)
    assert module.head.weight is module.tokens.weight
    assert torch.equal(module.head.weight, TABLE)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (
            {"wte.weight": TABLE, "lm_head.weight": TABLE + 1},
            r"network ties them: wte\.weight and lm_head\.w",
        ),
        ({"wte.weight": TABLE, "lm_head.weight": TABLE.double()}, r"ties them: wte\.weight and lm_head\.w"),
        ({"x": TABLE}, r"missing: wte\.weight; unexpected: x$"),
    ],
    ids=["value", "dtype", "missing"],
)
def test_tied_parameters_that_do_not_fit(tmp_path: Path, written: dict[str, Tensor], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        load_into(Tied(), on_disk(tmp_path, written), TIED)


@pytest.mark.parametrize(("keymap", "name"), [(TIED, "wte.weight"), (ONE_NAME, "lm_head.weight")])
def test_tied_parameters_are_written_once(tmp_path: Path, keymap: KeyMap, name: str) -> None:
    module = Tied()
    written = to_hf(module, keymap)
    assert list(written) == [name]
    other = Tied()
    load_into(other, on_disk(tmp_path, written), keymap)
    assert torch.equal(other.head.weight, module.tokens.weight)


def test_to_hf_gives_the_networks_own_tensors() -> None:
    module = Network()
    written = to_hf(module, KEYMAP)
    table = written["embeddings.word_embeddings.weight"]
    assert table.data_ptr() == module.tokens.weight.data_ptr()
    assert not table.requires_grad


# The default model


def test_the_default_models_table(tmp_path: Path) -> None:
    reader = read_tensors(find("all-MiniLM-L6-v2").folder)
    keymap = KeyMap(
        rules=(Rename("embeddings.word_embeddings.{part}", "{part}"),),
        left_out=("embeddings.", "encoder.", "pooler."),
        buffers=ID_BUFFERS,
    )
    with torch.device("meta"):
        table = nn.Embedding(30522, 384)
    report = load_into(table, reader, keymap)
    assert report.buffers == ("embeddings.position_ids",)
    assert len(report.left_out) == 102
    assert torch.equal(table.weight, reader.read("embeddings.word_embeddings.weight"))


def test_a_split_goes_both_ways() -> None:
    keymap = KeyMap(rules=(Rename("Wi.{layer}.{part}", ("up.{layer}.{part}", "gate.{layer}.{part}")),))
    assert keymap.to_ours("Wi.11.weight") == ("up.11.weight", "gate.11.weight")
    assert keymap.to_hf("gate.11.weight") == keymap.to_hf("up.11.weight") == "Wi.11.weight"
    assert keymap.to_ours("Wi.x.weight") == ()


@pytest.mark.parametrize(
    ("shapes", "transposed", "expected"),
    [
        ([(3, 5)], False, (3, 5)),
        ([(3, 5)], True, (5, 3)),
        ([(3,)], True, (3,)),
        ([()], True, ()),
        ([(3, 5), (3, 5), (3, 5)], False, (9, 5)),
        ([(3, 5), (2, 5)], True, (5, 5)),
        ([(3,), (3,)], True, (6,)),
        ([(3, 5), (3, 7)], False, None),
        ([(3, 5), (3,)], False, None),
        ([(), ()], False, None),
        ([(3, 5, 2), (1, 5, 2)], True, (4, 5, 2)),
    ],
)
def test_the_shape_on_disk(
    shapes: list[tuple[int, ...]], transposed: bool, expected: tuple[int, ...] | None
) -> None:
    assert shape_on_disk(shapes, transposed=transposed) == expected


@pytest.mark.parametrize("transposed", [True, False])
def test_taken_apart(transposed: bool) -> None:
    stored = torch.arange(35).reshape(7, 5) if transposed else torch.arange(35).reshape(5, 7)
    first, second = taken_apart(stored, [2, 3], transposed=transposed)
    ours = stored.t() if transposed else stored
    assert torch.equal(first, ours[:2])
    assert torch.equal(second, ours[2:])
    assert second.untyped_storage().data_ptr() == stored.untyped_storage().data_ptr()
