"""`regard train word2vec` and `regard train fasttext`: static embeddings."""

from collections.abc import Callable, Mapping
from pathlib import Path

from regard.cli._rows import JSON, option
from regard.cli._train_run import CONFIG, DATA, RUN, SEED, SHOW, check_output, names, run

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

    train.__doc__ = (
        f"{WORD_OBJECTIVES[objective][0]}\n\n    The settings, with their defaults: docs/ideas/static.md."
    )
    return train
