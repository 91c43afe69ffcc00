"""Tiny stacks with the tokenizer of a few words, what they read, and models of them in double precision."""

from typing import Any

import torch

import regard
from regard.models import Loaded, Transformer
from unit.models import tiny
from unit.tracing.conftest import make_tokenizer

TEXT, OTHER, TARGET = "the fishing bank by the river", "the money bank by the river", "money by the river"
"""A text, the same with one piece in place of two, and a target."""

SOURCE_TOKENS = ["[CLS]", "the", "fish", "##ing", "bank", "by", "the", "river", "[SEP]"]
TARGET_TOKENS = ["[CLS]", "money", "by", "the", "river", "[SEP]"]


def loaded(network: Transformer, *, tokenizer: bool = True) -> Loaded:
    """The network with or without that tokenizer."""
    return tiny.loaded(network, tokenizer=make_tokenizer() if tokenizer else None)


def model_of(network: Transformer, *, start_id: int | None = 2) -> regard.Model:
    """A network with that tokenizer."""
    network.start_id = start_id
    return regard.Model(loaded(network))


def make(shape: str, **kwargs: Any) -> regard.Model:
    """The model of a shape: "encoder", "decoder" (grouped heads, rotary) or "both"."""
    torch.manual_seed(3)
    return model_of({"encoder": tiny.encoder, "decoder": tiny.decoder, "both": tiny.both}[shape](**kwargs))


def trace_of(model: regard.Model, text: str = TEXT) -> regard.Trace:
    """A trace of a text, with the target where there is a decoder beside an encoder."""
    if len(model.network.prefixes) == 1:
        return model.trace(text)
    return model.trace(text, target=TARGET)
