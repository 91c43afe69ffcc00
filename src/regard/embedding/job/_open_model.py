"""From the words of a command to the work of a job."""

from collections.abc import Mapping
from typing import Any

from regard.embedding._packs import BATCH_TOKENS
from regard.embedding._request import Mix, Precision, Request
from regard.embedding._windows import Truncate, Windows
from regard.embedding.job._model_work import ModelWork
from regard.models import load_checkpoint


def open_model(name: str, wanted: Mapping[str, Any], earlier: Mapping[str, Any] | None) -> ModelWork:
    """Loads a model for a job.

    Args:
        name: as in `regard.load`.
        wanted: plain values by name: those of `Request`, but `layer` a list of numbers, of which one alone
            stands for itself; `mix` a list of layers, or None; `window`, `overlap` and `truncate` numbers or
            None and a bool; `device` as `regard.load` takes it, or None.
        earlier: what was settled when the job was begun. It holds where nothing else is wanted, and says
            what "fast" was.

    Raises:
        InputError: values that do not fit, or that the model cannot do.
        CheckpointError: as `regard.load`.
    """
    earlier = earlier or {}
    request = Request(
        level=wanted["level"],
        layer=_layer(wanted),
        pooling=wanted["pooling"],
        normalize=wanted["normalize"],
        window=_window(wanted),
        prompt=wanted["prompt"],
        prompt_name=wanted["prompt_name"],
        truncate_dim=wanted["truncate_dim"],
        precision=_precision(wanted["precision"], earlier),
        storage=wanted["storage"],
        batch_tokens=_first(wanted["batch_tokens"], earlier.get("batch_tokens"), BATCH_TOKENS),
        threads=_first(wanted["threads"], earlier.get("threads")),
    )
    loaded = load_checkpoint(name, device=wanted["device"] or earlier.get("device"))
    return ModelWork(loaded, request, earlier)


def _first(*values: Any) -> Any:
    """The first that is not None."""
    return next((each for each in values if each is not None), None)


def _layer(wanted: Mapping[str, Any]) -> int | list[int] | Mix:
    if wanted["mix"] is not None:
        return Mix(wanted["mix"])
    layers: list[int] = wanted["layer"]
    return layers[0] if len(layers) == 1 else layers


def _window(wanted: Mapping[str, Any]) -> Windows | Truncate:
    if wanted["truncate"]:
        return Truncate(wanted["window"])
    return Windows(wanted["window"], wanted["overlap"])


def _precision(wanted: Precision, earlier: Mapping[str, Any]) -> Precision:
    found: Precision = earlier.get("precision", wanted) if wanted == "fast" else wanted
    return found
