"""Senses in a file that people edit, the logistic head that its examples give, and asking for more."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from regard.concordance._lines import Line
from regard.concordance._meaning import span_of
from regard.concordance._vectors import Span, UsageEmbedder, Vectors, span_at
from regard.core.errors import CheckpointError, InputError
from regard.core.extras import optional
from regard.core.files import parse_object, plain_file, write_whole
from regard.text import fold, split_words

UNSURE: Final = "unsure"

Examples = dict[str, list[Span]]
"""By sense, uses in their texts."""

Words = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Which text has which word, both by number: two columns of equal length."""

# The inverse weight of the penalty, for vectors of length 1. With it probabilities are right as they are
# (expected calibration error on *line* and *serve* .06 and .04 with 5 labels a sense, .02 with 20); with 10
# they are too timid (.33, .25). A choice by cross-validation is worse calibrated, and no more accurate.
_C: Final = 300.0

# What a use's neighbours say counts as much as what the head says of it. Averages are timid: the power makes
# them as bold as they are right (on *line* and *serve* from 1.25 to 1.5 does). Each sense is taken to have so
# many words beside those that are counted, in the shares of all senses together.
_NEAREST, _POWER, _WORDS = 10, 1.35, 300.0

# Above fifty examples they are left out in fifty groups.
_TURNS: Final = 50
# The first uses that --teach asks for are drawn at random.
_DRAWN: Final = 20


def learning(name: str) -> Any:
    """A module of scikit-learn, or of what it needs."""
    return optional("senses and calibration need", "scikit-learn", name)[0]


def fit(vectors: Vectors, labels: Sequence[str]) -> Any:
    """A head for one word, scikit-learn's: p(sense) = softmax(W v + b) on vectors of length 1.

    It has the least cross-entropy + |W|^2 / (2 C), C = 300.
    """
    if len(set(labels)) < 2:
        raise InputError(f"labels must be of two senses or more; got {len(set(labels))}.")
    model = learning("sklearn.linear_model").LogisticRegression(C=_C, max_iter=1000)
    return model.fit(np.asarray(vectors, np.float64), np.array(labels, str))


def nearest_of(vectors: Vectors) -> Any:
    """The ten uses nearest to each, without itself; None of one use."""
    if len(vectors) == 1:
        return None
    # Fewer uses than ten: all others.
    count = min(_NEAREST, len(vectors) - 1)
    search = learning("sklearn.neighbors").NearestNeighbors(n_neighbors=count, algorithm="brute")
    return search.fit(vectors).kneighbors(return_distance=False)


def decided(probabilities: NDArray[np.float64], nearest: Any, words: Words, known: Mapping[int, int]) -> Any:
    """What is likely, (uses, senses), by the head's `probabilities`, the uses near, and the words around.

    Few labels say little of a use that is unlike all of them, and a vector little of the words far from it.
    The head's answers, averaged with those of the ten nearest uses, sort the words of all texts by sense; to
    uses with a label (`known`: the number of the sense) the label is the answer. What the words then say is
    multiplied with what the head says, and that is averaged again:

        p'(sense) ~ (p(sense) + mean of p(sense) over the ten nearest uses) ** 1.35

    Source: Zhou et al. 2004, "Learning with local and global consistency", one step of it; Nigam et al. 2000,
    "Text classification from labeled and unlabeled documents using EM", one step of it.
    """
    if nearest is None:
        return probabilities
    normalize = learning("sklearn.preprocessing").normalize

    # The power makes averages as bold as they are right (`_POWER`).
    def averaged(p: NDArray[np.float64]) -> Any:
        return normalize((p + p[nearest].mean(1)) ** _POWER, "l1")

    shares = averaged(probabilities)
    # What the user has said is certain: 1 for its sense.
    shares[[*known]] = np.eye(probabilities.shape[1])[[*known.values()]]
    # Head and words multiply: their logarithms are added.
    both = np.log(np.maximum(probabilities, 1e-9)) + _of_words(words, shares)
    # The largest is taken off before exp, which changes nothing after normalising.
    return averaged(normalize(np.exp(both - both.max(1, keepdims=True)), "l1"))


def words_of(bodies: Iterable[str]) -> Words:
    """The words of texts, each once in a text, but those that stand in one text only."""
    # Each word once in a text: repeats say little more.
    words = [sorted({fold(body[start:stop]) for start, stop in split_words(body)}) for body in bodies]
    text = np.repeat(np.arange(len(words)), [*map(len, words)])
    _, word, count = np.unique(np.concatenate(words), return_inverse=True, return_counts=True)
    # A word of one text only says nothing about other texts.
    return text[count[word] > 1], word[count[word] > 1]


