"""Skip-gram, CBOW or FastText on the Brown corpus beside gensim: word similarity, and words a second.

    python benchmarks/train_word2vec.py --data FOLDER [--cbow | --fasttext] [--epochs 5] [--seeds 3] [--keep]

--data holds brown.tsv (a sentence each line after the name of its document and a tab; 1.2 million words and
punctuation marks), in lower case here. Both learn with the same settings from the same file of sentences, one
after the other: size 100, window 5, 5 negatives, subsampling at 1e-3, words that occur 5 times, and a rate
from .025 to .0001. FastText has n-grams of 3 to 6 characters in 2,000,000 buckets, and a rate from .05. CBOW
has a rate from .2 in regard, whose gradient is divided by the number of words in the window, and from .05 in
gensim, whose gradient is not: that of word2vec's own program, which scores more here than gensim's .025.
gensim has two worker threads; regard has one thread that learns and one that draws.

The score is Spearman's correlation of cosines with people's judgements, by gensim's own function for both, on
the lists that gensim brings: WordSim-353 (Finkelstein et al. 2002) and SimLex-999 (Hill et al. 2015). gensim
reads regard's vectors from word2vec's text format for it. Seeds differ by some .01, so the scores are means.
Times are of training alone, without reading the texts; processor time is of all threads.
"""

import argparse
import os
import statistics
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import gensim
from _harness import finish, machine
from gensim.models import FastText, KeyedVectors, Word2Vec
from gensim.models.word2vec import LineSentence

from regard.training import read_word_settings, train_words

LISTS = {"wordsim353": "wordsim353.tsv", "simlex999": "simlex999.txt"}
TESTS = Path(gensim.__file__).parent / "test" / "test_data"


def scores(vectors: KeyedVectors) -> dict[str, float]:
    """Spearman's correlation by list; pairs with a word that is not known are left out."""
    found = {}
    for name, file in LISTS.items():
        _, correlation, _ = vectors.evaluate_word_pairs(str(TESTS / file), case_insensitive=True)
        found[name] = round(float(correlation[0]), 4)
    return found


class Clock:
    """Seconds by the wall and of the processor since it was made."""

    def __init__(self) -> None:
        self.wall, self.processor = time.perf_counter(), time.process_time()

    def told(self, words: int) -> dict[str, int]:
        """Words a second of both."""
        return {
            "words_per_second": round(words / (time.perf_counter() - self.wall)),
            "words_per_processor_second": round(words / (time.process_time() - self.processor)),
        }


def by_gensim(kind: str, text: Path, words: int, epochs: int, seed: int) -> dict[str, Any]:
    sizes = {"vector_size": 100, "window": 5, "min_count": 5, "negative": 5, "sample": 1e-3}
    if kind == "fasttext":
        model: Any = FastText(sg=1, workers=2, seed=seed, alpha=0.05, **sizes)
    else:
        way = {"sg": 0, "alpha": 0.05} if kind == "cbow" else {"sg": 1}
        model = Word2Vec(workers=2, seed=seed, **way, **sizes)
    sentences = list(LineSentence(str(text)))
    model.build_vocab(sentences)
    assert model.corpus_total_words == words
    clock = Clock()
    model.train(sentences, total_words=words, epochs=epochs)
    return clock.told(words * epochs) | scores(model.wv)


def by_regard(kind: str, text: Path, words: int, epochs: int, seed: int) -> dict[str, Any]:
    more: dict[str, Any] = {"data": {"train": [str(text)], "words": "blanks"}, "save_every": 10**6}
    if kind == "cbow":
        more["architecture"] = "cbow"
    objective = "fasttext" if kind == "fasttext" else "word2vec"
    settings = read_word_settings(objective, epochs=epochs, seed=seed, **more)
    clocks: list[Clock] = []
    with tempfile.TemporaryDirectory() as folder:
        # The last message comes before the first step; the files are written within the time.
        result = train_words(settings, Path(folder, "run"), on_message=lambda _: clocks.append(Clock()))
        told = clocks[-1].told(words * epochs)
        return told | scores(KeyedVectors.load_word2vec_format(str(result.model / "vectors.txt")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder with brown.tsv")
    kinds = parser.add_mutually_exclusive_group()
    for name in ("cbow", "fasttext"):
        kinds.add_argument(
            f"--{name}", dest="kind", action="store_const", const=name, help=f"{name} in place of skip-gram"
        )
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--keep", action="store_true", help="keep the result in benchmarks/results/")
    options = parser.parse_args()
    kind = options.kind or "word2vec"
    warnings.simplefilter("ignore")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "brown.txt")
        lines = (options.data / "brown.tsv").read_text(encoding="utf-8").splitlines()
        text.write_text("".join(line.partition("\t")[2].lower() + "\n" for line in lines), encoding="utf-8")
        words = len(text.read_text(encoding="utf-8").split())
        for seed in range(1, options.seeds + 1):
            for name, learn in (("gensim", by_gensim), ("regard", by_regard)):
                rows.append({"name": name, "seed": seed} | learn(kind, text, words, options.epochs, seed))
                print(rows[-1], flush=True)
    means: dict[str, dict[str, float]] = {}
    for name in ("gensim", "regard"):
        own = [row for row in rows if row["name"] == name]
        means[name] = {key: statistics.mean(row[key] for row in own) for key in LISTS}
        speeds = [key for key in own[0] if key.startswith("words_")]
        means[name] |= {key: statistics.median(row[key] for row in own) for key in speeds}
    print(f"\n{'':28}{'gensim':>12}{'regard':>12}{'ratio':>8}")
    for key in means["gensim"]:
        theirs, ours = means["gensim"][key], means["regard"][key]
        shown = [f"{each:,.0f}" if each > 1 else f"{each:.3f}" for each in (theirs, ours)]
        print(f"{key.replace('_', ' '):28}{shown[0]:>12}{shown[1]:>12}{ours / theirs:8.2f}")
    facts = machine("gensim", "numpy") | {
        "epochs": str(options.epochs),
        "load": str(round(os.getloadavg()[0])),
    }
    finish(
        f"train_{kind}",
        facts,
        [{"name": f"mean of {name}", **each} for name, each in means.items()] + rows,
        keep=options.keep,
    )


if __name__ == "__main__":
    main()
