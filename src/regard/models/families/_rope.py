"""From the fields of config.json to `Rotary` objects, in all the spellings there have been, and back.

Up to version 4 of `transformers`, files have `rope_theta` (or the family's names for it) and `rope_scaling`;
since version 5 all of it stands in `rope_parameters`, once, or once for each type of layer. Both are read;
where a file has both, they must agree.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from regard.checkpoints import Fields
from regard.core.errors import CheckpointError, InputError
from regard.models.families._layer_types import FULL, SLIDING
from regard.positions import (
    DynamicNTKScaling,
    LinearScaling,
    Llama3Scaling,
    LongRoPEScaling,
    NoScaling,
    Rotary,
    RotaryScaling,
    YaRNScaling,
    yarn_amplitude,
)


@dataclass(frozen=True)
class Theta:
    """Where older files give the base of one type of layer, and whether `rope_scaling` is about it."""

    field: str = "rope_theta"
    default: float = 10_000.0
    is_scaled: bool = True


@dataclass(frozen=True)
class RopeSpelling:
    """How a family's files speak of rotary embeddings; by default as Llama's do, one base for all layers.

    Of some, heads may be rotated in part, and `original` is the length of training where no field gives one.
    """

    full: Theta = Theta()
    sliding: Theta = Theta()
    is_partial: bool = False
    original: int | None = None

    @property
    def thetas(self) -> dict[str, Theta]:
        """The base of each type of layer."""
        return {FULL: self.full, SLIDING: self.sliding}

    @property
    def is_one(self) -> bool:
        """Whether all layers share one base."""
        return self.full == self.sliding


_LLAMA = RopeSpelling()


def read_rope(
    fields: Fields, spelling: RopeSpelling = _LLAMA, *, head_dim: int, max_seq_len: int
) -> dict[str, Rotary]:
    """The rotary embedding of each type of layer, equal ones where the file makes no difference.

    What an object has beside the fields of its scaling stays unread, for `fields.done` to refuse.
    """
    # What stands beside the objects: older files have all of it there.
    file = _File(
        fields=fields,
        spelling=spelling,
        head_dim=head_dim,
        max_seq_len=max_seq_len,
        bases={kind: fields.get(each.field, float, each.default) for kind, each in spelling.thetas.items()},
        part=fields.get("partial_rotary_factor", float, None),
        original=fields.get("original_max_position_embeddings", int, spelling.original),
    )
    # Two names for one object, of transformers 5 and 4.
    subs = [sub for key in ("rope_parameters", "rope_scaling") if (sub := fields.sub(key)) and sub.values]
    objects = [_read_object(file, sub) for sub in subs or [file.empty("rope_scaling.")]]
    # Both may stand there, if they say the same.
    if objects[0] != objects[-1]:
        raise CheckpointError(
            f"{fields.file}: the fields 'rope_parameters' and 'rope_scaling' contradict each other; "
            "keep the one that is right"
        )
    return objects[0]


@dataclass(frozen=True, kw_only=True)
class _File:
    """What stands in the file outside of the objects."""

    fields: Fields
    spelling: RopeSpelling
    head_dim: int
    max_seq_len: int
    bases: Mapping[str, float]
    part: float | None
    original: int | None

    def empty(self, path: str) -> Fields:
        """Stands for a missing object at `path`: it has no fields."""
        return Fields(file=self.fields.file, values={}, path=path)


def _read_object(file: _File, sub: Fields) -> dict[str, Rotary]:
    """What one object of the file says, once or by type of layer."""
    # The names of types of layers: then there is an object for each.
    thetas = file.spelling.thetas
    if any(kind in sub.values for kind in thetas):
        if file.spelling.is_one:
            raise CheckpointError(
                f"{sub.file}: the field {sub.path.removesuffix('.')!r} must be one object for all layers: "
                f"the code of this model_type reads no {FULL!r} and {SLIDING!r}; take the inner object out"
            )
        return {
            kind: _read_rotary(file, kind, sub.sub(kind) or file.empty(f"{sub.path}{kind}."))
            for kind in thetas
        }
    # Without them it would be for both types, whose bases differ.
    if sub.path == "rope_parameters." and not file.spelling.is_one:
        raise CheckpointError(
            f"{sub.file}: the field 'rope_parameters' must hold one object for each type of layer, "
            f"{FULL!r} and {SLIDING!r}; got {', '.join(map(repr, sub.values))}"
        )
    return {
        # Gemma 3's local layers are not scaled.
        kind: _read_rotary(file, kind, sub if theta.is_scaled else file.empty(sub.path))
        for kind, theta in thetas.items()
    }


def _read_rotary(file: _File, kind: str, sub: Fields) -> Rotary:
    # "type" is the older word.
    name = _agreed(sub, "rope_type", sub.get("rope_type", str, None), "type", sub.get("type", str, None))
    read = _READERS.get(name or "default")
    if read is None:
        raise CheckpointError(
            f"{sub.file}: the field {sub.path + 'rope_type'!r} is {name!r}, rotary embeddings that regard "
            f"does not implement; it knows {', '.join(sorted(_READERS))}. regard.lens works on the model of "
            "transformers"
        )
    field = file.spelling.thetas[kind].field
    # A default is no statement, and contradicts nothing.
    stated = file.bases[kind] if field in file.fields.values else None
    base = _agreed(sub, "rope_theta", sub.get("rope_theta", float, None), field, stated, outside=True)
    try:
        # Wrong values raise here, with the field's name in the error.
        part = _read_part(file, sub)
        scaling = read(file, sub)
        if isinstance(scaling, LongRoPEScaling):
            for last in (0, scaling.original_max_seq_len):  # a short and a long text: a divisor for each pair
                scaling.frequencies(2.0, part or file.head_dim, torch.tensor([[last]]))
        return Rotary(
            file.head_dim,
            base=file.bases[kind] if base is None else base,
            scaling=scaling,
            rotary_dim=part,
        )
    except InputError as error:
        raise CheckpointError(f"{sub.file}: the field {sub.path.removesuffix('.')!r}: {error}") from error


_Value = TypeVar("_Value", float, int, str)


def _agreed(
    sub: Fields,
    key: str,
    value: _Value | None,
    other_key: str,
    other: _Value | None,
    *,
    outside: bool = False,
) -> _Value | None:
    """What two fields say that mean the same; either may be absent, but they may not differ."""
    if value is not None and other is not None and value != other:
        raise CheckpointError(
            f"{sub.file}: the field {sub.path + key!r} is {value!r}, but "
            f"{other_key if outside else sub.path + other_key!r} is {other!r}; keep the one that is right"
        )
    return other if value is None else value


def _read_part(file: _File, sub: Fields) -> int | None:
    """How many entries of a head are rotated; None for all."""
    key = "partial_rotary_factor"
    part = _agreed(sub, key, sub.get(key, float, None), key, file.part, outside=True)
    if part in (None, 1.0):
        return None
    # Phi-3 alone, of the families here, may turn a part.
    if not file.spelling.is_partial:  # transformers passes the field over, or fails where there is a scaling
        raise CheckpointError(
            f"{sub.file}: the field 'partial_rotary_factor' is {part}, but models of this family rotate "
            "whole heads; take it out of the file if that is so"
        )
    return int(file.head_dim * part)


def _original(file: _File, sub: Fields) -> int:
    key = "original_max_position_embeddings"
    return _agreed(sub, key, sub.get(key, int, None), key, file.original, outside=True) or file.max_seq_len


def _read_default(file: _File, sub: Fields) -> RotaryScaling:
    _pass_over_original(sub)
    return NoScaling()


def _read_linear(file: _File, sub: Fields) -> RotaryScaling:
    _pass_over_original(sub)
    return LinearScaling(sub.require("factor", float))


def _read_dynamic(file: _File, sub: Fields) -> RotaryScaling:
    # The formula knows one length only.
    if (original := _original(file, sub)) != file.max_seq_len:
        raise CheckpointError(
            f"{sub.file}: the field 'original_max_position_embeddings' must be max_position_embeddings = "
            f"{file.max_seq_len}, which dynamic scaling starts from; got {original}"
        )
    return DynamicNTKScaling(sub.require("factor", float), file.max_seq_len)


def _read_yarn(file: _File, sub: Fields) -> RotaryScaling:
    original = _original(file, sub)
    factor = sub.get("factor", float, None)
    # As transformers works it out.
    factor = file.max_seq_len / original if factor is None else factor
    # Untruncated bounds would be another formula.
    sub.expect("truncate", (True,), True)
    amplitude = sub.get("attention_factor", float, None)
    scales = [sub.get(name, float, None) for name in ("mscale", "mscale_all_dim")]
    if amplitude is None and all(scales):  # as in transformers, one alone counts for nothing
        amplitude = yarn_amplitude(factor, scales[0] or 1.0) / yarn_amplitude(factor, scales[1] or 1.0)
    return YaRNScaling(
        factor,
        original,
        # `or`: 0 counts as absent, as in transformers.
        beta_fast=sub.get("beta_fast", float, None) or 32.0,
        beta_slow=sub.get("beta_slow", float, None) or 1.0,
        attention_factor=amplitude,
    )


def _read_longrope(file: _File, sub: Fields) -> RotaryScaling:
    original = _original(file, sub)
    factor, amplitude = (sub.get(name, float, None) for name in ("factor", "attention_factor"))
    # As of YaRN.
    factor = file.max_seq_len / original if factor is None else factor
    short, long = (tuple(sub.list_of(f"{name}_factor", float, [])) for name in ("short", "long"))
    return LongRoPEScaling(short, long, original, factor, attention_factor=amplitude)


def _read_llama3(file: _File, sub: Fields) -> RotaryScaling:
    return Llama3Scaling(
        sub.require("factor", float),
        sub.require("low_freq_factor", float),
        sub.require("high_freq_factor", float),
        _original(file, sub),
    )


def _pass_over_original(sub: Fields) -> None:
    sub.get("original_max_position_embeddings", int, None)  # in some files, but in none of these formulas


_READERS: Mapping[str, Callable[[_File, Fields], RotaryScaling]] = {
    "default": _read_default,
    "dynamic": _read_dynamic,
    "linear": _read_linear,
    "llama3": _read_llama3,
    "longrope": _read_longrope,
    "yarn": _read_yarn,
}


def write_rope(rotaries: Mapping[str, Rotary], spelling: RopeSpelling = _LLAMA) -> dict[str, Any]:
    """The fields of config.json as `transformers` 5 writes them, and the older ones where they can say it."""
    # Each type of layer as its own object.
    named = {kind: _write(rotary, spelling) for kind, rotary in rotaries.items()}
    # One object where nothing differs.
    is_flat = spelling.is_one and named[FULL] == named[SLIDING]
    written: dict[str, Any] = {"rope_parameters": named[FULL] if is_flat else named}
    if spelling.is_one and not is_flat:
        return written  # older files cannot say that
    # What older files say about scaling goes for all layers that their `rope_scaling` is about.
    inside = {
        kind: {name: value for name, value in each.items() if name != "rope_theta"}
        for kind, each in named.items()
    }
    sliding = inside[FULL] if spelling.sliding.is_scaled else {"rope_type": "default"}
    if inside[SLIDING] != sliding:
        return written
    # From here the fields that transformers 4 reads.
    written |= {theta.field: rotaries[kind].base for kind, theta in spelling.thetas.items()}
    if "partial_rotary_factor" in inside[FULL]:
        written["partial_rotary_factor"] = inside[FULL]["partial_rotary_factor"]
    if (name := inside[FULL]["rope_type"]) != "default":
        # "type" is the word of the versions before 4.43, which know no family with two bases.
        written["rope_scaling"] = inside[FULL] | ({"type": name} if spelling.is_one else {})
    return written


def _write(rotary: Rotary, spelling: RopeSpelling) -> dict[str, Any]:
    size, dim = rotary.head_dim, rotary.rotary_dim or rotary.head_dim
    if (dim != size and not spelling.is_partial) or rotary.layout != "half":
        raise InputError(
            "rotary must turn whole heads, entries half a head apart, which is all that config.json can say "
            f"of these families; got rotary_dim={rotary.rotary_dim!r}, layout={rotary.layout!r}."
        )
    written = _write_scaling(rotary.scaling) | {"rope_theta": rotary.base}
    # Read as int(size * part), which must not round down to a number below.
    part = dim / size if int(size * (dim / size)) == dim else math.nextafter(dim / size, 1.0)
    return written | ({} if dim == size else {"partial_rotary_factor": part})


_NAMES: Mapping[type[Any], str] = {
    NoScaling: "default",
    LinearScaling: "linear",
    DynamicNTKScaling: "dynamic",
    Llama3Scaling: "llama3",
    LongRoPEScaling: "longrope",
    YaRNScaling: "yarn",
}


def _write_scaling(scaling: RotaryScaling) -> dict[str, Any]:
    name = _NAMES.get(type(scaling))
    if name is None:
        raise InputError(f"scaling must be one that config.json has a name for; got {scaling!r}.")
    # Fields have the names of config.json, but for two.
    stated = dataclasses.asdict(scaling)  # type: ignore[call-overload]
    stated.pop("max_seq_len", None)  # `max_position_embeddings` says it
    if "original_max_seq_len" in stated:
        stated["original_max_position_embeddings"] = stated.pop("original_max_seq_len")
    return {"rope_type": name, **{field: value for field, value in stated.items() if value is not None}}


def _turns(stored: Tensor, network: Any) -> bool:
    """Whether these are frequencies of the network's, scaled or not, as far as their type holds them."""
    rotaries = {each.rotary for kind in network.prefixes for each in network.stack(kind).patterns} - {None}
    ways = ((rotary, scaling) for rotary in rotaries for scaling in (rotary.scaling, NoScaling()))
    # Scaled or not, by version; bfloat16 has rounded them.
    known = (way.frequencies(rotary.base, 2 * len(stored), torch.zeros(1, 1)) for rotary, way in ways)
    return any(torch.allclose(stored.float(), each, rtol=0.02, atol=1e-7) for each in known)


ROTARY_BUFFERS = {"{rotary}inv_freq": _turns}
"""1 / base^(2i/d), in files that hold all buffers: of each layer until transformers 4.43, then of all."""
