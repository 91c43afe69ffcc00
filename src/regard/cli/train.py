"""`regard train`: from raw text or pairs of texts to a transformer, or to static embeddings."""

import itertools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from regard.cli._options import JSON, argument, flag, option, read_by_settings
from regard.cli._output import BarOrLines, check_folder, check_outputs, console, print_json, print_path, say
from regard.cli._usage import Command
from regard.core.arguments import Count, Natural, Positive
from regard.core.errors import InputError
from regard.core.progress import left

if TYPE_CHECKING:
    from regard.training import AnySettings, Result
    from regard.views import Panel, Series


_MEAN_OF = 50  # steps that loss and speed are the mean of

DATA = argument("DATA...", "Files: text, JSONL, CSV, TSV or Parquet.", None)
RUN = option("--output -o RUN", "The folder of the run: a new one, or one to go on with.")
CONFIG = option("--config FILE", "Settings, as TOML or JSON.")
SEED = option("--seed N", "The seed of all random draws.")
SHOW = flag("--print-settings", "Print all settings as TOML for --config, and end.")


class TrainingBar(BarOrLines):
    """Loss, speed and the time left; each score is a line of its own."""

    def __init__(self) -> None:
        super().__init__("steps")
        self._last: deque[tuple[float, float, int]] = deque(maxlen=_MEAN_OF)  # loss, seconds, tokens

    def report(self, report: Mapping[str, Any]) -> None:
        """The report of a step, or of a score."""
        # A score, which stays as a line.
        if "loss" not in report:
            scores = {name.removeprefix("valid_"): value for name, value in report.items() if name != "step"}
            self.tell(f"step {report['step']:,}: {_in_words(scores)}")
            return
        self._last.append((report["loss"], report["seconds"], report["step_tokens"]))
        # Means over the last steps are steadier than one.
        losses, seconds, tokens = (sum(each) for each in zip(*self._last, strict=True))
        count, step, steps = len(self._last), report["step"], report["steps"]
        speed = f"{tokens / max(seconds, 1e-9):,.0f} tokens/s"
        rest = f"loss {losses / count:.4f}, {speed}, {left(count, count + steps - step, seconds)}"
        self.draw(f"step {step:,} of {steps:,}", step, steps, rest)


def check_output(output: Path | None, show: bool) -> None:
    """Refuse a run without a folder."""
    if output is not None:
        check_folder(output)
    elif not show:
        raise InputError("--output must name the folder of the run.")


def run(
    settings: "AnySettings",
    folder: Path | None,
    train: Callable[..., "Result"],
    last_step: Callable[[Path], int],
    *,
    show: bool,
    as_json: bool,
) -> None:
    """Train, with progress on stderr and the result on stdout; or print the settings, where `show`."""
    from regard.training import as_toml, is_first_process

    # Settings as TOML, and nothing is begun.
    if show or folder is None:
        typer.echo(as_toml(settings), nl=False)
        return

    try:
        with read_by_settings(), TrainingBar() as progress:
            result = train(settings, folder, on_report=progress.report, on_message=progress.tell)
    except KeyboardInterrupt:
        # Under torchrun one process speaks for all.
        if is_first_process():
            step = last_step(folder)
            where = (
                f"goes on from step {step:,}, the last checkpoint"
                if step
                else "begins again: there is no checkpoint yet"
            )
            say(f"stopped; the same command {where}")
        raise typer.Exit(130) from None
    # The result is the first one's to print.
    if not is_first_process():
        return
    if as_json:
        signed = {"signatures": dict(result.signatures)} if result.signatures else {}
        facts = {"model": str(result.model), "step": result.step, "scores": dict(result.scores)}
        print_json(facts | signed)
        return
    scores = f": {_in_words(result.scores)}" if result.scores else ""
    console().print(
        f"{result.model}: step {result.step:,}{scores}", highlight=False, soft_wrap=True, markup=False
    )
    for name, signature in result.signatures.items():
        console().print(f"{name}: {signature}", markup=False, soft_wrap=True)


