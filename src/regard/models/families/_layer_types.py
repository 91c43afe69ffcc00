"""Which layers of a checkpoint attend to everything, and which to a window only.

Newer files list it, layer by layer, in `layer_types`; older ones give a number, each family's in its own way:
a rule object, handed to `read_layer_types`. The windows themselves are masks, which the family makes.
"""

from dataclasses import dataclass
from typing import ClassVar, Protocol

from regard.checkpoints import Fields
from regard.core.errors import CheckpointError

FULL = "full_attention"
"""A layer whose queries attend to all keys that causality and padding allow."""

SLIDING = "sliding_attention"
"""A layer whose queries attend to a window around them."""


class LayerRule(Protocol):
    """How a family's older files say which layers slide."""

    @property
    def is_overruled(self) -> bool:
        """Whether a list in the file counts; otherwise it must say the same as the rule."""
        ...

    def layer_types(self, fields: Fields, num_layers: int, window: int | None) -> tuple[str, ...]:
        """One name a layer, from the rule's own fields, which are read on the way."""
        ...


@dataclass(frozen=True)
class AllLayers:
    """All layers slide where there is a window (Mistral), else none does (Llama has none)."""

    is_overruled: ClassVar[bool] = False

    def layer_types(self, fields: Fields, num_layers: int, window: int | None) -> tuple[str, ...]:
        return (FULL if window is None else SLIDING,) * num_layers


@dataclass(frozen=True)
class LaterLayers:
    """Where there is a window, the layers from `max_window_layers` on slide (Qwen2 and Qwen3)."""

    field: str
    default: int
    is_overruled: ClassVar[bool] = True

    def layer_types(self, fields: Fields, num_layers: int, window: int | None) -> tuple[str, ...]:
        # The layers before it attend to everything.
        first = fields.get(self.field, int, self.default)
        return tuple(SLIDING if window is not None and i >= first else FULL for i in range(num_layers))


@dataclass(frozen=True)
class OneInEvery:
    """One layer in every so many attends to everything: the first (ModernBERT) or the last (Gemma) of each.

    Without `field` no file says the period (Gemma 2, where it is always 2).
    """

    default: int
    field: str | None = None
    is_first: bool = False
    is_overruled: ClassVar[bool] = True

    def layer_types(self, fields: Fields, num_layers: int, window: int | None) -> tuple[str, ...]:
        period = self.default if self.field is None else self._period(fields, self.field)
        # Layer i is full where (i + shift) is a multiple of the period.
        shift = 0 if self.is_first else 1
        return tuple(SLIDING if (i + shift) % period else FULL for i in range(num_layers))

    def _period(self, fields: Fields, field: str) -> int:
        period = fields.get(field, int, self.default)
        if period < 1:
            raise CheckpointError(f"{fields.file}: the field {field!r} must be at least 1; got {period}")
        # Gemma 3 files also hold the number under this name, beside the list that it made; nobody reads it.
        # Equal, or overruled by the list.
        copied = fields.get(f"_{field}", int, period)
        if copied != period and fields.values.get("layer_types") is None:
            raise CheckpointError(
                f"{fields.file}: the field '_{field}' is {copied}, but {field!r} is {period}; "
                "keep the one that is right"
            )
        return period


def read_window(fields: Fields, field: str, default: int | None, *, switch: str | None = None) -> int | None:
    """The width of the window; None without one, or where `switch` (Qwen2) does not turn it on."""
    window = fields.get_or_null(field, int, default)
    # Qwen2 files have a width that is not in force.
    if switch is not None and not fields.get(switch, bool, False):
        return None
    if window is not None and window < 1:
        raise CheckpointError(f"{fields.file}: the field {field!r} must be at least 1; got {window}")
    return window


def read_layer_types(
    fields: Fields, rule: LayerRule, *, num_layers: int, window: int | None
) -> tuple[str, ...]:
    """Which layers attend fully and which slide: by the file's list, else by the family's rule."""
    # Always asked, since it reads its fields on the way.
    by_rule = rule.layer_types(fields, num_layers, window)
    listed = fields.list_of("layer_types", str, None)
    types = by_rule if listed is None else tuple(_checked(fields, each) for each in listed)
    if len(types) != num_layers:
        raise CheckpointError(
            f"{fields.file}: the field 'layer_types' must have one entry for each of {num_layers} layers; "
            f"got {len(types)}"
        )
    if not rule.is_overruled and types != by_rule:
        raise CheckpointError(
            f"{fields.file}: the field 'layer_types' must be {by_rule[0]!r} for every layer, because the "
            "code of this model_type does not read it; take it out of the file, or correct model_type"
        )
    if window is None and SLIDING in types:
        raise CheckpointError(
            f"{fields.file}: the field 'layer_types' has {SLIDING!r}, but no field gives the window"
        )
    return types


def _checked(fields: Fields, name: str) -> str:
    # "attention" is what older files call it.
    if name in (FULL, "attention"):
        return FULL
    if name == SLIDING:
        return SLIDING
    raise CheckpointError(
        f"{fields.file}: the field 'layer_types' holds {name!r}; regard supports {FULL!r} and {SLIDING!r}"
    )
