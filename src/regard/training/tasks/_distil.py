"""Distillation: a small network learns what a large one says."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Self

import torch
from torch import Tensor

from regard.core.errors import InputError
from regard.core.tensors import cosine
from regard.models import Transformer, new_network
from regard.text import Tokenizer
from regard.training._batch import Batch, Generators, Row
from regard.training._losses import cross_entropy, distillation
from regard.training._networks import check_length, dropout_of, network_of, stored_network
from regard.training.tasks._clm import NextToken
from regard.training.tasks._mlm import MaskedTokens
from regard.training.tasks._task import Task, TaskInputs, Values, run

_LAYER = re.compile(r"(.*\blayers\.)(\d+)(\..*)")


class Distillation(Task):
    """Say what a teacher says, of texts masked as for mlm, or of each next token if the teacher is a decoder.

        loss = distillation x sum over tokens of T^2 KL(softmax(teacher / T) || softmax(student / T))
               + language x (the loss of mlm or clm)
               + cosine x sum over tokens of 1 - cos(student's last hidden state, teacher's)

    Each sum is divided by its number of tokens. A new student has every second layer of the teacher, and its
    embeddings and head. The teacher is not trained, and stands in no checkpoint of the run.

    Args:
        network: the student.
        tokenizer: the teacher's.
        master: the teacher.
        teacher: its name: a folder, or of the hub.
        temperature: T.
        distillation, language, cosine: the weights of the three terms.

    Source: Sanh et al. 2019, arXiv 1910.01108, sections 2 and 3; the temperature of 2 and the weights 5, 2
    and 1 are those of the command in their code's README.
    """

    family = "bert"
    head = "masked-lm"
    tokenizer_kind = "wordpiece"

    def __init__(
        self,
        network: Transformer,
        tokenizer: Tokenizer,
        master: Transformer,
        *,
        teacher: str = "",
        temperature: float = 2.0,
        distillation: float = 5.0,
        language: float = 2.0,
        cosine: float = 1.0,
    ) -> None:
        super().__init__(network, tokenizer)
        del teacher  # `from_inputs` has read it
        ours, theirs = ((each.config.vocab_size, each.config.d_model) for each in (network, master))
        if ours != theirs or network.prefixes != master.prefixes:
            raise InputError(
                "model must have the stacks of the teacher, and its sizes of the vocabulary and d_model, "
                f"{theirs}; got {ours}."
            )
        # An encoder learns by masked tokens, a decoder by the next one.
        kind = MaskedTokens if "encoder" in network.prefixes else NextToken
        # Tuples hide modules from checkpoints and optimisers.
        self._teacher, self._like = (master.eval().requires_grad_(False),), (kind(network, tokenizer),)
        self.temperature = temperature
        self._weights = {"distillation": distillation, "language": language, "cosine": cosine}
        # Texts are encoded and cut as by the objective that makes the batches.
        for name in ("columns", "sized", "beyond", "forms", "longer"):
            setattr(self, name, getattr(kind, name))

    @classmethod
    def origin(cls, start: str | None, options: Mapping[str, Any]) -> str | None:
        if not options.get("teacher"):
            raise InputError("task.teacher must name the model to learn from, such as a folder.")
        return str(options["teacher"])

    @classmethod
    def from_inputs(cls, inputs: TaskInputs, options: Mapping[str, Any]) -> Self:
        spec, name = inputs.spec, cls.origin(None, options)
        assert name is not None
        master = stored_network(name)
        if len(master.prefixes) != 1 or not master.has_vocabulary_head:
            raise InputError(
                "task.teacher must be an encoder or a decoder with a head over the vocabulary, such as one "
                f"for masked tokens; {name} is not."
            )
        # The teacher reads the same rows.
        check_length(master, spec.length, name)
        # A student that exists goes on; else it begins as half of the teacher.
        if spec.start is not None:
            config: Any = master.config
            student = network_of(spec, inputs.tokenizer, head=config.head)
            return cls(student, inputs.tokenizer, master, **options)
        dropout = dropout_of(master.config, spec.sizes, name)
        return cls(student_of(master, **dropout), inputs.tokenizer, master, **options)

    @property
    def teacher(self) -> Transformer:
        """The network that is learned from."""
        return self._teacher[0]

    @property
    def like(self) -> Task:
        """The objective that makes the batches: mlm or clm."""
        return self._like[0]

    @property
    def weights(self) -> Mapping[str, float]:
        return self._weights

    def encode(self, rows: Sequence[Values]) -> Iterator[dict[str, Sequence[int]]]:
        return self.like.encode(rows)

    def split(self, example: Mapping[str, Sequence[int]], length: int) -> Iterator[dict[str, Sequence[int]]]:
        return self.like.split(example, length)

    def cut(self, example: Mapping[str, Sequence[int]], length: int) -> dict[str, Sequence[int]]:
        return self.like.cut(example, length)

    def batch(self, rows: Sequence[Row], draws: Generators) -> Batch:
        made = self.like.batch(rows, draws)
        # Two terms are over all tokens, one over those with a label.
        tokens = int(made.source.is_token.sum())
        return replace(
            made, counts={"distillation": tokens, "language": made.counts["loss"], "cosine": tokens}
        )

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        known = batch.source.is_token & (batch.examples > 0)  # none for a process without a batch
        states, logits = [], []
        for network in (self.network, self.teacher.to(batch.source.ids.device)):
            with torch.set_grad_enabled(network is self.network and torch.is_grad_enabled()):
                state = run(network, batch, logits=False).last_hidden_state[known]
                read = network.readout(state[None], normed=True)
            assert read is not None
            states.append(state)
            logits.append(read[0])
        labels = batch.labels[known]
        sums = {
            "distillation": distillation(*logits, temperature=self.temperature),
            "language": cross_entropy(logits[0], labels),
            "cosine": (1.0 - cosine(states[0], states[1])).sum(),
        }
        if not self.training:
            sums["right"] = (logits[0].argmax(dim=-1) == labels).sum()
        return sums

    def scores(self, sums: Mapping[str, Any]) -> dict[str, float]:
        """The loss and its terms, and what the student is worth as a language model."""
        # Each term by its own number of targets.
        terms = {name: sums[name] / max(1.0, sums[f"targets.{name}"]) for name in self.weights}
        model = super().scores(
            {"loss": sums["language"], "targets.loss": sums["targets.language"], "right": sums["right"]}
        )
        loss = sum(weight * terms[name] for name, weight in self.weights.items())
        return {"loss": loss, **terms, "perplexity": model["perplexity"], "accuracy": model["accuracy"]}


def student_of(teacher: Transformer, **changes: Any) -> Transformer:
    """A network of every second layer of another, with its embeddings and its head."""
    config: Any = teacher.config
    # Sanh et al. 2019, section 3: one layer out of two.
    depth = config.num_layers
    a_layer = [each.name for each in fields(config) if each.name != "labels"]
    lists = {name: getattr(config, name) for name in a_layer if isinstance(getattr(config, name), tuple)}
    # Fields with an entry a layer, such as kinds of attention, lose every second one too.
    halved = {name: listed[::2] for name, listed in lists.items() if len(listed) == depth}
    student = new_network(replace(config, num_layers=(depth + 1) // 2, **halved, **changes))
    state = {}
    for name, value in teacher.state_dict().items():
        match = _LAYER.fullmatch(name)
        if match is None:
            state[name] = value
        # Layers 0, 2, 4, .. become 0, 1, 2, ..
        elif int(match[2]) % 2 == 0:
            state[f"{match[1]}{int(match[2]) // 2}{match[3]}"] = value
    student.load_state_dict({name: state[name] for name in student.state_dict()})
    return student
