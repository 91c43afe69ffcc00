"""What a folder was made with, compared to what is asked for now."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from regard.core.errors import InputError


def check_same(folder: str, there: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Refuse to go on in a folder that was made with other settings."""
    found = differences(there, here)
    if found:
        told = "; ".join(each.removeprefix("embedding.") for each in found)
        way_out = "Give the same ones to go on, or choose a new folder."
        if any(each.startswith(f"{_KERNEL} ") for each in found):
            way_out = (
                "The kernel follows from the processor: go on with one of the first kind, or begin a new "
                "folder with --precision float32, which any processor can go on with."
            )
        raise InputError(f"{folder!r} was made with other settings: {told}. {way_out}")


_KERNEL = "embedding.kernel"


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """In what settings differ."""
    before, now = _flat(there), _flat(here)
    names = [name for name in (before | now) if before.get(name, _UNSET) != now.get(name, _UNSET)]
    return [f"{name} is {_told(before, name)} there and {_told(now, name)} here" for name in names]


def check_inputs(folder: str, there: Sequence[Mapping[str, Any]], here: Sequence[Mapping[str, Any]]) -> None:
    """Refuse to go on with inputs that are not those the folder was begun with. Names may change."""
    if len(there) != len(here):
        raise InputError(
            f"{folder!r} was begun with {len(there)} input{'s' * (len(there) != 1)}, and here "
            f"{'are' if len(here) != 1 else 'is'} {len(here)}. Give the same ones to go on, or choose a new "
            "folder."
        )
    for before, now in zip(there, here, strict=True):
        for what in ("format", "bytes", "sha256"):
            if before[what] != now[what]:
                raise InputError(
                    f"{now['name']} is not what it was when {folder!r} was begun: its {what} was "
                    f"{_told(before, what)} and is {_told(now, what)}. Give the same input to go on, or "
                    "choose a new folder."
                )


_UNSET = object()
# Of a hash the first digits tell enough.
_HASH = re.compile(r"([0-9a-f]{12})[0-9a-f]{28,}")


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found


def _told(settings: Mapping[str, Any], name: str) -> str:
    return _HASH.sub(r"\1...", repr(settings[name])) if name in settings else "not stated"
