"""One word in two senses: static embeddings, the mean of a window, one layer and six; a table and a picture.

    .venv/bin/python scripts/static_bank.py [--data FOLDER] [-o docs/images/static-bank.svg]

24 sentences have the word bank, 12 of a river and 12 of money. The layers are the default model's. --data
holds brown.tsv (see benchmarks/train_word2vec.py), from which CBOW is trained first, in a minute or two;
without it the rows of word2vec are left out.
"""

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import regard
from regard.text import split_words
from regard.training import read_word_settings, train_words
from regard.views import Cloud, PointPicture
from regard.words import WordVectors

WORD, WINDOW = "bank", 5
SENSES = {
    "river": (
        "The man sat on the river bank and watched the fish in the water.",
        "We tied the boat to a tree on the muddy bank of the stream.",
        "The children ran along the bank and threw stones into the river.",
        "After the rain the river rose above its bank and flooded the fields.",
        "She walked down the grassy bank to the edge of the lake.",
        "Willows grew on the far bank, where the water was deep and slow.",
        "They swam across the river and climbed up the steep bank.",
        "Cattle came down to the bank in the evening to drink.",
        "The canoe struck the bank at a sharp bend of the creek.",
        "A heron stood on the bank and looked for frogs.",
        "He camped on the north bank of the river near the old bridge.",
        "The current had washed away the bank beneath the road.",
    ),
    "money": (
        "She went to the bank to open an account for her savings.",
        "The bank refused the loan because he had no steady income.",
        "He works as a clerk in a bank on the main street.",
        "The bank raised its interest rate on all new mortgages.",
        "They robbed the bank and fled with the money in a car.",
        "My father borrowed from the bank to buy the farm.",
        "The bank was closed on Monday, so I could not cash the check.",
        "A director of the bank spoke about credit and taxes.",
        "You must pay the bank every month until the debt is gone.",
        "The company moved its funds to a bank in New York.",
        "She keeps her jewels in the vault of the bank.",
        "The president of the bank signed the contract for the building.",
    ),
}
SENTENCES = [sentence for sentences in SENSES.values() for sentence in sentences]
LABELS = np.array([sense for sense, sentences in SENSES.items() for _ in sentences])

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Told:
    """What stands for the word in each sentence.

    Args:
        name: how it is made.
        vectors: (sentences, size), of length 1.
    """

    name: str
    vectors: Floats

    def apart(self) -> tuple[float, float, float, float]:
        """How well the senses are told apart.

        Returns:
            The share of sentences whose nearest other one has their sense (of several equally near, the share
            of these); the share of pairs of pairs in which two sentences of one sense are nearer than two of
            both (ties count half; 0.5 is chance); the mean cosine within a sense; and across.
        """
        cosines = (self.vectors @ self.vectors.T).round(9)
        same = LABELS[:, None] == LABELS
        others = np.where(np.eye(len(LABELS), dtype=bool), -np.inf, cosines)
        is_nearest = others == others.max(axis=1, keepdims=True)
        nearest = ((is_nearest & same).sum(axis=1) / is_nearest.sum(axis=1)).mean()
        pairs = np.triu_indices(len(LABELS), 1)
        within, across = cosines[pairs][same[pairs]], cosines[pairs][~same[pairs]]
        difference = within[:, None] - across
        order = (difference > 0).mean() + 0.5 * (difference == 0).mean()
        return float(nearest), float(order), float(within.mean()), float(across.mean())


def told(name: str, vectors: Any) -> Told:
    """Of vectors of any length."""
    wide = np.stack([np.asarray(each, dtype=np.float64) for each in vectors])
    return Told(name=name, vectors=wide / np.linalg.norm(wide, axis=1, keepdims=True))


def of_the_model() -> list[Told]:
    """By the default model: its table, the mean of the window over its table, and its layers."""
    traces = regard.load().trace(SENTENCES)
    means = []
    for trace in traces:
        tokens, table = list(trace.tokens), trace.embeddings(0)
        place = tokens.index(WORD)
        around = [n for n in range(1, len(tokens) - 1) if 0 < abs(n - place) <= WINDOW]
        means.append(table[around].mean(dim=0))
    layers = {"static, the model's table": 0, "one layer": 1, "six layers": 6}
    of_layers = [
        told(name, [trace.embedding(WORD, layer=n) for trace in traces]) for name, n in layers.items()
    ]
    return [of_layers[0], told("CBOW, the model's table", means), *of_layers[1:]]


def of_word2vec(vectors: WordVectors) -> list[Told]:
    """By static embeddings, and the mean of those of the window, as CBOW reads it."""
    means = []
    for sentence in SENTENCES:
        words = [sentence[start:end].lower() for start, end in split_words(sentence)]
        known = [word for word in words if word in vectors]
        place = known.index(WORD)
        around = [*known[max(0, place - WINDOW) : place], *known[place + 1 : place + 1 + WINDOW]]
        means.append(np.mean([vectors[word] for word in around], axis=0))
    static = [vectors[WORD]] * len(SENTENCES)
    return [told("static, word2vec", static), told("CBOW, word2vec", means)]


def table(rows: Sequence[Told]) -> str:
    """As the documentation shows it."""
    head = "| what stands for *bank* | nearest | in order | same sense | other sense |"
    return "\n".join([head, "|---|---:|---:|---:|---:|", *(row(each) for each in rows)])


def row(each: Told) -> str:
    """A line of it."""
    return f"| {each.name} | {' | '.join(f'{number:.3f}' for number in each.apart())} |"


def picture(rows: Sequence[Told]) -> PointPicture:
    """Each in the two directions in which its vectors differ most."""
    clouds = []
    for each in rows:
        centred = each.vectors - each.vectors.mean(axis=0)
        points = (centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T).round(6)
        points *= np.where(points[0] > 0, -1, 1)  # the first sentence stands at the left, below
        groups = {
            sense: [
                (x, y, text) for (x, y), text in zip(points[sense == LABELS].tolist(), texts, strict=True)
            ]
            for sense, texts in SENSES.items()
        }
        below = f"nearest has its sense: {each.apart()[0]:.0%}" if points.any() else "all in one place"
        clouds.append(Cloud(title=each.name, groups=groups, below=below))
    return PointPicture(title="bank in 24 sentences", clouds=clouds)


def brown(folder: Path) -> WordVectors:
    """CBOW from the Brown corpus."""
    with tempfile.TemporaryDirectory() as above:
        text = Path(above, "brown.txt")
        lines = (folder / "brown.tsv").read_text(encoding="utf-8").splitlines()
        text.write_text("".join(line.partition("\t")[2] + "\n" for line in lines), encoding="utf-8")
        data = {"train": [str(text)], "words": "blanks", "lowercase": True}
        settings = read_word_settings("word2vec", data=data, architecture="cbow", epochs=20, window=WINDOW)
        return WordVectors.open(train_words(settings, Path(above, "run")).model / "vectors.safetensors")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder with brown.tsv")
    parser.add_argument("-o", "--output", type=Path, help="the picture: .svg, .png or .pdf")
    options = parser.parse_args()
    rows = of_the_model()
    if options.data is not None:
        static, mean = of_word2vec(brown(options.data))
        rows = [static, rows[0], mean, *rows[1:]]
    print(table(rows))
    if options.output is not None:
        picture([each for each in rows if "the model's table" not in each.name]).write(options.output)


if __name__ == "__main__":
    main()
