"""The attention of a model as an option of its config: which kernel or mask stands in the softmax's place."""

from abc import ABC
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Self

import torch

from regard.blocks.attentions import LinearAttention, Linformer, Performer
from regard.checkpoints import Fields
from regard.core import DilatedWindow, Kernel, Mask
from regard.core.arguments import Count, Natural, built, check_fields, one_of
from regard.core.errors import CheckpointError, InputError
from regard.models._config import FamilyConfig
from regard.models._init import RandomProjection, Scheme


@dataclass(frozen=True, kw_only=True)
class AttentionChoice(ABC):
    """An attention with its hyperparameters, as config.json keeps it.

    Attributes:
        name: what the option calls it.
        is_causal: whether a decoder can have it.
        has_weights: whether the softmax's weights are there, so that dropout can be of them.
    """

    name: ClassVar[str]
    is_causal: ClassVar[bool] = True
    has_weights: ClassVar[bool] = False

    def __post_init__(self) -> None:
        # Errors name the section: "attention.rank must be ...".
        check_fields(self, "attention")

    def kernel(self, layer: int, max_seq_len: int) -> Kernel | None:
        """The kernel of a layer, its parameters not yet set; None for the softmax."""
        del layer, max_seq_len
        return None

    def mask(self) -> Mask | None:
        """What every layer's mask is conjoined with."""
        return None

    def initial(self) -> Scheme:
        """Its parameters that are not drawn as other matrices are, in the form of `FamilyConfig.initial`."""
        return {}

    def to_hf(self) -> dict[str, Any]:
        """As config.json has it."""
        return {"name": self.name, **asdict(self)}


@dataclass(frozen=True, kw_only=True)
class PerformerChoice(AttentionChoice):
    """See `regard.blocks.attentions.Performer`; layer i draws its features from seed + i."""

    name = "performer"
    features: Count | None = None
    seed: int = 0

    def kernel(self, layer: int, max_seq_len: int) -> Kernel:
        # Each layer draws features of its own.
        return Performer(features=self.features, seed=self.seed + layer)


@dataclass(frozen=True, kw_only=True)
class LinearChoice(AttentionChoice):
    """See `regard.blocks.attentions.LinearAttention`."""

    name = "linear"

    def kernel(self, layer: int, max_seq_len: int) -> Kernel:
        return LinearAttention()


