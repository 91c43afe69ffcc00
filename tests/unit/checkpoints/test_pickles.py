"""Files of torch.save: sound ones in both formats, and those that are damaged, hostile or something else."""

from __future__ import annotations

import json
import os
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import nn

from regard.checkpoints import KeyMap, Rename, available, load_into, read_tensors, write_tensors
from regard.core.errors import CheckpointError

BIN = "pytorch_model.bin"


def save(folder: Path, content: object, *, old: bool = False, name: str = BIN) -> Path:
    torch.save(content, folder / name, _use_new_zipfile_serialization=not old)
    return folder


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.uint8, torch.bool])
def test_every_tensor_comes_back(tmp_path: Path, dtype: torch.dtype, old: bool) -> None:
    tensors = {
        "b": (torch.randn(3, 5) * 9).to(dtype),
        "a": torch.ones(7).to(dtype),
        "empty": torch.zeros(0, 2).to(dtype),
        "number": torch.tensor(1).to(dtype),
        "turned": torch.arange(6).reshape(2, 3).to(dtype).t(),
    }
    reader = read_tensors(save(tmp_path, OrderedDict(tensors), old=old))
    assert reader.names() == tuple(sorted(tensors))
    for name, tensor in tensors.items():
        assert torch.equal(reader.read(name), tensor)
        assert (reader.shape(name), reader.dtype(name)) == (tuple(tensor.shape), dtype)
    with pytest.raises(CheckpointError, match="the checkpoint has no tensor 'c'"):
        reader.read("c")


@pytest.mark.parametrize("old", [False, True])
def test_a_state_dict_with_its_metadata_and_parameters(tmp_path: Path, old: bool) -> None:
    module = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3))
    state = module.state_dict(keep_vars=True)
    assert state._metadata
    reader = read_tensors(save(tmp_path, state, old=old))
    again = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3))
    load_into(again, reader, KeyMap(rules=(Rename("{layer}.{part}", "{layer}.{part}"),)))
    assert all(torch.equal(again.state_dict()[name], value) for name, value in module.state_dict().items())
    assert not reader.read("0.weight").requires_grad


def test_the_file_is_mapped_and_never_changed(tmp_path: Path) -> None:
    save(tmp_path, {"x": torch.ones(4096)})
    before = (tmp_path / BIN).read_bytes()
    reader = read_tensors(tmp_path)
    tensor = reader.read("x")
    assert tensor.data_ptr() == reader.read("x").data_ptr()
    if Path("/proc/self/maps").exists():
        assert str(tmp_path / BIN) in Path("/proc/self/maps").read_text()
    tensor.add_(1)
    assert (tmp_path / BIN).read_bytes() == before


def test_tied_tensors_in_one_memory(tmp_path: Path) -> None:
    table = torch.ones(3, 2)

    class Tables(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Embedding(3, 2), nn.Embedding(3, 2)

    reader = read_tensors(save(tmp_path, {"a.weight": table, "b.weight": table}))
    module = Tables()
    load_into(module, reader, KeyMap(rules=(Rename("a.{part}", "a.{part}"), Rename("b.{part}", "b.{part}"))))
    with torch.no_grad():
        module.a.weight.zero_()
    assert module.b.weight.detach().unique().tolist() == [1.0]


def test_safetensors_come_first(tmp_path: Path) -> None:
    save(tmp_path, {"x": torch.zeros(1)})
    write_tensors({"x": torch.ones(1)}, tmp_path / "model.safetensors")
    assert read_tensors(tmp_path).read("x").tolist() == [1.0]


# Refused


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("echo run > /dev/null",)


def forbid(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_: str) -> None:
        raise AssertionError("the file's code was run")

    monkeypatch.setattr(os, "system", run)


@pytest.mark.parametrize("old", [False, True])
def test_code_is_refused_and_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: bool) -> None:
    (tmp_path / "plain").write_bytes(pickle.dumps({"x": Evil()}))
    save(tmp_path, {"x": torch.ones(1), "y": Evil()}, old=old)
    forbid(monkeypatch)
    with pytest.raises(
        CheckpointError,
        match=r"\A[^\n]*pytorch_model\.bin: unsafe pickle \(it asks for (posix|nt)\.system, which is no "
        r"tensor\); a pickle can run any code: convert the model where that does no harm, "
        r"[^\n]*safetensors[^\n]*\Z",
    ):
        read_tensors(tmp_path)
    (tmp_path / "plain").replace(tmp_path / BIN)
    with pytest.raises(CheckpointError, match=r"not a file that `torch\.save` writes, or one cut short"):
        read_tensors(tmp_path)


def archive(folder: Path, compression: int, records: dict[str, bytes]) -> None:
    with zipfile.ZipFile(folder / BIN, "w", compression) as file:
        for name, data in records.items():
            file.writestr(name, data)


def packed(folder: Path) -> None:
    with zipfile.ZipFile(save(folder, {"x": torch.arange(1000.0)}, name="plain") / "plain") as plain:
        archive(folder, zipfile.ZIP_DEFLATED, {name: plain.read(name) for name in plain.namelist()})


