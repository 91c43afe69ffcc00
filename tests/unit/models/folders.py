"""Model folders of any family, tiny, and wrong in the ways that a test asks for."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.checkpoints import to_hf, write_tensors
from regard.models import FAMILIES, Network
from regard.models.bert import BertConfig
from regard.models.distilbert import DistilBertConfig

CONFIGS = {
    "bert": BertConfig(
        vocab_size=31, d_model=15, num_layers=2, num_heads=3, d_ff=19, max_seq_len=11, num_token_types=4
    ),
    "distilbert": DistilBertConfig(
        vocab_size=31, d_model=15, num_layers=2, num_heads=3, d_ff=19, max_seq_len=11
    ),
}
REMOVED = object()
"""As a field's or a tensor's value: take it out."""


def network(family: str, **changes: Any) -> Network:
    """A network with random weights, in evaluation mode."""
    from dataclasses import replace

    return FAMILIES[family].build(replace(CONFIGS[family], **changes)).eval()


def write(
    folder: Path,
    family: str = "bert",
    *,
    fields: Mapping[str, Any] | None = None,
    tensors: Mapping[str, Any] | None = None,
    dtype: torch.dtype | None = None,
) -> Path:
    """Write a model, with some fields of config.json and some tensors (by their names on disk) changed."""
    made = network(family)
    config = FAMILIES[family].write_config(made.config) | dict(fields or {})
    stored: dict[str, Tensor] = to_hf(made, FAMILIES[family].keys) | dict(tensors or {})
    config = {key: value for key, value in config.items() if value is not REMOVED}
    stored = {name: tensor for name, tensor in stored.items() if tensor is not REMOVED}
    stored = {name: tensor.to(dtype or tensor.dtype) for name, tensor in stored.items()}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    write_tensors(stored, folder / "model.safetensors")
    return folder


def write_tokenizer(folder: Path, size: int) -> None:
    """A tokenizer of so many words, w0, w1 and on."""
    import tokenizers
    from tokenizers import models, pre_tokenizers

    backend = tokenizers.Tokenizer(models.WordLevel({f"w{i}": i for i in range(size)}, unk_token="w0"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.save(str(folder / "tokenizer.json"))


def ids(*rows: list[int]) -> Tensor:
    return torch.tensor(rows)