@dataclass(frozen=True, kw_only=True)
class LinformerChoice(AttentionChoice):
    """See `regard.blocks.attentions.Linformer`.

    Args:
        rank: r, mixtures of keys a layer, at most `max_seq_len`; None for a quarter of it, as the paper's 128
            of 512.
        shares: whether keys and values have one matrix.
    """

    name = "linformer"
    # It mixes the keys of the whole text, later ones included.
    is_causal = False
    rank: Count | None = None
    shares: bool = True

    def kernel(self, layer: int, max_seq_len: int) -> Kernel:
        # A quarter of the keys, unless a rank is given.
        rank = max(1, max_seq_len // 4) if self.rank is None else self.rank
        if rank > max_seq_len:
            raise InputError(
                f"attention.rank must be at most max_seq_len = {max_seq_len}, the keys that it mixes; got "
                f"{rank}."
            )
        # (rank, keys): E for keys and F for values, or one for both.
        shape = rank, max_seq_len
        return Linformer(torch.empty(shape), None if self.shares else torch.empty(shape))

    def initial(self) -> Scheme:
        return {"*.attention.kernel.*": RandomProjection()}


@dataclass(frozen=True, kw_only=True)
class WindowChoice(AttentionChoice):
    """See `regard.core.DilatedWindow`; in a decoder the half before a token counts.

    Args:
        width: how many keys a query sees on each side, beside its own position.
        dilation: how far apart they are.
    """

    name = "window"
    has_weights = True
    width: Natural = 64
    dilation: Count = 1

    def mask(self) -> Mask:
        # In a decoder the causal mask takes the right half away.
        return DilatedWindow(left=self.width, right=self.width, dilation=self.dilation)


CHOICES: Mapping[str, type[AttentionChoice]] = {
    kind.name: kind for kind in (PerformerChoice, LinformerChoice, LinearChoice, WindowChoice)
}
"""Every attention that is an option, by its name."""


def attention_named(value: Any, names: tuple[str, ...]) -> AttentionChoice | None:
    """An attention from its name, or from a table of its name and hyperparameters.

    Args:
        value: "performer", {"name": "performer", "features": 64}, or None for the softmax.
        names: those that the family can have.

    Example:
        >>> attention_named({"name": "performer", "features": 64}, tuple(CHOICES))
        PerformerChoice(features=64, seed=0)
    """
    if value is None or isinstance(value, AttentionChoice):
        return value
    # A name alone stands for a table with the defaults.
    table = {"name": value} if isinstance(value, str) else value
    if not isinstance(table, Mapping) or not isinstance(table.get("name"), str):
        raise InputError(f"attention must be a name, or a table with a name; got {value!r}.")
    name = table["name"]
    if name == "softmax":
        return None
    # Known, but not for this family: another message than for a typing error.
    if name in CHOICES and name not in names:
        raise InputError(f"attention must be softmax, {', '.join(names)} for this family; got {name!r}.")
    one_of("attention", name, ("softmax", *names))
    return built("attention", {key: each for key, each in table.items() if key != "name"}, CHOICES[name])


CAUSAL = tuple(name for name, kind in CHOICES.items() if kind.is_causal)
"""Those that a decoder can have."""

_FIELD, _PREFIX = "regard_attention", "regard-"
"""The field of config.json, and how `model_type` then begins: so nothing takes it for a model of softmax."""


def without_prefix(fields: Fields) -> Fields:
    """The fields as those of the family that a model with the option is of."""
    kind = fields.values.get("model_type")
    # Only with the field is the prefix one of ours.
    if _FIELD not in fields.values or not isinstance(kind, str):
        return fields
    return Fields(file=fields.file, values={**fields.values, "model_type": kind.removeprefix(_PREFIX)})


@dataclass(frozen=True, kw_only=True)
class TakesAttention(FamilyConfig):
    """The config of a family with the option.

    Args:
        attention: None for the softmax; or an `AttentionChoice`, its name, or a table, as of
            `attention_named`.

    Raises:
        InputError: as of `attention_named`; dropout of weights where the attention has none.
    """

    ATTENTIONS: ClassVar[tuple[str, ...]] = tuple(CHOICES)

    attention: AttentionChoice | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        choice = attention_named(self.attention, self.ATTENTIONS)
        # The class is frozen; names and tables become objects here.
        object.__setattr__(self, "attention", choice)
        dropout = getattr(self, "attention_dropout_p", 0.0)
        if choice is not None and not choice.has_weights and dropout:
            raise InputError(
                f"attention_dropout_p must be 0 with {choice.name} attention, which drops no weights; got "
                f"{dropout}."
            )

    @classmethod
    def from_hf(cls, fields: Fields, tensors: Collection[str]) -> Self:
        """See `FamilyConfig.from_hf`."""
        # Read before the family's own fields, which do not know it.
        stored = fields.get(_FIELD, dict, None)
        config = super().from_hf(fields, tensors)
        try:
            choice = attention_named(stored, cls.ATTENTIONS)
            return config if choice is None else replace(config, attention=choice)
        except InputError as error:
            raise CheckpointError(f"{fields.file}: the field {_FIELD!r}: {error}") from error

    def to_hf(self) -> dict[str, Any]:
        """See `FamilyConfig.to_hf`."""
        written, choice = super().to_hf(), self.attention
        if choice is None:
            return written
        # Under another model_type: a library that knows softmax only must not load it.
        return written | {_FIELD: choice.to_hf(), "model_type": _PREFIX + self.model_type}

    def kernel_of(self, layer: int) -> Kernel | None:
        """The kernel of a layer; None for the softmax."""
        # Every family with the option has the field.
        most: Any = self.max_seq_len  # type: ignore[attr-defined]
        return None if self.attention is None else self.attention.kernel(layer, most)

    def masked(self, mask: Mask | None) -> Mask | None:
        """A layer's own mask, conjoined with that of the attention."""
        own = None if self.attention is None else self.attention.mask()
        return mask if own is None else own if mask is None else mask & own


def choice_of(config: object) -> AttentionChoice | None:
    """The attention that a config chooses; None for the softmax, and of a family without the option."""
    return config.attention if isinstance(config, TakesAttention) else None
