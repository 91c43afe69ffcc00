"""How alike two uses are, what that says of their senses, and which words of the context say so."""

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from regard.concordance._building import Reading
from regard.concordance._store import Store
from regard.concordance._vectors import Span, UsageEmbedder, Vectors
from regard.core.errors import InputError
from regard.text import fold, split_words

# At most so many reasons are named, and none whose effect is smaller.
_REASONS: Final = 5
_LEAST: Final = 0.001


@dataclass(frozen=True)
class Calibration:
    """The probability that two uses of a word have one sense, of the cosine of their vectors.

        p = 1 / (1 + exp(slope log(1 - cos) - intercept)), with 1 - cos at least 0.001

    Args:
        slope, intercept: fitted on pairs that people have judged, as many of one sense as of two.
        unsure: probabilities between these say neither.
        fitted_on: what they were fitted on.

    Source: Kull, Silva Filho and Flach 2017, "Beta calibration", with the one term that pairs bear out.
    """

    slope: float
    intercept: float
    unsure: tuple[float, float] = (0.35, 0.65)
    fitted_on: str = ""

    def __call__(self, cosine: Any) -> Any:
        """The probability, of a number or an array."""
        # By the logistic of slope * nearness + intercept.
        return 1.0 / (1.0 + np.exp(-(self.slope * nearness(cosine) + self.intercept)))

    def answer(self, probability: float) -> str:
        """What a probability says: "same", "unsure" or "other"."""
        low, high = self.unsure
        return "same" if probability > high else "other" if probability < low else "unsure"


def nearness(cosine: Any) -> Any:
    """-log(1 - cos): the logarithm of the odds of one sense rises with it in a straight line."""
    # 1 - cos is at least 0.001: equal vectors would have infinite odds.
    return -np.log(np.maximum(1.0 - np.asarray(cosine, np.float64), 1e-3))


# By the mark of a model's weights, and the layers. Fitted on the training pairs of Word in Context (Pilehvar
# and Camacho-Collados 2019, arXiv 1808.09121), as benchmarks/eval_senses.py and `regard tune-layer` do.
_WIC: Final = "Word in Context, 5,428 pairs of 1,265 words"
_SHIPPED: Final[dict[tuple[str, tuple[int, ...]], Calibration]] = {
    # all-MiniLM-L6-v2
    ("6f492c7892c31ec0b921a2d84a7f0a776393e8563ac23e5d7007c908c4fe0399", (6,)): Calibration(
        slope=0.819, intercept=-1.148, fitted_on=_WIC
    ),
    # all-mpnet-base-v2
    ("20bd3f6eb279bed3b9e61e4a81785e228f414e084c02856a724f7ef13f5e1990", (12,)): Calibration(
        slope=2.431, intercept=-1.288, fitted_on=_WIC
    ),
}


def shipped(embed: UsageEmbedder) -> Calibration | None:
    """The calibration that comes with regard for a model and its layers; None where there is none."""
    return _SHIPPED.get((embed.mark, embed.layers))


def span_of(
    sentence: str, word: str | None, words: Callable[[str], list[tuple[int, int, set[str]]]] | None = None
) -> Span:
    """The word that is meant in a sentence: the one between asterisks, or the one place where a word stands.

    `words` gives the words of the sentence: where each begins and ends, and what it may be called.

    Raises:
        InputError: no word is marked or given; or it is not there, or there more than once.

    Example:
        >>> span_of("She sat on the *bank*.", None)
        Span(text='She sat on the bank.', start=15, stop=19)
    """
    # Asterisks around the word: what is before, the word, what is behind.
    if marked := re.fullmatch(r"([^*]*)\*([^*]+)\*([^*]*)", sentence):
        before, meant, after = marked.groups()
        return Span(before + meant + after, len(before), len(before + meant))
    if word is None:
        raise InputError(
            f'sentence must have its word between asterisks, as in "on the *bank*"; got {sentence!r}.'
        )
    asked = [fold(word[start:stop]) for start, stop in split_words(word)]
    # Without a corpus words are those of Unicode.
    if words is None:
        cut = [(start, stop, {fold(sentence[start:stop])}) for start, stop in split_words(sentence)]
    else:
        cut = words(sentence)
    places = range(len(cut) - len(asked) + 1)
    # A phrase: all its words in a row.
    starts = [at for at in places if all(each in cut[at + row][2] for row, each in enumerate(asked))]
    if len(starts) != 1:
        times = "not there" if not starts else f"there {len(starts)} times"
        raise InputError(
            f'word must stand in the sentence once; {word!r} is {times}. Mark the one meant: "*{word}*".'
        )
    first, last = starts[0], starts[0] + len(asked) - 1
    return Span(sentence, cut[first][0], cut[last][1])


