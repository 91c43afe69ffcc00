"""`regard look`: the interactive page."""

import os
import sys
import tempfile
import webbrowser
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from regard.cli._input import as_typed, load_model, parse_heads_or_layers, read_texts
from regard.cli._options import (
    DEFAULT_DECODER,
    DEFAULT_MODEL,
    JSON,
    TARGET,
    Kind,
    argument,
    flag,
    option,
)
from regard.cli._output import check_outputs, print_json, print_path
from regard.cli._usage import UsageError, typed_names
from regard.core.arguments import Count
from regard.core.errors import InputError, OutputError

if TYPE_CHECKING:
    from regard.tracing import Trace
    from regard.views import Page

    Made = tuple[Page, Mapping[str, Any]]
    """A page, and what --json tells of it."""


OPENING = "The trophy does not fit into the suitcase because it is too big."
"""What a live page opens with where nothing is said; a decoder's, which writes, with the next one."""

BEGINNING = "The capital of France is"

_OF_A_PICTURE: Final = ("svg", "png", "pdf")

_BELONGS: Final = {
    "other": ("compared", "beside", "run"),
    "pair": ("text", "live"),
    "live": ("live", "beside"),
    "heads": ("text", "compared", "generate"),
    **dict.fromkeys(("target", "values", "only", "measures", "all_positions", *_OF_A_PICTURE), ("text",)),
}
"""The forms of look that have an option; those that are not named here go with each."""

_WITHOUT: Final = {
    "generate": "with --generate: a text is written",
    "run": "with a run: {text} has its traces",
    "compared": "with TEXT2: the page compares two sentences",
    "live": "with --live: the page works out what is typed",
    "beside": "with TEXT2 and --live: the page runs the model on both",
}
"""Why a form has no more options."""


