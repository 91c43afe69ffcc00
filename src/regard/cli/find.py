"""`regard find`: the uses of a word, by what it means or by what stands around it."""

from typing import Annotated

import typer

from regard.cli._options import (
    IndexArgument,
    IndexModelOption,
    JsonOption,
    TableOption,
    WhereOption,
    check_table,
    console,
    open_index,
    print_json,
    status,
)
from regard.cli._progress import Progress, say, stoppable
from regard.core.errors import InputError


def find(
    index: IndexArgument,
    sentence: Annotated[
        str | None,
        typer.Option(
            "--in", metavar="SENTENCE", help='Where the word means what is looked for; mark it: "the *bank*".'
        ),
    ] = None,
    word: Annotated[
        str | None,
        typer.Option("--word", "-w", metavar="WORD", help='A word, some in a row, or a pattern: "/banks?/".'),
    ] = None,
    where: WhereOption = None,
    k: Annotated[
        int | None, typer.Option("-k", metavar="N", help="At most so many lines; 20, or with -o all.")
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option("--sort", metavar="KEYS", help="By the words around, such as L1,R1, or node."),
    ] = None,
    sample: Annotated[
        int | None, typer.Option("--sample", metavar="N", help="So many uses, drawn at random.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="The seed of the sample.")] = 0,
    more: Annotated[
        list[int] | None,
        typer.Option("--more", metavar="USE", help="A use, by its number, that is what is looked for."),
    ] = None,
    less: Annotated[
        list[int] | None, typer.Option("--less", metavar="USE", help="A use that is not looked for.")
    ] = None,
    why: Annotated[
        bool, typer.Option("--why", help="Say for each line which words around make it fit.")
    ] = False,
    any_word: Annotated[
        bool,
        typer.Option("--any-word", help="Find other words used so; `regard index --all` comes before."),
    ] = False,
    output: TableOption = None,
    save_where: Annotated[
        str | None,
        typer.Option("--save-where", metavar="NAME", help="Keep the --where conditions, for --where @NAME."),
    ] = None,
    model: IndexModelOption = None,
    as_json: JsonOption = False,
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
    if output is not None:
        found.to_file(output)
    if as_json:
        print_json({"total": found.total, "about": found.about, "lines": found.to_rows()})
    elif output is not None:
        typer.echo(f"{len(found):,} of {found.total:,} uses in {output}")
    else:
        console().print(found)
