"""How well the concordance tells senses apart, by several kinds of words at once.

    python benchmarks/eval_senses.py --data FOLDER [-m MODEL] [--kept FOLDER] [--curve FILE.svg] [--keep]

FOLDER holds wic/ (Word in Context: train and dev, data and gold), senseval/ (line.pos.gz, serve.pos.gz) and
brown/brown.tsv (a line for each sentence of the Brown corpus: file, tab, tokens). --kept is where vectors are
kept for the next run.

*Word in Context* (senses of a dictionary): are two uses of one word of one sense? Accuracy at the
probability of .5, the area under the ROC curve, and the expected calibration error (ten bins): of the
training pairs by a fit on other words (ten folds by word), of the development pairs by a fit on the training
pairs. Beside it what chance would give if the probabilities were exact.

*Line and serve* (1,500 uses of each) and eight *made-up words* (homonyms: "blick" in the place of two to five
nouns of the Brown corpus, all their uses): is a use's sense that of its nearest other use, of most of the
five nearest, of the nearest mean of a sense? Each use is left out in its turn.

*Answers*: what `--teach` keeps of what it promises. 20, 40 and 80 answers, to the uses that it asks for and
to as many drawn at random, on at most 700 uses, the mean of two draws: how many of the other uses are right,
what their probabilities say, without and with the tempering, and what leaving each answer out in turn says.
"""

import argparse
import gzip
import html
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from _harness import finish, machine
from sklearn.metrics import roc_auc_score

import regard
from regard.checkpoints import DEFAULT_MODEL
from regard.concordance._meaning import Calibration
from regard.concordance._teach import decided, nearest_of, next_use, taught, words_of
from regard.concordance._teach import fit as fit_head
from regard.concordance._tuning import calibration_error, fit, layers_of, left_out, read_judged, unseen
from regard.concordance._vectors import Span, span_in

ANSWERS, DRAWS, USES, POOL, LAST = (20, 40, 80), 2, 1500, 700, 4
MADE = {
    "m1": "church horse industry daughter",
    "m2": "doctor engine picture river",
    "m3": "hospital poem rifle tax",
    "m4": "music money",
    "m5": "captain window fire",
    "m6": "king machine summer dinner earth",
    "h1": "kitchen army",
    "h2": "teacher bridge cotton",
}
"""Made-up words, and what they stand for."""

Array = np.ndarray[Any, Any]


def senseval(file: Path) -> tuple[list[Span], Array]:
    """The uses of a word and their senses."""
    uses, senses = [], []
    with gzip.open(file, "rt", encoding="latin1") as stream:
        text = stream.read()
    for instance in re.findall(r"<instance.*?</instance>", text, re.DOTALL):
        words: list[str] = []
        place = 0
        for found in re.finditer(r"<(head)>|<wf pos=[^>]*>(.*?)</wf>", instance, re.DOTALL):
            if found[1]:
                place = len(words)
            else:
                words.append(html.unescape(found[2]))
        uses.append(span_in(words, place))
        senses.append(re.search(r'senseid="([^"]+)"', instance)[1])  # type: ignore[index]
    some = np.sort(np.random.default_rng(7).permutation(len(uses))[:USES])
    return [uses[at] for at in some], np.array(senses, object)[some]


def made_up(corpus: Path, words: Sequence[str]) -> tuple[list[Span], Array]:
    """The uses of some words, all written "blick", and which they were."""
    spans, senses = [], []
    for line in corpus.read_text("utf-8").splitlines():
        tokens = line.split("\t")[1].split(" ")
        blind = ["blick" if each.lower() in words else each for each in tokens]
        for at, each in enumerate(tokens):
            if each.lower() in words:
                spans.append(span_in(blind, at))
                senses.append(each.lower())
    return spans, np.array(senses, object)


