"""`regard count`: frequencies, keywords and collocates."""

import re
from pathlib import Path

from regard.cli._input import open_index
from regard.cli._options import INDEX, JSON, TABLE, WHERE, flag, option
from regard.cli._output import check_table, print_table
from regard.core.errors import InputError


def count(
    index: Path = INDEX,
    word: str | None = option("--word -w WORD", "This word only; as of regard find."),
    by: str | None = option("--by NAME", "form, lemma, pos, year, decade, or a field of the corpus."),
    where: list[str] | None = WHERE,
    against: list[str] | None = option(
        "--against COND", "Keywords of --where against these texts, or against rest."
    ),
    collocates: bool = flag("--collocates", "The words that stand near --word more than elsewhere."),
    span: str | None = option("--span N|L,R", "With --collocates: words on each side; 5."),
    lemmas: bool = flag("--lemmas", "Short for --by lemma."),
    k: int | None = option("-k N", "At most so many rows; 30, or with -o all."),
    output: Path | None = TABLE,
    as_json: bool = JSON,
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
    about = {"about": found.about, "total": found.total, "dispersion": found.dispersion}
    print_table(found, "rows", output, about | {"rows": found.to_rows()} if as_json else None)
