"""Tiny stacks with the tokenizer of a few words, and what they read."""

from pathlib import Path

from regard.checkpoints import Source
from regard.models import Loaded, Transformer
from unit.tracing.conftest import make_tokenizer

TEXT, TARGET = "the fishing bank by the river", "money by the river"
SOURCE_TOKENS = ["[CLS]", "the", "fish", "##ing", "bank", "by", "the", "river", "[SEP]"]
TARGET_TOKENS = ["[CLS]", "money", "by", "the", "river", "[SEP]"]


def loaded(network: Transformer, *, tokenizer: bool = True) -> Loaded:
    source = Source(name="tiny", folder=Path("tiny"), kind="folder")
    made = make_tokenizer() if tokenizer else None
    return Loaded(network=network, tokenizer=made, source=source, family="none", left_out=())
