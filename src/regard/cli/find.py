"""`regard find`: the uses of a word, by what it means or by what stands around it."""

from pathlib import Path

from regard.cli._input import open_index
from regard.cli._options import INDEX, INDEX_MODEL, JSON, TABLE, WHERE, flag, option
from regard.cli._output import Progress, check_table, print_table, say, status, stoppable
from regard.core.errors import InputError


def find(
    index: Path = INDEX,
    sentence: str | None = option(
        "--in SENTENCE", 'Where the word means what is looked for; mark it: "the *bank*".'
    ),
    word: str | None = option("--word -w WORD", 'A word, some in a row, or a pattern: "/banks?/".'),
    where: list[str] | None = WHERE,
    k: int | None = option("-k N", "At most so many lines; 20, or with -o all."),
    sort: str | None = option("--sort KEYS", "By the words around, such as L1,R1, or node."),
    sample: int | None = option("--sample N", "So many uses, drawn at random."),
    seed: int = option("--seed N", "The seed of the sample.", 0),
    more: list[int] | None = option("--more USE", "A use, by its number, that is what is looked for."),
    less: list[int] | None = option("--less USE", "A use that is not looked for."),
    why: bool = flag("--why", "Say for each line which words around make it fit."),
    any_word: bool = flag("--any-word", "Find other words used so; `regard index --all` comes before."),
    output: Path | None = TABLE,
    save_where: str | None = option("--save-where NAME", "Keep the --where conditions, for --where @NAME."),
    model: str | None = INDEX_MODEL,
    as_json: bool = JSON,
) -> None:
    """Find the uses of a word, those first that mean what it means in a sentence.

    Without --in they come in the order of the corpus, or sorted. The first --in for a word computes a vector
    for each of its uses and keeps them in INDEX, so the next is quick. The number before a line is that of
    the use, for --more and --less.
    """
    if sentence is None and not more and (less or why):
        raise InputError("--less and --why go with --in or --more.")
    if sort is not None and (sentence is not None or more):
        raise InputError("--sort does not go with --in or --more, which rank the lines.")
    if word is None and sentence is None and save_where is None:
        raise InputError('give --word, or --in with the word marked, as in "on the *bank*".')
    check_table(output)
    concordance = open_index(index, model)
    if save_where is not None:
        concordance.save_subcorpus(save_where, where or ())
        say(f"--where @{save_where} stands for {', '.join(where or ())} from now on")
        if word is None and sentence is None:
            return
    if sentence is not None or more:
        with status("loading the model"):
            _ = concordance.vectors
    with stoppable(), Progress("uses") as progress:
        found = concordance.find(
            word,
            sentence=sentence,
            where=where or (),
            k=k if k is not None or (output is not None and not any_word) else 20,
            sort=() if sort is None else sort.split(","),
            sample=sample,
            seed=seed,
            more=more or (),
            less=less or (),
            why=why,
            any_word=any_word,
            progress=progress.show,
        )
    told = {"total": found.total, "about": found.about, "lines": found.to_rows()} if as_json else None
    print_table(found, "uses", output, told)
