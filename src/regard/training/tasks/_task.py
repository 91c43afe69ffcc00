"""The objective as a class: texts become examples, examples batches, batches losses, and sums scores."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Self, get_type_hints

from torch import Tensor, nn

from regard.checkpoints import HeadKind
from regard.core import Taps
from regard.core.errors import InputError
from regard.data import Unit
from regard.models import Network, Output, Transformer
from regard.text import Tokenizer, TokenizerKind
from regard.training._batch import Batch, Generators, Row
from regard.training._networks import NetworkSpec, network_of
from regard.training._settings import FormName

Values = Sequence[Any]
"""One row of data: its text, then what the objective needs besides."""


@dataclass(frozen=True, kw_only=True)
class TaskInputs:
    """The parts that a task is made from.

    Args:
        spec: which network.
        tokenizer: the run's.
        rows: the rows of data that it learns from, each with its place.
        folder: of the run, for what must be the same when it goes on.
    """

    spec: NetworkSpec
    tokenizer: Tokenizer
    rows: Iterable[tuple[Values, str]]
    folder: Path


class Task(nn.Module, ABC):
    """An objective, with the network that it trains: its `forward` is the loss.

    Attributes:
        reads: the fields of a row of data: "text", then "target" or "label".
        named: the columns of files for these fields, where they have other names.
        has_tags: whether plain text holds a word and its tag a line.
        columns: the columns of an example.
        sized: the columns that a row of a batch holds.
        beyond: by how many tokens an example may be longer than what the network reads of it.
        family: of a new network.
        sizes: fields of its config, where the settings name no other family.
        head: what its head is for.
        tokenizer_kind: what is trained where no tokenizer is given.
        marks: its special tokens, as of `train_tokenizer`.
        unit: what one text is, of plain text, by default.
        forms: how examples may become rows of a batch; the first is the default.
        longer: what becomes of a text that is too long, by default.
        schedule: of the learning rate.
        best: the score that decides which state is the best.
        samples: how many rows of the set to score on the network answers itself for a score, by `written`.
        signatures: how the scores of `written` are computed, by their names, in the notation that papers
            quote.

    Args:
        network: what is trained.
        tokenizer: its tokenizer.
    """

    reads: ClassVar[tuple[str, ...]] = ("text",)
    named: ClassVar[Mapping[str, str]] = {}
    has_tags: ClassVar[bool] = False
    columns: tuple[str, ...] = ("tokens",)
    sized: tuple[str, ...] = ("tokens",)
    beyond: int = 0
    family: ClassVar[str]
    sizes: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    head: ClassVar[HeadKind]
    tokenizer_kind: ClassVar[TokenizerKind]
    marks: ClassVar[str | None] = None
    unit: ClassVar[Unit] = "line"
    forms: tuple[FormName, ...] = ("rows",)
    longer: str = "cut"
    schedule: ClassVar[str] = "cosine"
    best: str = "loss"
    samples: int = 0
    signatures: Mapping[str, str] = MappingProxyType({})

    def __init__(self, network: Transformer, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.network = network
        self.tokenizer = tokenizer
        special = tokenizer.special_ids
        # Without padding of its own any id will do: it is masked. 0 is one that every network has.
        self.pad_id = next((each for each in (special.pad, special.eos) if each is not None), 0)

    @classmethod
    def from_inputs(cls, inputs: TaskInputs, options: Mapping[str, Any]) -> Self:
        """The task with its network, new or from a checkpoint.

        Args:
            inputs: what it is made of.
            options: the settings under `task`.
        """
        return cls(network_of(inputs.spec, inputs.tokenizer, head=cls.head), inputs.tokenizer, **options)

    @classmethod
    def origin(cls, start: str | None, options: Mapping[str, Any]) -> str | None:
        """The checkpoint that gives the family and the tokenizer; None for none.

        Args:
            start: the one to train on from.
            options: the settings under `task`.
        """
        del options
        return start

    @classmethod
    def options(cls) -> dict[str, Any]:
        """The settings under `task` that it knows, each with its type."""
        # Keyword-only arguments of `__init__` are the settings under `task`.
        parameters, kinds = signature(cls).parameters.values(), get_type_hints(cls.__init__)
        return {each.name: kinds[each.name] for each in parameters if each.kind is each.KEYWORD_ONLY}

    @classmethod
    def fields(cls, options: Mapping[str, Any]) -> Sequence[str]:
        """`reads`, for an objective whose options decide it."""
        del options
        return cls.reads

    @classmethod
    def texts_of(cls, values: Values) -> Iterable[str]:
        """The texts of a row that a tokenizer learns from."""
        return values

    def refusal(self, values: Values) -> str | None:
        """Why a row of data cannot be used, in words; None for one that can."""
        strange = next((value for value in values if not isinstance(value, str)), None)
        return None if strange is None else f"must hold a text; got {type(strange).__name__}"

    @classmethod
    def predicted(cls, values: Values) -> str:
        """The text whose likelihood the loss is, for bits a byte; "" where it is no text's."""
        return ""

    def is_bigger_better(self, score: str) -> bool:
        """Whether a bigger value of a score is better."""
        return score not in ("loss", "perplexity", "bits_per_byte")

    @property
    def weights(self) -> Mapping[str, float]:
        """The terms of the loss with their weights: each is a sum over targets, divided by their number."""
        return {"loss": 1.0}

    @property
    def saved(self) -> Transformer:
        """The network that is written."""
        return self.network

    def written(self, network: Transformer, samples: Sequence[Values]) -> dict[str, float]:
        """Scores of what the network writes itself.

        Args:
            network: the one of the task, whole.
            samples: rows of the set to score on.
        """
        del network, samples
        return {}

    @property
    def beside(self) -> Mapping[str, Transformer]:
        """Other networks that are written, by their folders in that of the model."""
        return {}

    @abstractmethod
    def encode(self, rows: Sequence[Values]) -> Iterator[dict[str, Sequence[int]]]:
        """The examples of some rows of data: one each, in order, whatever its length."""

    def split(self, example: Mapping[str, Sequence[int]], length: int) -> Iterator[dict[str, Sequence[int]]]:
        """An example that is too long as several, where the objective can read parts of texts."""
        raise InputError(
            f"data.longer must be cut, drop or refuse: {type(self).__name__} cannot split a text."
        )

    @abstractmethod
    def cut(self, example: Mapping[str, Sequence[int]], length: int) -> dict[str, Sequence[int]]:
        """An example that is too long, cut to the length."""

    @abstractmethod
    def batch(self, rows: Sequence[Row], draws: Generators) -> Batch:
        """A micro-batch of rows; all that is random in it comes from `draws`."""

    @abstractmethod
    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Sums over the targets of a batch: of each term of the loss, and further counts for the scores."""

    def scores(self, sums: Mapping[str, Any]) -> dict[str, float]:
        """Scores from the sums of `forward` and of `Batch.counts` over a set; "loss" is one of them.

        Those of who predicts tokens: the loss in nats a target, perplexity, the share guessed right; where
        bytes are known, bits a byte.

            perplexity    = exp(loss)
            bits a byte   = (sum of the losses) / ln 2 / bytes of the texts in UTF-8

        Args:
            sums: numbers, and lists of them where `forward` gives more than one.
        """
        # A set without targets has a loss of 0.
        targets = max(1.0, sums["targets.loss"])
        loss = sums["loss"] / targets
        # exp(710) overflows.
        scores = {"loss": loss, "perplexity": math.exp(min(loss, 700.0)), "accuracy": sums["right"] / targets}
        if sums.get("bytes"):
            # Nats to bits, by the bytes of the texts: comparable across tokenizers.
            scores["bits_per_byte"] = sums["loss"] / math.log(2) / sums["bytes"]
        return scores

    def details(self, sums: Mapping[str, Any]) -> dict[str, Any]:
        """From the same sums, results that are more than a number, as JSON has them."""
        del sums
        return {}

    def state(self, batch: Batch, network: Network | None = None) -> Output:
        """Run the network on a batch, without the head's logits."""
        return run(self.network if network is None else network, batch, logits=False)


