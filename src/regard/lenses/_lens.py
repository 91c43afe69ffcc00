"""From a transformers model and its tokenizer to what every capability of regard is a function of."""

from dataclasses import fields
from pathlib import Path
from typing import Any

from regard.checkpoints import Source
from regard.core.errors import CheckpointError, InputError
from regard.lenses._network import LensNetwork
from regard.models import Loaded
from regard.text import SpecialIds, Tokenizer


def lens(hf_model: Any, tokenizer: Any = None, *, name: str | None = None) -> Loaded:
    """Look at any transformers model that calls attention through transformers' registry.

    `regard.lens` says what it takes, and what it refuses.

    Example:
        >>> import torch
        >>> from transformers import GPT2Config, GPT2Model
        >>> gpt2 = GPT2Model(GPT2Config(vocab_size=31, n_embd=6, n_layer=2, n_head=3, n_positions=17)).eval()
        >>> network = lens(gpt2).network
        >>> network.depth("decoder"), network.parity.output
        (2, 0.0)
        >>> seen = []
        >>> from regard.core import Taps
        >>> taps = Taps({"layers.1.attention.weights": seen.append})
        >>> network(torch.tensor([[3, 1, 4]]), taps=taps).last_hidden_state.shape, seen[0].shape
        (torch.Size([1, 3, 6]), torch.Size([1, 3, 3, 3]))
    """
    network = LensNetwork(hf_model)
    shown = name or getattr(hf_model, "name_or_path", "") or type(hf_model).__name__
    read = _read_tokenizer(tokenizer)
    try:
        read = None if read is None else read.within(network.config.vocab_size)
    except CheckpointError as error:  # of an argument here, not of a file
        raise InputError(f"tokenizer must belong to hf_model: {error}") from error
    return Loaded(
        network=network,
        tokenizer=read,
        source=Source(name=shown, folder=Path(shown), kind="transformers"),
        family=str(hf_model.config.model_type),
        left_out=(),
    )


def _read_tokenizer(tokenizer: Any) -> Tokenizer | None:
    if tokenizer is None or isinstance(tokenizer, Tokenizer):
        return tokenizer
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not hasattr(backend, "to_str"):
        raise InputError(
            "tokenizer must be a fast one, from transformers or tokenizers; got "
            f"{type(tokenizer).__name__}. Load it with AutoTokenizer.from_pretrained(..., use_fast=True)."
        )
    named = {each.name: getattr(tokenizer, f"{each.name}_token", None) for each in fields(SpecialIds)}
    known = {role: str(piece) for role, piece in named.items() if piece in backend.get_vocab()}
    return Tokenizer.from_str(backend.to_str(), roles=known)
