"""A BERT of random numbers with a tokenizer of a few words, each axis with a prime size of its own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer as Backend
from tokenizers import models, normalizers, pre_tokenizers, processors

from regard.checkpoints import Source
from regard.models import Loaded
from regard.models.families.bert import BertConfig, build
from regard.text import Tokenizer
from regard.tracing import Trace, trace_text

LAYERS, HEADS, HEAD_DIM, MAX_SEQ_LEN = 2, 3, 5, 19

TEXT = "the fishing bank by the river"
"""Tokens: [CLS] the fish ##ing bank by the river [SEP]."""

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "fish", "##ing", "bank", "by", "river", "money", "."]


def make_tokenizer() -> Tokenizer:
    backend = Backend(models.WordPiece({piece: i for i, piece in enumerate(PIECES)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    backend.add_special_tokens(PIECES[:4])
    return Tokenizer.from_str(backend.to_str())


def make_loaded(name: str = "tiny", *, tokenizer: bool = True, **fields: Any) -> Loaded:
    torch.manual_seed(len(name))
    usual: dict[str, Any] = {
        "vocab_size": 23,
        "d_model": HEADS * HEAD_DIM,
        "num_layers": LAYERS,
        "num_heads": HEADS,
        "d_ff": 11,
        "max_seq_len": MAX_SEQ_LEN,
    }
    return Loaded(
        network=build(BertConfig(**(usual | fields))).eval(),
        tokenizer=make_tokenizer() if tokenizer else None,
        source=Source(name=name, folder=Path("tiny"), kind="folder"),
        family="bert",
        left_out=(),
    )


@pytest.fixture
def load_tiny() -> Callable[..., Loaded]:
    """A function that makes the model; keywords replace fields of its config."""
    return make_loaded


@pytest.fixture
def loaded() -> Loaded:
    """The model."""
    return make_loaded()


@pytest.fixture
def trace(loaded: Loaded) -> Trace:
    """`TEXT`, traced."""
    return trace_text(loaded, TEXT)
