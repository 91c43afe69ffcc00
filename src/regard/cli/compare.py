"""`regard compare`: one word in several sentences."""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli._options import (
    DEFAULT_MODEL,
    JsonOption,
    ModelOption,
    as_typed,
    check_output,
    console,
    load_model,
    print_json,
    read_texts,
)
from regard.core.errors import InputError


def compare(
    texts: Annotated[
        list[str], typer.Argument(metavar="TEXT", help="Two sentences or more; - reads one from stdin.")
    ],
    word: Annotated[
        list[str],
        typer.Option(
            "--word",
            "-w",
            metavar="WORD",
            help='The word, once for all texts or once for each; "bank#2" is its second occurrence.',
        ),
    ],
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Draw it too, in a .png, .svg or .pdf file."),
    ] = None,
    model: ModelOption = DEFAULT_MODEL,
    as_json: JsonOption = False,
) -> None:
    """See how alike one word's vectors are between sentences, at every layer.

    1 means the same direction. Layer 0 is the learned embedding, which is the same in every sentence; the
    last layer is the contextual one.
    """
    if len(texts) < 2:
        raise InputError("give two texts or more, to compare the word between them.")
    if plot is not None:
        check_output(plot)
    texts = read_texts(texts)
    words = [as_typed(each) for each in word]
    comparison = load_model(model).compare(texts, words[0] if len(words) == 1 else words)
    from regard.views import plot_comparison, print_comparison

    if plot is not None:
        plot_comparison(comparison, plot)
    if as_json:
        print_json(comparison.to_json())
    else:
        print_comparison(comparison, console())