def run(network: Network, batch: Batch, *, logits: bool = True, taps: Taps | None = None) -> Output:
    """Run a network on what a batch holds.

    Raises:
        InputError: several texts share a row, and its attention cannot keep them apart.
    """
    source, target = batch.source, batch.target
    more: dict[str, Any] = {}
    if target is not None:
        more = {
            "decoder_token_ids": target.ids,
            "decoder_mask": target.mask,
            "decoder_positions": target.positions,
        }
    try:
        # Positions and segments only where a row holds several texts.
        output: Output = network(
            source.ids,
            mask=source.mask,
            token_types=source.types,
            positions=source.positions,
            logits=logits,
            taps=taps,
            **more,
        )
    except InputError as error:
        # The network's own words about masks mean packed rows here.
        if source.segments is None or not str(error).startswith("mask must"):
            raise
        raise InputError(f"batch.form must not be packed for this model: {error}") from error
    return output


def precision_recall_f1(counts: Sequence[float]) -> dict[str, float]:
    """Precision, recall and F1 of what is found in texts; a span is right with its kind, beginning and end.

    Source: Tjong Kim Sang and De Meulder 2003, arXiv cs/0306050, section 2.4.
    """
    # Spans in the texts, spans that were said, and those that are both.
    there, predicted, right = counts
    return {
        "precision": right / predicted if predicted else 0.0,
        "recall": right / there if there else 0.0,
        "f1": 2.0 * right / (there + predicted) if there + predicted else 0.0,
    }
