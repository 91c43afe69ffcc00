"""A tokenizer of words, tiny networks, and the tasks over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, processors

from regard.models import Transformer, family_of, new_network
from regard.text import Tokenizer
from regard.training._batch import Batch
from regard.training.tasks import (
    Distillation,
    MaskedTokens,
    NextToken,
    ReplacedTokens,
    Task,
    TextLabels,
    Translation,
    WordTags,
)
from regard.training.tasks._distil import student_of
from regard.training.tasks._electra import generator_of

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "a",
    "river",
    "bank",
    "of",
    "money",
    "sat",
    "by",
    "the",
    "loan",
    "fish",
    "##ing",
    "##s",
]
ROLES = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
SIZES: dict[str, Any] = {"d_model": 12, "num_layers": 2, "num_heads": 3, "d_ff": 17}
SMALLEST = SIZES | {"num_layers": 1}
"""For whole runs, half of whose time goes into writing each tensor's file of a checkpoint."""
BOTH = {"num_decoder_layers": 2, "num_decoder_heads": 3, "d_decoder_ff": 17, "decoder_vocab_size": len(WORDS)}
TEXTS = ["the river bank", "a loan of the bank", "fishing by the river", "money sat by the banks of a river"]
PAIRS = list(zip(TEXTS, TEXTS[1:] + TEXTS[:1], strict=True))
TAGS = ["B-PLACE", "I-PLACE", "O"]
LABELS = ["water", "money", "water", "both"]
TAGGED = [(text.split(), (TAGS * 3)[: len(text.split())]) for text in TEXTS]


class Killed(KeyboardInterrupt):
    """Raised in a run to stop it, as by Ctrl-C."""


def kill_at(step: int) -> Callable[[Mapping[str, Any]], None]:
    """To be told the reports of a run, which it stops at a step."""

    def kill(report: Mapping[str, Any]) -> None:
        if report["step"] == step:
            raise Killed

    return kill


def tokenizer(*, ends: bool = True) -> Tokenizer:
    """WordPiece over the words, framed as BERT frames a text, or not framed."""
    backend = Backend(models.WordPiece({word: id for id, word in enumerate(WORDS)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    roles = dict(ROLES)
    if ends:
        backend.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
        )
        backend.add_special_tokens(list(ROLES.values()))
    return Tokenizer.from_str(backend.to_str(), roles=roles)


def network(family: str, **more: Any) -> Transformer:
    """A tiny network in training mode, without dropout."""
    kind = family_of(family).config
    known = set(kind.__dataclass_fields__)
    off = {name: 0.0 for name in known if name.endswith("dropout_p")}
    given = SIZES | BOTH | off | {"model_type": family, "vocab_size": len(WORDS), "max_seq_len": 31} | more
    given |= {"pad_token_id": 0, "eos_token_id": 3, "decoder_start_token_id": 0}
    config = kind.of_sizes(**{name: value for name, value in given.items() if name in known})
    return new_network(config, seed=1)


def tasks() -> dict[str, Task]:
    """A task of each objective."""
    sorts = {"head": "sequence", "labels": ("both", "money", "water"), "num_labels": 3}
    bert, gpt2 = network("bert", head="masked-lm", num_layers=3), network("gpt2")
    tags = {"head": "token", "labels": tuple(TAGS), "num_labels": 3}
    return {
        "clm": NextToken(network("gpt2"), tokenizer()),
        "mlm": MaskedTokens(network("bert", head="masked-lm"), tokenizer(), masked=0.4),
        "seq2seq": Translation(network("marian"), tokenizer()),
        "classify": TextLabels(network("gpt2", **sorts), tokenizer()),
        "pairs": TextLabels(network("bert", **sorts), tokenizer(), pairs=True),
        "tag": WordTags(network("bert", **tags), tokenizer()),
        "electra": electra(),
        "distil": Distillation(student_of(bert), tokenizer(), bert),
        "distil clm": Distillation(student_of(gpt2), tokenizer(), gpt2),
    }


def electra() -> ReplacedTokens:
    """A discriminator of three heads, with a generator of one."""
    discriminator = network("electra", head="replaced", d_embedding=8)
    config: Any = discriminator.config
    generator = new_network(generator_of(config, 0.3), seed=2)
    return ReplacedTokens(discriminator, tokenizer(), generator, masked=0.4)


def rows(task: Task) -> list[list[dict[str, Any]]]:
    """The examples of the texts, one a row."""
    return [[{name: np.array(ids) for name, ids in each.items()}] for each in task.encode(data(task))]


def data(task: Task) -> list[Any]:
    """The rows of data that an objective reads."""
    if isinstance(task, WordTags):
        return TAGGED
    texts = (
        PAIRS
        if isinstance(task, Translation) or getattr(task, "pairs", False)
        else [(each,) for each in TEXTS]
    )
    if isinstance(task, TextLabels):
        return [(*each, label) for each, label in zip(texts, LABELS, strict=True)]
    return texts


def batch(task: Task, chosen: Any = None, *, seed: int = 0) -> Batch:
    """A batch of rows, by default of each text in its own."""
    picked, draw = rows(task) if chosen is None else chosen, np.random.default_rng(seed)
    return task.batch(picked, [[draw] * len(row) for row in picked])


def loss(task: Task, made: Batch) -> torch.Tensor:
    """The loss of a step of one micro-batch."""
    sums = task(made)
    terms = [weight * sums[name] / made.counts[name] for name, weight in task.weights.items()]
    return torch.stack(terms).sum()
