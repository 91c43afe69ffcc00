"""The uses of a word in groups: found by their vectors, or labelled by examples in a file."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from warnings import catch_warnings

import numpy as np
from numpy.typing import NDArray

from regard.concordance._counts import collocates
from regard.concordance._lines import Line, Lines
from regard.concordance._store import Store
from regard.concordance._teach import (
    UNSURE,
    Examples,
    learning,
    marked,
    read_examples,
    taught,
    words_of,
    write_examples,
)
from regard.concordance._uses import Found, places
from regard.concordance._vectors import UsageEmbedder, Vectors, span_at
from regard.core.displayable import Displayable
from regard.core.errors import InputError
from regard.core.wording import printable
from regard.text import fold

if TYPE_CHECKING:
    from rich.console import RenderableType

    from regard.models import Loaded
    from regard.views import Page


_LIKELY: Final = 3.84
"""The log-likelihood of a neighbour at least (p = .05)."""
SURE: Final = 0.6
"""A use whose likeliest sense has less than that is "unsure"."""
# Shown at most: typical lines, examples in a file, words beside it; words to either side that count;
# characters around a mask.
_TYPICAL, _EXAMPLES, _WORDS, _WINDOW, _AROUND = 3, 12, 8, 5, 300
_ON_PAGE, _TRACED = 3000, 400
"""Uses on the map, and characters of a line whose attention is in the page."""


@dataclass(frozen=True, eq=False)
class Sense:
    """A group of uses.

    Attributes:
        name: "1" is the largest, until the user names it.
        uses, share: how many, and of all.
        typical: the lines nearest to the mean of its vectors.
        neighbours: words within five of the word that are commoner here than in the other groups, with their
            log-likelihood (p < .05).
        substitutes: words that a masked-LM head puts there, with mean probabilities; none without a head.
    """

    name: str
    uses: int
    share: float
    typical: Lines
    neighbours: tuple[tuple[str, float], ...]
    substitutes: tuple[tuple[str, float], ...]


@dataclass(frozen=True, eq=False)
class Senses(Displayable):
    """The uses of a word in groups.

    Attributes:
        word: whose uses they are.
        groups: the largest first.
        lines: all uses, in the order of the corpus, each with the `label` of its group.
        stability: mean adjusted Rand index between this grouping and those that half of the uses give: 1 is
            the same, 0 is chance; None of one group, and of uses that were labelled by examples.
        about: how the groups were found, in words.
        vectors: of the uses, (uses, d).
    """

    word: str
    groups: tuple[Sense, ...]
    lines: Lines
    stability: float | None
    about: str
    vectors: Vectors = field(repr=False)
    _loaded: "Loaded" = field(repr=False)

    def __repr__(self) -> str:
        return f"Senses({self.word!r}, {len(self.groups)} of {len(self.lines)} uses)"

    def to_rows(self) -> list[dict[str, Any]]:
        """A row for each group; `lines.to_rows()` has one for each use."""
        return [
            {"sense": each.name, "uses": each.uses, "share": each.share}
            | {"typical": [marked(span_at(line.place)) for line in each.typical]}
            | {
                name: [{"word": word, key: number} for word, number in getattr(each, name)]
                for name, key in (("neighbours", "likelihood"), ("substitutes", "probability"))
            }
            for each in self.groups
        ]

    def _parts(self) -> "Iterator[RenderableType]":
        from rich.text import Text

        uses = "1 use" if len(self.lines) == 1 else f"{len(self.lines):,} uses"
        yield Text(f"{self.word}: {uses}. {self.about}")
        for group in self.groups:
            yield Text(f"\n{printable(group.name)}   {100 * group.share:.0f} %", style="bold")
            for what, words in (("beside it", group.neighbours), ("in its place", group.substitutes)):
                if words:
                    yield Text(f"{what}: {', '.join(word for word, _ in words)}")
            yield from group.typical._parts()

    def page(self) -> "Page":
        """The interactive page: a map of the uses, each with its line, and the attention of typical ones.

        Raises:
            InputError: the model has attention that a page cannot draw.
        """
        from regard.tracing import senses_page, trace_text

        # Rows of the lines by the number of the use.
        at = {line.place.use: row for row, line in enumerate(self.lines)}
        typical = [[at[line.place.use] for line in each.typical] for each in self.groups]
        shown = [row for rows in typical for row in rows]
        # A map of at most 3,000 points, drawn at random, with all typical ones.
        kept = np.random.default_rng(0).permutation(len(self.lines))[:_ON_PAGE]
        place = {row: number for number, row in enumerate(np.union1d(kept, shown).tolist())}
        # The two directions of most variance, by the singular values of the centred vectors.
        centred = self.vectors - self.vectors.mean(0)
        _, sizes, ways = np.linalg.svd(centred, full_matrices=False)
        length = [len(line.place.body) for line in self.lines]
        # Short lines, whose attention a page can hold; one at least.
        traced = [row for row in shown if length[row] <= _TRACED] or [min(place, key=length.__getitem__)]
        words = ("neighbours", "substitutes")
        facts: dict[str, Any] = {
            "word": self.word,
            "about": self.about,
            "total": len(self.lines),
            # The share of the variance that the map shows.
            "share": float((sizes[:2] ** 2).sum() / max((sizes**2).sum(), 1e-12)),
            "points": (centred[list(place)] @ ways[:2].T).round(4).tolist(),
            "traced": [place[row] for row in traced],
        }
        facts["groups"] = [
            {"sense": each.name, "uses": each.uses, "share": each.share}
            | {name: [word for word, _ in getattr(each, name)] for name in words}
            | {"typical": [place[row] for row in own]}
            for each, own in zip(self.groups, typical, strict=True)
        ]
        facts["lines"] = [
            {"left": line.left, "node": line.place.node, "right": line.right, "sense": line.label}
            | {"where": f"{line.place.where} of {line.place.source}", "p": line.probability}
            for line in map(self.lines.__getitem__, place)
        ]
        return senses_page([trace_text(self._loaded, self.lines[row].place.body) for row in traced], facts)


def senses(
    store: Store,
    embed: UsageEmbedder,
    word: str,
    found: Found,
    vectors: Vectors,
    groups: int | None,
    file: Path | None,
    seed: int,
    *,
    about: str,
) -> Senses:
    """The uses of a word in groups: see `Concordance.senses`; `about` is what is to be said of others."""
    # A file that exists labels; one that does not is written.
    examples = read_examples(file, word) if file is not None and file.exists() else None
    if examples is not None and groups is not None:
        raise InputError("groups must be left out where the file has senses: it says which there are.")
    lines, stability = [Line(place) for place in places(store, found)], None
    # Groups by clustering, or labels by examples.
    if examples is None:
        numbers, stability, said = grouping(vectors, groups, seed)
        lines = [replace(line, label=str(number + 1)) for line, number in zip(lines, numbers, strict=True)]
    else:
        lines, right = _labelled(embed, lines, vectors, examples)
        said = (
            f"Labelled by {sum(map(len, examples.values()))} examples of {len(examples)} senses in {file}; "
            f"{UNSURE} is what is likely by less than {100 * SURE:.0f} %. {right}"
        )
    members = _members(lines, vectors)
    described = []
    for name, own in members:
        typical = Lines(tuple(lines[row] for row in own[:_TYPICAL]), len(own), "the most typical first")
        beside = _beside(store, found, own) if len(members) > 1 else ()
        instead = _substitutes(embed.loaded, typical)
        described.append(Sense(name, len(own), len(own) / len(lines), typical, beside, instead))
    # So that the user can name, merge and split what was found.
    if file is not None and examples is None:
        spans = {name: [span_at(lines[row].place) for row in own[:_EXAMPLES]] for name, own in members}
        write_examples(file, word, spans)
    said += f" {about}." if about else ""
    every = Lines(tuple(lines), len(lines))
    return Senses(word, tuple(described), every, stability, said, vectors, embed.loaded)


def _members(lines: Sequence[Line], vectors: Vectors) -> list[tuple[str, NDArray[np.int64]]]:
    """By sense, the largest first and `unsure` last: its uses, the nearest to their mean first."""
    rows = defaultdict(list)
    for row, line in enumerate(lines):
        rows[str(line.label)].append(row)
    members = []
    # unsure last, else by size; of equals by name.
    for name, own in sorted(rows.items(), key=lambda item: (item[0] == UNSURE, -len(item[1]), item[0])):
        at = np.array(own)
        # By likeness to the mean: the most typical first.
        members.append((name, at[np.argsort(-(vectors[at] @ vectors[at].mean(0)), kind="stable")]))
    return members


def _beside(store: Store, found: Found, own: NDArray[np.int64]) -> tuple[tuple[str, float], ...]:
    """The words that stand around some uses more often than around the others."""
    rest = np.setdiff1d(np.arange(len(found.uses)), own)
    with suppress(InputError):  # there are no words around one of the two
        # More than are shown, since unlikely ones are left out.
        near = collocates(store, found.at(own), found.at(rest), span=(_WINDOW, _WINDOW), k=4 * _WORDS)
        likely = [row for row in near.rows if row["count"] > 1 and row["g2"] > _LIKELY]
        return tuple((row["form"], row["g2"]) for row in likely[:_WORDS])
    return ()


def _substitutes(loaded: "Loaded", typical: Lines) -> tuple[tuple[str, float], ...]:
    from regard.decoding import fill

    network, tokenizer = loaded.network, loaded.require_tokenizer()
    mask = tokenizer.special_ids.mask
    # Only an encoder with a masked-LM head and a mask can say what would stand there.
    if not network.has_vocabulary_head or list(network.prefixes) != ["encoder"] or mask is None:
        return ()
    shares: dict[str, float] = defaultdict(float)
    for line in typical:
        text = f"{line.left[-_AROUND:]}{tokenizer.token_of(mask)}{line.right[:_AROUND]}"
        for guess in fill(loaded, text, top=50).masks[0]:
            # The word itself is no substitute, in no spelling.
            if guess.token.isalpha() and fold(guess.token) != fold(line.place.node):
                shares[guess.token] += guess.probability / len(typical)
    return tuple(sorted(shares.items(), key=lambda item: -item[1])[:_WORDS])


def _labelled(
    embed: UsageEmbedder, lines: Sequence[Line], vectors: Vectors, examples: Examples
) -> tuple[list[Line], str]:
    """Lines with the sense that the examples give them, and how right these are by themselves.

    Those that are examples keep what the user said; examples of other texts are uses beside these.
    """
    # By text and place: the same use may be known under several numbers.
    said = {(span.text, span.start): name for name, spans in examples.items() for span in spans}
    here = {(line.place.body, line.place.start): row for row, line in enumerate(lines)}
    spans = [(name, span) for name, of in examples.items() for span in of]
    known = {here[span.text, span.start]: name for name, span in spans if (span.text, span.start) in here}
    # Examples of other texts are embedded beside the uses, and labelled with them.
    others = [(name, span) for name, span in spans if (span.text, span.start) not in here]
    if others:
        vectors = np.concatenate([vectors, embed([span for _, span in others])])
        known |= {len(lines) + at: name for at, (name, _) in enumerate(others)}
    # The words of all texts, for what they say of senses.
    words = words_of([*(line.place.body for line in lines), *(span.text for _, span in others)])
    guess = taught(vectors, words, known)
    out = []
    for line, row in zip(lines, guess.shares, strict=False):
        name = said.get((line.place.body, line.place.start))
        likely = guess.names[row.argmax()] if row.max() >= SURE else UNSURE
        # What the user said is not a probability.
        out.append(replace(line, label=name or likely, probability=None if name else float(row.max())))
    about = (
        f"On your {len(spans)} examples, left out in turn: {guess.right:.2f} right; each counted as often as "
        f"uses are nearest to it, {guess.of_all:.2f}. Probabilities are tempered by that."
    )
    return out, about


_STABLE: Final = 0.6  # the least adjusted Rand index of a stable grouping
_MOST_GROUPS: Final = 8
# Half samples for stability; normal clouds as the null; directions; uses that are clustered.
_HALVES, _NULLS, _DIRECTIONS, _PART = 20, 19, 20, 1000


def grouping(
    vectors: Vectors, count: int | None = None, seed: int = 0
) -> tuple[NDArray[np.int64], float | None, str]:
    """Groups of vectors, 0 the largest; how stable they are; and that in words.

    K-means in the 20 directions of most variance. The number of groups is that of the largest silhouette,
    among those that half samples give again and whose silhouette is beyond that of 19 normal clouds.

    Source: Lloyd 1982; Rousseeuw 1987 (silhouettes); Liu et al. 2008 (a normal cloud as the null).
    """
    names = ("sklearn.cluster", "sklearn.exceptions", "sklearn.metrics", "threadpoolctl")
    cluster, exceptions, metrics, threads = map(learning, names)
    # Equal vectors (repeated sentences) cannot be parted.
    size, rng = len(vectors), np.random.default_rng(seed)
    distinct = len(np.unique(vectors, axis=0))
    # At least ten uses a group on average.
    most = min(_MOST_GROUPS, size // 10, distinct - 1)
    one = np.zeros(size, np.int64)
    if count is not None and not 2 <= count < distinct:
        raise InputError(
            f"groups must be 2 or more, and fewer than the {distinct} distinct uses; got {count}."
        )
    if count is None and most < 2:
        return one, None, f"Too few to part, {distinct} of them distinct: one group."
    # Many uses: a sample is clustered, and the others are assigned.
    part = np.sort(rng.choice(size, min(size, _PART), replace=False))
    centred = (vectors - vectors[part].mean(0)).astype(np.float64)
    # The directions of most variance of the sample, applied to all.
    points = centred @ np.linalg.svd(centred[part], full_matrices=False)[2][:_DIRECTIONS].T
    some = points[part]

    def split(of: NDArray[np.float64], groups: int, *, scored: bool = True) -> tuple[Any, float]:
        fitted = cluster.KMeans(groups, n_init=4, random_state=seed).fit(of)
        # A silhouette needs all groups, and fewer groups than points.
        parted = scored and groups == len(set(fitted.labels_)) < len(of)
        return fitted, float(metrics.silhouette_score(of, fitted.labels_)) if parted else -1.0

    splits = []
    # A second thread makes so small a task ten times slower. Half of uses that are alike may be fewer groups.
    with (
        threads.threadpool_limits(1),
        catch_warnings(action="ignore", category=exceptions.ConvergenceWarning),
    ):
        for groups in range(2, most + 1) if count is None else [count]:
            whole, score = split(some, groups)
            # Stability: half of the uses are clustered, and all assigned by that.
            halves = [rng.permutation(len(some))[: max(groups, len(some) // 2)] for _ in range(_HALVES)]
            again = [split(some[half], groups, scored=False)[0].predict(some) for half in halves]
            stability = float(np.mean([metrics.adjusted_rand_score(whole.labels_, each) for each in again]))
            splits.append((score, stability, groups, whole))
        # The clearest first: the first that is stable and beyond chance is taken.
        for score, stability, groups, whole in sorted(splits, key=lambda each: -each[0]):
            # Normal clouds with the same spread along each axis: what clustering finds in them is
            # chance.
            clouds = (rng.standard_normal(some.shape) * some.std(0) for _ in range(_NULLS))
            if count is None and (
                stability < _STABLE or any(split(cloud, groups)[1] >= score for cloud in clouds)
            ):
                continue
            labels = whole.predict(points)
            # Renumbered by size: 0 is the largest.
            order = np.argsort(np.argsort(-np.bincount(labels, minlength=groups), kind="stable"))
            said = "stable" if stability >= _STABLE else "not stable"
            about = (
                f"{groups} groups of vectors, {said}: half of the uses give them again with an adjusted Rand "
                f"index of {stability:.2f} (1 is the same, 0 chance). A dictionary may part them otherwise."
            )
            return order[labels], stability, about
    _, stability, groups, _ = max(splits, key=lambda each: each[1])
    about = (
        f"One group: no split is both stable and clearer than chance. The most stable, into {groups}, has "
        f"an adjusted Rand index of {stability:.2f}."
    )
    return one, None, about
