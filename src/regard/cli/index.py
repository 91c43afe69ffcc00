"""`regard index`: a corpus by its words."""

import time
from pathlib import Path

import typer

from regard.cli._options import DELIMITER, ESCAPE, JSON, NO_HEADER, argument, flag, option
from regard.cli._output import Progress, print_json, say, status, stoppable
from regard.core.progress import duration

_NAMED = 10


def index(
    corpus: list[Path] = argument(
        "CORPUS...", "Files or folders: text, JSON lines, CSV, Parquet, CoNLL-U, VRT; - is stdin."
    ),
    output: Path = option("--output -o INDEX", "A new folder, or an index to go on with.", ...),
    text: str = option("--text-column NAME", "The column of the text.", "text"),
    date: str | None = option("--date-column NAME", "The column of the date, such as 1999 or 1999-12-31."),
    meta: list[str] | None = option("--meta NAME", "A column to know of each text; give it again for more."),
    unit: str = option("--unit WHAT", "A text of plain text: line, paragraph or file.", "line"),
    format: str | None = option(
        "--format NAME",
        "text, jsonl, csv, tsv, parquet, conllu or vrt; by default from the name and contents.",
    ),
    columns: str = option(
        "--vrt-columns NAMES", "What VRT's are, of word, pos, lemma and _.", "word,pos,lemma"
    ),
    lemmas: str | None = option("--lemmas LANG", "Look lemmas up, such as en, where CORPUS has none."),
    delimiter: str | None = DELIMITER,
    escape: str | None = ESCAPE,
    no_header: bool = NO_HEADER,
    encoding: str = option("--encoding NAME", "The encoding of all but Parquet, such as cp1252.", "utf-8"),
    everything: bool = flag("--all", "Compute the vectors of all words too, for find --any-word."),
    settings: Path | None = option("--settings FILE", "Layers and calibration, of `regard tune-layer -o`."),
    model: str | None = option("--model -m MODEL", "Of the vectors of --all; by default the usual."),
    as_json: bool = JSON,
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
