"""The commands of a concordance: `regard index`, `find`, `count`, `senses`, `drift` and `tune-layer`."""

import json
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer

from regard.cli._input import load_model, open_index
from regard.cli._options import DELIMITER, ESCAPE, JSON, MODEL, NO_HEADER, argument, flag, option
from regard.cli._output import (
    BarOrLines,
    check_folder,
    check_outputs,
    check_table,
    console,
    print_json,
    print_path,
    print_table,
    say,
    status,
    stoppable,
)
from regard.core.errors import InputError
from regard.core.progress import duration
from regard.core.wording import printable

if TYPE_CHECKING:
    from regard.concordance import Line
    from regard.data import Unit

INDEX_MODEL = option("--model -m MODEL", "By default that of INDEX, or the usual one.")
INDEX = argument("INDEX", "The folder of an index, as regard index makes it.")
WHERE = option(
    "--where COND", 'Only there, such as genre=news, "year>=1990", "text~river" or @NAME; all that are given.'
)
TABLE = option("--output -o FILE", "Write a .csv, .tsv (for spreadsheets), .jsonl or .parquet file.")
WORD = argument("WORD", "A word or several in a row.")
QUERY = argument(
    "WORD", 'A word, some in a row, bank*, "/banks?/", or CQL: \'[lemma="go"] []{0,3} "bank"\'.', None
)
GIVEN = option("--word -w WORD", "Instead of WORD: the same.")
CASE = flag("--case", "Capitals must be as they are given.")
DIACRITICS = flag("--ignore-diacritics", "cafe finds café too.")
SENSES = option("--file -f FILE", "Senses with examples, in JSON, to label the uses by.")
SEED = option("--seed N", "The seed of the samples.", 0)

_NAMED = 10  # of the rows that are put aside


def index(
    corpus: list[Path] = argument(
        "CORPUS...", "Files or folders: text, JSON lines, CSV, Parquet, CoNLL-U, VRT; - is stdin."
    ),
    output: Path = option("--output -o INDEX", "A new folder, or an index to go on with.", ...),
    text: str = option("--text-column NAME", "The column of the text.", "text"),
    date: str | None = option("--date-column NAME", "The column of the date, such as 1999 or 1999-12-31."),
    date_order: str | None = option(
        "--date-order ORDER", "With --date-column: dmy or mdy, where dates are as 31/12/1999.", None
    ),
    meta: list[str] | None = option(
        "--meta NAME", "Keep this column of each text, given again for more, and no others; by default all."
    ),
    no_meta: bool = flag("--no-meta", "Instead of --meta: keep no columns but the text and its date."),
    document: str | None = option("--document NAME", "The column that says which rows are of one document."),
    unit: str = option("--unit WHAT", "A text of plain text: line, paragraph or file.", "line"),
    format: str | None = option(
        "--format NAME",
        "text, jsonl, csv, tsv, parquet, conllu or vrt; by default from the name and contents.",
    ),
    columns: str = option(
        "--vrt-columns NAMES", "What VRT's are, of word, pos, lemma and _.", "word,pos,lemma"
    ),
    lemmas: str | None = option("--lemmas LANG", "Look lemmas up, such as en, where CORPUS has none."),
    apostrophes: str | None = option("--split-apostrophes LANG", "Part nation's, l'homme: en, fr or it."),
    delimiter: str | None = DELIMITER,
    escape: str | None = ESCAPE,
    no_header: bool = NO_HEADER,
    encoding: str = option("--encoding NAME", "The encoding of all but Parquet, such as cp1252.", "utf-8"),
    everything: bool = flag("--all", "Compute the vectors of all words too, for find --any-word."),
    settings: Path | None = option("--settings FILE", "Layers and calibration, of `regard tune-layer -o`."),
    model: str | None = option("--model -m MODEL", "With --all: that of the vectors; by default the usual."),
    as_json: bool = JSON,
) -> None:
    """Index the words of a corpus: which stand where, and what is known of their texts.

    It takes no model: vectors come when `regard find` is asked for a word, or with --all now. Run the same
    command again after an interruption, of any kind: it goes on. With more files it adds them. Rows without a
    text are put aside and named. Tables keep their other columns, but for values of more than 1,000
    characters; CoNLL-U and VRT keep their words, lemmas, parts of speech and attributes.
    """
    begun = time.monotonic()
    check_folder(output)
    # Importing and opening may take a moment.
    with status("looking at the input"):
        from regard.concordance import Reading, build_index, use_settings
        from regard.data import Csv

        # All that says how the corpus is read.
        reading = Reading(
            text=text,
            date=date,
            date_order=date_order,
            meta=() if no_meta else tuple(meta) if meta else None,
            document=document,
            unit=cast("Unit", unit),
            format=format,
            columns=tuple(columns.split(",")),
            lemmas=lemmas,
            apostrophes=apostrophes,
            csv=Csv(delimiter=delimiter, escape=escape, header=not no_header),
            encoding=encoding,
        )
    with stoppable(), BarOrLines() as progress:
        built = build_index(
            corpus, output, reading, progress=lambda texts, file: progress.show(texts, None, file)
        )
        if settings is not None:
            use_settings(output, settings)
        if everything:
            open_index(output, model).embed_all(progress.show)
    facts: dict[str, Any] = {"texts": built.texts, "words": built.words}
    # Rows that were not taken, and those without a date.
    for name, rows, what in (
        ("put_aside", built.put_aside, "put aside"),
        ("undated", built.undated, "without a date"),
        ("left_out", built.left_out, "not kept as a whole"),
    ):
        for place, why in rows[:_NAMED]:
            say(f"{place} is {what}: {why}")
        if more := rows[_NAMED:]:
            say(f"{len(more):,} more are {what}, {len(rows):,} in all")
        facts[name] = [{"place": place, "reason": why} for place, why in rows]
    if as_json:
        print_json(facts | {"fields": built.fields})
        return
    texts, words = (
        f"{n:,} {what}{'s' * (n != 1)}" for n, what in ((built.texts, "text"), (built.words, "word"))
    )
    fields = f"; fields: {', '.join(built.fields)}" if built.fields else ""
    typer.echo(printable(f"{texts}, {words} in {duration(time.monotonic() - begun)}{fields}"))


