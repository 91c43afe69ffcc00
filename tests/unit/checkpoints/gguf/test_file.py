"""Tensors of GGUF files: plain ones as they lie, others by their numbers, and models in several files."""

from __future__ import annotations

import hashlib
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind

from regard.checkpoints import GGUFFile, is_gguf, open_gguf
from regard.core.errors import CheckpointError
from unit.checkpoints.gguf.by_hand import File, Tensor, floats, number, word


def _saved(folder: Path, kind: Kind, numbers: np.ndarray) -> Path:
    writer = gguf.GGUFWriter(str(folder / "model.gguf"), "llama")
    stored = gguf.quantize(numbers, kind)
    writer.add_tensor("matrix", stored, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return folder / "model.gguf"


@pytest.mark.parametrize("kind", [Kind.F32, Kind.F16, Kind.BF16, Kind.Q8_0, Kind.TQ2_0])
def test_a_tensor_is_read_in_float32_whatever_it_is_stored_in(kind: Kind, tmp_path: Path) -> None:
    numbers = np.random.default_rng(1).standard_normal((3, 256)).astype(np.float32)
    file = GGUFFile(_saved(tmp_path, kind, numbers))
    expected = gguf.dequantize(gguf.quantize(numbers, kind), kind)
    assert file.dtype("matrix") == torch.float32
    assert np.array_equal(file.read("matrix").numpy(), expected)
    packed = file.packed("matrix")
    assert (packed is None) == (kind == Kind.F32)
    if packed is not None:
        assert packed.shape == (3, 256)
        assert np.array_equal(packed.rows(slice(1, 3)).unpacked().numpy(), expected[1:])
        assert np.array_equal(packed.rows(torch.tensor([2, 0])).unpacked().numpy(), expected[[2, 0]])
        assert torch.equal(packed.unpacked(torch.bfloat16), torch.from_numpy(expected).bfloat16())


def test_changing_a_tensor_never_changes_the_file(tmp_path: Path) -> None:
    path = File().save(tmp_path)
    before = hashlib.sha256(path.read_bytes()).digest()
    file = GGUFFile(path)
    assert file.read("a").tolist() == [1.0, 2.0]
    file.read("a").fill_(7.0)
    assert file.read("a").tolist() == [7.0, 7.0]
    assert hashlib.sha256(path.read_bytes()).digest() == before


def _part(folder: Path, at: int, of: int, tensor: Tensor, name: str = "m", **more: int) -> Path:
    fields = [number("split.no", at), number("split.count", of)]
    fields += [number(key.replace("_", "."), value) for key, value in more.items()]
    whole = File(
        fields=[word("general.architecture", "llama"), *fields] if at == 0 else fields, tensors=[tensor]
    )
    return whole.save(folder, f"{name}-{at + 1:05}-of-{of:05}.gguf")


def test_a_model_in_several_files_is_one(tmp_path: Path) -> None:
    first = _part(tmp_path, 0, 2, Tensor("a"), split_tensors_count=2)
    _part(tmp_path, 1, 2, Tensor("b", data=floats(3, 4)))
    file = GGUFFile(first)
    assert {name: file.read(name).tolist() for name in file.names()} == {"a": [1.0, 2.0], "b": [3.0, 4.0]}


def test_parts_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    first = _part(tmp_path, 0, 2, Tensor("a"), split_tensors_count=3)
    with pytest.raises(
        CheckpointError, match=r"1 of its 2 parts are missing, such as m-00002-of-00002\.gguf"
    ):
        GGUFFile(first)
    second = _part(tmp_path, 1, 2, Tensor("b"))
    with pytest.raises(CheckpointError, match="hold 2 tensors, but should hold 3"):
        GGUFFile(first)
    with pytest.raises(CheckpointError, match=r"the part 2 of 2; give the first, m-00001-of-00002\.gguf"):
        GGUFFile(second)
    _part(tmp_path, 1, 2, Tensor("a"))
    with pytest.raises(CheckpointError, match="the tensor 'a' is in another part as well"):
        GGUFFile(first)
    with pytest.raises(CheckpointError, match="one of 2 files that belong together, which must be called"):
        GGUFFile(first.rename(tmp_path / "renamed.gguf"))


def test_a_file_is_known_by_its_first_bytes_and_opened_once(tmp_path: Path) -> None:
    path = File().save(tmp_path, "no-ending")
    (tmp_path / "text.gguf").write_text("GG")
    assert is_gguf(path)
    assert not is_gguf(tmp_path / "text.gguf")
    assert not is_gguf(tmp_path)
    assert not is_gguf(tmp_path / "absent")
    assert open_gguf(path) is open_gguf(path)
    other = open_gguf(path)
    path.write_bytes(bytes(File(tensors=[Tensor("c"), Tensor("d", offset=32)])))
    assert open_gguf(path) is not other
    with pytest.raises(CheckpointError, match="cannot be read"):
        open_gguf(tmp_path / "absent")
    (tmp_path / "empty").touch()
    with pytest.raises(CheckpointError, match="cannot be read"):
        GGUFFile(tmp_path / "empty")
