"""safetensors files: sound ones bit by bit, and hostile ones, which are built byte by byte."""

from __future__ import annotations

import json
import os
import re
import stat
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from regard.checkpoints import DEFAULT_MODEL, find, read_tensors, write_tensors
from regard.core.errors import CheckpointError, InputError, OutputError

EIGHT = struct.pack("<2f", 1.0, 2.0)


def entry(
    dtype: str = "F32", shape: tuple[int, ...] = (2,), at: tuple[int, int] = (0, 8)
) -> dict[str, object]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(at)}


def blob(header: object, data: bytes = EIGHT, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def save(folder: Path, data: bytes, name: str = "model.safetensors") -> Path:
    (folder / name).write_bytes(data)
    return folder


def test_a_file_made_by_hand(tmp_path: Path) -> None:
    reader = read_tensors(save(tmp_path, blob({"__metadata__": {"format": "pt"}, "b": entry()})))
    assert reader.names() == ("b",)
    assert reader.shape("b") == (2,)
    assert reader.dtype("b") is torch.float32
    assert reader.read("b").tolist() == [1.0, 2.0]
    assert repr(reader) == f"TensorReader({str(tmp_path)!r}, 1 tensors)"


def test_data_that_is_not_aligned(tmp_path: Path) -> None:
    header = json.dumps({"b": entry()}).encode()
    header += b" " * ((3 - len(header)) % 8)
    assert read_tensors(save(tmp_path, blob(header))).read("b").tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    "dtype",
    [
        torch.bfloat16,
        torch.bool,
        torch.complex64,
        torch.float16,
        torch.float32,
        torch.float64,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.int8,
        torch.uint16,
        torch.uint32,
        torch.uint64,
        torch.uint8,
    ],
    ids=str,
)
def test_every_type_comes_back_bit_by_bit(tmp_path: Path, dtype: torch.dtype) -> None:
    raw = torch.randint(0, 2 if dtype is torch.bool else 256, (64,), dtype=torch.uint8)
    tensor = raw.view(dtype).reshape(2, -1)
    write_tensors({"x": tensor}, tmp_path / "model.safetensors")
    reader = read_tensors(tmp_path)
    assert reader.dtype("x") is dtype
    assert reader.shape("x") == tuple(tensor.shape)
    assert reader.read("x").dtype is dtype
    assert torch.equal(reader.read("x").reshape(-1).view(torch.uint8), raw)


def test_odd_shapes_and_shared_memory(tmp_path: Path) -> None:
    table = torch.arange(12.0).reshape(4, 3)
    tensors = {
        "all": table,
        "again": table,
        "columns": table.t(),
        "empty": torch.zeros(0, 5),
        "leaf": torch.nn.Parameter(torch.ones(1)),
        "none": torch.zeros(0),
        "number": torch.tensor(3.5),
        "part": table[1:3],
        "stride": table[:, ::2],
    }
    write_tensors(tensors, tmp_path / "model.safetensors")
    reader = read_tensors(tmp_path)
    assert reader.names() == tuple(sorted(tensors))
    for name, tensor in tensors.items():
        assert torch.equal(reader.read(name), tensor)


def test_no_second_copy_and_no_way_back_into_the_file(tmp_path: Path) -> None:
    file = write_tensors({"x": torch.ones(3)}, tmp_path / "model.safetensors")
    before = file.read_bytes()
    reader = read_tensors(tmp_path)
    tensor = reader.read("x")
    assert tensor.data_ptr() == reader.read("x").data_ptr()
    tensor.add_(1)
    assert file.read_bytes() == before
    assert read_tensors(tmp_path).read("x").tolist() == [1.0, 1.0, 1.0]


def test_the_default_model() -> None:
    folder = find(DEFAULT_MODEL).folder
    reader, expected = read_tensors(folder), load_file(folder / "model.safetensors")
    assert reader.names() == tuple(sorted(expected))
    assert all(torch.equal(reader.read(name), tensor) for name, tensor in expected.items())


