"""The four pages of `regard look`: of a text, of a text being written, of a training run, of the model."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from regard.cli._input import as_typed, load_model, read_texts
from regard.cli._options import Kind

if TYPE_CHECKING:
    from regard.tracing import Trace
    from regard.views import Page

    Made = tuple[Page, Mapping[str, Any]]
    """A page, and what --json tells of it."""


def written(
    text: str, model: str, max_length: int | None, beams: int | None, heads: Sequence[Any], max_mb: float
) -> "Made":
    """A text as a model writes it, step by step."""
    from regard.decoding import Beams

    rules: Any = {} if max_length is None else {"max_length": max_length}
    choice = None if beams is None else Beams(beams)
    [begun] = read_texts([text])  # which may stand for stdin
    found = load_model(model).generate(begun, trace="all", choice=choice, **rules)
    return found.page(heads=heads, max_mb=max_mb), found.to_json()


def film(run: str, text: str | None, max_mb: float) -> "Made":
    """The steps of a training run, and what its heads did with one of the texts that it watched."""
    from regard.training import film

    page = film(run, 1 if text is None else text, max_mb=max_mb)
    return page, {"largest_difference": page.largest_difference}


def live(text: str, pair: str | None, model: str) -> "Made":
    """The model itself, which works out any sentence on the page."""
    page = load_model(model).live_page(*_texts(text, pair))
    return page, {"largest_difference": page.live_difference}


def traced(text: str, pair: str | None, target: str | None, model: str) -> "Trace":
    """What a model does with a text: for its page, and for pictures of a head."""
    return load_model(model).trace(*_texts(text, pair), target=None if target is None else as_typed(target))


def draw(
    trace: "Trace", files: Iterable[Path], layer: int, head: int, kind: Kind | None, heat_map: bool
) -> None:
    """Write pictures of one head."""
    of: Any = None if kind is None else kind.value
    picture = trace.plot(layer, head, kind=of, form="map" if heat_map else "lines")
    for file in files:
        picture.write(file)


def page(
    trace: "Trace", *, measures: Sequence[str], max_mb: float, only: Sequence[Any], **held: Any
) -> "Made":
    """What every head does with a text; it is said which heads and measures had no room."""
    made = trace.page(measures=measures, max_mb=max_mb, only=only or None, **held)
    for name in measures:
        if name in made.left_out:
            typer.echo(f"{name} is not on the page: {made.left_out[name]}", err=True)
    if made.heads == "some" and not only:
        typer.echo(
            f"The page holds {sum(map(len, made.held.values()))} heads, since all would take more than "
            f"{max_mb:g} MB; it has a picture and the statistics of the others. Choose some with --heads, or "
            "raise --max-mb.",
            err=True,
        )
    return made, {
        "tokens": len(trace.tokens),
        "kinds": list(trace.kinds),
        "encoding": made.encoding,
        "largest_difference": made.largest_difference,
        "compared_one_query_in": made.every,
        "heads": made.heads,
        "held": [f"{kind}.{layer}.{each}" for (kind, layer), some in made.held.items() for each in some],
        "values": made.values,
        "left_out": dict(made.left_out),
    }


def _texts(text: str, pair: str | None) -> list[str]:
    return read_texts([text] if pair is None else [text, pair])
