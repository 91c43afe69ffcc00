"""`regard count`: frequencies, keywords and collocates."""

import re
from typing import Annotated

import typer

from regard.cli._options import (
    IndexArgument,
    JsonOption,
    TableOption,
    WhereOption,
    check_table,
    console,
    open_index,
    print_json,
)
from regard.core.errors import InputError


def count(
    index: IndexArgument,
    word: Annotated[
        str | None,
        typer.Option("--word", "-w", metavar="WORD", help="This word only; as of regard find."),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            "--by", metavar="NAME", help="form, lemma, pos, year, decade, or a field of the corpus."
        ),
    ] = None,
    where: WhereOption = None,
    against: Annotated[
        list[str] | None,
        typer.Option(
            "--against", metavar="COND", help="Keywords of --where against these texts, or against rest."
        ),
    ] = None,
    collocates: Annotated[
        bool, typer.Option("--collocates", help="The words that stand near --word more than elsewhere.")
    ] = False,
    span: Annotated[
        str | None,
        typer.Option("--span", metavar="N|L,R", help="With --collocates: words on each side; 5."),
    ] = None,
    lemmas: Annotated[bool, typer.Option("--lemmas", help="Short for --by lemma.")] = False,
    k: Annotated[
        int | None, typer.Option("-k", metavar="N", help="At most so many rows; 30, or with -o all.")
    ] = None,
    output: TableOption = None,
    as_json: JsonOption = False,
) -> None:
    """Count words: all, one, by a field; keywords of a part; collocates.

    Case does not count, and neither does punctuation. A rate is per million words of the texts that --where
    allows. The dispersion over a field is Gries' normalised DP: 0 is even, 1 in one part only. Keywords and
    collocates come with the log-likelihood G2, by which they are sorted, and with the log ratio, of base 2.
    """
    if collocates and (word is None or against):
        raise InputError("--collocates goes with --word, and not with --against.")
    if span is not None and not collocates:
        raise InputError("--span goes with --collocates.")
    if lemmas and by is not None:
        raise InputError("give --lemmas or --by, not both.")
    check_table(output)
    unit = "lemma" if lemmas else "form" if by is None else by
    sides = re.fullmatch(r"(\d+)(?:,(\d+))?", "5" if span is None else span)
    if sides is None:
        raise InputError(f"--span must be a number of words, or two such as 0,3; got {span!r}.")
    most = k if k is not None or output is not None else 30
    concordance = open_index(index)
    if collocates:
        assert word is not None
        around = int(sides[1]), int(sides[2] or sides[1])
        found = concordance.collocates(word, span=around, by=unit, where=where or (), k=most)
    else:
        found = concordance.count(word, by=unit, where=where or (), against=against or (), k=most)
    if output is not None:
        found.to_file(output)
    if as_json:
        print_json(
            {
                "about": found.about,
                "total": found.total,
                "dispersion": found.dispersion,
                "rows": found.to_rows(),
            }
        )
    elif output is not None:
        typer.echo(f"{len(found):,} of {found.total:,} rows in {output}")
    else:
        console().print(found)
