"""From the words of a command to the work of a job."""

from collections.abc import Mapping
from typing import Any

import torch

from regard.core.errors import InputError
from regard.embedding._packs import BATCH_TOKENS
from regard.embedding._request import Mix, Request
from regard.embedding._windows import Truncate, Windows
from regard.embedding.job._model_work import ModelWork
from regard.models import load_checkpoint


def open_model(name: str, wanted: Mapping[str, Any], earlier: Mapping[str, Any] | None) -> ModelWork:
    """Loads a model for a job.

    Args:
        name: as in `regard.load`.
        wanted: plain values by name: those of `Request`, but `layer` a list of numbers, of which one alone
            stands for itself; `mix` a list of layers, or None; `window`, `overlap` and `truncate` numbers or
            None and a bool; `dtype` a name; `device` as `regard.load` takes it, or None.
        earlier: what was settled when the job was begun; it holds where nothing else is wanted.

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
        precision=wanted["precision"],
        dtype=_dtype(wanted["dtype"] or earlier.get("dtype")),
        engine=wanted["engine"] or earlier.get("engine", "torch"),
        batch_tokens=wanted["batch_tokens"] or earlier.get("batch_tokens", BATCH_TOKENS),
        threads=wanted["threads"] or earlier.get("threads"),
    )
    loaded = load_checkpoint(name, device=wanted["device"] or earlier.get("device"))
    return ModelWork(loaded, request, earlier)


def _layer(wanted: Mapping[str, Any]) -> int | list[int] | Mix:
    if wanted["mix"] is not None:
        return Mix(wanted["mix"])
    layers: list[int] = wanted["layer"]
    return layers[0] if len(layers) == 1 else layers


def _window(wanted: Mapping[str, Any]) -> Windows | Truncate:
    if wanted["truncate"]:
        return Truncate(wanted["window"])
    return Windows(wanted["window"], wanted["overlap"])


def _dtype(name: str | None) -> torch.dtype | None:
    if name is None:
        return None
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise InputError(f"dtype must be float32, bfloat16, int16 or int8; got {name!r}.")
    return found
