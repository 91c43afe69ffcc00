"""Which layers tell senses apart best, and what a likeness says there: from uses that people have judged."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from regard.concordance._meaning import Calibration, nearness, voted
from regard.concordance._store import Store, writer
from regard.concordance._teach import learning
from regard.concordance._vectors import Span, UsageEmbedder, by_text, span_in, summed
from regard.core.displayable import Displayable, plain_table
from regard.core.errors import InputError
from regard.core.files import read_object
from regard.core.progress import OnProgress

if TYPE_CHECKING:
    from rich.console import RenderableType

    from regard.models import Loaded

# So many pairs of each answer, for a word whose uses have senses.
_PAIRS_A_WORD: Final = 2000
_FOLDS: Final = 10
_MOST_LAYERS: Final = 4
_TEXTS_AT_ONCE: Final = 256


@dataclass(frozen=True, eq=False)
class Judged:
    """Uses that people have judged: spans with their words, pairs (n, 2) of them, whether each has one sense.

    `senses` are those of the uses; empty where only pairs were judged.
    """

    name: str
    spans: list[Span]
    words: NDArray[Any]
    pairs: NDArray[np.int64]
    same: NDArray[np.bool_]
    senses: list[str]


def read_judged(path: Path) -> Judged:
    """Read pairs of Word in Context (NAME.data.txt beside NAME.gold.txt), or JSON lines.

    A line of JSON is `{"word": .., "first": USE, "second": USE, "same": true}`, or a use with its `word` and
    `sense`. A use is `{"text": .., "start": .., "stop": ..}`, or `{"words": [..], "index": ..}`.

    Raises:
        InputError: what is none of these.
    """
    spans, words, same, senses = list[Span](), list[str](), list[bool](), list[str]()
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        if path.name.endswith(".data.txt"):
            gold = path.with_name(path.name.replace(".data.txt", ".gold.txt")).read_text("utf-8").split()
            for line, answer in zip(lines, gold, strict=True):
                # Word in Context: the word, its part of speech, places "2-5", and the two sentences.
                word, _, places, *sentences = line.split("\t")
                for place, sentence in zip(places.split("-"), sentences, strict=True):
                    spans.append(span_in(sentence.split(" "), int(place)))
                words += [word, word]
                same.append({"T": True, "F": False}[answer])
        else:
            for row in map(json.loads, filter(str.strip, lines)):
                # A line is a use with its sense, or a pair with an answer.
                uses = [row] if "sense" in row else [row["first"], row["second"]]
                spans += map(_use, uses)
                words += [str(row["word"])] * len(uses)
                if "sense" in row:
                    senses.append(str(row["sense"]))
                else:
                    # Anything but true and false is an error.
                    same.append({True: True, False: False}[row["same"]])
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise InputError(
            f"data must be pairs of Word in Context, or JSON lines of pairs or senses; {str(path)!r} is not: "
            f"line {1 + len(spans) // (1 if senses else 2)}, {type(error).__name__} {error}."
        ) from error
    if senses and same:
        raise InputError(f"data must be of pairs or of senses; {str(path)!r} has both.")
    word_of = np.array(words, object)
    # Pairs as they come, or drawn from uses with senses.
    pairs = np.arange(len(spans)).reshape(-1, 2) if same else drawn_pairs(word_of, np.array(senses, object))
    answers = np.array(same or [senses[a] == senses[b] for a, b in pairs], bool)
    if not answers.any() or answers.all():
        raise InputError(f"data must have pairs of one sense and pairs of two; {str(path)!r} has one kind.")
    return Judged(path.name, spans, word_of, pairs, answers, senses)


def _use(row: Any) -> Span:
    words = row.get("words")
    span = Span(row["text"], row["start"], row["stop"]) if words is None else span_in(words, row["index"])
    if not 0 <= span.start < span.stop <= len(span.text):
        raise ValueError(f"start and stop must be in the text; got {span.start} and {span.stop}")
    return span


def drawn_pairs(words: NDArray[Any], senses: NDArray[Any]) -> NDArray[np.int64]:
    """Pairs of uses: for each word as many with one sense as with two."""
    draw, drawn = np.random.default_rng(0), [np.zeros((0, 2), np.int64)]
    for word in sorted(set(words)):
        own = np.flatnonzero(words == word)
        # More than needed, since pairs of a use with itself and doubles fall away.
        pairs = own[draw.integers(0, len(own), (20 * _PAIRS_A_WORD, 2))]
        # Sorted within a pair: (a, b) and (b, a) are one.
        pairs = np.unique(np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1), axis=0)
        draw.shuffle(pairs)
        alike = senses[pairs[:, 0]] == senses[pairs[:, 1]]
        # As many of one sense as of two: then 1/2 is chance.
        most = min(alike.sum(), (~alike).sum(), _PAIRS_A_WORD)
        drawn += [pairs[alike][:most], pairs[~alike][:most]]
    return np.concatenate(drawn)


def fit(
    cosines: NDArray[Any], same: NDArray[np.bool_], weights: NDArray[Any] | None = None
) -> tuple[float, float]:
    """Slope and intercept of a `Calibration`, of the greatest likelihood."""
    # A pair of each kind beside them, and a penalty, both of next to no weight: they end a perfect
    # separation.
    x, y = np.append(nearness(cosines), [0.0, 0.0]), np.append(same, [False, True])
    model = learning("sklearn.linear_model").LogisticRegression(C=1e3, tol=1e-9)
    model.fit(x[:, None], y, np.append(np.ones(len(same)) if weights is None else weights, [1e-3, 1e-3]))
    return float(model.coef_[0, 0]), float(model.intercept_[0])


def unseen(cosines: NDArray[Any], same: NDArray[np.bool_], words: NDArray[Any]) -> NDArray[np.float64]:
    """The probability of each pair, by a fit on the pairs of other words; of one word, of other pairs."""
    # Whole words are held out together; of a single word, pairs are.
    groups = words.astype(str) if len(set(words)) > 1 else np.arange(len(words))
    folds = learning("sklearn.model_selection").GroupKFold(min(_FOLDS, len(set(groups))))
    out = np.empty(len(cosines))
    for seen, held in folds.split(cosines, groups=groups):
        out[held] = Calibration(*fit(cosines[seen], same[seen]))(cosines[held])
    return out


def calibration_error(probability: NDArray[Any], same: NDArray[np.bool_], bins: int = 10) -> float:
    """The expected calibration error: sum over bins of n_b / n |mean p - share of one sense|.

    Source: Naeini, Cooper and Hauskrecht 2015, "Obtaining well calibrated probabilities", with equal widths.
    """
    # Bins of equal width; 1 belongs to the last.
    at = np.minimum((probability * bins).astype(int), bins - 1)
    # Sums of p - answer of each bin are n_b times the difference of their means.
    return float(np.abs(np.bincount(at, probability - same, bins)).sum() / len(same))


@dataclass(frozen=True, eq=False)
class Tuning(Displayable):
    """Layers and means of neighbouring layers, the best first.

    Attributes:
        rows: for each its layers; its mean rank in the sets; of pairs the AUC, and the log loss and the
            expected calibration error by a fit on other words; the share of uses with the sense of most of
            their five nearest, None without senses; slope and intercept. They are means over the sets.
        settings: the model, its best layers and their calibration, as an index keeps them.
    """

    rows: tuple[dict[str, Any], ...]
    settings: dict[str, Any]

    def to_rows(self) -> list[dict[str, Any]]:
        """A dictionary for each: layers, rank, auc, log_loss, calibration_error, neighbours, slope, ..."""
        return [dict(row) for row in self.rows]

    def _parts(self) -> "Iterator[RenderableType]":
        yield f"{self.settings['meaning']['model']} on {self.settings['calibration']['fitted_on']}"
        digits = {"rank": 1, "auc": 3, "log_loss": 4, "calibration_error": 3, "neighbours": 3}
        table = []
        for row in self.rows:
            cells = ["-" if row[name] is None else f"{row[name]:.{n}f}" for name, n in digits.items()]
            table.append(["+".join(map(str, row["layers"])), *cells])
        yield plain_table(["layers", "rank", "AUC", "log loss", "calibration error", "5 neighbours"], table)
        if self.settings["calibration"]["fitted_on"].count(";") == 0:
            yield "By one set. Its best layers may not be those of other words: give several kinds."


def tune_layers(model: Any, judged: Judged | Sequence[Judged], *, progress: OnProgress = None) -> Tuning:
    """Score the layers of a model, and means of up to four neighbouring ones, on sets of judged uses.

    The best has the least mean rank over the sets. In one with senses the first has most uses with the sense
    of their five nearest others; in one of pairs, the least log loss. The calibration is fitted on all pairs,
    those of each set with the same weight.

    Args:
        model: a `regard.Model`, or what it holds.
        judged: as `read_judged` gives them, one or more.
        progress: called with (done, total) while vectors are computed.

    Example:
        >>> import json, regard, tempfile
        >>> from pathlib import Path
        >>> uses = [("a river bank", 8, "side"), ("a muddy bank", 8, "side"), ("a bank loan", 2, "money"),
        ...         ("the bank lends", 4, "money")]
        >>> rows = [{"word": "bank", "text": text, "start": at, "stop": at + 4, "sense": sense}
        ...         for text, at, sense in uses]
        >>> file = Path(tempfile.mkdtemp()) / "bank.jsonl"
        >>> _ = file.write_text("\\n".join(map(json.dumps, rows)))
        >>> tuning = tune_layers(regard.load(), read_judged(file))
        >>> len(tuning.rows), sorted(tuning.settings)
        (18, ['calibration', 'meaning'])
    """
    loaded = getattr(model, "loaded", model)
    depth = loaded.network.depth(next(iter(loaded.network.prefixes)))
    sets = [judged] if isinstance(judged, Judged) else list(judged)
    vectors = [layers_of(loaded, each.spans, list(range(1, depth + 1)), progress) for each in sets]
    # (a, b): layers a + 1 to b, of one to four neighbours.
    runs = [(a, a + size) for size in range(1, _MOST_LAYERS + 1) for a in range(depth - size + 1)]
    scores, fits = [], []
    for a, b in runs:
        # The layers of a run, averaged: (uses, d).
        means = [of[:, a:b].astype(np.float32).mean(1) for of in vectors]
        set_scores = [_scores(each, mean) for each, mean in zip(sets, means, strict=True)]
        scores.append([of for of, _ in set_scores])
        # Each set weighs as much as another, however many pairs it has.
        weights = np.concatenate([np.full(len(each.same), 1e3 / len(each.same)) for each in sets])
        same = np.concatenate([each.same for each in sets])
        fits.append(fit(np.concatenate([of for _, of in set_scores]), same, weights))
    ranks = np.zeros(len(runs))
    # Ranks, not numbers, are averaged: sets differ in difficulty.
    for at in range(len(sets)):
        keys = [(-(row[at]["neighbours"] or 0), row[at]["log_loss"]) for row in scores]
        ranks += [1 + sum(other < key for other in keys) for key in keys]
    rows = []
    for (a, b), of, (slope, intercept), rank in zip(runs, scores, fits, ranks / len(sets), strict=True):
        # Layer 0 are the embeddings, so the run's layers begin at a + 1.
        row: dict[str, Any] = {"layers": list(range(a + 1, b + 1)), "rank": float(rank)}
        for name in of[0]:
            known = [each[name] for each in of if each[name] is not None]
            row[name] = float(np.mean(known)) if known else None
        rows.append(row | {"slope": slope, "intercept": intercept})
    rows.sort(key=lambda row: (row["rank"], row["log_loss"]))
    about = "; ".join(f"{of.name}, {len(of.same):,} pairs of {len(set(of.words)):,} words" for of in sets)
    best = Calibration(rows[0]["slope"], rows[0]["intercept"], fitted_on=about)
    meaning = UsageEmbedder(loaded, rows[0]["layers"]).about()
    return Tuning(tuple(rows), {"meaning": meaning, "calibration": asdict(best)})


def _scores(judged: Judged, vectors: NDArray[Any]) -> tuple[dict[str, Any], NDArray[Any]]:
    """What is said of a set, and the cosines of its pairs."""
    vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    first, second = judged.pairs.T
    cosines = np.einsum("nd,nd->n", vectors[first], vectors[second])
    p = unseen(cosines, judged.same, judged.words[first])
    scores = {
        "auc": float(learning("sklearn.metrics").roc_auc_score(judged.same, cosines)),
        "log_loss": -float(np.log(np.where(judged.same, p, 1 - p)).mean()),
        "calibration_error": calibration_error(p, judged.same),
        "neighbours": left_out(vectors, judged.words, judged.senses) if judged.senses else None,
    }
    return scores, cosines


def layers_of(
    loaded: "Loaded", spans: Sequence[Span], layers: Sequence[int], progress: OnProgress = None
) -> NDArray[np.float16]:
    """The vectors of uses at several layers: (uses, layers, d), the mean of whose lengths is 1."""
    from regard.embedding import Embedder, Request

    embedder = Embedder(loaded, Request(level="token", layer=list(layers)))
    parts = []
    for at in range(0, len(spans), _TEXTS_AT_ONCE):
        here = spans[at : at + _TEXTS_AT_ONCE]
        # One factor for all layers of a use, so that the mean of layers keeps their proportions.
        vectors = summed(embedder, *by_text(here))
        lengths = np.linalg.norm(vectors.astype(float), axis=2).mean(1)
        vectors /= np.maximum(lengths, np.finfo(float).tiny)[:, None, None]
        parts.append(vectors.astype(np.float16))
        if progress is not None:
            progress(at + len(here), len(spans))
    return np.concatenate(parts)


def left_out(vectors: NDArray[Any], words: NDArray[Any], senses: Sequence[str], count: int = 5) -> float:
    """The share of uses that have the sense of most of the nearest others of their word."""
    right, names = 0, np.array(senses, object)
    for word in set(words):
        own = np.flatnonzero(words == word)
        likeness = vectors[own] @ vectors[own].T
        # -2 is below every cosine: no use is its own neighbour.
        np.fill_diagonal(likeness, -2)
        votes = np.array(voted(likeness, names[own].tolist(), count), object)
        right += int(np.count_nonzero(votes == names[own]))
    return right / len(names)


def use_settings(folder: Path, settings: Path | dict[str, Any] | None) -> None:
    """Write tuned layers and their calibration into an index that has no vectors yet.

    Args:
        folder: the index.
        settings: as `Tuning.settings`, or a file that `regard tune-layer -o` wrote; None only checks.

    Raises:
        InputError: no such file or index, or the index has vectors.
    """
    tuned = read_object(settings) if isinstance(settings, Path) else settings
    if tuned is not None and not {"meaning", "calibration"} <= tuned.keys():
        raise InputError(f"settings must be a file that `regard tune-layer -o` wrote; got {settings!r}.")
    # Checked before the lock, for a message about the index rather than the lock.
    Store(folder).check_finished()
    with writer(folder) as store, store.writing():
        if store.one("SELECT 1 FROM vector LIMIT 1"):
            raise InputError(f"settings must come before the first vector; {str(folder)!r} has some.")
        if tuned is not None:
            store.note(meaning=tuned["meaning"], calibration=tuned["calibration"])
