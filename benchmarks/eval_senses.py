"""How well the concordance tells senses apart, beside its baselines.

    python benchmarks/eval_senses.py --data FOLDER [-m MODEL] [--layers 4,5,6] [--curve FILE.svg] [--keep]

FOLDER holds wic/ (Word in Context: train and dev, data and gold) and senseval/ (line.pos.gz, serve.pos.gz).

*Word in Context*: are two uses of one word of one sense? Accuracy at the probability of .5, the area under
the ROC curve, and the expected calibration error (ten bins of equal width): of the training pairs by a fit on
other words (ten folds by word), of the development pairs by a fit on the training pairs. Beside it what
chance would give if the probabilities were exact: the median over 200 draws of answers from them.

*Line and serve*: is a use's sense that of its nearest other use, or of most of the five nearest? Each use is
left out in its turn. Then with few labels, 2, 5, 10, 20 and 50 uses a sense: a logistic head; the same with
what the nearest uses and the words of the texts say, as `regard senses` labels by a file, with its
calibration error; and neighbours among the labelled uses. Scored on all other uses, the mean of ten draws.
Last the same number of labels in all, of the uses that `--teach` asks for and of uses by chance, each time
among half of the uses, the mean of four halves.

Baselines: the most frequent sense, the static embedding (layer 0), and the last layer alone.
"""

import argparse
import gzip
import html
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from _harness import finish, machine
from sklearn.metrics import roc_auc_score

import regard
from regard.checkpoints import DEFAULT_MODEL
from regard.concordance import usage_vectors
from regard.concordance._meaning import Calibration, voted
from regard.concordance._teach import Words, decided, next_use, words_of
from regard.concordance._teach import fit as fit_head
from regard.concordance._tuning import (
    calibration_error,
    drawn_pairs,
    fit,
    layers_of,
    left_out,
    read_judged,
    unseen,
)
from regard.concordance._vectors import Span, UsageEmbedder, span_in

LABELS, DRAWS, ASKED, HALVES, WORDS = (2, 5, 10, 20, 50), 10, (2, 5, 10, 20), 4, ("line", "serve")

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
    return uses, np.array(senses, object)


def mean_of(vectors: Array, layers: Sequence[int]) -> Array:
    """Of length 1, (uses, d)."""
    mean = vectors[:, list(layers)].astype(np.float32).mean(1)
    return mean / np.linalg.norm(mean, axis=1, keepdims=True)


def in_context(vectors: dict[str, Array], judged: dict[str, Any], layers: Sequence[int]) -> dict[str, Any]:
    """The row of Word in Context for some layers."""
    cosines = {}
    for split, found in vectors.items():
        of = mean_of(found, layers)
        cosines[split] = (of[0::2] * of[1::2]).sum(1)
    same, words = judged["train"].same, judged["train"].words[0::2]
    p = {
        "train": unseen(cosines["train"], same, words),
        "dev": Calibration(*fit(cosines["train"], same))(cosines["dev"]),
    }
    row: dict[str, Any] = {"task": "wic", "layers": list(layers)}
    draw = np.random.default_rng(0)
    for split, probability in p.items():
        truth = judged[split].same
        exact = [calibration_error(probability, draw.random(len(truth)) < probability) for _ in range(200)]
        row |= {
            f"{split}_accuracy": float(((probability > 0.5) == truth).mean()),
            f"{split}_auc": float(roc_auc_score(truth, cosines[split])),
            f"{split}_error": calibration_error(probability, truth),
            f"{split}_error_if_exact": float(np.median(exact)),
        }
    return row | {"p": p}


def said_of_pairs(calibration: Calibration, vectors: Array, senses: Array) -> float:
    """The calibration error on pairs of a word, as many of one sense as of two."""
    pairs = drawn_pairs(np.full(len(senses), "", object), senses)
    same = senses[pairs[:, 0]] == senses[pairs[:, 1]]
    return calibration_error(calibration((vectors[pairs[:, 0]] * vectors[pairs[:, 1]]).sum(1)), same)


def taught(vectors: Array, senses: Array, words: Words, known: Array) -> dict[str, float]:
    """What labels of some uses are worth on the others: the head alone, and as the concordance labels."""
    rest, names = np.setdiff1d(np.arange(len(senses)), known), sorted(set(senses[known]))
    alone = fit_head(vectors[known], senses[known].astype(str).tolist()).predict_proba(vectors)
    both = decided(alone, vectors, words, {row: names.index(senses[row]) for row in known.tolist()})
    right = [np.array(names)[p[rest].argmax(1)] == senses[rest] for p in (alone, both)]
    scores = {"head": right[0].mean(), "taught": right[1].mean()}
    return scores | {"calibration error": calibration_error(both[rest].max(1), right[1])}


def with_labels(vectors: Array, senses: Array, words: Words, labels: int) -> dict[str, float]:
    """The head and the neighbours with so many labels a sense, the mean of draws."""
    scores = []
    for seed in range(DRAWS):
        draw = np.random.default_rng(seed)
        each = [
            draw.choice(np.flatnonzero(senses == of), labels, replace=False) for of in sorted(set(senses))
        ]
        known = np.concatenate(each)
        row, rest = taught(vectors, senses, words, known), np.setdiff1d(np.arange(len(senses)), known)
        likeness = vectors[rest] @ vectors[known].T
        for count, name in ((1, "1 neighbour"), (5, "5 neighbours")):
            found = np.array(voted(likeness, senses[known].tolist(), count), object)
            row[name] = (found == senses[rest]).mean()
        scores.append(row)
    return {name: float(np.mean([row[name] for row in scores])) for name in scores[0]}