def find(
    index: Path = INDEX,
    word: str | None = QUERY,
    sentence: str | None = option(
        "--in SENTENCE", 'Where the word means what is looked for; mark it: "the *bank*".'
    ),
    given: str | None = GIVEN,
    where: list[str] | None = WHERE,
    k: int | None = option("-k N", "At most so many lines; 20, or with -o all."),
    sort: str | None = option(
        "--sort KEYS", "Instead of --in or --more: by the words around, such as L1,R1, or node."
    ),
    sample: int | None = option("--sample N", "So many uses, drawn at random."),
    seed: int = option("--seed N", "With --sample: its seed.", 0),
    more: list[int] | None = option("--more USE", "A use, by its number, that is what is looked for."),
    less: list[int] | None = option("--less USE", "With --in or --more: a use that is not looked for."),
    why: bool = flag("--why", "With --in or --more: say for each line which words around make it fit."),
    any_word: bool = flag("--any-word", "Find other words used so; `regard index --all` comes before."),
    output: Path | None = TABLE,
    width: int = option("--width N", "Cells of a line.", 80, min=40),
    whole: bool = flag("--sentences", "Whole sentences in the place of lines."),
    save_where: str | None = option(
        "--save-where NAME", "With --where: keep its conditions, for --where @NAME."
    ),
    case: bool = CASE,
    bare: bool = DIACRITICS,
    model: str | None = INDEX_MODEL,
    as_json: bool = JSON,
) -> None:
    """Find the uses of a word, those first that mean what it means in a sentence.

    Without --in they come in the order of the corpus, or sorted. The first --in for a word computes a vector
    for each of its uses and keeps them in INDEX, so the next is quick. The number before a line is that of
    the use, for --more and --less.
    """
    # WORD and --word are the same.
    word = given if word is None else word
    if word is None and sentence is None and save_where is None:
        raise InputError('give WORD, or --in with the word marked, as in "on the *bank*".')
    # The file's ending, before the search.
    check_table(output)
    concordance = open_index(index, model)
    if save_where is not None:
        concordance.save_subcorpus(save_where, where or ())
        say(f"--where @{save_where} stands for {', '.join(where or ())} from now on")
        # Nothing to find: the conditions were to be kept.
        if word is None and sentence is None:
            return
    with stoppable(), BarOrLines("uses") as progress:
        uses = concordance.find(
            word,
            sentence=sentence,
            where=where or (),
            # A terminal shows 20; a file holds all.
            k=k if k is not None or (output is not None and not any_word) else 20,
            sort=() if sort is None else sort.split(","),
            sample=sample,
            seed=seed,
            more=more or (),
            less=less or (),
            why=why,
            any_word=any_word,
            case=case,
            diacritics=not bare,
            progress=progress.show,
        )
    # How it is drawn is no part of what was found.
    uses = replace(uses, width=width, whole=whole)
    facts = {"total": uses.total, "about": uses.about, "per_million": uses.per_million}
    print_table(uses, "uses", output, facts | {"lines": uses.to_rows()} if as_json else None)