class Kept:
    """Vectors at the last layers of a model, computed once."""

    def __init__(self, loaded: Any, folder: Path | None) -> None:
        self._loaded, self._folder = loaded, folder
        self.depth = loaded.network.depth(next(iter(loaded.network.prefixes)))
        self._name = loaded.source.name.rsplit("/")[-1]

    def __call__(self, key: str, spans: Sequence[Span]) -> dict[int, Array]:
        """By layer (uses, d)."""
        file = None if self._folder is None else self._folder / f"{self._name}_{key}.npz"
        if file is not None and file.exists():
            with np.load(file) as found:
                assert len(found["v"]) == len(spans)
                return {layer: found["v"][:, at] for at, layer in enumerate(found["layers"].tolist())}
        layers = list(range(self.depth - LAST + 1, self.depth + 1))
        vectors = layers_of(self._loaded, spans, layers)
        if file is not None:
            np.savez(file, v=vectors, layers=layers)
        return {layer: vectors[:, at] for at, layer in enumerate(layers)}


def mean_of(vectors: dict[int, Array], layers: Sequence[int]) -> Array:
    """Of length 1, (uses, d)."""
    mean = np.mean([vectors[layer].astype(np.float32) for layer in layers], axis=0)
    return mean / np.linalg.norm(mean, axis=1, keepdims=True)


def nearest_mean(vectors: Array, senses: Array) -> float:
    """The share of uses whose sense is that of the nearest mean, each left out of its own."""
    names, of = np.unique(senses, return_inverse=True)
    sums = np.zeros((len(names), vectors.shape[1]))
    np.add.at(sums, of, vectors)
    right = 0
    for row, own in enumerate(of):
        left = sums.copy()
        left[own] -= vectors[row]
        left /= np.maximum(np.linalg.norm(left, axis=1, keepdims=True), 1e-9)
        right += int((left @ vectors[row]).argmax() == own)
    return right / len(vectors)


def in_context(
    vectors: dict[str, dict[int, Array]], judged: dict[str, Any], layers: Sequence[int]
) -> dict[str, Any]:
    """The row of Word in Context for some layers."""
    cosines = {}
    for split, found in vectors.items():
        of = mean_of(found, layers)
        cosines[split] = (of[0::2] * of[1::2]).sum(1)
    slope, intercept = fit(cosines["train"], judged["train"].same)
    same, words = judged["train"].same, judged["train"].words[0::2]
    p = {
        "train": unseen(cosines["train"], same, words),
        "dev": Calibration(slope, intercept)(cosines["dev"]),
    }
    row: dict[str, Any] = {"task": "wic", "layers": list(layers), "slope": slope, "intercept": intercept}
    draw = np.random.default_rng(0)
    for split, probability in p.items():
        truth = judged[split].same
        exact = [calibration_error(probability, draw.random(len(truth)) < probability) for _ in range(200)]
        row |= {
            f"{split}_log_loss": -float(np.log(np.where(truth, probability, 1 - probability)).mean()),
            f"{split}_accuracy": float(((probability > 0.5) == truth).mean()),
            f"{split}_auc": float(roc_auc_score(truth, cosines[split])),
            f"{split}_error": calibration_error(probability, truth),
            f"{split}_error_if_exact": float(np.median(exact)),
        }
    return row | {"p": p}


def asked(vectors: Array, truth: Array, count: int, seed: int, *, by_chance: bool) -> list[int]:
    """The uses that `--teach` asks for, or as many by chance; the first are the same."""
    rows: list[int] = []
    order = np.random.default_rng(seed).permutation(len(vectors))  # of the draws, which are other ones there
    while len(rows) < count:
        if by_chance or len(rows) < 20 or len(rows) % 2:
            rows.append(next(row for row in order.tolist() if row not in rows))
            continue
        head = fit_head(vectors[rows], truth[rows].tolist()) if len(set(truth[rows])) > 1 else None
        rows.append(next_use(vectors, rows, head))  # type: ignore[arg-type]  # there are more
    return rows


