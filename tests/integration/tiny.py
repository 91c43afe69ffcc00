"""Traces of the tiny random models of tests/unit/models/folders.py, one of each family."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

import regard
from regard import Model
from regard.tracing import Trace
from regard.views import Page
from unit.models.folders import write, write_tokenizer

TEXT = "w3 w5 w7 w1 w9 w12 w4 w4 w6 w11"
TARGET = "w8 w3 w2 w5"  # what the decoder reads, where the encoder reads TEXT
TOKENS = 10


@cache
def model(family: str) -> Model:
    torch.manual_seed(0)  # as for a test that makes it first
    with TemporaryDirectory() as folder:
        write_tokenizer(write(Path(folder), family), 31)
        return regard.load(folder)


@cache
def trace(family: str) -> Trace:
    """Made once for all tests, which change nothing of it."""
    both = len(model(family).network.prefixes) == 2
    traced = model(family).trace(TEXT, target=TARGET) if both else model(family).trace(TEXT)
    assert isinstance(traced, Trace)
    return traced


@cache
def page(family: str) -> Page:
    """Of the trace; the fixture `tiny_page` has it as a file."""
    return trace(family).page()
