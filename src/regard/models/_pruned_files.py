"""What stands in config.json about heads that were removed, and the code that makes transformers 5 read it.

Where a family's own fields cannot say it, this stands beside them:

* `pruned_heads`, {layer: [heads]}, in the form that transformers had until version 4 and obeys there; of an
  encoder-decoder {"encoder": {layer: [heads]}, "decoder": .., "cross": ..}, which it never had.
* `pruned_shapes`, {name of a tensor: shape}, and `auto_map`, for the classes in `CODE`, which transformers 5
  takes with `trust_remote_code=True`. Without, its own classes refuse the tensors' shapes.

All tensors keep their names. Nothing that reads such a folder can take it for another network: the shapes
are not those of the fields.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.checkpoints import Fields, HeadKind, to_hf
from regard.core.errors import CheckpointError, InputError
from regard.models._fresh import blank
from regard.models._surgery import Heads, Part, check_heads, cut, removed_heads
from regard.models._transformer import Transformer
from regard.models.families import Family

CODE = "modeling_regard_pruned"
"""The module that transformers reads, without the ending."""

_PRUNED, _SHAPES, _AUTO = "pruned_heads", "pruned_shapes", "auto_map"

_AUTO_CLASSES: dict[HeadKind | None, str] = {
    None: "AutoModel",
    "masked-lm": "AutoModelForMaskedLM",
    "language-model": "AutoModelForCausalLM",
    "sequence": "AutoModelForSequenceClassification",
    "token": "AutoModelForTokenClassification",
    "replaced": "AutoModelForPreTraining",
}

WITHOUT_CODE = frozenset({"t5"})
"""Families whose layers hand the bias of all heads on to one another, which `CODE` cannot come between."""


def without_pruned(fields: Fields) -> tuple[Fields, dict[str, Any]]:
    """The fields that a family knows, and what stands there about removed heads, of one kind of attention."""
    values = dict(fields.values)
    pruned = values.get(_PRUNED)
    if not pruned:
        return fields, {}
    if not isinstance(pruned, dict):
        raise CheckpointError(f"{fields.file}: the field {_PRUNED!r} must be an object; got {pruned!r}")
    code = values.get(_AUTO, {})
    if isinstance(code, dict) and all(str(name).startswith(f"{CODE}.") for name in code.values()):
        values.pop(_AUTO, None)
    for name in (_PRUNED, _SHAPES):
        values.pop(name, None)
    return Fields(file=fields.file, values=values), pruned


def cut_as_stored(network: Transformer, pruned: Mapping[str, Any], file: Path) -> None:
    """Remove the heads that config.json names, in place."""
    if not pruned:
        return
    by_part = all(isinstance(value, dict) for value in pruned.values())
    try:
        heads: Any = {part: _layers(of) for part, of in pruned.items()} if by_part else _layers(pruned)
        cut(network, check_heads(network, heads))
    except InputError as error:
        raise CheckpointError(f"{file}: the field {_PRUNED!r}: {error}") from error


def _layers(stored: Mapping[str, Any]) -> dict[int, Any]:
    if any(not name.isdecimal() for name in stored):
        raise InputError(f"layers must be numbers in quotes; got {', '.join(map(repr, stored))}.")
    return {int(name): heads for name, heads in stored.items()}


def pruned_fields(network: Transformer, family: Family) -> dict[str, Any]:
    """The fields of config.json that say what was removed: none where the family's own say it."""
    removed = removed_heads(network)
    if not removed:
        return {}
    written: dict[str, Any] = {_PRUNED: _on_disk(network, removed)}
    if family.name in WITHOUT_CODE:
        return written
    with blank():
        whole = family.build(network.config)
    before = to_hf(whole, family.keys, prefix="")
    after = to_hf(network, family.keys, prefix="")
    return {
        **written,
        _SHAPES: {
            name: list(tensor.shape) for name, tensor in after.items() if tensor.shape != before[name].shape
        },
        _AUTO: _auto_map(network),
    }


def _on_disk(network: Transformer, removed: Heads) -> dict[str, Any]:
    def of(part: Part) -> dict[str, list[int]]:
        return {str(layer): list(heads) for layer, heads in removed[part].items()}

    if len(network.prefixes) == 1:
        return of(next(iter(network.prefixes)))
    return {part: of(part) for part in removed}


def _auto_map(network: Transformer) -> dict[str, str]:
    config: Any = network.config
    classes = {"AutoModel": replace(config, head=None).to_hf()["architectures"][0]}
    if config.head is not None:
        name = _AUTO_CLASSES[config.head]
        if config.head == "language-model" and len(network.prefixes) == 2:
            name = "AutoModelForSeq2SeqLM"
        classes[name] = config.to_hf()["architectures"][0]
    return {auto: f"{CODE}.{name}" for auto, name in classes.items()}