def answers(vectors: Array, truth: Array, bodies: Sequence[str]) -> list[dict[str, Any]]:
    """What answers are worth, and what is said of them."""
    some = np.sort(np.random.default_rng(5).permutation(len(truth))[:POOL])
    vectors, truth, words = vectors[some], truth[some].astype(str), words_of([bodies[row] for row in some])
    nearest = nearest_of(vectors)
    scores: dict[tuple[int, str], list[list[float]]] = {}
    for seed in range(DRAWS):
        for name in ("asked", "by chance"):
            order = asked(vectors, truth, max(ANSWERS), seed, by_chance=name == "by chance")
            for count in ANSWERS:
                known = {row: str(truth[row]) for row in order[:count]}
                found = taught(vectors, words, known)
                rest = np.setdiff1d(np.arange(len(truth)), order[:count])
                right = np.array(found.names)[found.shares[rest].argmax(1)] == truth[rest]
                head = fit_head(vectors[[*known]], [*known.values()])
                own = {row: head.classes_.tolist().index(label) for row, label in known.items()}
                before = decided(head.predict_proba(vectors), nearest, words, own)[rest]
                told = [before.max(1).mean(), found.shares[rest].max(1).mean(), found.right, found.of_all]
                scores.setdefault((count, name), []).append([right.mean(), *map(float, told)])
    columns = ("right", "said untempered", "said", "left out in turn", "left out, weighed")
    return [
        {"answers": count, "which": name} | dict(zip(columns, np.mean(of, axis=0).tolist(), strict=True))
        for (count, name), of in scores.items()
    ]


def curve(p: Array, same: Array) -> str:
    """The reliability curve as SVG: ten groups of equal size, with two standard errors."""
    groups = np.array_split(np.argsort(p, kind="stable"), 10)
    size, edge = 240, 36

    def at(x: float, y: float) -> tuple[float, float]:
        return edge + x * size, edge / 2 + (1 - y) * size

    marks = []
    for group in groups:
        share, error = (
            same[group].mean(),
            2 * np.sqrt(same[group].mean() * (1 - same[group].mean()) / len(group)),
        )
        x, y = at(p[group].mean(), share)
        top, bottom = (at(0, min(1, max(0, share + sign * error)))[1] for sign in (1, -1))
        marks.append(
            f'<path d="M{x:.1f} {top:.1f}V{bottom:.1f}"/>'
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="currentColor"/>'
        )
    (left, low), (right, high) = at(0, 0), at(1, 1)
    ticks = []
    for tenth in (0, 2, 4, 6, 8, 10):
        x, y = at(tenth / 10, tenth / 10)
        ticks.append(f'<text x="{x:.1f}" y="{low + 14:.1f}" text-anchor="middle">{tenth / 10:g}</text>')
        ticks.append(f'<text x="{left - 5:.1f}" y="{y + 3:.1f}" text-anchor="end">{tenth / 10:g}</text>')
    middle = at(0.5, 0.5)
    title = "Share of pairs with one sense over the probability stated, on words that the fit has not seen"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size + 1.5 * edge:g} {size + 1.6 * edge:g}" '
        'font-family="sans-serif" font-size="9" fill="none" stroke="none" color="#1f5fa8" role="img">'
        f"<title>{title}</title>"
        f'<rect width="100%" height="100%" fill="#fff"/>'
        f'<path d="M{left} {high}V{low}H{right}" stroke="#888"/>'
        f'<path d="M{left} {low}L{right} {high}" stroke="#888" stroke-dasharray="3 3"/>'
        f'<g stroke="currentColor">{"".join(marks)}</g>'
        f'<g fill="#444">{"".join(ticks)}'
        f'<text x="{middle[0]:.1f}" y="{low + 28:.1f}" text-anchor="middle">probability stated</text>'
        f'<text transform="translate({left - 24:.1f} {middle[1]:.1f}) rotate(-90)" text-anchor="middle">'
        "share of one sense</text></g></svg>\n"
    )


