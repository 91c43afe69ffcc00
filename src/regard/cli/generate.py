"""`regard generate`: a model goes on with a text."""

import re
import sys
from typing import Annotated

import typer

from regard.cli._options import JsonOption, print_json, read_texts
from regard.cli._writing_options import (
    BeamsOption,
    DraftOption,
    LengthPenaltyOption,
    LookupOption,
    MaxOption,
    MinOption,
    NoRepeatOption,
    PrecisionOption,
    RecommendedOption,
    RepetitionOption,
    WritingModelOption,
    check_choice,
    choice_of,
    rules_of,
    writing_model,
)
from regard.core.errors import InputError
from regard.core.printable import printable


def generate(
    ctx: typer.Context,
    texts: Annotated[
        list[str],
        typer.Argument(metavar="TEXT", help="The beginning of a text, or several; - reads it from stdin."),
    ],
    model: WritingModelOption = None,
    max_length: MaxOption = None,
    min_length: MinOption = None,
    stop: Annotated[
        list[str] | None,
        typer.Option("--stop", metavar="TEXT", help="End before this text; give it again for more."),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", metavar="N", help="How many texts: drawn, or the best beams.")
    ] = None,
    sample: Annotated[
        bool, typer.Option("--sample", help="Draw tokens by their probability; so do the next four options.")
    ] = False,
    temperature: Annotated[
        float | None,
        typer.Option("--temperature", metavar="X", help="Below 1: likelier tokens; above 1: more variety."),
    ] = None,
    top_k: Annotated[
        int | None, typer.Option("--top-k", metavar="N", help="Draw only from the N likeliest tokens.")
    ] = None,
    top_p: Annotated[
        float | None, typer.Option("--top-p", metavar="P", help="Draw from the likeliest that sum to P.")
    ] = None,
    min_p: Annotated[
        float | None,
        typer.Option("--min-p", metavar="P", help="Draw from those with at least P times the highest."),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", metavar="N", help="The seed of the draws: the same text every time."),
    ] = None,
    beams: BeamsOption = None,
    length_penalty: LengthPenaltyOption = None,
    repetition_penalty: RepetitionOption = None,
    no_repeat: NoRepeatOption = None,
    recommended: RecommendedOption = False,
    precision: PrecisionOption = "float32",
    lookup: LookupOption = False,
    draft: DraftOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let a language model continue a text. Prints the new text, without its beginning.

    A single text is shown as it is written. An empty line separates several; with --beams each begins with
    its score.
    """
    given = ctx.params
    check_choice(given)
    prompts = read_texts(texts)
    if not all(prompt.strip() for prompt in prompts):
        raise InputError("TEXT is empty: there is nothing to go on with.")
    loaded = writing_model(given, "gpt2")
    choice, rules, stops = choice_of(loaded, given), rules_of(given), stop or ()
    from regard.decoding import Beams

    if len(prompts) == 1 and count is None and not as_json and not isinstance(choice, Beams):
        for piece in loaded.stream(prompts[0], choice=choice, stop=stops, **rules):
            typer.echo(_shown(piece), nl=False)
        typer.echo()
        return
    found = loaded.generate(
        prompts, choice=choice, count=1 if count is None else count, stop=stops, progress=_quiet, **rules
    )
    if as_json:
        print_json({"model": loaded.name, "texts": [[way.to_json() for way in ways] for ways in found]})
        return
    scored = isinstance(choice, Beams) and count is not None
    typer.echo(
        "\n\n".join(
            (f"{way.score:.4f} " if scored else "") + _shown(way.text) for ways in found for way in ways
        )
    )


def _quiet(done: int, total: int) -> None:
    del done, total


def _shown(text: str) -> str:
    """As it is, but on a terminal, which would obey control characters, with signs for those."""
    return re.sub(r"[^\n\t]+", lambda part: printable(part[0]), text) if sys.stdout.isatty() else text
