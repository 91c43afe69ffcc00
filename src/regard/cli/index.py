"""`regard index`: a corpus by its words."""

import time
from pathlib import Path
from typing import Annotated

import typer

from regard.cli._csv_options import DelimiterOption, EscapeOption, NoHeaderOption
from regard.cli._options import JsonOption, print_json, status
from regard.cli._progress import Progress, duration, say, stoppable

_NAMED = 10


def index(
    corpus: Annotated[
        list[Path],
        typer.Argument(
            metavar="CORPUS...",
            help="Files or folders: text, JSON lines, CSV, Parquet, CoNLL-U, VRT; - is stdin.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="INDEX", help="A new folder, or an index to go on with."),
    ],
    text: Annotated[
        str, typer.Option("--text-column", metavar="NAME", help="The column of the text.")
    ] = "text",
    date: Annotated[
        str | None,
        typer.Option(
            "--date-column", metavar="NAME", help="The column of the date, such as 1999 or 1999-12-31."
        ),
    ] = None,
    meta: Annotated[
        list[str] | None,
        typer.Option("--meta", metavar="NAME", help="A column to know of each text; give it again for more."),
    ] = None,
    unit: Annotated[
        str,
        typer.Option("--unit", metavar="WHAT", help="A text of plain text: line, paragraph or file."),
    ] = "line",
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help="text, jsonl, csv, tsv, parquet, conllu or vrt; by default from the name and contents.",
        ),
    ] = None,
    columns: Annotated[
        str,
        typer.Option("--vrt-columns", metavar="NAMES", help="What VRT's are, of word, pos, lemma and _."),
    ] = "word,pos,lemma",
    lemmas: Annotated[
        str | None,
        typer.Option("--lemmas", metavar="LANG", help="Look lemmas up, such as en, where CORPUS has none."),
    ] = None,
    delimiter: DelimiterOption = None,
    escape: EscapeOption = None,
    no_header: NoHeaderOption = False,
    encoding: Annotated[
        str,
        typer.Option("--encoding", metavar="NAME", help="The encoding of all but Parquet, such as cp1252."),
    ] = "utf-8",
    everything: Annotated[
        bool,
        typer.Option("--all", help="Compute the vectors of all words too, for find --any-word."),
    ] = False,
    settings: Annotated[
        Path | None,
        typer.Option("--settings", metavar="FILE", help="Layers and calibration, of `regard tune-layer -o`."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", metavar="MODEL", help="Of the vectors of --all; by default the usual."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Index the words of a corpus: which stand where, and what is known of their texts.

    It takes no model: vectors come when `regard find` is asked for a word, or with --all now. Run the same
    command again after an interruption, of any kind: it goes on. With more files it adds them. Rows without a
    text are put aside and named. CoNLL-U and VRT keep their words, lemmas, parts of speech and attributes.
    """
    begun = time.monotonic()
    with status("looking at the input"):
        from regard.concordance import Reading, build_index, use_settings
        from regard.data import Csv

        reading = Reading(
            text=text,
            date=date,
            meta=tuple(meta or ()),
            unit=unit,
            format=format,
            columns=tuple(columns.split(",")),
            lemmas=lemmas,
            csv=Csv(delimiter=delimiter, escape=escape, header=not no_header),
            encoding=encoding,
        )
    with stoppable(), Progress() as progress:
        found = build_index(
            corpus, output, reading, progress=lambda texts, file: progress.show(texts, None, file)
        )
        if settings is not None:
            use_settings(output, settings)
        if everything:
            with status("loading the model"):
                from regard.concordance import Concordance

                concordance = Concordance(output, model)
                _ = concordance.vectors
            concordance.embed_all(progress.show)
    for place, why in found.put_aside[:_NAMED]:
        say(f"{place} is put aside: {why}")
    if more := found.put_aside[_NAMED:]:
        say(f"{len(more):,} more rows are put aside, {len(found.put_aside):,} in all")
    if as_json:
        aside = [{"place": place, "reason": why} for place, why in found.put_aside]
        print_json({"texts": found.texts, "words": found.words, "put_aside": aside})
        return
    texts, words = (
        f"{n:,} {what}{'s' * (n != 1)}" for n, what in ((found.texts, "text"), (found.words, "word"))
    )
    typer.echo(f"{texts}, {words} in {duration(time.monotonic() - begun)}")
