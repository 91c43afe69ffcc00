"""The shape of GPT-2 small, with random numbers: one in regard, one in transformers, the same weights."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

VOCAB = 50257


def token_ids(tokens: int) -> Tensor:
    """(1, tokens), random and always the same."""
    return torch.randint(0, VOCAB, (1, tokens), generator=torch.Generator().manual_seed(0))


def transformers_model(tokens: int, attention: str = "sdpa") -> Any:
    """transformers' GPT2Model, without the head."""
    from transformers import GPT2Config, GPT2Model

    torch.manual_seed(0)
    config = GPT2Config(n_positions=max(1024, tokens))
    return GPT2Model._from_config(config, attn_implementation=attention).eval()


def regard_model(tokens: int) -> Any:
    """regard's own network with the same weights, as a `regard.Model`."""
    import tempfile

    from regard import Model
    from regard.checkpoints import Source, load_into, read_tensors, write_tensors
    from regard.models import Loaded
    from regard.models.families.gpt2 import GPT2_KEYS, Gpt2Config, build

    network = build(Gpt2Config(max_seq_len=max(1024, tokens), head=None))
    with tempfile.TemporaryDirectory() as folder:
        write_tensors(transformers_model(tokens).state_dict(), Path(folder) / "model.safetensors")
        load_into(network, read_tensors(folder), GPT2_KEYS)
    source = Source(name="gpt2-small-random", folder=Path("."), kind="folder")
    return Model(Loaded(network=network.eval(), tokenizer=None, source=source, family="gpt2", left_out=()))
