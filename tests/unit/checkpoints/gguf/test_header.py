"""Headers of GGUF files: what a sound one says, and a line for every kind of damage."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest

from regard.checkpoints import GGUFFile
from regard.core.errors import CheckpointError
from unit.checkpoints.gguf.by_hand import BOOL, UINT32, File, Tensor, listed, number, pair, text, word


def test_fields_of_every_type_are_python_values_or_arrays(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(str(tmp_path / "model.gguf"), "llama")
    writer.add_uint8("a.u8", 7)
    writer.add_int64("a.i64", -(2**40))
    writer.add_float32("a.f32", 1.5)
    writer.add_float64("a.f64", 0.1)
    writer.add_bool("a.bool", True)
    writer.add_string("a.text", "Fluß")
    writer.add_array("a.texts", ["", "river", "bank"])
    writer.add_array("a.numbers", [3, 1, 4])
    writer.add_tensor("t", np.ones((3, 2), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    read = GGUFFile(tmp_path / "model.gguf")
    told = {name: read.fields[f"a.{name}"] for name in ("u8", "i64", "f32", "f64", "bool", "text", "texts")}
    assert told == {
        "u8": 7,
        "i64": -(2**40),
        "f32": 1.5,
        "f64": 0.1,
        "bool": True,
        "text": "Fluß",
        "texts": ["", "river", "bank"],
    }
    assert type(told["bool"]) is bool
    assert read.fields["a.numbers"].tolist() == [3, 1, 4]
    assert read.shape("t") == (3, 2)


_ARCHITECTURE = word("general.architecture", "llama")
_DAMAGED = {
    "not a GGUF file": File(magic=b"GGML"),
    "got version 1": File(version=1),
    "the highest byte first": File(version=3 << 24),
    "so many fields and tensors": File(counts=(2**60, 1)),
    "so many fields and tensors ": File(counts=(1, 2**60)),
    "the field 'general.architecture' occurs twice": File(fields=[_ARCHITECTURE, _ARCHITECTURE]),
    "is of type 13, which is none for a number": File(fields=[pair("a", 13, bytes(8))]),
    "neither true nor false": File(fields=[pair("a", BOOL, b"\2")]),
    "ends within the field 'a'": File(fields=[listed("a", UINT32, 2**61, b"")], tensors=[]),
    "ends within the field 'b'": File(fields=[listed("b", 8, 2**61, b"")], tensors=[]),
    "ends within the field 'c'": File(fields=[pair("c", 8, struct.pack("<Q", 2**63))], tensors=[]),
    "the field 'd' is no UTF-8": File(fields=[pair("d", 8, text(b"\xff"))]),
    "is of type 9, which is none for a number": File(fields=[listed("a", 9, 1, bytes(12))]),
    "'general.alignment' is 7": File(fields=[number("general.alignment", 7)]),
    "'general.alignment' is 0": File(fields=[number("general.alignment", 0)]),
    "the tensor 'a' occurs twice": File(tensors=[Tensor(), Tensor(offset=32)]),
    "has 5 axes": File(tensors=[Tensor(sizes=(1, 1, 1, 1, 2))]),
    "has 0 axes": File(tensors=[Tensor(sizes=())]),
    "blocks of type 99": File(tensors=[Tensor(kind=99)]),
    "has rows of 2 entries": File(tensors=[Tensor(kind=2)]),
    "has rows of 0 entries": File(tensors=[Tensor(sizes=(0,))]),
    "does not begin at a multiple of 32 bytes": File(tensors=[Tensor(offset=8)]),
    "the tensors 'a' and 'b' overlap": File(
        tensors=[Tensor(sizes=(9,), data=bytes(36)), Tensor("b", offset=32)]
    ),
    "'a' ends at byte": File(tensors=[Tensor(sizes=(2**40, 2**20))]),
}


@pytest.mark.parametrize("told", _DAMAGED)
def test_damage_is_told_in_a_line(told: str, tmp_path: Path) -> None:
    file = _DAMAGED[told].save(tmp_path)
    with pytest.raises(CheckpointError) as caught:
        GGUFFile(file)
    assert told.strip() in str(caught.value)
    assert str(caught.value).startswith(f"{file}: ")


def test_a_file_cut_short_anywhere_or_changed_anywhere_is_read_or_refused(tmp_path: Path) -> None:
    """Two thousand mutants: a wrong number never leads out of the file."""
    names = listed("tokenizer.ggml.tokens", 8, 3, text("a") + text("bc") + text(""))
    tensors = [Tensor(), Tensor("b", (32, 2), kind=2, offset=32, data=bytes(36))]
    whole = bytes(File(fields=[_ARCHITECTURE, names, number("general.alignment", 32)], tensors=tensors))
    draw, file = random.Random(0), tmp_path / "mutant.gguf"
    refused = 0
    for turn in range(2000):
        mutant = bytearray(whole)
        if turn < len(whole):
            mutant = mutant[:turn]
        else:
            for _ in range(draw.randint(1, 3)):
                at = draw.randrange(len(mutant))
                size = draw.choice((1, 4, 8))
                mutant[at : at + size] = draw.choice((b"\xff" * size, bytes(size), draw.randbytes(size)))
        file.write_bytes(mutant)
        try:
            read = GGUFFile(file)
            for name in read.names():
                if read.shape(name):
                    read.read(name)
        except CheckpointError:
            refused += 1
    assert refused > 1000  # and not one of the others raised