def look(
    context: typer.Context,
    text: str | None = argument(
        "TEXT", "The sentence; - reads it from stdin. Or the folder of a training run.", None
    ),
    other: str | None = argument(
        "TEXT2",
        "A second sentence, to compare with the first. For a run, which of its watched texts: 1, 2, ...",
        None,
    ),
    pair: str | None = option(
        "--pair TEXT", "A text that the model reads behind TEXT, in one input with it."
    ),
    target: str | None = TARGET,
    model: str | None = option(
        "--model -m MODEL",
        f"A folder, a GGUF file, or a name (`regard models`); by default {DEFAULT_MODEL}, with --generate "
        f"{DEFAULT_DECODER}.",
    ),
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
        "--live",
        "Put the model itself into the page: type any sentence there. BERT, DistilBERT, GPT-2, Llama, Gemma.",
    ),
    generate: bool = flag(
        "--generate", "Let the model continue TEXT, or translate it, and see it step by step."
    ),
    max_length: Count | None = option("--max N", "With --generate: new tokens at most."),
    beams: Count | None = option(
        "--beams N", "With --generate: search with so many beams, instead of greedily."
    ),
    no_open: bool = flag("--no-open", "Do not open the page in a browser."),
    svg: Path | None = option("--svg FILE", "Write a picture of one head, and no page unless -o says so."),
    png: Path | None = option("--png FILE", "The same as PNG."),
    pdf: Path | None = option("--pdf FILE", "The same as PDF."),
    layer: int | None = option(
        "--layer -l N", "With --svg, --png or --pdf: the layer, from 0; -1 is the last."
    ),
    head: int | None = option("--head -n N", "With --svg, --png or --pdf: the head, from 0; -1 is the last."),
    kind: Kind | None = option("--kind -k KIND", "With --svg, --png or --pdf: encoder, decoder or cross."),
    heat_map: bool = flag("--map", "With --svg, --png or --pdf: a heat map."),
    as_json: bool = JSON,
) -> None:
    """See what every head does with a sentence: writes one HTML page and opens it.

    With a second sentence it opens on both: what a word that they share looks at in each, and how far it
    moves. (BERT's input of two segments is --pair.)

    For an encoder-decoder the page has all three kinds of attention; --target is the decoder's text. The page
    is self-contained: it needs no network, and can be kept, mailed or projected. Its path is printed.

    With --live the page holds the model itself: type any sentence there, offline. With the default model it
    takes 33 MB, with smollm2, which writes, 137 MB; it opens on TEXT, or on both texts.

    With --generate the page shows a text as the model writes it: at each step what it reads, the five
    likeliest tokens, with --beams the branches, and for a translation the alignment.

    If TEXT is the folder of a training run with --watch, the page plays its steps: heads as they emerge.

    For a paper, --svg, --png and --pdf write a picture of the head that --layer and --head choose.
    """
    # Only a live page can do without: it has a text to open with.
    is_given = text is not None
    if text is None:
        if not live:
            raise UsageError("Missing argument 'TEXT'.", context)
        text = OPENING
    # Pictures by their options.
    pictures = {"--svg": svg, "--png": png, "--pdf": pdf}
    files = {name: file for name, file in pictures.items() if file is not None}
    check_outputs({"--output": output, **files})
    _check_pictures(files, output)
    name = model or (DEFAULT_DECODER if generate else DEFAULT_MODEL)
    # Which form of look it is: by --generate, by TEXT, by TEXT2.
    of_text = ("live" if live else "text") if other is None else ("beside" if live else "compared")
    form = "generate" if generate else "run" if _is_run(text) else of_text
    is_of_two = form in ("compared", "beside")
    _check_form(form, text, context)  # before seconds of loading
    # Heads and layers in words, read before the model is loaded.
    held, alone, with_values = (
        [] if words is None else parse_heads_or_layers(name, words)
        for name, words in (("--heads", heads), ("--only", only), ("--values", values))
    )
    measured = [] if measures is None else [name.strip() for name in measures.split(",") if name.strip()]
    # The texts before the model, whose import takes seconds; of a run, TEXT2 is a number.
    second = other if is_of_two else pair
    texts = [] if form == "run" else read_texts([text] if second is None else [text, second])
    if is_of_two and texts[0] == texts[1]:
        raise InputError("TEXT2 must be another text than TEXT: between equal ones nothing differs.")
    target = None if target is None else as_typed(target)
    from regard.views import check_measures

    check_measures(measured)
    # Each form has its page, and what --json tells of it.
    if form == "generate":
        page, facts = _written(texts[0], name, max_length, beams, held, max_mb)
    elif form == "run":
        page, facts = _film(text, other, max_mb)
    elif form in ("live", "beside"):
        page, facts = _live(texts, name, is_of_two, is_given)
    else:
        loaded = load_model(name)
        traces = loaded.trace(texts) if form == "compared" else [loaded.trace(*texts, target=target)]
        drawn = {"pictures": [str(file.resolve()) for file in files.values()]} if files else {}
        # Pictures alone write no page, unless -o asks for one.
        if files:
            _draw(traces[0], files.values(), layer or 0, head or 0, kind, heat_map)
            if output is None:
                _print_result(files.values(), drawn, as_json)
                return
        page_of = {"values": with_values, "only": alone or None, "all_positions": all_positions}
        page, facts = _page(traces, measures=measured, max_mb=max_mb, heads=held, **page_of)
        facts = {**facts, **drawn}
    # Nobody said where: a folder that is not taken.
    path = _temporary() if output is None else output
    page.write(path)
    _print_result([path], {"path": str(path.resolve()), "bytes": path.stat().st_size, **facts}, as_json)
    # Over ssh there is no browser: said, and no error.
    if not no_open and not _open(path):
        typer.echo("There is no display here: open this file in a browser.", err=True)


def _is_run(text: str) -> bool:
    """Whether this is no sentence but the folder of a training run."""
    # Not of `Path`, which raises an error where a sentence can be no path.
    return os.path.isfile(os.path.join(text, "settings.json"))