def words_in(store: Store, sentence: str) -> list[tuple[int, int, set[str]]]:
    """The words of a sentence, each with its spelling and the lemmas that it may have."""
    reading = store.manifest["reading"]
    cut = Reading(lemmas=reading["lemmas"], apostrophes=reading["apostrophes"]).splitter()(sentence)
    words = []
    for each in cut:
        # The spelling, its own lemma, and those that the corpus has for it.
        key = fold(sentence[each.start : each.stop])
        lemmas = {lemma for (lemma,) in store.rows("SELECT lemma FROM form WHERE key = ?", [key])}
        words.append((each.start, each.stop, {key, fold(each.lemma), *lemmas}))
    return words


def refined(query: Vectors, more: Vectors, less: Vectors) -> Vectors:
    """A direction after examples: q + mean(more) - mean(less) / 2, of length 1.

    Source: Rocchio 1971, "Relevance feedback in information retrieval".
    """
    # Rocchio's weights: 1 for what is wanted, 1/2 for what is not.
    moved = query + (more.mean(0) if len(more) else 0) - (less.mean(0) / 2 if len(less) else 0)
    length = float(np.linalg.norm(moved))
    # Opposites may cancel out, and float32 may overflow.
    if not math.isfinite(length) or length == 0:
        raise InputError("less must leave something of the query; give other examples.")
    return (moved / length).astype(np.float32)


@dataclass(frozen=True)
class Reason:
    """A word of the context, and by how much the cosine falls when it is hidden."""

    word: str
    drop: float


def reasons(
    store: Store, embed: UsageEmbedder, spans: Sequence[Span], query: Vectors
) -> Iterator[tuple[Reason, ...]]:
    """For each use the words of its context that make it like the query, the strongest first.

    Each word is hidden in its turn: [MASK] stands for it, or where the model has none it is left out. The
    fall is weighed by the bits of the word, -log2 of its share of the corpus: so "of" and "the" come late,
    unless they decide. Words without effect, less than 0.001, are left out.

    Source: occlusion; Zeiler and Fergus 2014, arXiv 1311.2901, section 4.2.
    """
    tokenizer = embed.loaded.require_tokenizer()
    mask = tokenizer.special_ids.mask
    # A model without a mask gets the text without the word.
    hidden = "" if mask is None else tokenizer.token_of(mask)
    total = store.one("SELECT sum(n) FROM form WHERE is_word")
    for span in spans:
        # Words around the use itself; marks say nothing.
        others = [
            (start, stop)
            for start, stop in split_words(span.text)
            if (stop <= span.start or start >= span.stop) and any(map(str.isalnum, span.text[start:stop]))
        ]
        without = []
        for start, stop in others:
            # A word before the use moves it, by the difference in length.
            moved = len(hidden) - (stop - start) if start < span.start else 0
            text = span.text[:start] + hidden + span.text[stop:]
            without.append(Span(text, span.start + moved, span.stop + moved))
        # One batch: the use as it is, then with each word hidden.
        cosines = embed([span, *without]) @ query
        words = [span.text[start:stop] for start, stop in others]
        counts = store.rows(
            "SELECT key, sum(n) FROM form WHERE key IN (SELECT value FROM json_each(?)) GROUP BY key",
            [json.dumps([fold(word) for word in words])],
        )
        # Rare words carry more bits: they weigh more.
        bits = {key: math.log2(total / count) for key, count in counts}
        candidates = [
            (drop * bits.get(fold(word), math.log2(total)), Reason(word, drop))
            for word, drop in zip(words, (cosines[0] - cosines[1:]).tolist(), strict=True)
            if drop >= _LEAST
        ]
        yield tuple(reason for _, reason in sorted(candidates, key=lambda each: -each[0])[:_REASONS])


def voted(likeness: Vectors, labels: Sequence[str], count: int = 5) -> list[str]:
    """The label of most of the `count` columns where each row is greatest; of equals the nearest."""
    # Stable: of equal likenesses the earlier column is nearer.
    nearest = np.argsort(-likeness, axis=1, kind="stable")[:, :count]
    # `max` with `count` keeps the first of equals, and the nearest come first.
    return [max(own, key=own.count) for own in np.array(labels, object)[nearest].tolist()]
