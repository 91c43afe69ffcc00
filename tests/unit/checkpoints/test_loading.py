"""Fused, transposed and shared tensors into a network and back, and against what transformers writes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from regard.checkpoints import (
    KeyMap,
    Rename,
    Shared,
    load_into,
    read_tensors,
    to_hf,
    unwrapped,
    write_tensors,
)
from regard.core.errors import CheckpointError
from unit.checkpoints.stored import on_disk

IN, OUT = 5, 3


class Projections(nn.Module):
    """Three that GPT-2 stores as one, and one that it stores the other way round."""

    def __init__(self, *, with_v: bool = True) -> None:
        super().__init__()
        self.q, self.k = nn.Linear(IN, OUT), nn.Linear(IN, OUT)
        if with_v:
            self.v = nn.Linear(IN, OUT)
        self.output = nn.Linear(OUT, 7)


QKV = ("q.{part}", "k.{part}", "v.{part}")
CONV1D = KeyMap(
    rules=(
        Rename("c_attn.{part}", QKV, transposed=True),
        Rename("c_proj.{part}", "output.{part}", transposed=True),
    )
)
LINEAR = KeyMap(rules=(Rename("Wqkv.{part}", QKV), Rename("Wo.{part}", "output.{part}")))


def meta(build: type[nn.Module]) -> nn.Module:
    with torch.device("meta"):
        return build()


def conv1d() -> dict[str, Tensor]:
    return {
        "c_attn.weight": torch.randn(IN, 3 * OUT),
        "c_attn.bias": torch.randn(3 * OUT),
        "c_proj.weight": torch.randn(OUT, 7),
        "c_proj.bias": torch.randn(7),
    }


def linear() -> dict[str, Tensor]:
    return {
        "Wqkv.weight": torch.randn(3 * OUT, IN),
        "Wqkv.bias": torch.randn(3 * OUT),
        "Wo.weight": torch.randn(7, OUT),
        "Wo.bias": torch.randn(7),
    }


# Fused and transposed


def test_a_fused_conv1d_computes_what_it_did_on_disk(tmp_path: Path) -> None:
    written = conv1d()
    module = meta(Projections)
    load_into(module, on_disk(tmp_path, written), CONV1D)
    x = torch.randn(2, IN)
    fused = x @ written["c_attn.weight"] + written["c_attn.bias"]
    for number, name in enumerate("qkv"):
        expected = fused[:, number * OUT : (number + 1) * OUT]
        assert torch.allclose(module.get_submodule(name)(x), expected, rtol=0, atol=1e-6)
    y = torch.randn(2, OUT)
    expected = y @ written["c_proj.weight"] + written["c_proj.bias"]
    assert torch.allclose(module.get_submodule("output")(y), expected, rtol=0, atol=1e-6)


def test_pieces_by_hand(tmp_path: Path) -> None:
    written = linear()
    module = meta(Projections)
    load_into(module, on_disk(tmp_path, written), LINEAR)
    for number, name in enumerate("qkv"):
        rows = slice(number * OUT, (number + 1) * OUT)
        assert torch.equal(module.get_parameter(f"{name}.weight"), written["Wqkv.weight"][rows])
        assert torch.equal(module.get_parameter(f"{name}.bias"), written["Wqkv.bias"][rows])


@pytest.mark.parametrize(("keymap", "make"), [(CONV1D, conv1d), (LINEAR, linear)], ids=["conv1d", "linear"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_there_and_back_bit_for_bit(tmp_path: Path, keymap: KeyMap, make: object, dtype: torch.dtype) -> None:
    assert callable(make)
    written = {name: tensor.to(dtype) for name, tensor in make().items()}
    module = meta(Projections)
    load_into(module, on_disk(tmp_path, written), keymap)
    back = to_hf(module, keymap)
    assert back.keys() == written.keys()
    assert all(back[name].dtype is dtype and torch.equal(back[name], written[name]) for name in written)
    (tmp_path / "again").mkdir()
    again = on_disk(tmp_path / "again", back)
    assert all(torch.equal(again.read(name), written[name]) for name in written)


@pytest.mark.parametrize(("keymap", "make"), [(CONV1D, conv1d), (LINEAR, linear)], ids=["conv1d", "linear"])
def test_views_and_not_copies(tmp_path: Path, keymap: KeyMap, make: object) -> None:
    assert callable(make)
    reader = on_disk(tmp_path, make())
    module = meta(Projections)
    load_into(module, reader, keymap)
    for name, parameter in module.named_parameters():
        stored = reader.read(keymap.to_hf(name)).untyped_storage()
        assert parameter.untyped_storage().data_ptr() == stored.data_ptr()
    assert (
        to_hf(module, keymap)[keymap.to_hf("output.weight")].data_ptr()
        == module.get_parameter("output.weight").data_ptr()
    )


def test_pieces_do_not_disturb_each_other(tmp_path: Path) -> None:
    written = conv1d()
    module = meta(Projections)
    load_into(module, on_disk(tmp_path, written), CONV1D)
    with torch.no_grad():
        module.get_parameter("k.weight").zero_()
    back = to_hf(module, CONV1D)["c_attn.weight"]
    assert torch.equal(back[:, :OUT], written["c_attn.weight"][:, :OUT])
    assert torch.equal(back[:, 2 * OUT :], written["c_attn.weight"][:, 2 * OUT :])
    assert not back[:, OUT : 2 * OUT].any()


def test_pieces_of_unequal_size(tmp_path: Path) -> None:
    """Grouped heads: fewer keys than queries, in one tensor."""

    class Grouped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k = nn.Linear(IN, 7), nn.Linear(IN, OUT)

    keymap = KeyMap(rules=(Rename("qk.{part}", ("q.{part}", "k.{part}")),))
    written = {"qk.weight": torch.randn(10, IN), "qk.bias": torch.randn(10)}
    module = meta(Grouped)
    load_into(module, on_disk(tmp_path, written), keymap)
    assert torch.equal(module.get_parameter("k.weight"), written["qk.weight"][7:])
    assert torch.equal(to_hf(module, keymap)["qk.bias"], written["qk.bias"])


def test_another_type_or_place(tmp_path: Path) -> None:
    written = conv1d()
    module = meta(Projections)
    load_into(module, on_disk(tmp_path, written), CONV1D, dtype=torch.float64, device="cpu")
    back = to_hf(module, CONV1D)
    assert all(torch.equal(back[name], written[name].double()) for name in written)
    assert all(parameter.is_contiguous() for parameter in module.parameters())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_lies_as_the_network_has_it(tmp_path: Path, dtype: torch.dtype) -> None:
    written = {name: tensor.to(dtype) for name, tensor in conv1d().items()}
    module = meta(Projections)
    load_into(module, on_disk(tmp_path, written), CONV1D)
    assert all(parameter.is_contiguous() for parameter in module.parameters())
    back = to_hf(module, CONV1D)
    assert all(torch.equal(back[name], written[name]) for name in written)


# Shared tables


class Tables(nn.Module):
    """The tables of an encoder-decoder, `apart` naming those that are not the encoder's."""

    def __init__(self, *apart: str, without: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Embedding(13, 6), nn.Embedding(13, 6)
        self.head = nn.Linear(6, 13, bias=False)
        for name in ("decoder", "head"):
            if name not in apart:
                self.get_submodule(name).register_parameter("weight", self.encoder.weight)
        for name in without:
            delattr(self, name)


OURS = ("encoder.weight", "decoder.weight", "head.weight")
TABLES = KeyMap(
    rules=(
        Shared("shared.weight", OURS),
        Rename("encoder.embed_tokens.weight", "encoder.weight"),
        Rename("decoder.embed_tokens.weight", "decoder.weight"),
        Rename("lm_head.weight", "head.weight"),
    ),
    prefixes=("model.",),
    heads=("lm_head.",),
    left_out=("encoder.", "decoder."),
    buffers={"final_logits_bias": lambda at, _: True},
)
SHARED, ENCODER, DECODER, HEAD = (
    "shared.weight",
    "encoder.embed_tokens.weight",
    "decoder.embed_tokens.weight",
    "lm_head.weight",
)
TABLE = torch.arange(78.0).reshape(13, 6)


def test_a_tied_network_loads_any_of_the_names(tmp_path: Path) -> None:
    for bits in range(1, 16):
        names = [name for number, name in enumerate((SHARED, ENCODER, DECODER, HEAD)) if bits >> number & 1]
        with torch.device("meta"):
            module = Tables()
        report = load_into(module, on_disk(tmp_path, dict.fromkeys(names, TABLE)), TABLES)
        assert module.encoder.weight is module.decoder.weight is module.head.weight
        assert torch.equal(module.encoder.weight, TABLE)
        assert report.left_out == ()
        assert list(to_hf(module, TABLES, prefix="")) == [SHARED]


class Odd(nn.Module):
    """Two matrices that cannot lie in one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(2, OUT, bias=False), nn.Linear(IN, OUT, bias=False)


REPEATED = dict.fromkeys((SHARED, ENCODER, DECODER, HEAD), TABLE)
TURNED = {"c_attn.weight": torch.ones(9, 5), "c_attn.bias": torch.ones(8), "c_proj.weight": torch.ones(7, 3)}


@pytest.mark.parametrize(
    ("network", "keymap", "written", "message"),
    [
        (
            Projections,
            CONV1D,
            {"c_proj.weight": torch.ones(3, 7)},
            r"missing: c_attn\.bias, c_attn\.weight, c_p",
        ),
        (
            Projections,
            CONV1D,
            conv1d() | TURNED,
            r"of the wrong shape: c_attn\.bias \(wanted \[9\], got \[8\]\), c_attn\.weight "
            r"\(wanted \[5, 9\], got \[9, 5\]\), c_proj\.weight \(wanted \[3, 7\], got \[7, 3\]\)$",
        ),
        (
            Projections,
            CONV1D,
            conv1d() | {"c_attn.bias": torch.ones(9, dtype=torch.int64)},
            r"type: c_attn\.bias \(wanted a floating type, got torch\.int64\)$",
        ),
        (
            lambda: Projections(with_v=False),
            CONV1D,
            conv1d(),
            r"part of the network: c_attn\.bias \(the network lacks v\.bias\), c_attn\.weight",
        ),
        (
            Odd,
            KeyMap(rules=(Rename("ab", ("a.weight", "b.weight")),)),
            {"ab": torch.ones(6, 2)},
            r"ab \(the network's \[3, 2\], \[3, 5\] do not fit into one",
        ),
        *(
            (Tables, TABLES, REPEATED | {name: TABLE + 1}, f"the network ties them: .*{re.escape(name)}")
            for name in REPEATED
        ),
        (Tables, TABLES, {"encoder.x": TABLE}, r"missing: shared\.weight$"),
        (Tables, TABLES, {SHARED: TABLE[1:]}, r"shape: shared\.weight \(wanted \[13, 6\], got \[12, 6\]\)$"),
        (
            Tables,
            TABLES,
            {SHARED: TABLE, f"model.{SHARED}": TABLE + 1},
            r"of one tensor: model\.shared\.weight a",
        ),
    ],
)
def test_what_does_not_fit_is_told_as_it_is_on_disk(
    tmp_path: Path, network: Callable[[], nn.Module], keymap: KeyMap, written: dict[str, Tensor], message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        load_into(network(), on_disk(tmp_path, written), keymap)


def test_what_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(
        CheckpointError, match=r"'c_attn\.\w+' on disk cannot be written: the network lacks v"
    ):
        to_hf(Projections(with_v=False), CONV1D)
    load_into(Tables(), on_disk(tmp_path, {SHARED: TABLE, f"model.{SHARED}": TABLE.clone()}), TABLES)


def test_a_head_of_its_own(tmp_path: Path) -> None:
    """T5 v1.1: one table for both stacks, stored up to three times, and another for the output."""
    written = dict.fromkeys((SHARED, ENCODER, DECODER), TABLE) | {HEAD: TABLE + 1}
    module = Tables("head")
    load_into(module, on_disk(tmp_path, written), TABLES)
    assert module.encoder.weight is module.decoder.weight
    assert torch.equal(module.encoder.weight, TABLE)
    assert torch.equal(module.head.weight, TABLE + 1)
    assert sorted(to_hf(module, TABLES, prefix="")) == [HEAD, SHARED]
    with pytest.raises(CheckpointError, match=r"different.*decoder\.embed_tokens\.weight"):
        load_into(module, on_disk(tmp_path, written | {DECODER: TABLE + 2}), TABLES)


def test_a_network_that_ties_nothing(tmp_path: Path) -> None:
    written = {ENCODER: TABLE, DECODER: TABLE + 1, HEAD: TABLE + 2}
    module = Tables("decoder", "head")
    assert load_into(module, on_disk(tmp_path, written), TABLES).left_out == ()
    assert [module.get_parameter(name)[0, 0].item() for name in OURS] == [0, 1, 2]
    back = to_hf(module, TABLES, prefix="")
    assert all(torch.equal(back[name], written[name]) for name in written)
    assert len(back) == 3
    # as transformers 5 writes BART: its shared table is one that nothing reads
    report = load_into(module, on_disk(tmp_path, written | {SHARED: TABLE + 3}), TABLES)
    assert report.left_out == (SHARED,)
    assert [module.get_parameter(name)[0, 0].item() for name in OURS] == [0, 1, 2]


def test_a_network_that_ties_nothing_from_one_table(tmp_path: Path) -> None:
    module = Tables("decoder", "head")
    load_into(module, on_disk(tmp_path, {SHARED: TABLE, HEAD: TABLE + 2}), TABLES)
    with torch.no_grad():
        module.encoder.weight.add_(1)
    assert torch.equal(module.encoder.weight, TABLE + 1)
    assert torch.equal(module.decoder.weight, TABLE)
    assert torch.equal(module.head.weight, TABLE + 2)


def test_one_stack_alone(tmp_path: Path) -> None:
    encoder = Tables("decoder", "head", without=("decoder", "head"))
    load_into(encoder, on_disk(tmp_path, {SHARED: TABLE, ENCODER: TABLE, DECODER: TABLE + 1}), TABLES)
    assert list(to_hf(encoder, TABLES)) == [SHARED]
    with pytest.raises(
        CheckpointError, match=r"different.*: encoder\.embed_tokens\.weight and shared\.weight"
    ):
        load_into(encoder, on_disk(tmp_path, {SHARED: TABLE, ENCODER: TABLE + 1}), TABLES)
    with torch.device("meta"):
        decoder = Tables("decoder", "head", without=("encoder",))
    decoder.head.weight = decoder.decoder.weight
    load_into(decoder, on_disk(tmp_path, {SHARED: TABLE}), TABLES)
    assert torch.equal(decoder.head.weight, TABLE)
    # transformers' decoder alone has no shared table
    assert list(to_hf(decoder, TABLES)) == ["model.decoder.embed_tokens.weight"]


def test_a_second_name_for_one_bias(tmp_path: Path) -> None:
    """BERT's masked-word head: `bias`, and in newer files `decoder.bias` again."""
    keymap = KeyMap(rules=(Shared("p.bias", ("bias",)), Rename("p.decoder.bias", "bias")))
    module = nn.LayerNorm(3, elementwise_affine=False)
    module.register_parameter("bias", nn.Parameter(torch.zeros(3)))
    for names in (["p.bias"], ["p.decoder.bias"], ["p.bias", "p.decoder.bias"]):
        load_into(module, on_disk(tmp_path, dict.fromkeys(names, torch.ones(3))), keymap)
        assert module.bias.tolist() == [1, 1, 1]
    assert list(to_hf(module, keymap)) == ["p.bias"]
    with pytest.raises(CheckpointError, match=r"different.*: p\.decoder\.bias and p\.bias"):
        load_into(
            module, on_disk(tmp_path, {"p.bias": torch.ones(3), "p.decoder.bias": torch.zeros(3)}), keymap
        )


WRAPPED = KeyMap(
    rules=(
        Shared("shared.weight", ("tokens.weight",)),
        Rename("encoder.layer.{layer}.{part}", "layers.{layer}.{part}"),
        Rename("lm_head.{part}", "head.{part}"),
    ),
    prefixes=("model.",),
    heads=("lm_head.",),
)
BODY = ("shared.weight", "encoder.layer.0.weight", "encoder.layer.0.bias", "encoder.layer.1.weight")
HEADED = (*(f"model.{name}" for name in BODY), "lm_head.weight")
OTHER = "fc.weight"


def behind(prefix: str, names: tuple[str, ...] = BODY) -> tuple[str, ...]:
    return tuple(prefix + name for name in names)


@pytest.mark.parametrize(
    ("stored", "names", "taken"),
    [
        (BODY, BODY, ()),
        (HEADED, HEADED, ()),
        ((*BODY, OTHER), (*BODY, OTHER), ()),
        ((*behind("model."), OTHER), (*behind("model."), OTHER), ()),
        (behind("module."), BODY, ("module.",)),
        (behind("module.model."), behind("model."), ("module.",)),
        (behind("_orig_mod.module."), BODY, ("_orig_mod.", "module.")),
        (behind("model.", HEADED), HEADED, ("model.",)),
        (behind("_orig_mod.model.", HEADED), HEADED, ("_orig_mod.", "model.")),
        (behind("net.0.auto_model."), BODY, ("net.0.auto_model.",)),
        (behind("encoder."), BODY, ("encoder.",)),
        (
            ("shared.weight", *(f"encoder.layer.{i}._checkpoint_wrapped_module.weight" for i in range(3))),
            ("shared.weight", *(f"encoder.layer.{i}.weight" for i in range(3))),
            ("_checkpoint_wrapped_module.",),
        ),
        ((*behind("body."), "lm_head.weight"), (*BODY, "lm_head.weight"), ("body.",)),
        ((*behind("body."), OTHER), (*BODY, OTHER), ("body.",)),
        # Two networks, or two names that would become one: what is meant is not for us to say.
        ((*behind("query."), *behind("passage.")), (*behind("query."), *behind("passage.")), ()),
        ((*BODY, *behind("module.")), (*BODY, *behind("module.")), ()),
        ((*behind("body."), BODY[0]), (*behind("body."), BODY[0]), ()),
        # No wrapper's name: only part of a word.
        (("my_module.shared.weight",), ("shared.weight",), ("my_module.",)),
        (("a.b", "c.d"), ("a.b", "c.d"), ()),
    ],
)
def test_what_is_taken_off(
    tmp_path: Path, stored: tuple[str, ...], names: tuple[str, ...], taken: tuple[str, ...]
) -> None:
    values = {name: torch.tensor([float(place)]) for place, name in enumerate(stored)}
    write_tensors(values, tmp_path / "model.safetensors")
    reader, gone = unwrapped(read_tensors(tmp_path), WRAPPED)
    assert (reader.names(), gone) == (tuple(sorted(names)), taken)
    assert [reader.read(name).item() for name in names] == list(range(len(names)))
