"""`regard look`: the interactive page."""

import os
import sys
import tempfile
import webbrowser
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from regard.cli._errors import UsageError
from regard.cli._head_names import parse_heads_or_layers
from regard.cli._options import as_typed, check_outputs, load_model, print_json, print_path, read_texts
from regard.cli._rows import JSON, KIND, MODEL, TARGET, Kind, argument, flag, option
from regard.core.errors import InputError, OutputError

if TYPE_CHECKING:
    from regard.decoding import Watched
    from regard.views import Page


def look(
    context: typer.Context,
    text: str | None = argument(
        "TEXT", "The sentence; - reads it from stdin. Or the folder of a training run.", None
    ),
    pair: str | None = argument(
        "PAIR", "A second sentence. For a run, which of its watched texts: 1, 2, ...", None
    ),
    target: str | None = TARGET,
    model: str = MODEL,
    output: Path | None = option("--output -o FILE", "Where the page goes; by default a new temporary file."),
    values: str | None = option(
        "--values L.H,L",
        "Heads or layers whose values the page holds, if the values of all would exceed 8 MB.",
    ),
    heads: str | None = option("--heads L.H,L", "Heads or layers that the page of a long text must hold."),
    only: str | None = option(
        "--only L.H,L", "Hold only these heads or layers: for a page inside another page."
    ),
    all_positions: bool = flag(
        "--all-positions", "Hold the vectors of all positions of the model, up to 512 (0.5 MB)."
    ),
    max_mb: float = option("--max-mb MB", "The largest size of the page.", 32.0, min=0.1),
    measures: str | None = option(
        "--measures NAME,NAME",
        "Measures to draw instead of weights: value_zeroing (slow if long), rollout, gradient.",
    ),
    live: bool = flag(
        "--live", "Put the model itself into the page: type any sentence there. BERT, DistilBERT, GPT-2."
    ),
    generate: bool = flag(
        "--generate", "Let the model continue TEXT, or translate it, and see it step by step."
    ),
    max_length: int | None = option("--max N", "With --generate: new tokens at most."),
    beams: int | None = option(
        "--beams N", "With --generate: search with so many beams, instead of greedily."
    ),
    no_open: bool = flag("--no-open", "Do not open the page in a browser."),
    svg: Path | None = option("--svg FILE", "Write a picture of one head, and no page unless -o says so."),
    png: Path | None = option("--png FILE", "The same as PNG."),
    pdf: Path | None = option("--pdf FILE", "The same as PDF."),
    layer: int | None = option("--layer -l N", "The picture's layer, from 0; -1 is the last."),
    head: int | None = option("--head -n N", "The picture's head, from 0; -1 is the last."),
    kind: Kind | None = KIND,
    heat_map: bool = flag("--map", "The picture is a heat map."),
    as_json: bool = JSON,
) -> None:
    """See what every head does with a sentence: writes one HTML page and opens it.

    For an encoder-decoder the page has all three kinds of attention; --target is the decoder's text. The page
    is self-contained: it needs no network, and can be kept, mailed or projected. Its path is printed.

    With --live the page holds the model itself: type any sentence there, offline. With the default model it
    takes 35 MB; TEXT is the first sentence.

    With --generate the page shows a text as the model writes it: at each step what it reads, the five
    likeliest tokens, with --beams the branches, and for a translation the alignment.

    If TEXT is the folder of a training run with --watch, the page plays its steps: heads as they emerge.

    For a paper, --svg, --png and --pdf write a picture of the head that --layer and --head choose.
    """
    if text is None:
        if not live:
            raise UsageError("Missing argument 'TEXT'.", context)
        text = OPENING
    pictures = {
        option: file for option, file in (("--svg", svg), ("--png", png), ("--pdf", pdf)) if file is not None
    }
    check_outputs({"--output": output, **pictures})
    for name, file in pictures.items():
        if file.suffix.lower() != f".{name[2:]}":
            raise InputError(f"{name} writes a file that ends in .{name[2:]}; got {str(file)!r}.")
    of_values = [] if values is None else parse_heads_or_layers("--values", values)
    held = [] if heads is None else parse_heads_or_layers("--heads", heads)
    alone = None if only is None else parse_heads_or_layers("--only", only)
    drawn_too = [] if measures is None else [name.strip() for name in measures.split(",") if name.strip()]
    from regard.views import check_measures

    check_measures(drawn_too)
    if not pictures and (layer is not None or head is not None or kind is not None or heat_map):
        raise InputError(
            "--layer, --head, --kind and --map choose a picture; give --svg, --png or --pdf too."
        )
    beside = {
        "--target": target, "--values": values, "--heads": heads, "--only": only, "--measures": measures,
        "--all-positions": all_positions or None, **pictures,
    }  # fmt: skip
    if not generate and (max_length is not None or beams is not None):
        raise InputError("--max and --beams say how a text is written; give --generate too.")
    if generate:
        _check_alone(
            {**beside, "PAIR": pair, "--live": live or None, "--heads": None},
            "with --generate: a text is written",
        )
        written = _written(model, text, max_length, beams)
        page = written.page(heads=held, max_mb=max_mb)
        _deliver(page, output, written.to_json() if as_json else None, no_open)
        return
    if _is_run(text):
        _check_alone({**beside, "--live": live or None}, f"with a run: {text} has its traces")
        from regard.training import film

        page = film(text, 1 if pair is None else pair, max_mb=max_mb)
        _deliver(page, output, {"largest_difference": page.largest_difference} if as_json else None, no_open)
        return
    if live:
        _check_alone(beside, "with --live: the page works out what is typed")
        page = load_model(model).live_page(*read_texts([text] if pair is None else [text, pair]))
        _deliver(page, output, {"largest_difference": page.live_difference} if as_json else None, no_open)
        return
    texts = read_texts([text] if pair is None else [text, pair])
    trace = load_model(model).trace(*texts, target=None if target is None else as_typed(target))
    drawn = [str(file.resolve()) for file in pictures.values()]
    if pictures:
        form: Any = "map" if heat_map else "lines"
        of: Any = None if kind is None else kind.value
        picture = trace.plot(layer or 0, head or 0, kind=of, form=form)
        for file in pictures.values():
            picture.write(file)
        if output is None:
            if as_json:
                print_json({"pictures": drawn})
            else:
                for file in pictures.values():
                    print_path(file.resolve())
            return
    page = trace.page(
        values=of_values,
        heads=held,
        max_mb=max_mb,
        measures=drawn_too,
        only=alone,
        all_positions=all_positions,
    )
    for name in drawn_too:
        if name in page.left_out:
            typer.echo(f"{name} is not on the page: {page.left_out[name]}", err=True)
    if page.heads == "some" and only is None:
        count = sum(map(len, page.held.values()))
        typer.echo(
            f"The page holds {count} heads, since all would take more than {max_mb:g} MB; it has a picture "
            "and the statistics of the others. Choose some with --heads, or raise --max-mb.",
            err=True,
        )
    told = None
    if as_json:
        told = {
            "tokens": len(trace.tokens),
            "kinds": list(trace.kinds),
            "encoding": page.encoding,
            "largest_difference": page.largest_difference,
            "compared_one_query_in": page.every,
            "heads": page.heads,
            "held": [f"{kind}.{layer}.{each}" for (kind, layer), some in page.held.items() for each in some],
            "values": page.values,
            "left_out": dict(page.left_out),
            **({"pictures": drawn} if drawn else {}),
        }
    _deliver(page, output, told, no_open)


