"""One family under test: how transformers builds it tiny, saves it, and what it can be run on."""

import functools
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import safe_open

from parity.families_inputs import Batch, InputsOf, Shape
from parity.families_oracle import GAIN, build

VOCAB, MAX_LEN, TYPES, LABELS = 53, 23, 5, 11
PAD = 7
"""The id that pads, where the configuration has a say."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FamilyUnderTest:
    """How transformers builds a family tiny, and what the tests have to know of it.

    Args:
        name: `model_type`.
        config: its configuration.
        fields: every field that changes a number, by its name on disk, different from its default.
        classes: by what they are for: "base", the heads "masked-lm", "language-model", "sequence" and
            "token", and whatever else a checkpoint can be.
        shape: the stacks of "base"; the class "encoder" is one alone.
        id: tells variations of one family apart; by default the name.
        activation: the field that names the activation; None where there is none.
        max_len: the longest text, None for no limit; by default `max_position_embeddings`, or 23.
        first_position: the number of the first position.
        features: what negative controls have to hold on to: "rotary", "gqa", "window", "relative-bias",
            "embedding-scale", "softcap".
        head_features: likewise of the language model's head: "scale", "softcap", "bias".
        packs: whether several texts in one row can be kept apart.
        untie: whether the head is untied by hand, where no field says so.
        gain: how much linear layers stretch; less where scores are not scaled.
        can_untie: whether `tie_word_embeddings` says if the head has a matrix of its own.
        left_out: those of `classes` whose head regard leaves out.
        unwritten: fields that regard need not write back, for another says the same.
    """

    name: str
    config: type
    fields: Mapping[str, Any]
    classes: Mapping[str, type]
    shape: Shape = "encoder"
    id: str = ""
    activation: str | None = None
    max_len: int | None = MAX_LEN
    first_position: int = 0
    features: frozenset[str] = frozenset()
    head_features: frozenset[str] = frozenset()
    packs: bool = True
    untie: bool = False
    gain: float = GAIN
    can_untie: bool = True
    left_out: tuple[str, ...] = ()
    unwritten: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.id or self.name

    def make_config(self, **fields: Any) -> Any:
        """The configuration, some fields otherwise."""
        return self.config(**{**self.fields, **fields})

    def build(self, label: str, *, dtype: torch.dtype = torch.float32, seed: int = 0, **fields: Any) -> Any:
        """transformers' model with random weights."""
        untie = self.untie and label == "language-model"
        labels = {"num_labels": LABELS} if label in ("sequence", "token") else {}
        config = self.make_config(**labels, **fields)
        return build(self.classes[label], config, dtype=dtype, seed=seed, gain=self.gain, untie=untie)

    def shape_of(self, label: str) -> Shape:
        """The stacks of one of the classes."""
        return "encoder" if label == "encoder" else self.shape

    @functools.cache  # noqa: B019 - the entries stay to the end
    def inputs(self, label: str) -> InputsOf:
        """What one of the classes is run on."""
        config, shape = self.make_config(), self.shape_of(label)
        takes_types = "token_type_ids" in inspect.signature(self.classes[label].forward).parameters
        types = getattr(config, "type_vocab_size", 0) if takes_types else 0
        return InputsOf(
            shape=shape,
            vocab_size=config.vocab_size,
            pad_id=config.pad_token_id,
            eos_id=getattr(config, "eos_token_id", None),
            max_len=self.max_len,
            num_token_types=0 if shape == "decoder" else types,
            first_position=self.first_position,
            takes_positions="position_ids" in inspect.signature(self.classes[label].forward).parameters,
            packs=self.packs and shape != "encoder-decoder",
        )


def variant(family: FamilyUnderTest, *, id: str, **changes: Any) -> FamilyUnderTest:
    """The same family otherwise: what is no argument of `FamilyUnderTest` is a field of the configuration.

    Unless `classes` are given, classifiers are left to the family itself.
    """
    known = inspect.signature(FamilyUnderTest).parameters
    fields = {**family.fields, **{name: value for name, value in changes.items() if name not in known}}
    classes = {what: cls for what, cls in family.classes.items() if what not in ("sequence", "token")}
    ours = {name: value for name, value in changes.items() if name in known}
    return replace(family, **{"id": id, "fields": fields, "classes": classes, **ours})


def heads(stem: str, *, lm: str = "MaskedLM") -> dict[str, type]:
    """A family's classes by what they are for, as far as transformers has them."""
    label = "masked-lm" if lm == "MaskedLM" else "language-model"
    endings = {
        "base": "Model",
        label: f"For{lm}",
        "sequence": "ForSequenceClassification",
        "token": "ForTokenClassification",
    }
    found = {what: getattr(transformers, stem + end, None) for what, end in endings.items()}
    return {what: cls for what, cls in found.items() if cls is not None}


@dataclass(frozen=True, kw_only=True, eq=False)
class Saved:
    """A model of transformers, its stacks, the folder that it wrote, and the names of the tensors there.

    Also what it gave for each batch so far: nothing changes the model.
    """

    model: Any
    shape: Shape
    folder: Path
    stored: frozenset[str]
    runs: dict[Batch, Any] = field(default_factory=dict, init=False)


def save(model: Any, shape: Shape, folder: Path, **kwargs: Any) -> Saved:
    """Write a model as transformers does."""
    model.save_pretrained(folder, **kwargs)
    names = set()
    for file in folder.glob("*.safetensors"):
        with safe_open(file, "pt") as handle:
            names |= set(handle.keys())
    return Saved(model=model, shape=shape, folder=folder, stored=frozenset(names))
