"""Models on disk: a folder, and a repository in the cache."""

from pathlib import Path

import torch
from torch import Tensor

from regard.checkpoints import Fields, TensorReader, read_tensors, write_tensors

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def config(**values: object) -> Fields:
    return Fields(file=Path("config.json"), values=values)


def on_disk(folder: Path, tensors: dict[str, Tensor]) -> TensorReader:
    write_tensors(tensors, folder / "model.safetensors")
    return read_tensors(folder)


def make_model(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "bert"}')
    write_tensors({"table": torch.ones(2, 2)}, folder / "model.safetensors")
    return folder


def cache_model(hf_home: Path, name: str) -> Path:
    """A repository in the cache, as huggingface_hub lays it out."""
    repository = hf_home / "hub" / f"models--{name.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    return make_model(repository / "snapshots" / COMMIT)