def _check_form(form: str, text: str, context: typer.Context) -> None:
    """Refuse options of another form."""
    # What was typed: not None, and not a flag that is off.
    chosen = {name for name, value in context.params.items() if value is not None and value is not False}
    for name, typed in typed_names(context.command.params).items():
        if name in chosen and form not in _BELONGS.get(name, (form,)):
            raise InputError(f"{typed} must be left out {_WITHOUT[form].format(text=text)}.")


def _check_pictures(files: Mapping[str, Path], page: Path | None) -> None:
    # A page under the name of a picture opens nowhere.
    if page is not None and (picture := page.suffix.lower()) in (".svg", ".png", ".pdf"):
        raise InputError(f"--output writes a page; for a picture of one head give --{picture[1:]} {page}.")
    for name, file in files.items():
        if file.suffix.lower() != f".{name[2:]}":
            raise InputError(f"{name} writes a file that ends in .{name[2:]}; got {str(file)!r}.")


def _print_result(files: Iterable[Path], facts: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(facts)
        return
    for file in files:
        print_path(file.resolve())


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


def _written(
    text: str, model: str, max_length: int | None, beams: int | None, heads: Sequence[Any], max_mb: float
) -> "Made":
    """A text as a model writes it, step by step."""
    from regard.decoding import Beams

    rules: Any = {} if max_length is None else {"max_length": max_length}
    choice = None if beams is None else Beams(beams)
    watched = load_model(model).generate(text, trace="all", choice=choice, **rules)
    return watched.page(heads=heads, max_mb=max_mb), watched.to_json()


def _film(run: str, text: str | None, max_mb: float) -> "Made":
    """The steps of a training run, and what its heads did with one of the texts that it watched."""
    from regard.training import film

    page = film(run, 1 if text is None else text, max_mb=max_mb)
    return page, {"largest_difference": page.largest_difference}


def _live(texts: Sequence[str], model: str, is_of_two: bool, is_given: bool) -> "Made":
    """The model itself, which works out any sentence on the page, or what sets two apart."""
    loaded = load_model(model)
    if not is_given and "encoder" not in loaded.network.prefixes:
        texts = [BEGINNING, *texts[1:]]
    page = loaded.live_page(texts[0], against=texts[1]) if is_of_two else loaded.live_page(*texts)
    return page, {"largest_difference": page.live_difference}


def _draw(
    trace: "Trace", files: Iterable[Path], layer: int, head: int, kind: Kind | None, heat_map: bool
) -> None:
    """Write pictures of one head."""
    of: Any = None if kind is None else kind.value
    picture = trace.plot(layer, head, kind=of, form="map" if heat_map else "lines")
    for file in files:
        picture.write(file)


def _page(
    traces: Sequence["Trace"], *, measures: Sequence[str], max_mb: float, heads: Sequence[Any], **alone: Any
) -> "Made":
    """What every head does with a text, or with two; it is said which heads and measures had no room."""
    if len(traces) > 1:
        page = traces[0].difference_page(traces[1], heads=heads, max_mb=max_mb)
    else:
        page = traces[0].page(measures=measures, max_mb=max_mb, heads=heads, **alone)
    # Too slow, or too large: the page says it too.
    for name in measures:
        if name in page.left_out:
            typer.echo(f"{name} is not on the page: {page.left_out[name]}", err=True)
    # Heads were left out that nobody asked to leave out.
    if page.heads == "some" and not alone.get("only"):
        typer.echo(
            f"The page holds {sum(map(len, page.held.values()))} heads, since all would take more than "
            f"{max_mb:g} MB; it has a picture and the statistics of the others. Choose some with --heads, or "
            "raise --max-mb.",
            err=True,
        )
    return page, {
        "tokens": len(traces[0].tokens),
        "kinds": list(traces[0].kinds),
        "encoding": page.encoding,
        "largest_difference": page.largest_difference,
        "compared_one_query_in": page.every,
        "heads": page.heads,
        # As --heads would have them.
        "held": [f"{kind}.{layer}.{each}" for (kind, layer), some in page.held.items() for each in some],
        "values": page.values,
        "left_out": dict(page.left_out),
    }
