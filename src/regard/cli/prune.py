"""`regard prune`: a smaller checkpoint without some heads."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from regard.cli._input import load_model, parse_heads, read_lines
from regard.cli._options import JSON, MODEL, argument, option
from regard.cli._output import check_folder, check_outputs, print_json, status
from regard.core.displayable import check_table_file
from regard.core.errors import InputError
from regard.core.wording import printable

if TYPE_CHECKING:
    from regard.api import Model


def prune(
    output: Path = option("--output -o FOLDER", "A new folder for the model.", ...),
    heads: str | None = argument(
        "HEADS", "Layer and head, from 0: 3.5,4.1; in an encoder-decoder encoder.3.5,cross.0.2.", None
    ),
    weakest: int | None = option("--weakest N", "Instead of HEADS: the N that matter least for --file."),
    file: Path | None = option("--file -f FILE", "With --weakest: texts, one a line; - reads stdin."),
    curve: Path | None = option(
        "--curve FILE",
        "With --weakest: what each further head costs, as .csv, .json or .parquet.",
    ),
    model: str = MODEL,
    as_json: bool = JSON,
) -> None:
    """Write a smaller model without some heads. It computes what the model computes with them at zero.

    --weakest takes out each head alone, and measures how far the contextual embeddings of the texts turn.
    Likeness is the mean cosine to those of the full model, on the same texts.
    """
    check_outputs({"--output": output, "--curve": curve})
    if os.path.lexists(output.expanduser()):  # before minutes of work
        raise InputError(f"--output {str(output)!r} exists already; choose a new folder.")
    check_folder(output)
    # Heads by name, or by measure.
    if heads is None and weakest is None:
        raise InputError("give HEADS or --weakest, to say what is removed.")
    if weakest is not None and file is None:
        raise InputError("--weakest goes with --file: the texts say which heads matter.")
    if curve is not None:
        check_table_file("--curve", curve)
    wanted = None if heads is None else _parsed(heads)
    measured: dict[str, Any] = {}
    # Read before the model is loaded.
    texts = None if file is None else [line for _, line in read_lines(file, "--file")]
    full = load_model(model)
    if wanted is not None:
        smaller = full.prune(wanted)
    else:
        assert texts is not None
        assert weakest is not None
        smaller, measured = _without_weakest(full, weakest, texts, curve)
    folder = smaller.save(output)
    # The same for JSON and for people.
    facts = _facts(full, smaller, folder) | measured
    if as_json:
        print_json(facts)
        return
    before, after = facts["parameters"]
    removed = facts["heads_removed"]
    typer.echo(f"{removed} head{'s' * (removed != 1)} removed")
    typer.echo(f"{before:,} parameters before, {after:,} after ({1 - after / before:.1%} less)")
    if "likeness" in facts:
        typer.echo(f"likeness {facts['likeness']:.4f} on {facts['texts']} texts")
    typer.echo(f"loads in: {'; '.join(facts['loads_in'])}")
    typer.echo(printable(str(folder)))


def _without_weakest(
    full: "Model", number: int, texts: list[str], curve: Path | None
) -> tuple["Model", dict[str, Any]]:
    """The model without the heads that matter least for the texts, and how alike it is there."""
    import torch

    from regard.models import attentions
    from regard.pruning import pruning_curve
    from regard.tracing import Likeness

    # How alike the vectors stay for these texts.
    likeness = Likeness(full.loaded, texts)
    # One kind of attention; `weakest_heads` refuses others.
    [layers] = attentions(full.network).values()
    # Before minutes of work: there may be no such number of heads.
    try:
        full.weakest_heads(torch.zeros(len(layers), max(each.num_heads for each in layers)), number)
    except InputError as error:
        raise InputError(f"--weakest: {error}") from error
    with status(f"measuring heads on {len(texts)} texts"):
        # How much each head matters to the loss.
        importance = full.head_importance(likeness.traces, likeness.loss, method="zero")
        smaller = full.prune(full.weakest_heads(importance, number))
        alike = likeness(smaller.loaded)
        if curve is not None:
            pruning_curve(full.loaded, importance, likeness).write(curve)
    return smaller, {"likeness": alike, "texts": len(texts)}


def _parsed(words: str) -> dict[Any, Any]:
    """`3.5,4.1` as {3: [5], 4: [1]}; with a kind before each, {kind: {layer: [heads]}}."""
    wanted: dict[Any, Any] = {}
    for *kind, layer, head in parse_heads("HEADS", words):
        # With a kind before them, one level more.
        layers = wanted.setdefault(kind[0], {}) if kind else wanted
        layers.setdefault(layer, []).append(head)
    if len({type(key) for key in wanted}) > 1:
        raise InputError(f"HEADS must have a kind of attention before all of them, or none; got {words!r}.")
    return wanted


def _facts(full: "Model", smaller: "Model", folder: Path) -> dict[str, Any]:
    from regard.blocks import learned

    before, after = (sum(each.count for each in learned(one.network)) for one in (full, smaller))
    return {
        "model": full.name,
        "folder": str(folder),
        "heads_removed": _heads(full) - _heads(smaller),
        "parameters": [before, after],
        "loads_in": list(smaller.loads_in),
    }


def _heads(model: "Model") -> int:
    from regard.models import attentions

    return sum(each.num_heads for layers in attentions(model.network).values() for each in layers)
