"""`regard drift`: how the use of a word differs between periods or parts of a corpus."""

from pathlib import Path

from regard.cli._input import open_index
from regard.cli._options import INDEX, INDEX_MODEL, JSON, WHERE, option
from regard.cli._output import Progress, console, print_json
from regard.cli.senses import SEED, SENSES, WORD


def drift(
    index: Path = INDEX,
    word: str = WORD,
    by: str = option("--by FIELD", "date, or a field whose values are the parts.", "date"),
    bins: str | None = option("--bins DATES", "Where periods begin: 1950,1980. Default: two halves."),
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
    with Progress("uses") as progress:
        found = open_index(index, model).drift(
            word,
            by,
            bins=dates,
            where=where or [],
            file=file,
            samples=samples,
            seed=seed,
            progress=progress.show,
        )
    if as_json:
        lines = [[each.to_rows() for each in change.lines] for change in found.changes]
        print_json({"word": found.word, "left_out": found.left_out, "rows": found.to_rows(), "lines": lines})
        return
    console().print(found)