PROGRAM = {"model/data.pkl": b"", "model/constants.pkl": b""}
NO_TENSOR = r"unsafe pickle \(it asks for {}, which is no tensor\); a pickle"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda at: save(at, nn.Linear(2, 2)), NO_TENSOR.format(r"torch\.nn\.modules\.linear\.Linear")),
        (lambda at: save(at, {"x": np.ones(3)}), NO_TENSOR.format(r"numpy\.\S+")),
        (lambda at: save(at, {"x": transformers.BertConfig()}), NO_TENSOR.format(r"transformers\.\S+")),
        (lambda at: archive(at, 0, PROGRAM), r"unsafe pickle \(a TorchScript program, not weights\)"),
        (packed, r"damaged weights file \(compressed records: plain/data\.pkl, "),
        (lambda at: save(at, [torch.ones(1)]), "must be tensors by their names; got list"),
        (lambda at: save(at, torch.ones(1)), "must be tensors by their names; got Tensor"),
        (
            lambda at: save(at, {"state_dict": {"x": torch.ones(1)}}),
            r"got object under 'state_dict'; save the model's own `state_dict`",
        ),
        (lambda at: save(at, {"x": torch.ones(1), "epoch": 3}), "got int under 'epoch'"),
        (lambda at: save(at, {3: torch.ones(1)}), "got a tensor under 3"),
        (lambda at: save(at, {"x": torch.eye(2).to_sparse()}), r"no dense tensors of the types .*: x;"),
        (lambda at: save(at, {"x": torch.ones(1).cdouble()}), r"no dense tensors of the types .*: x;"),
        (lambda at: (at / BIN).write_bytes(b"version https://git-lfs"), "a Git LFS pointer, not the weights"),
        (lambda at: (at / BIN).mkdir(), r"cannot be read \(.+\)"),
    ],
)
def test_what_is_refused(tmp_path: Path, make: Callable[[Path], object], message: str) -> None:
    make(tmp_path)
    with pytest.raises(CheckpointError, match=rf"pytorch_model\.bin: .*{message}"):
        read_tensors(tmp_path)


class Claims:
    """A tensor of a million entries on a memory of four."""

    def __init__(self, stride: int) -> None:
        self.stride = stride

    def __reduce__(self) -> Any:
        storage = torch.ones(4)._typed_storage()
        return torch._utils._rebuild_tensor_v2, (storage, 0, (10**6,), (self.stride,), False, OrderedDict())


@pytest.mark.parametrize("old", [False, True])
def test_a_file_that_holds_less_than_it_says(tmp_path: Path, old: bool) -> None:
    for stride in (0, 1):
        with pytest.raises(CheckpointError, match=r"damaged weights file|no dense tensors of the types"):
            read_tensors(save(tmp_path, {"x": Claims(stride)}, old=old)).read("x").sum()
    data = (save(tmp_path, {"x": torch.randn(1000), "y": torch.randn(10)}, old=old) / BIN).read_bytes()
    for part in (0.0, 0.001, 0.01, 0.3, 0.9, 0.999):
        (tmp_path / BIN).write_bytes(data[: int(len(data) * part)])
        with pytest.raises(CheckpointError, match=r"\A.*pytorch_model\.bin: [^\n]*download it again[^\n]*\Z"):
            read_tensors(tmp_path)


@pytest.mark.parametrize("old", [False, True])
def test_flipped_bytes_give_an_error_of_ours_or_tensors(tmp_path: Path, old: bool) -> None:
    save(tmp_path, {"x": torch.randn(5), "y": torch.randn(3)}, old=old)
    data = (tmp_path / BIN).read_bytes()
    refused = 0
    for at in range(0, min(len(data), 900), 7):
        (tmp_path / BIN).write_bytes(data[:at] + bytes([data[at] ^ 0x2B]) + data[at + 1 :])
        try:
            reader = read_tensors(tmp_path)
            for name in reader.names():
                reader.read(name).clone()
        except CheckpointError:
            refused += 1
    assert refused > 20


# Shards

ONE, TWO = "pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"


def shards(folder: Path, weight_map: dict[str, str]) -> Path:
    for shard, name in ((ONE, "a"), (TWO, "b")):
        save(folder, {name: torch.full((2,), float(ord(name)))}, name=shard)
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


def test_shards(tmp_path: Path) -> None:
    reader = read_tensors(shards(tmp_path, {"a": ONE, "b": TWO}))
    assert reader.names() == ("a", "b")
    assert reader.read("b").tolist() == [98.0, 98.0]


def two_shards(folder: Path) -> Path:
    return shards(folder, {"a": ONE, "b": TWO}) / TWO


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda at: shards(at, {"a": TWO, "b": TWO}),
            r"index\.json: index and shards disagree; not in .* names: a; download",
        ),
        (lambda at: shards(at, {"a": "../x.bin"}), r"of a \.bin file in the same folder; got '\.\./x\.bin'"),
        (lambda at: shards(at, {"a": "model.safetensors"}), r"must be the name of a \.bin file in the same"),
        (
            lambda at: os.truncate(two_shards(at), 400),
            rf"{TWO}: damaged weights file \(.*\); download it again",
        ),
        (
            lambda at: two_shards(at).unlink(),
            rf"{TWO}: no such file; the checkpoint is not complete: download",
        ),
    ],
)
def test_shards_that_are_refused(tmp_path: Path, make: Callable[[Path], object], message: str) -> None:
    make(tmp_path)
    with pytest.raises(CheckpointError, match=message):
        read_tensors(tmp_path)


def test_the_cache_counts_only_whole_models(hf_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(hf_home / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    repository = hf_home / "hub" / "models--someone--old"
    snapshot = repository / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    (snapshot / "config.json").write_text("{}")
    names = lambda: [source.name for source in available() if source.kind == "cache"]  # noqa: E731
    assert names() == []
    shards(snapshot, {"a": ONE, "b": TWO})
    assert names() == ["someone/old"]
    (snapshot / ONE).unlink()
    assert names() == []
    save(snapshot, {"x": torch.ones(1)})
    assert names() == ["someone/old"]