def bands(p: Array, same: Array) -> None:
    """What a band of "unsure" costs: how much is answered, and how much of that is right."""
    print("\nunsure between   answered   right   'same' right   'other' right")
    for low in (0.5, 0.45, 0.4, 0.35, 0.3, 0.25):
        yes, no = p > 1 - low, p < low
        told = yes | no
        shares = told.mean(), same[told] == yes[told], same[yes], ~same[no]
        print(f"{low:.2f} and {1 - low:.2f}    ", "     ".join(f"{np.mean(each):8.3f}" for each in shares))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("-m", "--model", default=DEFAULT_MODEL)
    parser.add_argument("--kept", type=Path, metavar="FOLDER", help="of vectors")
    parser.add_argument("--curve", type=Path, metavar="FILE.svg", help="write the reliability curve")
    parser.add_argument("--keep", action="store_true")
    given = parser.parse_args()

    kept = Kept(regard.load(given.model).loaded, given.kept)
    depth, rows = kept.depth, list[dict[str, Any]]()
    settings = {
        "last layer": [depth],
        "one before": [depth - 1],
        "last two": [depth - 1, depth],
        "last three": [depth - 2, depth - 1, depth],
    }
    judged = {split: read_judged(given.data / "wic" / f"{split}.data.txt") for split in ("train", "dev")}
    vectors = {split: kept(f"wic_{split}", each.spans) for split, each in judged.items()}
    print(
        "Word in Context  log loss  accuracy: train dev  AUC: train dev  calibration error (if exact)  slope"
    )
    for name, chosen in settings.items():
        row = in_context(vectors, judged, chosen)
        p = row.pop("p")
        rows.append({"what": name} | row)
        shares = (row[f"{split}_{what}"] for what in ("accuracy", "auc") for split in judged)
        errors = (f"{row[f'{split}_error']:.3f} ({row[f'{split}_error_if_exact']:.3f})" for split in judged)
        told = [f"{row['train_log_loss']:.4f}", *(f"{each:.3f}" for each in shares), *errors]
        print(f"{name:<16}", "  ".join([*told, f"{row['slope']:.3f} {row['intercept']:.3f}"]))
        if name == "last layer":
            bands(p["train"], judged["train"].same)
            if given.curve is not None:
                given.curve.write_text(curve(p["train"], judged["train"].same))

    brown = given.data / "brown" / "brown.tsv"
    sets = {word: senseval(given.data / "senseval" / f"{word}.pos.gz") for word in ("line", "serve")}
    sets |= {name: made_up(brown, words.split()) for name, words in MADE.items()}
    for name, (spans, senses) in sets.items():
        of, one = kept(name, spans), np.full(len(spans), name, object)
        for what, chosen in settings.items():
            mean = mean_of(of, chosen)
            scored = {f"{n} neighbours": left_out(mean, one, senses.tolist(), n) for n in (1, 5)}
            scored["nearest mean"] = nearest_mean(mean, senses)
            rows.append({"task": name, "what": what, "layers": chosen} | scored)
            print(
                f"{name:<6} {what:<12}", "   ".join(f"{each} {share:.3f}" for each, share in scored.items())
            )
        if name not in ("m4", "m6", "h1"):
            for row in answers(mean_of(of, [depth]), senses, [span.text for span in spans]):
                rows.append({"task": name} | row)
                told = "   ".join(f"{each} {row[each]:.2f}" for each in list(row)[2:])
                print(f"{name:<6} {row['answers']:>3} answers, {row['which']:<9}: {told}", flush=True)
    suffix = "" if given.model == DEFAULT_MODEL else f"_{kept._name}"
    finish(f"eval_senses{suffix}", machine("numpy", "scikit-learn"), rows, keep=given.keep)


if __name__ == "__main__":
    main()
