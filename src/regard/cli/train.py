"""`regard train`: from raw text or pairs of texts to a transformer."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli._errors import Command
from regard.cli._options import JsonOption, console, print_json
from regard.cli._progress import say
from regard.cli._train_plot import plot
from regard.cli._training_progress import TrainingProgress
from regard.core.errors import InputError

if TYPE_CHECKING:
    from regard.training import Settings

app = typer.Typer(
    no_args_is_help=True,
    help="Train a transformer of your own from files of text, or a checkpoint further (--from). The "
    "tokenizer is learned too, a part of the texts is kept to score on, and the best model is in RUN/model. "
    "Typed again, a command goes on where it stopped.",
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
        "Replaced tokens: an encoder tells which words another network put in.",
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
        data: Annotated[
            list[Path] | None,
            typer.Argument(metavar="DATA...", help="Files: text, JSONL, CSV, TSV or Parquet."),
        ] = None,
        output: Annotated[
            Path | None,
            typer.Option(
                "--output", "-o", metavar="RUN", help="The folder of the run, new or to go on with."
            ),
        ] = None,
        target: Annotated[
            list[Path] | None,
            typer.Option("--target", metavar="FILE", help="The other side of parallel files."),
        ] = None,
        valid: Annotated[
            list[Path] | None,
            typer.Option("--valid", metavar="FILE", help="What to score on; by default a part of DATA."),
        ] = None,
        valid_target: Annotated[
            list[Path] | None,
            typer.Option("--valid-target", metavar="FILE", help="The other side of --valid."),
        ] = None,
        steps: Annotated[
            int | None, typer.Option("--steps", metavar="N", help="Steps in all; by default 2,000.")
        ] = None,
        epochs: Annotated[
            float | None, typer.Option("--epochs", metavar="X", help="Or how often to read all of it.")
        ] = None,
        start: Annotated[
            str | None, typer.Option("--from", metavar="MODEL", help="A checkpoint to train on from.")
        ] = None,
        tokenizer: Annotated[
            Path | None,
            typer.Option("--tokenizer", metavar="FILE", help="A tokenizer.json; else one is trained."),
        ] = None,
        config: Annotated[
            Path | None, typer.Option("--config", metavar="FILE", help="Settings, as TOML or JSON.")
        ] = None,
        changes: Annotated[
            list[str] | None,
            typer.Option("--set", metavar="KEY=VALUE", help="One setting, such as optimiser.lr=1e-3."),
        ] = None,
        watch: Annotated[
            list[str] | None,
            typer.Option("--watch", metavar="TEXT", help="Trace a text while training, for regard look RUN."),
        ] = None,
        seed: Annotated[int | None, typer.Option("--seed", metavar="N", help="Of all that is drawn.")] = None,
        show: Annotated[
            bool, typer.Option("--print-settings", help="Print all settings as TOML for --config, and end.")
        ] = False,
        as_json: JsonOption = False,
    ) -> None:
        if output is None and not show:
            raise InputError("--output must name the folder of the run.")
        from regard.training import as_toml, read_settings

        files = {"train": data, "train_target": target, "valid": valid, "valid_target": valid_target}
        settings = read_settings(
            objective,
            file=config,
            changes=changes or (),
            data={name: _names(paths) for name, paths in files.items()},
            tokenizer={"path": None if tokenizer is None else str(tokenizer)},
            steps=steps,
            epochs=epochs,
            start=start,
            seed=seed,
            watch=watch or None,
        )
        if show:
            typer.echo(as_toml(settings), nl=False)
        elif output is not None:
            _run(settings, output, as_json)

    train.__doc__ = (
        f"{_OBJECTIVES[objective][0]}\n\n    Settings with their defaults: docs/howto/training.md."
    )
    return train


def _run(settings: "Settings", folder: Path, as_json: bool) -> None:
    from regard.training import is_first_process, last_checkpoint, train

    try:
        with TrainingProgress() as progress:
            result = train(settings, folder, on_report=progress.report, on_message=progress.tell)
    except KeyboardInterrupt:
        if is_first_process():
            step = last_checkpoint(folder)
            where = (
                f"goes on from step {step:,}, the last checkpoint"
                if step
                else "begins again: there is no checkpoint yet"
            )
            say(f"stopped; the same command {where}")
        raise typer.Exit(130) from None
    if not is_first_process():
        return
    if as_json:
        signed = {"signatures": dict(result.signatures)} if result.signatures else {}
        found = {"model": str(result.model), "step": result.step, "scores": dict(result.scores)}
        print_json(found | signed)
        return
    scores = f": {_told(result.scores)}" if result.scores else ""
    console().print(
        f"{result.model}: step {result.step:,}{scores}", highlight=False, soft_wrap=True, markup=False
    )
    for name, signature in result.signatures.items():
        console().print(f"{name}: {signature}", markup=False, soft_wrap=True)


def _names(paths: list[Path] | None) -> list[str] | None:
    return [str(path) for path in paths] if paths else None


def _told(scores: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in scores.items())


for _name, (_does, _example) in _OBJECTIVES.items():
    app.command(_name, short_help=_does, epilog=f"Example: regard train {_name} {_example}", cls=Command)(
        _command(_name)
    )
app.command(
    "plot",
    short_help="Draw the loss, the scores and the learning rate of runs.",
    epilog="Example: regard train plot run other -o curves.svg",
    cls=Command,
)(plot)