def test_a_tensor_that_is_not_there(tmp_path: Path) -> None:
    reader = read_tensors(save(tmp_path, blob({"b": entry()})))
    for ask in (reader.read, reader.shape, reader.dtype):
        with pytest.raises(CheckpointError, match="the checkpoint has no tensor 'c'"):
            ask("c")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"1234567", r"damaged safetensors file \(7 bytes, which end in the header\)"),
        (blob({"b": entry()})[:30], r"\(30 bytes, which end in the header\)"),
        (blob({"b": entry()})[:-3], "incomplete metadata"),
        (blob({"b": entry()}) + b"x", "incomplete metadata"),
        (blob({"b": entry()}, length=2**63), "which end in the header"),
        (blob(b"{nope"), "header of the safetensors file: not valid JSON"),
        (blob({"b": 1}), "invalid JSON in header"),
        (blob({"b": entry(dtype="Q7")}), "unknown variant `Q7`"),
        (blob({"b": entry(at=(-8, 0))}), "invalid JSON in header"),
        (blob({"b": entry(at=(0, 2**62))}), "invalid"),
        (blob({"b": entry(at=(8, 16))}), "invalid offset"),
        (blob({"b": entry(shape=(3,))}), "invalid shape"),
        (blob({"b": entry(shape=(2**40, 2**40))}), "overflow"),
        (blob({"b": entry(), "c": entry(at=(4, 12))}, EIGHT + EIGHT[:4]), "invalid offset"),
        (blob(b'{"b": %b, "b": %b}' % ((json.dumps(entry()).encode(),) * 2)), "the key 'b' occurs twice"),
        (b"version 1 of a pointer to large files\noid sha256:0", "a Git LFS pointer, not the weights"),
    ],
    ids=lambda value: repr(value)[-40:],
)
def test_hostile_files(tmp_path: Path, data: bytes, message: str) -> None:
    where = rf"\A{re.escape(str(tmp_path))}.model\.safetensors: "
    with pytest.raises(CheckpointError, match=rf"{where}[^\n]*{message}[^\n]*\Z"):
        read_tensors(save(tmp_path, data))


def test_a_type_that_torch_lacks(tmp_path: Path) -> None:
    reader = read_tensors(save(tmp_path, blob({"b": entry("F4", (16,))})))
    for ask in (reader.dtype, reader.read):
        with pytest.raises(
            CheckpointError, match=r"model\.safetensors: the tensor 'b' is stored as F4; regard"
        ):
            ask("b")


# Shards

ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


WHOLE = {"weight_map": {"a": ONE, "b": TWO}}


def shards(folder: Path, index: object, one: tuple[str, ...] = ("a",), two: tuple[str, ...] = ("b",)) -> Path:
    for file, names in ((ONE, one), (TWO, two)):
        write_tensors({name: torch.full((2,), float(ord(name))) for name in names}, folder / file)
    text = index if isinstance(index, bytes) else json.dumps(index).encode()
    (folder / "model.safetensors.index.json").write_bytes(text)
    return folder


def test_shards(tmp_path: Path) -> None:
    reader = read_tensors(shards(tmp_path, {"metadata": {}, "weight_map": {"a": ONE, "b": TWO}}))
    assert reader.names() == ("a", "b")
    assert reader.read("a").tolist() == [97.0, 97.0]
    assert reader.read("b").tolist() == [98.0, 98.0]
    assert (reader.shape("b"), reader.dtype("b")) == ((2,), torch.float32)


def test_one_whole_file_comes_before_an_index(tmp_path: Path) -> None:
    shards(tmp_path, {"weight_map": {"a": ONE, "b": TWO}})
    write_tensors({"whole": torch.ones(1)}, tmp_path / "model.safetensors")
    assert read_tensors(tmp_path).names() == ("whole",)


def test_shards_as_the_cache_links_them(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshot").mkdir()
    shards(tmp_path / "blobs", {"weight_map": {"a": ONE, "b": TWO}})
    for file in (tmp_path / "blobs").iterdir():
        (tmp_path / "snapshot" / file.name).symlink_to(file)
    assert read_tensors(tmp_path / "snapshot").names() == ("a", "b")


OUTSIDE = ("../" + ONE, "/etc/passwd", "sub/" + ONE, "..\\" + ONE, "C:" + ONE, "x\0.safetensors", "..", "", 7)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (b"{", "not valid JSON"),
        ({}, "'weight_map' must be an object, from tensors to shards; got nothing"),
        ({"weight_map": {}}, "got nothing"),
        ({"weight_map": ["a"]}, "got list"),
        *(
            (
                {"weight_map": {"a": shard}},
                r"shard of 'a' must be the name of a \.safetensors file in the same",
            )
            for shard in (*OUTSIDE, ".safetensors", "model.bin")
        ),
    ],
)
def test_a_damaged_index(tmp_path: Path, index: object, message: str) -> None:
    with pytest.raises(CheckpointError, match=rf"model\.safetensors\.index\.json: .*{message}"):
        read_tensors(shards(tmp_path, index))


