"""Traces of the tiny random models of tests/unit/models/folders.py, one of each family."""

from pathlib import Path

import regard
from regard.tracing import Trace
from unit.models.folders import write, write_tokenizer

TEXT = "w3 w5 w7 w1 w9 w12 w4 w4 w6 w11"
TARGET = "w8 w3 w2 w5"  # what the decoder reads, where the encoder reads TEXT
TOKENS = 10


def trace(folder: Path, family: str) -> Trace:
    write_tokenizer(write(folder, family), 31)
    model = regard.load(str(folder))
    both = len(model.network.prefixes) == 2
    found = model.trace(TEXT, target=TARGET) if both else model.trace(TEXT)
    assert isinstance(found, Trace)
    return found
