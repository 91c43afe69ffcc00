"""Tiny models in double precision to edit: an encoder, a decoder, both, each as a `regard.Model`."""

from pathlib import Path
from typing import Any

import torch

import regard
from regard.checkpoints import Source
from regard.models import Loaded, Transformer
from unit.models import tiny
from unit.tracing.conftest import make_tokenizer

TEXT, OTHER, TARGET = "the fishing bank by the river", "the money bank by the river", "money by the river"
"""[CLS] the fish ##ing bank by the river [SEP], the same with one piece in place of two, and a target."""


def model_of(network: Transformer, *, start_id: int | None = 2) -> regard.Model:
    """A network with the tokenizer of a few words."""
    network.start_id = start_id
    source = Source(name="tiny", folder=Path("tiny"), kind="folder")
    return regard.Model(
        Loaded(network=network, tokenizer=make_tokenizer(), source=source, family="none", left_out=())
    )


def make(shape: str, **kwargs: Any) -> regard.Model:
    """The model of a shape: "encoder", "decoder" (grouped heads, rotary) or "both"."""
    torch.manual_seed(3)
    return model_of({"encoder": tiny.encoder, "decoder": tiny.decoder, "both": tiny.both}[shape](**kwargs))


def trace_of(model: regard.Model, text: str = TEXT) -> regard.Trace:
    """A trace of a text, with the target where there is a decoder beside an encoder."""
    if len(model.network.prefixes) == 1:
        return model.trace(text)
    return model.trace(text, target=TARGET)