def cut(folder: Path) -> None:
    os.truncate(shards(folder, WHOLE) / TWO, (folder / TWO).stat().st_size - 1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda at: None, r"no weights; wanted model\.safetensors or pytorch_model\.bin, or .* its shards$"),
        (
            lambda at: [save(at, b"", name) for name in ("training_args.bin", "model.fp16.safetensors")],
            r"model\.fp16\.safetensors, training_args\.bin go by other names$",
        ),
        (lambda at: (at / "model.safetensors").mkdir(), r"model\.safetensors: cannot be read \(.+\)"),
        (
            lambda at: os.truncate(
                save(at, struct.pack("<Q", 100_000_001)) / "model.safetensors", 100_000_100
            ),
            "a header of 100000001 bytes, over 100000000",
        ),
        (
            lambda at: (shards(at, WHOLE) / TWO).unlink(),
            rf"{TWO}: no such file; the checkpoint is not complete",
        ),
        (cut, rf"{TWO}: damaged safetensors file"),
        (
            lambda at: shards(at, {"weight_map": {"z": ONE, "a": TWO}}, ("a", "d"), ("c",)),
            "not in the shard that the index names: a, z; in a shard, but not in the index: c, d; down",
        ),
        (lambda at: shards(at, WHOLE, ("a", "b")), rf"the tensor 'b' is in two shards, {ONE} and {TWO}"),
    ],
)
def test_a_folder_that_is_refused(tmp_path: Path, make: Callable[[Path], object], message: str) -> None:
    make(tmp_path)
    with pytest.raises(CheckpointError, match=message):
        read_tensors(tmp_path)


# Writing


def test_what_is_written_for_others(tmp_path: Path) -> None:
    file = write_tensors({"x": torch.ones(1)}, tmp_path / "model.safetensors", metadata={"made": "here"})
    data = file.read_bytes()
    header = json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]])
    assert header["__metadata__"] == {"format": "pt", "made": "here"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.safetensors"]


def test_equal_files_are_equal_in_every_byte(tmp_path: Path) -> None:
    told = dict.fromkeys(("words", "step", "about", "ngrams", "ä"), 'a "\x1f\x7f€😀\\')
    tensors = {"ab": torch.eye(3), "\u20ac": torch.ones(2, dtype=torch.float16)}
    # The library orders six entries anew for each file.
    files = [write_tensors(tensors, tmp_path / str(i), metadata=told).read_bytes() for i in range(8)]
    assert len(set(files)) == 1
    with safe_open(tmp_path / "0", "pt") as file:
        assert file.metadata() == {"format": "pt", **told}
        assert torch.equal(file.get_tensor("ab"), torch.eye(3))


def test_others_may_read_it_as_any_new_file(tmp_path: Path) -> None:
    file = write_tensors({"x": torch.ones(1)}, tmp_path / "model.safetensors")
    (tmp_path / "plain").touch()
    assert stat.S_IMODE(file.stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


def test_an_older_file_is_replaced_while_it_is_in_use(tmp_path: Path) -> None:
    file = write_tensors({"x": torch.ones(1)}, tmp_path / "model.safetensors")
    old = read_tensors(tmp_path).read("x")
    write_tensors({"x": old + 1}, file)
    assert old.tolist() == [1.0]
    assert read_tensors(tmp_path).read("x").tolist() == [2.0]


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("nope/x", r"x' cannot be written \(No such file or directory\)"),
        ("file/x", r"cannot be written \(Not a directory\)"),
        ("folder", "folder' cannot be written"),
    ],
)
def test_where_no_file_can_be(tmp_path: Path, place: str, message: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(OutputError, match=message):
        write_tensors({"x": torch.ones(1)}, tmp_path / place)
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["file", "folder"]


def test_a_failure_keeps_the_older_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_tensors({"x": torch.ones(1)}, tmp_path / "model.safetensors")
    before = file.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OutputError, match=r"cannot be written \(No space left on device\)"):
        write_tensors({"x": torch.zeros(1)}, file)
    assert file.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.safetensors"]


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("meta", torch.ones(1, device="meta")),
        ("sparse", torch.eye(2).to_sparse()),
        ("complex", torch.ones(1, dtype=torch.complex128)),
        ("__metadata__", torch.ones(1)),
    ],
)
def test_what_the_format_cannot_hold(tmp_path: Path, name: str, tensor: torch.Tensor) -> None:
    with pytest.raises(InputError, match=f"these tensors cannot be written: {name}; wanted dense"):
        write_tensors({"fine": torch.ones(1), name: tensor}, tmp_path / "model.safetensors")
    assert list(tmp_path.iterdir()) == []
