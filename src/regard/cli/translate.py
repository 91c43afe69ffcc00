"""`regard translate`: line by line through an encoder-decoder."""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli._options import check_outputs
from regard.cli._translate_job import Lines, to_file, to_stdout
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


def translate(
    ctx: typer.Context,
    source: Annotated[
        Path, typer.Argument(metavar="FILE", help="One text a line; - or nothing is stdin.")
    ] = Path("-"),
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="A file, which a second run goes on with."),
    ] = None,
    model: WritingModelOption = None,
    max_length: MaxOption = None,
    min_length: MinOption = None,
    beams: BeamsOption = None,
    length_penalty: LengthPenaltyOption = None,
    best: Annotated[
        int | None, typer.Option("--best", metavar="N", help="With --beams and --json: the best N.")
    ] = None,
    repetition_penalty: RepetitionOption = None,
    no_repeat: NoRepeatOption = None,
    recommended: RecommendedOption = False,
    precision: PrecisionOption = "float32",
    lookup: LookupOption = False,
    draft: DraftOption = None,
    batch_tokens: Annotated[
        int | None, typer.Option("--batch-tokens", metavar="N", help="Tokens that run together, at most.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="A line of JSON for each: all ways, tokens, log-probabilities.")
    ] = False,
) -> None:
    """Translate line by line, or summarise: whatever the encoder-decoder was trained for.

    Line n of the result belongs to line n of the source; empty lines stay empty. Without -o it goes to
    stdout. With -o the same command goes on where it was stopped, by whatever, and gives the file of one
    run; until then it is FILE.unfinished.
    """
    given = ctx.params
    check_choice(given)
    if best is not None and not as_json:
        raise InputError("--best goes with --json, which has room for several.")
    check_outputs({"--output": output})
    loaded = writing_model(given, "Helsinki-NLP/opus-mt-en-de")
    if len(loaded.network.prefixes) != 2:
        raise InputError(
            f"--model must be an encoder-decoder, such as T5 or Marian; this {loaded.loaded.family} has one "
            "stack. With a decoder, `regard generate` goes on with texts."
        )
    how = {"choice": choice_of(loaded, given), "count": 1 if best is None else best, **rules_of(given)}
    if batch_tokens is not None:
        how["batch_tokens"] = batch_tokens
    lines = Lines(source, loaded, how, precision=precision)
    if output is None:
        to_stdout(lines, as_json)
    else:
        to_file(lines, output, as_json)
