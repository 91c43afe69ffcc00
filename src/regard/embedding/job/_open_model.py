"""From the words of a command to the work of a job."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from regard.embedding._request import Mix, Request
from regard.embedding._windows import Truncate, Windows
from regard.embedding.job._model_work import ModelWork
from regard.models import load_checkpoint


def open_model(name: str, wanted: Mapping[str, Any], earlier: Mapping[str, Any] | None) -> ModelWork:
    """Loads a model for a job.

    Args:
        name: as in `regard.load`.
        wanted: by name, what is not left open by None: the fields of `Request`, but `layer` and `mix` lists
            of numbers, `window` and `overlap` numbers and `truncate` a bool; and `device`, as `regard.load`
            takes it. Other names are passed over.
        earlier: what was settled when the job was begun. Its packs and its device hold where no others are
            wanted, and it says what "fast" was.

    Raises:
        InputError: values that do not fit, or that the model cannot do.
        CheckpointError: as `regard.load`.
    """
    earlier = earlier or {}
    given = {each: earlier[each] for each in ("batch_tokens", "threads", "device") if each in earlier}
    given |= {each: value for each, value in wanted.items() if value is not None}
    if given.get("precision") == "fast":
        given["precision"] = earlier.get("precision", "fast")
    given["layer"] = _layer(given)
    given["window"] = _window(given)
    request = Request(**{each.name: given[each.name] for each in fields(Request) if each.name in given})
    return ModelWork(load_checkpoint(name, device=given.get("device")), request, earlier)


def _layer(given: Mapping[str, Any]) -> int | list[int] | Mix:
    if "mix" in given:
        return Mix(given["mix"])
    layers: list[int] = given.get("layer", [-1])
    return layers[0] if len(layers) == 1 else layers


def _window(given: Mapping[str, Any]) -> Windows | Truncate:
    size = given.get("window")
    return Truncate(size) if given.get("truncate") else Windows(size, given.get("overlap"))