def asked_for(vectors: Array, senses: Array, bodies: Sequence[str]) -> list[dict[str, Any]]:
    """As many answers, to what `--teach` asks and to chance: the mean of draws of half of the uses."""
    scores: dict[tuple[int, str], list[dict[str, float]]] = {}
    kinds = len(set(senses))
    for seed in range(HALVES):
        draw = np.random.default_rng(seed)
        own = np.sort(draw.permutation(len(senses))[: len(senses) // 2])
        of, truth, words = vectors[own], senses[own], words_of([bodies[row] for row in own])
        asked: list[int] = []
        while len(asked) < max(ASKED) * kinds:
            head = fit_head(of[asked], truth[asked].tolist()) if len(set(truth[asked])) > 1 else None
            asked.append(next_use(of, asked, head))  # type: ignore[arg-type]  # there are more uses
        chance = draw.permutation(len(own))
        for labels in ASKED:
            for name, known in (("asked", np.array(asked)), ("by chance", chance)):
                row = taught(of, truth, words, known[: labels * kinds])
                scores.setdefault((labels, name), []).append(row)
    return [
        {"labels": labels, "answers": labels * kinds, "which": name}
        | {what: float(np.mean([row[what] for row in rows])) for what in rows[0]}
        for (labels, name), rows in scores.items()
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
    parser.add_argument("--layers", help="as 4,5,6; by default those of the concordance")
    parser.add_argument("--curve", type=Path, metavar="FILE.svg", help="write the reliability curve")
    parser.add_argument("--keep", action="store_true")
    given = parser.parse_args()

    loaded = regard.load(given.model).loaded
    layers = UsageEmbedder(loaded, given.layers and [*map(int, given.layers.split(","))]).layers
    depth = loaded.network.depth(next(iter(loaded.network.prefixes)))
    every, rows = list(range(depth + 1)), list[dict[str, Any]]()
    settings = {"static (layer 0)": [0], "last layer": [depth], "the concordance": list(layers)}

    judged = {split: read_judged(given.data / "wic" / f"{split}.data.txt") for split in ("train", "dev")}
    vectors = {split: layers_of(loaded, each.spans, every) for split, each in judged.items()}
    some = [(span.text.split(" "), len(span.text[: span.start].split())) for span in judged["dev"].spans[:8]]
    assert np.abs(usage_vectors(loaded, some, layers) - mean_of(vectors["dev"][:8], layers)).max() < 2e-3

    print(
        "Word in Context     accuracy: train dev   AUC: train dev   calibration error: train, dev (if exact)"
    )
    print(f"{'majority':<33}.500   .500")
    for name, chosen in settings.items():
        row = in_context(vectors, judged, chosen)
        p = row.pop("p")
        rows.append({"what": name} | row)
        shares = (row[f"{split}_{what}"] for what in ("accuracy", "auc") for split in judged)
        errors = (f"{row[f'{split}_error']:.3f} ({row[f'{split}_error_if_exact']:.3f})" for split in judged)
        print(f"{name:<32}", "  ".join([*(f"{each:.3f}" for each in shares), *errors]))
    bands(p["train"], judged["train"].same)
    if given.curve is not None:
        given.curve.write_text(curve(p["train"], judged["train"].same))

    for word in WORDS:
        uses, senses = senseval(given.data / "senseval" / f"{word}.pos.gz")
        bodies = [use.text for use in uses]
        words = words_of(bodies)
        of, one = layers_of(loaded, uses, every), np.full(len(uses), word, object)
        majority = max(Counter(senses).values()) / len(senses)
        print(f"\n{word}: {len(uses):,} uses, {len(set(senses))} senses; the most frequent {majority:.3f}")
        rows.append({"task": word, "what": "majority", "accuracy": majority})
        for name, chosen in settings.items():
            mean = mean_of(of, chosen)
            scored = {f"{count} neighbours": left_out(mean, one, senses.tolist(), count) for count in (1, 5)}
            train = mean_of(vectors["train"], chosen)
            fitted = Calibration(*fit((train[0::2] * train[1::2]).sum(1), judged["train"].same))
            scored["calibration error of pairs"] = said_of_pairs(fitted, mean, senses)
            rows.append({"task": word, "what": name, "layers": chosen} | scored)
            print(f"{name:<20}", "   ".join(f"{what} {share:.3f}" for what, share in scored.items()))
        for labels in LABELS:
            row = with_labels(mean, senses, words, labels)
            rows.append({"task": word, "what": "labels", "labels": labels} | row)
            print(
                f"{labels:>3} labels a sense ", "   ".join(f"{of} {share:.3f}" for of, share in row.items())
            )
        for row in asked_for(mean, senses, bodies):
            rows.append({"task": word, "what": "answers"} | row)
            print(f"{row['answers']:>3} answers, {row['which']}: {row['taught']:.3f}, head {row['head']:.3f}")
    finish("eval_senses", machine("numpy", "scikit-learn"), rows, keep=given.keep)


if __name__ == "__main__":
    main()
