"""`regard train word2vec` and `regard train fasttext`: static embeddings."""

from collections.abc import Callable, Mapping
from typing import Annotated

import typer

from regard.cli._options import JsonOption
from regard.cli._train_run import (
    ConfigOption,
    DataArgument,
    OutputOption,
    SeedOption,
    ShowOption,
    check_output,
    names,
    run,
)

WORD_OBJECTIVES: Mapping[str, tuple[str, str]] = {
    "word2vec": (
        "Static embeddings of words: skip-gram, or --set architecture=cbow.",
        "corpus.txt -o run --epochs 5 --set size=100",
    ),
    "fasttext": (
        "Static embeddings of words and of their n-grams, for unknown words too.",
        "corpus.txt -o run --set ngrams.longest=5",
    ),
}


def words_command(objective: str) -> Callable[..., None]:
    """The command of an objective."""

    def train(
        data: DataArgument = None,
        output: OutputOption = None,
        epochs: Annotated[
            int | None,
            typer.Option(
                "--epochs", metavar="N", help="How often to read all of the data; by default 5 times."
            ),
        ] = None,
        config: ConfigOption = None,
        changes: Annotated[
            list[str] | None,
            typer.Option("--set", metavar="KEY=VALUE", help="One setting, such as window=10."),
        ] = None,
        seed: SeedOption = None,
        show: ShowOption = False,
        as_json: JsonOption = False,
    ) -> None:
        check_output(output, show)
        from regard.training import read_word_settings, train_words, words_step

        settings = read_word_settings(
            objective,
            file=config,
            changes=changes or (),
            data={"train": names(data)},
            epochs=epochs,
            seed=seed,
        )
        run(settings, output, train_words, words_step, show=show, as_json=as_json)

    train.__doc__ = (
        f"{WORD_OBJECTIVES[objective][0]}\n\n    The settings, with their defaults: docs/ideas/static.md."
    )
    return train