def count(
    index: Path = INDEX,
    word: str | None = QUERY,
    given: str | None = GIVEN,
    by: str | None = option("--by NAME", "form, lemma, pos, year, source, a field; or L1, R1, node: groups."),
    where: list[str] | None = WHERE,
    against: list[str] | None = option(
        "--against COND", "Keywords of --where against these texts, or against rest."
    ),
    collocates: bool = flag(
        "--collocates", "Without --against: the words that stand near WORD more than elsewhere."
    ),
    span: str | None = option("--span N|L,R", "With --collocates: words on each side; 5."),
    measure: str = option(
        "--measure NAME", "With --collocates: sort by g2, log_ratio, log_dice, mi, mi3 or t.", "g2"
    ),
    least: int = option(
        "--least N", "With --collocates or --against: only words that are there so often.", 0
    ),
    lemmas: bool = flag("--lemmas", "Instead of --by: lemmas."),
    plot: bool = flag("--plot", "Show where WORD stands in the texts of each value of --by."),
    k: int | None = option("-k N", "At most so many rows; 30, or with -o all."),
    case: bool = CASE,
    bare: bool = DIACRITICS,
    output: Path | None = TABLE,
    as_json: bool = JSON,
) -> None:
    """Count words: all, one, by a field; keywords of a part; collocates.

    Case does not count, and neither does punctuation. A rate is per million words of the texts that --where
    allows. The dispersion over a field is Gries' normalised DP: 0 is even, 1 in one part only. Keywords and
    collocates come with the log-likelihood G2, by which they are sorted, its p by Holm's correction for
    so many words, and the log ratio, of base 2; collocates in a file also with logDice, MI, MI3 and t.
    """
    word = given if word is None else word
    if collocates and word is None:
        raise InputError("--collocates goes with WORD.")
    check_table(output)
    unit = "lemma" if lemmas else by or ("source" if plot else "form")
    # One number for both sides, or two.
    sides = re.fullmatch(r"(\d+)(?:,(\d+))?", "5" if span is None else span)
    if sides is None:
        raise InputError(f"--span must be a number of words, or two such as 0,3; got {span!r}.")
    # A terminal shows 30; a file holds all.
    most = k if k is not None or output is not None else 30
    concordance = open_index(index)
    # Two questions with their own arguments.
    if collocates:
        assert word is not None
        around = int(sides[1]), int(sides[2] or sides[1])
        table = concordance.collocates(
            word,
            span=around,
            by=unit,
            where=where or (),
            k=most,
            least=least,
            measure=measure,
            case=case,
            diacritics=not bare,
        )
    else:
        table = concordance.count(
            word,
            by=unit,
            where=where or (),
            against=against or (),
            k=most,
            least=least,
            plot=plot,
            case=case,
            diacritics=not bare,
        )
    about = {"about": table.about, "total": table.total, "dispersion": table.dispersion}
    print_table(table, "rows", output, about | {"rows": table.to_rows()} if as_json else None)


def senses(
    index: Path = INDEX,
    word: str = WORD,
    groups: int | None = option("--groups N", "Without --teach: so many groups, stable or not."),
    file: Path | None = SENSES,
    teach: bool = flag("--teach", "With --file: ask for the senses of a few lines, and add them to it."),
    most: int = option("--most N", "With --teach: so many answers.", 20),
    where: list[str] | None = WHERE,
    page: Path | None = option("--page FILE", "Write a page too: a map of the uses."),
    seed: int = SEED,
    model: str | None = INDEX_MODEL,
    as_json: bool = JSON,
) -> None:
    """Put the uses of a word into groups by what they mean where they stand.

    Each group has its share, typical lines and the words that set it apart; and it is said how stable the
    grouping is. A --file that is not there is written: give the groups names in it, and move examples from
    one to another. One that is there labels the uses by its examples, in this index or another.

    With --teach, lines are shown that would decide most. Press the number of a sense, n for a new one, s to
    pass a line over, q to stop. Every answer is saved at once, so one may go on later. Where stdin is no
    terminal, each of its lines is an answer: a name, a number, s or q.
    """
    check_outputs({"--page": page, "--file": file})
    corpus = open_index(index, model)
    condition = where or []
    with BarOrLines("uses") as progress:
        # Asking comes first: the groups then have names.
        if teach and file is not None:
            count = corpus.teach(word, file, _ask, where=condition, most=most, progress=progress.show)
            say(f"{count} line{'s' * (count != 1)} labelled, in {file}")
        result = corpus.senses(
            word, where=condition, groups=groups, file=file, seed=seed, progress=progress.show
        )
    if page is not None:
        result.page().write(page)
    written = {} if page is None else {"page": str(page.resolve())}
    if as_json:
        about: dict[str, Any] = {"word": result.word, "about": result.about, "stability": result.stability}
        print_json({**about, "groups": result.to_rows(), "lines": result.lines.to_rows(), **written})
        return
    console().print(result)
    if page is not None:
        print_path(page.resolve())


