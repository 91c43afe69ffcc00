"""`regard train`: from raw text or pairs of texts to a transformer."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from regard.cli._errors import Command
from regard.cli._options import JsonOption
from regard.cli._train_plot import plot
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
from regard.cli._train_words import WORD_OBJECTIVES, words_command

app = typer.Typer(
    no_args_is_help=True,
    help="Train a transformer of your own from files of text, or a checkpoint further (--from); or static "
    "embeddings (word2vec, fasttext). A transformer's tokenizer is learned too, a part of the texts is kept "
    "to score on, and the best model is in RUN/model. Typed again, a command goes on where it stopped.",
    epilog="Example: regard train clm plays.txt -o run. `regard train OBJECTIVE --help` shows the options; "
    "docs/howto/training.md says what each objective is, and every setting.",
    rich_markup_mode=None,
)

_OBJECTIVES: Mapping[str, tuple[str, str]] = {
    "mlm": ("Masked language modelling: an encoder guesses hidden words.", "corpus.txt -o run --steps 2000"),
    "clm": (
        "Next-token prediction: a decoder guesses how a text goes on.",
        "plays.txt -o run --set tokenizer.kind=characters",
    ),
    "seq2seq": (
        "Encoder and decoder: from a text to another, such as its translation.",
        "train.en --target train.de -o run --epochs 20",
    ),
    "electra": (
        "Replaced tokens: an encoder tells which words another network replaced.",
        "corpus.txt -o run --steps 2000",
    ),
    "distil": (
        "Distillation: a network of half the layers learns what a model says.",
        "corpus.txt -o run --set task.teacher=MODEL --steps 2000",
    ),
    "classify": (
        "A label for a text, or for a pair of texts (--set task.pairs=true).",
        "reviews.csv --from MODEL -o run --epochs 3",
    ),
    "tag": (
        "A tag for each word: names, parts of speech.",
        "train.conll --valid dev.conll --from MODEL -o run --epochs 3",
    ),
}


def _command(objective: str) -> Callable[..., None]:
    def train(
        data: DataArgument = None,
        output: OutputOption = None,
        target: Annotated[
            list[Path] | None,
            typer.Option("--target", metavar="FILE", help="The other side of parallel files."),
        ] = None,
        valid: Annotated[
            list[Path] | None,
            typer.Option("--valid", metavar="FILE", help="Files to score on; by default a part of DATA."),
        ] = None,
        valid_target: Annotated[
            list[Path] | None,
            typer.Option("--valid-target", metavar="FILE", help="The other side of --valid."),
        ] = None,
        steps: Annotated[
            int | None, typer.Option("--steps", metavar="N", help="Steps in all; by default 2,000.")
        ] = None,
        epochs: Annotated[
            float | None,
            typer.Option(
                "--epochs", metavar="X", help="Instead of --steps: how often to read all of the data."
            ),
        ] = None,
        start: Annotated[
            str | None, typer.Option("--from", metavar="MODEL", help="A checkpoint to train further.")
        ] = None,
        tokenizer: Annotated[
            Path | None,
            typer.Option("--tokenizer", metavar="FILE", help="A tokenizer.json; by default one is learned."),
        ] = None,
        config: ConfigOption = None,
        changes: Annotated[
            list[str] | None,
            typer.Option("--set", metavar="KEY=VALUE", help="One setting, such as optimiser.lr=1e-3."),
        ] = None,
        watch: Annotated[
            list[str] | None,
            typer.Option("--watch", metavar="TEXT", help="Trace a text while training, for regard look RUN."),
        ] = None,
        seed: SeedOption = None,
        show: ShowOption = False,
        as_json: JsonOption = False,
    ) -> None:
        check_output(output, show)
        from regard.training import last_checkpoint, read_settings
        from regard.training import train as learn

        files = {"train": data, "train_target": target, "valid": valid, "valid_target": valid_target}
        settings = read_settings(
            objective,
            file=config,
            changes=changes or (),
            data={name: names(paths) for name, paths in files.items()},
            tokenizer={"path": None if tokenizer is None else str(tokenizer)},
            steps=steps,
            epochs=epochs,
            start=start,
            seed=seed,
            watch=watch or None,
        )
        run(settings, output, learn, last_checkpoint, show=show, as_json=as_json)

    train.__doc__ = (
        f"{_OBJECTIVES[objective][0]}\n\n    Settings with their defaults: docs/howto/training.md."
    )
    return train


for _name, (_does, _example) in _OBJECTIVES.items():
    app.command(_name, short_help=_does, epilog=f"Example: regard train {_name} {_example}", cls=Command)(
        _command(_name)
    )
for _name, (_does, _example) in WORD_OBJECTIVES.items():
    app.command(_name, short_help=_does, epilog=f"Example: regard train {_name} {_example}", cls=Command)(
        words_command(_name)
    )
app.command(
    "plot",
    short_help="Draw the loss, the scores and the learning rate of runs.",
    epilog="Example: regard train plot run other -o curves.svg",
    cls=Command,
)(plot)