def files(**paths: list[Path] | None) -> dict[str, list[str]]:
    """Paths as settings have them; what was not typed is left to the file."""
    return {name: [str(path) for path in each] for name, each in paths.items() if each}


def _in_words(scores: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in scores.items())


_HEIGHT, _MARGIN = 12, 11
_STYLES = ("blue", "green", "magenta", "yellow", "cyan", "red")


def plot(
    runs: list[Path] = argument("RUN...", "Folders of runs, finished or not."),
    output: Path | None = option(
        "--output -o FILE", "An .svg, .png or .pdf; by default the terminal shows the curves."
    ),
) -> None:
    """Draw the loss, the scores and the learning rate of runs."""
    check_outputs({"--output": output})
    from regard.training import curves

    picture = curves(runs)
    if output is not None:
        picture.write(output)
        print_path(output)
        return
    # A colour for each run, in all panels.
    names = list(dict.fromkeys(each.name for panel in picture.panels for each in panel.series))
    drawn = console()
    # All panels share the axis of steps.
    steps = [x for panel in picture.panels for each in panel.series for x, _ in each.points]
    for panel in picture.panels:
        drawn.print(panel.title, style="bold", markup=False)
        _draw(panel, names, drawn.width, min(steps), max(steps))
    if len(names) > 1:
        for number, name in enumerate(names):
            drawn.print(f"  o {name}", style=_STYLES[number % len(_STYLES)], markup=False)


def _draw(panel: "Panel", names: Sequence[str], width: int, left: float, right: float) -> None:
    """A panel in letters: dots for lines, o for what is seldom measured."""
    from rich.text import Text

    columns = width - _MARGIN
    values = [y for series in panel.series for _, y in series.points]
    low, high = min(values), max(values)
    # A letter and its colour for each cell.
    grid = [[(" ", "")] * columns for _ in range(_HEIGHT)]
    for series in panel.series:
        style = _STYLES[names.index(series.name) % len(_STYLES)]
        for x, y in _filled(series, columns):
            column = round((x - left) / max(right - left, 1e-12) * (columns - 1))
            # The largest value at the top.
            row = round((high - y) / max(high - low, 1e-12) * (_HEIGHT - 1))
            grid[row][column] = ("o" if series.is_marked else ".", style)
    for row, cells in enumerate(grid):
        # Only the ends of the axis are labelled.
        label = {0: f"{high:.4g}", _HEIGHT - 1: f"{low:.4g}"}.get(row, "")
        line = Text(f"{label:>{_MARGIN - 2}} |")
        for sign, style in cells:
            line.append(sign, style=style)
        console().print(line)
    ends = f"{left:,.0f}", f"{right:,.0f} steps"
    console().print(" " * _MARGIN + ends[0] + ends[1].rjust(columns - len(ends[0])), highlight=False)