def _ask(line: "Line", names: Sequence[str]) -> str | None:
    # What the senses so far would say.
    guess = "" if line.label is None else f"   [{line.label}? {100 * (line.probability or 0):.0f} %]"
    left, right = " ".join(line.left[-120:].split()), " ".join(line.right[:120].split())
    typer.echo("\n" + printable(f"{left} [[{line.place.node}]] {right}{guess}"), err=True)
    keys = [f"{number} {name}" for number, name in enumerate(names[:9], 1)]
    typer.echo(printable("   ".join([*keys, "n new", "s pass over", "q stop"])), err=True)
    # A file of answers, one a line, or a person at the keys.
    if not sys.stdin.isatty():
        answer = sys.stdin.readline()
        typed = answer.strip() or ("s" if answer else "q")
    elif (typed := typer.getchar()) == "n":
        typed = typer.prompt("its name", err=True).strip()
        return str(typed)
    # q, Escape and Ctrl-D.
    if typed in ("q", "\x1b", "\x04"):
        return None
    if typed.isdecimal() and 1 <= int(typed) <= len(names):
        return names[int(typed) - 1]
    return "" if typed == "s" or len(typed) == 1 else typed


def drift(
    index: Path = INDEX,
    word: str = WORD,
    by: str = option("--by FIELD", "date, or a field whose values are the parts.", "date"),
    bins: str | None = option("--bins DATES", "Where periods begin: 1950,1980. Default: two halves."),
    document: str | None = option("--document FIELD", "Which rows are of one document; as the index says."),
    file: Path | None = SENSES,
    where: list[str] | None = WHERE,
    samples: int = option("--samples N", "Bootstrap samples, and permutations.", 999),
    seed: int = SEED,
    model: str | None = INDEX_MODEL,
    as_json: bool = JSON,
) -> None:
    """Measure how the use of a word differs between periods, or between parts of a corpus.

    APD is the average distance between a use here and one there, PRT the distance of the mean vectors, JSD
    the Jensen-Shannon divergence of the shares of the senses, in bits. Each has a 95 % interval (a
    bootstrap over documents), its mean where documents are dealt at random, and the p of that. Of two parts,
    the lines are shown that set each apart most.
    """
    dates = [] if bins is None else [each for each in bins.split(",") if each.strip()]
    with BarOrLines("uses") as progress:
        result = open_index(index, model).drift(
            word,
            by,
            bins=dates,
            document=document,
            where=where or [],
            file=file,
            samples=samples,
            seed=seed,
            progress=progress.show,
        )
    if as_json:
        lines = [[each.to_rows() for each in change.lines] for change in result.changes]
        facts = {"word": result.word, "left_out": result.left_out, "note": result.note}
        print_json(facts | {"rows": result.to_rows(), "lines": lines})
        return
    console().print(result)


def tune_layer(
    data: list[Path] = argument("DATA...", "Uses that people have judged, a file for each kind; see above."),
    model: str = MODEL,
    output: Path | None = option("--output -o FILE", "Write the best settings, for --settings."),
    index: Path | None = option("--index INDEX", "Let this index use them; it must have no vectors yet."),
    as_json: bool = JSON,
) -> None:
    """Find the layers of a model that tell senses apart best, and calibrate what they say.

    DATA is NAME.data.txt of Word in Context, with NAME.gold.txt beside it; or JSON lines, either pairs,
    {"word": .., "first": USE, "second": USE, "same": true}, or senses, {"word": .., "sense": ..} with a use.
    A use is {"text": .., "start": .., "stop": ..} or {"words": [..], "index": ..}.

    The best layers have the least mean rank over the files: by the log loss on words that the fit has not
    seen; with senses, by the uses that have the sense of their five nearest.
    """
    check_outputs({"--output": output})
    from regard.concordance import read_judged, tune_layers, use_settings

    if index is not None:
        # Refuses an index that has vectors, before minutes of work.
        use_settings(index, None)
    judged = list(map(read_judged, data))
    loaded = load_model(model)
    with BarOrLines("uses") as progress:
        tuning = tune_layers(loaded, judged, progress=progress.show)
    if output is not None:
        from regard.core.files import write_whole

        write_whole(output, json.dumps(tuning.settings, indent=2).encode())
    if index is not None:
        use_settings(index, tuning.settings)
    if as_json:
        print_json({"settings": tuning.settings, "scores": tuning.to_rows()})
        return
    console().print(tuning)
    if output is not None:
        print_path(output)