def _of_words(words: Words, shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """sum over the n words of a text of log p(word | sense), divided by sqrt(n) as words go together.

    Each text is left out of the counts that speak of it.
    """
    text, word = words
    # Every sense starts with 300 words in the shares of all senses together.
    size, prior = np.bincount(text, minlength=len(shares)), _WORDS * np.bincount(word) / max(len(word), 1)
    out = np.empty_like(shares)
    for sense, own in enumerate(shares.T):
        # How often the word stands in texts of the sense, without the text itself.
        count = np.bincount(word, own[text])[word] - own[text] + prior[word]
        # All words of the sense, likewise.
        total = own @ size - (own * size)[text] + _WORDS
        # sum of log p(word | sense) over the words of each text.
        out[:, sense] = np.bincount(text, np.log(count / total), len(shares))
    # Words of one text go together: the sum grows with sqrt(n), not n.
    return out / np.sqrt(np.maximum(size, 1))[:, None]


@dataclass(frozen=True, eq=False)
class Taught:
    """What examples say of all uses.

    Attributes:
        names: of the senses.
        shares: how likely each is, (uses, senses), tempered by `power`.
        right: the share of the examples that get their sense where they are left out in turn.
        of_all: the same, where each example counts as often as uses are nearest to it: an estimate for all.
        power: to which probabilities are raised before they are made to add up to 1.
    """

    names: list[str]
    shares: NDArray[np.float64]
    right: float
    of_all: float
    power: float


def taught(vectors: Vectors, words: Words, known: Mapping[int, str]) -> Taught:
    """Label uses by those that have a label, `known` by row, with probabilities that these bear out.

    Each label is left out in its turn (of more than fifty, some at a time), and its use labelled by the
    others. The power is that of the greatest likelihood of what was left out, with the prior
    exp(-2 log(power)^2): few labels change little.

    Source: Guo et al. 2017, arXiv 1706.04599 (one temperature), on what was left out.
    """
    names, nearest = sorted(set(known.values())), nearest_of(vectors)

    def shares(rows: Mapping[int, str]) -> NDArray[np.float64]:
        # Without two senses among the rows, all are equally likely.
        out = np.full((len(vectors), len(names)), 1.0 / len(names))
        if len(set(rows.values())) > 1:
            head = fit(vectors[[*rows]], [*rows.values()])
            kinds = head.classes_.tolist()
            own = {row: kinds.index(name) for row, name in rows.items()}
            out[:] = 0
            # Columns of senses that the head has seen; others keep 0.
            out[:, [*map(names.index, kinds)]] = decided(head.predict_proba(vectors), nearest, words, own)
        return out

    order, answers = list(known), list[NDArray[np.float64]]()
    # Each label in one group; up to fifty groups.
    groups = [order[at::_TURNS] for at in range(min(_TURNS, len(order)))]
    for group in groups:
        rest = {row: name for row, name in known.items() if row not in group}
        # The answers for what was left out, by the others.
        answers.append(shares(rest)[group])
    left, truth = np.concatenate(answers), [names.index(known[row]) for group in groups for row in group]
    at = np.arange(len(truth))

    # Likelihood of what was left out, with a prior that keeps the power near 1.
    def likelihood(power: float) -> float:
        return float(np.log(tempered(left, power)[at, truth]).sum() - 2 * np.log(power) ** 2)

    # 60 powers from 0.1 to 2, on a logarithmic scale.
    power = max(np.geomspace(0.1, 2, 60).tolist(), key=likelihood)
    right = left.argmax(1) == truth
    asked = vectors[[row for group in groups for row in group]]
    # How many of all uses are nearest to each example: hard regions count as often as they occur.
    weights = np.bincount((vectors @ asked.T).argmax(1), minlength=len(right))
    of_all = float(weights @ right / weights.sum())
    return Taught(names, tempered(shares(known), power), float(right.mean()), of_all, power)


def tempered(shares: NDArray[np.float64], power: float) -> Any:
    """Probabilities to a power, made to add up to 1; none below 1e-9 before."""
    raised = np.maximum(shares, 1e-9) ** power
    return raised / raised.sum(1, keepdims=True)


def next_use(vectors: Vectors, asked: Sequence[int], head: Any) -> int | None:
    """The use whose label would decide most; None where all have been asked about.

    That is where the head is unsure, far from what was asked about, and near to many: the greatest product.
    """
    if len(asked) == len(vectors):
        return None
    # Near to many: the likeness to the mean of all.
    worth = np.clip(vectors @ vectors.mean(0), 1e-6, None).astype(np.float64)
    if asked:
        # Far from what was asked about: 1 - the likeness to the nearest of these.
        worth *= np.clip(1 - (vectors @ vectors[asked].T).max(1), 1e-6, None)
    if head is not None:
        # Unsure: 1 - the largest probability.
        worth *= 1 - head.predict_proba(vectors).max(1)
    # Never asked again.
    worth[asked] = -1
    return int(worth.argmax())


def marked(span: Span) -> str | list[str]:
    """A use as people write it, "on the *bank*"; as three parts where its text has asterisks of its own."""
    parts = [span.text[: span.start], span.text[span.start : span.stop], span.text[span.stop :]]
    # Asterisks in the text itself would be ambiguous.
    return parts if "*" in span.text else "*".join(parts)


def write_examples(file: Path, word: str, examples: Mapping[str, Sequence[Span]]) -> None:
    """Write the senses to a file that people edit, whole or not at all."""
    senses = {name: [marked(each) for each in of] for name, of in examples.items()}
    content = {"word": word, "senses": senses}
    write_whole(file, (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode())


def read_examples(file: Path, word: str, *, least: int = 2) -> Examples:
    """The senses in a file, each with its examples; as many as `least`."""
    try:
        content = parse_object(plain_file(file).read_bytes(), str(file))
    except (OSError, CheckpointError) as error:
        raise InputError(f"file must be a JSON file of senses: {error}") from error
    senses = content.get("senses")
    if not isinstance(senses, dict) or not all(isinstance(entry, list) for entry in senses.values()):
        raise InputError(
            f'file must have "senses", a list of examples for each name; {str(file)!r} lacks it.'
        )
    # Without regard to case, as everywhere.
    if fold(str(content.get("word", ""))) != fold(word):
        raise InputError(f"word must be that of {str(file)!r}, {content.get('word')!r}; got {word!r}.")
    by_sense: Examples = {}
    for name, examples in senses.items():
        for entry in examples:
            # Three parts: before, the word, after.
            if isinstance(entry, list) and len(entry) == 3 and all(isinstance(part, str) for part in entry):
                span = Span("".join(entry), len(entry[0]), len(entry[0]) + len(entry[1]))
            elif isinstance(entry, str):
                span = span_of(entry, None)
            else:
                raise InputError(
                    f'an example must be a text with its word marked, "on the *bank*"; got {entry!r}.'
                )
            by_sense.setdefault(name, []).append(span)
    if len(by_sense) < least or UNSURE in by_sense:
        raise InputError(
            f"file must have examples of two senses or more, none named {UNSURE!r}; {str(file)!r} has "
            f"{', '.join(by_sense) or 'none'}."
        )
    return by_sense


def head_of(embed: UsageEmbedder, examples: Examples) -> Any:
    """The head that examples give, whose vectors the model computes anew: a file goes with any model."""
    names = [name for name, spans in examples.items() for _ in spans]
    return fit(embed([span for spans in examples.values() for span in spans]), names)


def drawn_use(count: int, asked: Sequence[int]) -> int | None:
    # By a fixed seed for each number of answers: a stopped round goes on the same.
    """A use at random of those that were not asked about; None where all have been."""
    rest = np.setdiff1d(np.arange(count), asked)
    return int(np.random.default_rng(len(asked)).choice(rest)) if len(rest) else None


def teach(
    embed: UsageEmbedder,
    word: str,
    lines: Sequence[Line],
    vectors: Vectors,
    file: Path,
    ask: Callable[[Line, Sequence[str]], str | None],
    most: int,
) -> int:
    """Ask for the senses of uses: see `Concordance.teach`.

    The first twenty are drawn, and then every second; the others decide most. Answers that were all asked for
    because they are hard say too little of how many others are right, and leave out senses.
    """
    examples = read_examples(file, word, least=0) if file.exists() else {}
    said = {(span.text, span.start) for spans in examples.values() for span in spans}
    # What the file has already is known, and not asked.
    asked = [row for row, line in enumerate(lines) if (line.place.body, line.place.start) in said]
    count = 0
    while count < most:
        # Trained anew after each answer; with one sense there is nothing to decide.
        head = head_of(embed, examples) if len(examples) > 1 else None
        # Drawn uses estimate how many are right; chosen ones teach most.
        draw = len(asked) < _DRAWN or len(asked) % 2 == 1
        row = drawn_use(len(vectors), asked) if draw else next_use(vectors, asked, head)
        if row is None:
            break
        line = lines[row]
        if head is not None:
            shares = head.predict_proba(vectors[[row]])[0]
            line = replace(line, label=str(head.classes_[shares.argmax()]), probability=float(shares.max()))
        answer = ask(line, tuple(examples))
        if answer is None:
            break
        if answer == UNSURE:
            raise InputError(f"a sense must have another name than {UNSURE!r}: pass the line over instead.")
        asked.append(row)
        if answer:
            examples.setdefault(answer, []).append(span_at(line.place))
            # Saved at once: whatever ends the process, the answers stay.
            write_examples(file, word, examples)
            count += 1
    return count