def _filled(series: "Series", columns: int) -> list[tuple[float, float]]:
    """The points of a line, with others between where columns would stay empty."""
    points = list(series.points)
    if series.is_marked or len(points) >= columns:
        return points
    # Rounded up: as many points as columns.
    between = -(-columns // max(1, len(points) - 1))
    return [
        (x + part / between * (to_x - x), y + part / between * (to_y - y))
        for (x, y), (to_x, to_y) in itertools.pairwise(points)
        for part in range(between)
    ] + points[-1:]


app = typer.Typer(
    no_args_is_help=True,
    help="Train a transformer of your own from files of text, or a checkpoint further (--from); or static "
    "embeddings (word2vec, fasttext). A transformer's tokenizer is learned too, a part of the texts is kept "
    "to score on, and the best model is in RUN/model. Typed again, a command goes on where it stopped.",
    epilog="Example: regard train clm plays.txt -o run. `regard train OBJECTIVE --help` shows the options; "
    "docs/howto/training.md says what each objective is, and every setting.",
    rich_markup_mode=None,
)

_TRANSFORMERS: Mapping[str, tuple[str, str]] = {
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
_WORDS: Mapping[str, tuple[str, str]] = {
    "word2vec": (
        "Static embeddings of words: skip-gram, or --set architecture=cbow.",
        "corpus.txt -o run --epochs 5 --set size=100",
    ),
    "fasttext": (
        "Static embeddings of words and of their n-grams, for unknown words too.",
        "corpus.txt -o run --set ngrams.longest=5",
    ),
}


def _of_transformers(objective: str, does: str) -> Callable[..., None]:
    def train(
        data: list[Path] | None = DATA,
        output: Path | None = RUN,
        target: list[Path] | None = option("--target FILE", "The other side of parallel files."),
        valid: list[Path] | None = option("--valid FILE", "Files to score on; by default a part of DATA."),
        valid_target: list[Path] | None = option("--valid-target FILE", "The other side of --valid."),
        steps: Count | None = option("--steps N", "Steps in all; by default 2,000."),
        epochs: Positive | None = option("--epochs X", "Instead of --steps: how often to read all the data."),
        start: str | None = option("--from MODEL", "A checkpoint to train further."),
        tokenizer: Path | None = option("--tokenizer FILE", "A tokenizer.json; by default one is learned."),
        config: Path | None = CONFIG,
        changes: list[str] | None = option("--set KEY=VALUE", "One setting, such as optimiser.lr=1e-3."),
        watch: list[str] | None = option("--watch TEXT", "Trace a text while training, for regard look RUN."),
        seed: Natural | None = SEED,
        show: bool = SHOW,
        as_json: bool = JSON,
    ) -> None:
        check_output(output, show)  # before seconds of importing torch
        from regard.training import last_checkpoint, read_settings
        from regard.training import train as learn

        settings = read_settings(
            objective,
            file=config,
            changes=changes or (),
            data=files(train=data, train_target=target, valid=valid, valid_target=valid_target),
            tokenizer={} if tokenizer is None else {"path": str(tokenizer)},
            steps=steps,
            epochs=epochs,
            start=start,
            seed=seed,
            watch=watch or None,
        )
        run(settings, output, learn, last_checkpoint, show=show, as_json=as_json)

    train.__doc__ = f"{does}\n\n    Settings with their defaults: docs/howto/training.md."
    return train


def _of_words(objective: str, does: str) -> Callable[..., None]:
    def train(
        data: list[Path] | None = DATA,
        output: Path | None = RUN,
        epochs: Count | None = option("--epochs N", "How often to read all of the data; by default 5 times."),
        config: Path | None = CONFIG,
        changes: list[str] | None = option("--set KEY=VALUE", "One setting, such as window=10."),
        seed: Natural | None = SEED,
        show: bool = SHOW,
        as_json: bool = JSON,
    ) -> None:
        check_output(output, show)
        from regard.training import read_word_settings, train_words, words_step

        settings = read_word_settings(
            objective,
            file=config,
            changes=changes or (),
            data=files(train=data),
            epochs=epochs,
            seed=seed,
        )
        run(settings, output, train_words, words_step, show=show, as_json=as_json)

    train.__doc__ = f"{does}\n\n    The settings, with their defaults: docs/ideas/static.md."
    return train


# A command for each objective, from one function with its options.
for _made_by, _objectives in ((_of_transformers, _TRANSFORMERS), (_of_words, _WORDS)):
    for _name, (_does, _example) in _objectives.items():
        app.command(_name, short_help=_does, epilog=f"Example: regard train {_name} {_example}", cls=Command)(
            _made_by(_name, _does)
        )
app.command(
    "plot",
    short_help="Draw the loss, the scores and the learning rate of runs.",
    epilog="Example: regard train plot run other -o curves.svg",
    cls=Command,
)(plot)