OPENING = "The man who fishes on the river bank keeps his money in a bank."
"""What a live page opens with where nothing is said."""


def _written(model: str, text: str, most: int | None, beams: int | None) -> "Watched":
    """What a model writes after a text, with how."""
    from regard.decoding import Beams

    rules: Any = {} if most is None else {"max_length": most}
    choice = None if beams is None else Beams(beams)
    (given,) = read_texts([text])
    return load_model(model).generate(given, trace="all", choice=choice, **rules)


def _is_run(text: str) -> bool:
    """Whether this is no sentence but the folder of a training run."""
    try:
        return (Path(text) / "settings.json").is_file()
    except (OSError, ValueError):  # a sentence may be no path
        return False


def _check_alone(beside: Mapping[str, object], why: str) -> None:
    """Refuse what a page of a run, or a live page, does not have."""
    for name, value in beside.items():
        if value is not None:
            raise InputError(f"{name} must be left out {why}.")


def _deliver(page: "Page", output: Path | None, told: Mapping[str, Any] | None, no_open: bool) -> None:
    """Write a page, say where it is, or in JSON what else is told of it, and open it."""
    path = _temporary() if output is None else output
    page.write(path)
    if told is None:
        print_path(path.resolve())
    else:
        print_json({"path": str(path.resolve()), "bytes": path.stat().st_size, **told})
    if not no_open and not _open(path):
        typer.echo("There is no display here: open this file in a browser.", err=True)


def _temporary() -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix="regard-")) / "look.html"
    except OSError as error:
        raise OutputError(f"no temporary folder can be made ({error}); say where with -o FILE.") from error


def _open(path: Path) -> bool:
    # Without a display, webbrowser would start a text browser and take over the terminal.
    on_screen = sys.platform in ("darwin", "win32") or any(
        map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY"))
    )
    return bool(on_screen) and webbrowser.open(path.resolve().as_uri())
