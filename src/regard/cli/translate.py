"""`regard translate`: line by line through an encoder-decoder."""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli._options import as_typed, check_new, check_outputs
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
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="A file for the result; typed again, the command goes on with it.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a complete file.")] = False,
    model: WritingModelOption = None,
    prefix: Annotated[
        str | None, typer.Option("--prefix", metavar="TEXT", help="How every translation begins.")
    ] = None,
    prefixes: Annotated[
        Path | None,
        typer.Option("--prefixes", metavar="FILE", help="A file: how each begins, line by line."),
    ] = None,
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
        int | None, typer.Option("--batch-tokens", metavar="N", help="The most tokens that run together.")
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print a line of JSON for each: all beams, tokens, log-probabilities."),
    ] = False,
) -> None:
    """Translate line by line, or summarise: whatever the encoder-decoder was trained for.

    Line n of the result belongs to line n of the source; empty lines stay empty. Without -o it goes to
    stdout. With -o you may interrupt the command and type it again: it goes on where it stopped, and writes
    what an uninterrupted run writes. Until the file is complete it is called FILE.unfinished; a complete one
    is written over only with --force.
    """
    given = ctx.params
    check_choice(given)
    if best is not None and not as_json:
        raise InputError("--best goes with --json, which has room for several.")
    if prefix is not None and prefixes is not None:
        raise InputError("--prefix is for all lines and --prefixes for each; give one of the two.")
    check_outputs({"--output": output})
    check_new(output, force=force)
    loaded = writing_model(given, "Helsinki-NLP/opus-mt-en-de")
    if len(loaded.network.prefixes) != 2:
        raise InputError(
            f"--model must be an encoder-decoder, such as T5 or Marian; this {loaded.loaded.family} has one "
            "stack. With a decoder, `regard generate` goes on with texts."
        )
    how = {"choice": choice_of(loaded, given), "count": 1 if best is None else best, **rules_of(given)}
    if batch_tokens is not None:
        how["batch_tokens"] = batch_tokens
    if prefix is not None:
        how["prefix"] = as_typed(prefix)
    lines = Lines(source, prefixes, loaded, how, precision=precision)
    if output is None:
        to_stdout(lines, as_json)
    else:
        to_file(lines, output, as_json)
