"""`regard train`: from raw text or pairs of texts to a transformer, or to static embeddings."""

from collections.abc import Callable, Mapping
from pathlib import Path

import typer

from regard.cli._errors import Command
from regard.cli._options import JSON, option
from regard.cli._train_plot import plot
from regard.cli._train_run import CONFIG, DATA, RUN, SEED, SHOW, check_output, names, run

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
        steps: int | None = option("--steps N", "Steps in all; by default 2,000."),
        epochs: float | None = option("--epochs X", "Instead of --steps: how often to read all of the data."),
        start: str | None = option("--from MODEL", "A checkpoint to train further."),
        tokenizer: Path | None = option("--tokenizer FILE", "A tokenizer.json; by default one is learned."),
        config: Path | None = CONFIG,
        changes: list[str] | None = option("--set KEY=VALUE", "One setting, such as optimiser.lr=1e-3."),
        watch: list[str] | None = option("--watch TEXT", "Trace a text while training, for regard look RUN."),
        seed: int | None = SEED,
        show: bool = SHOW,
        as_json: bool = JSON,
    ) -> None:
        check_output(output, show)  # before seconds of importing torch
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

    train.__doc__ = f"{does}\n\n    Settings with their defaults: docs/howto/training.md."
    return train


def _of_words(objective: str, does: str) -> Callable[..., None]:
    def train(
        data: list[Path] | None = DATA,
        output: Path | None = RUN,
        epochs: int | None = option("--epochs N", "How often to read all of the data; by default 5 times."),
        config: Path | None = CONFIG,
        changes: list[str] | None = option("--set KEY=VALUE", "One setting, such as window=10."),
        seed: int | None = SEED,
        show: bool = SHOW,
        as_json: bool = JSON,
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

    train.__doc__ = f"{does}\n\n    The settings, with their defaults: docs/ideas/static.md."
    return train


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
