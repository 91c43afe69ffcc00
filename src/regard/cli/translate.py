"""`regard translate`: line by line through an encoder-decoder."""

from pathlib import Path

import typer

from regard.cli import _writing_options as writing
from regard.cli._input import as_typed
from regard.cli._lines import check_lines
from regard.cli._options import WRITING_MODEL, argument, flag, option
from regard.cli._output import check_new, check_outputs
from regard.cli._translate_job import Lines, to_file, to_stdout
from regard.core.errors import InputError


def translate(
    ctx: typer.Context,
    source: Path = argument("FILE", "One text a line; - or nothing is stdin.", Path("-")),
    output: Path | None = option(
        "--output -o FILE", "A file for the result; typed again, the command goes on with it."
    ),
    force: bool = flag("--force", "Write over a complete file."),
    model: str | None = WRITING_MODEL,
    prefix: str | None = option("--prefix TEXT", "How every translation begins."),
    prefixes: Path | None = option("--prefixes FILE", "A file: how each begins, line by line."),
    max_length: int | None = writing.MAX,
    min_length: int | None = writing.MIN,
    beams: int | None = writing.BEAMS,
    length_penalty: float | None = writing.LENGTH_PENALTY,
    best: int | None = option("--best N", "With --beams and --json: the best N."),
    repetition_penalty: float | None = writing.REPETITION,
    no_repeat: int | None = writing.NO_REPEAT,
    recommended: bool = writing.RECOMMENDED,
    precision: str = writing.PRECISION,
    lookup: bool = writing.LOOKUP,
    draft: str | None = writing.DRAFT,
    batch_tokens: int | None = option("--batch-tokens N", "The most tokens that run together."),
    as_json: bool = flag("--json", "Print a line of JSON for each: all beams, tokens, log-probabilities."),
) -> None:
    """Translate line by line, or summarise: whatever the encoder-decoder was trained for.

    Line n of the result belongs to line n of the source; empty lines stay empty. Without -o it goes to
    stdout. With -o you may interrupt the command and type it again: it goes on where it stopped, and writes
    what an uninterrupted run writes. Until the file is complete it is called FILE.unfinished; a complete one
    is written over only with --force.
    """
    given = ctx.params
    writing.check_choice(given)
    if best is not None and not as_json:
        raise InputError("--best goes with --json, which has room for several.")
    if prefix is not None and prefixes is not None:
        raise InputError("--prefix is for all lines and --prefixes for each; give one of the two.")
    for path, name in ((source, "FILE"), (prefixes, "--prefixes")):
        if path is not None:
            check_lines(path, name)
    check_outputs({"--output": output})
    check_new(output, force=force)
    loaded = writing.model_of(given, "Helsinki-NLP/opus-mt-en-de")
    if len(loaded.network.prefixes) != 2:
        raise InputError(
            f"--model must be an encoder-decoder, such as T5 or Marian; this {loaded.loaded.family} has one "
            "stack. With a decoder, `regard generate` goes on with texts."
        )
    how = {
        "choice": writing.choice_of(loaded, given),
        "count": 1 if best is None else best,
        **writing.rules_of(given),
    }
    if batch_tokens is not None:
        how["batch_tokens"] = batch_tokens
    if prefix is not None:
        how["prefix"] = as_typed(prefix)
    lines = Lines(source, prefixes, loaded, how, precision=precision)
    if output is None:
        to_stdout(lines, as_json)
    else:
        to_file(lines, output, as_json)
