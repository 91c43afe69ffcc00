"""The uses of a word in groups: found by their vectors, or labelled by examples in a file."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from regard.concordance._likelihood import likelihood
from regard.concordance._lines import Line, Lines
from regard.concordance._meaning import span_of
from regard.concordance._store import Store
from regard.concordance._teach import Head, fit, learning, next_use
from regard.concordance._uses import Found, Place, neighbours, places
from regard.concordance._vectors import Span, VectorCache, Vectors
from regard.core.errors import CheckpointError, InputError
from regard.core.files import write_whole
from regard.core.json import parse_object
from regard.core.shown import Shown
from regard.decoding import fill
from regard.models import Loaded
from regard.text import fold
from regard.tracing import senses_page, trace_text
from regard.views import Page

if TYPE_CHECKING:
    from rich.console import RenderableType

_STABLE: Final = 0.6
"""The adjusted Rand index from which on a grouping counts as stable."""
_MOST_GROUPS: Final = 8
_LIKELY: Final = 3.84
"""The log-likelihood of a neighbour at least (p = .05)."""
_HALVES, _NULLS, _DIRECTIONS, _PART = 20, 19, 20, 1000
SURE: Final = 0.6
"""A use whose likeliest sense has less than that is "unsure"."""
UNSURE: Final = "unsure"
_TYPICAL, _EXAMPLES, _WORDS, _WINDOW, _AROUND = 3, 12, 8, 5, 300
_ON_PAGE, _TRACED = 3000, 400
"""Uses on the map, and characters of a line whose attention is in the page."""

Examples = dict[str, list[Span]]
"""By sense, uses in their texts."""


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
class Senses(Shown):
    """The uses of a word in groups.

    Attributes:
        word: whose uses they are.
        groups: the largest first.
        lines: all uses, in the order of the corpus, each with the `label` of its group.
        stability: mean adjusted Rand index between this grouping and those that half of the uses give: 1 is
            the same, 0 is chance; None of one group, and of uses that were labelled by examples.
        about: how the groups were found, in words.
    """

    word: str
    groups: tuple[Sense, ...]
    lines: Lines
    stability: float | None
    about: str
    _vectors: Vectors = field(repr=False)
    _loaded: Loaded = field(repr=False)

    def __repr__(self) -> str:
        return f"Senses({self.word!r}, {len(self.groups)} of {len(self.lines)} uses)"

    def to_rows(self) -> list[dict[str, Any]]:
        """A row for each group; `lines.to_rows()` has one for each use."""
        return [
            {"sense": each.name, "uses": each.uses, "share": each.share}
            | {"typical": [_marked(_span(line.place)) for line in each.typical]}
            | {
                name: [{"word": word, key: number} for word, number in getattr(each, name)]
                for name, key in (("neighbours", "likelihood"), ("substitutes", "probability"))
            }
            for each in self.groups
        ]

    def _parts(self) -> "Iterator[RenderableType]":
        from rich.text import Text

        yield Text(f"{self.word}: {len(self.lines):,} uses. {self.about}")
        for each in self.groups:
            yield Text(f"\n{each.name}   {100 * each.share:.0f} %", style="bold")
            for what, words in (("beside it", each.neighbours), ("in its place", each.substitutes)):
                if words:
                    yield Text(f"{what}: {', '.join(word for word, _ in words)}")
            yield from each.typical._parts()

    def page(self) -> Page:
        """The interactive page: a map of the uses, each with its line, and the attention of typical ones.

        Raises:
            InputError: the model has attention that a page cannot draw.
        """
        at = {line.place.use: row for row, line in enumerate(self.lines)}
        typical = [[at[line.place.use] for line in each.typical] for each in self.groups]
        shown = [row for rows in typical for row in rows]
        kept = np.random.default_rng(0).permutation(len(self.lines))[:_ON_PAGE]
        place = {row: number for number, row in enumerate(np.union1d(kept, shown).tolist())}
        centred = self._vectors - self._vectors.mean(0)
        _, sizes, ways = np.linalg.svd(centred, full_matrices=False)
        short = [row for row in shown if len(self.lines[row].place.body) <= _TRACED]
        traced = short or [min(place, key=lambda row: len(self.lines[row].place.body))]
        groups = []
        for each, own in zip(self.groups, typical, strict=True):
            words = {
                name: [word for word, _ in getattr(each, name)] for name in ("neighbours", "substitutes")
            }
            group = {"sense": each.name, "uses": each.uses, "share": each.share}
            groups.append(group | words | {"typical": [place[row] for row in own]})
        lines: list[dict[str, Any]] = [
            {"left": line.left, "node": line.place.node, "right": line.right, "sense": line.label}
            | {"where": f"{line.place.where} of {line.place.source}"}
            | {"p": line.probability}
            for line in map(self.lines.__getitem__, place)
        ]
        facts = {
            "word": self.word,
            "about": self.about,
            "total": len(self.lines),
            "share": float((sizes[:2] ** 2).sum() / max((sizes**2).sum(), 1e-12)),
            "groups": groups,
            "points": (centred[list(place)] @ ways[:2].T).round(4).tolist(),
            "lines": lines,
            "traced": [place[row] for row in traced],
        }
        return senses_page([trace_text(self._loaded, self.lines[row].place.body) for row in traced], facts)


def grouping(
    vectors: Vectors, count: int | None = None, seed: int = 0
) -> tuple[NDArray[np.int64], float | None, str]:
    """Groups of vectors, 0 the largest; how stable they are; and that in words.

    K-means in the 20 directions of most variance. The number of groups is that of the largest silhouette,
    among those that half samples give again (mean adjusted Rand index of .6 or more) and whose silhouette is
    beyond that of 19 normal clouds of the same spread (p <= .05). Where none is, all uses are one group.

    Args:
        vectors: (uses, d).
        count: so many groups, whatever their stability; None to choose.
        seed: of the samples.

    Source: Lloyd 1982; Rousseeuw 1987 (silhouettes); Liu et al. 2008 (a normal cloud as the null).
    """
    cluster, metrics, threads = map(learning, ("sklearn.cluster", "sklearn.metrics", "threadpoolctl"))
    size, rng = len(vectors), np.random.default_rng(seed)
    most = min(_MOST_GROUPS, size // 10)
    one = np.zeros(size, np.int64)
    if count is not None and not 2 <= count < size:
        raise InputError(f"groups must be 2 or more, and fewer than the {size} uses; got {count}.")
    if count is None and most < 2:
        return one, None, f"{size} uses are too few to part: one group."
    part = np.sort(rng.choice(size, min(size, _PART), replace=False))
    centred = (vectors - vectors[part].mean(0)).astype(np.float64)
    points = centred @ np.linalg.svd(centred[part], full_matrices=False)[2][:_DIRECTIONS].T
    some = points[part]

    def split(of: NDArray[np.float64], groups: int) -> tuple[Any, float]:
        fitted = cluster.KMeans(groups, n_init=4, random_state=seed).fit(of)
        parted = 1 < len(set(fitted.labels_)) < len(of)
        return fitted, float(metrics.silhouette_score(of, fitted.labels_)) if parted else -1.0

    found = []
    with threads.threadpool_limits(1):  # so few points: a second thread makes it ten times slower
        for groups in range(2, most + 1) if count is None else [count]:
            whole, score = split(some, groups)
            halves = [rng.permutation(len(some))[: max(groups, len(some) // 2)] for _ in range(_HALVES)]
            again = [split(some[half], groups)[0].predict(some) for half in halves]
            stability = float(np.mean([metrics.adjusted_rand_score(whole.labels_, each) for each in again]))
            found.append((score, stability, groups, whole))
        for score, stability, groups, whole in sorted(found, key=lambda each: -each[0]):
            clouds = (rng.standard_normal(some.shape) * some.std(0) for _ in range(_NULLS))
            if count is None and (
                stability < _STABLE or any(split(cloud, groups)[1] >= score for cloud in clouds)
            ):
                continue
            labels = whole.predict(points)
            order = np.argsort(np.argsort(-np.bincount(labels, minlength=groups), kind="stable"))
            said = "stable" if stability >= _STABLE else "not stable"
            about = (
                f"{groups} groups of vectors, {said}: half of the uses give them again with an adjusted Rand "
                f"index of {stability:.2f} (1 is the same, 0 chance). A dictionary may part them otherwise."
            )
            return order[labels], stability, about
    _, stability, groups, _ = max(found, key=lambda each: each[1])
    about = (
        f"One group: no split is both stable and clearer than chance. The most stable, into {groups}, has "
        f"an adjusted Rand index of {stability:.2f}."
    )
    return one, None, about


def senses(
    store: Store,
    cache: VectorCache,
    word: str,
    found: Found,
    *,
    groups: int | None = None,
    file: Path | None = None,
    seed: int = 0,
    progress: Callable[[int, int], object] | None = None,
) -> Senses:
    """The uses of a word in groups: see `Concordance.senses`."""
    examples = read_examples(file, word) if file is not None and file.exists() else None
    if examples is not None and groups is not None:
        raise InputError("groups must be left out where the file has senses: it says which there are.")
    vectors, lines = cache.of(found, progress), [Line(place) for place in places(store, found)]
    stability = None
    if examples is None:
        numbers, stability, about = grouping(vectors, groups, seed)
        lines = [replace(line, label=str(number + 1)) for line, number in zip(lines, numbers, strict=True)]
    else:
        lines = _labelled(cache, lines, vectors, examples)
        about = (
            f"Labelled by {sum(map(len, examples.values()))} examples of {len(examples)} senses in {file}; "
            f"{UNSURE} is what is likely by less than {100 * SURE:.0f} %."
        )
    members = _members(lines, vectors)
    described = _described(store, cache, found, lines, members)
    if file is not None and examples is None:
        write_examples(
            file, word, {name: [_span(lines[row].place) for row in own[:_EXAMPLES]] for name, own in members}
        )
    return Senses(
        word, described, Lines(tuple(lines), len(lines)), stability, about, vectors, cache.embed.loaded
    )


def _members(lines: Sequence[Line], vectors: Vectors) -> list[tuple[str, NDArray[np.int64]]]:
    """By sense, the largest first and `unsure` last: its uses, the nearest to their mean first."""
    rows = defaultdict(list)
    for row, line in enumerate(lines):
        rows[str(line.label)].append(row)
    found = []
    for name, own in sorted(rows.items(), key=lambda item: (item[0] == UNSURE, -len(item[1]))):
        at = np.array(own)
        found.append((name, at[np.argsort(-(vectors[at] @ vectors[at].mean(0)), kind="stable")]))
    return found


def _described(
    store: Store,
    cache: VectorCache,
    found: Found,
    lines: Sequence[Line],
    members: Sequence[tuple[str, NDArray[np.int64]]],
) -> tuple[Sense, ...]:
    around = neighbours(store, found, _WINDOW, _WINDOW)
    keys = dict(store.rows("SELECT id, key FROM form"))
    words, at = np.unique(np.array([keys[form] for form in around.form.tolist()], str), return_inverse=True)
    total = np.bincount(at, minlength=len(words))
    groups = []
    for name, own in members:
        counts = np.bincount(at[np.isin(around.row, own)], minlength=len(words))
        score = np.where(counts > 1, likelihood(counts, total - counts), 0)
        best = [each for each in np.argsort(-score, kind="stable")[:_WORDS] if score[each] > _LIKELY]
        typical = Lines(tuple(lines[row] for row in own[:_TYPICAL]), len(own), "the most typical first")
        beside = tuple((str(words[each]), float(score[each])) for each in best)
        share = len(own) / len(lines)
        groups.append(
            Sense(name, len(own), share, typical, beside, _substitutes(cache.embed.loaded, typical))
        )
    return tuple(groups)


def _substitutes(loaded: Loaded, typical: Lines) -> tuple[tuple[str, float], ...]:
    network, tokenizer = loaded.network, loaded.require_tokenizer()
    mask = tokenizer.special_ids.mask
    if not network.has_vocabulary_head or list(network.prefixes) != ["encoder"] or mask is None:
        return ()
    shares: dict[str, float] = defaultdict(float)
    for line in typical:
        text = f"{line.left[-_AROUND:]}{tokenizer.token_of(mask)}{line.right[:_AROUND]}"
        for guess in fill(loaded, text, top=50).masks[0]:
            if guess.token.isalpha() and fold(guess.token) != fold(line.place.node):
                shares[guess.token] += guess.probability / len(typical)
    return tuple(sorted(shares.items(), key=lambda item: -item[1])[:_WORDS])


def _labelled(cache: VectorCache, lines: Sequence[Line], vectors: Vectors, examples: Examples) -> list[Line]:
    """Lines with the sense that the examples give them; those that are examples keep what the user said."""
    said = {(span.text, span.start): name for name, spans in examples.items() for span in spans}
    head = head_of(cache, examples)
    found = []
    for line, shares in zip(lines, head.probabilities(vectors), strict=True):
        own, best = said.get((line.place.body, line.place.start)), int(shares.argmax())
        name = own or (head.names[best] if shares[best] >= SURE else UNSURE)
        found.append(replace(line, label=name, probability=None if own else float(shares[best])))
    return found


def head_of(cache: VectorCache, examples: Examples) -> Head:
    """The head that examples give, whose vectors the model computes anew: a file goes with any model."""
    names = [name for name, spans in examples.items() for _ in spans]
    return fit(cache.embed([span for spans in examples.values() for span in spans]), names)


def teach(
    store: Store,
    cache: VectorCache,
    word: str,
    found: Found,
    file: Path,
    ask: Callable[[Line, Sequence[str]], str | None],
    *,
    most: int = 20,
    progress: Callable[[int, int], object] | None = None,
) -> int:
    """Ask for the senses of uses, those first that decide most: see `Concordance.teach`."""
    examples = read_examples(file, word, least=0) if file.exists() else {}
    vectors, lines = cache.of(found, progress), [Line(place) for place in places(store, found)]
    said = {(span.text, span.start) for spans in examples.values() for span in spans}
    asked = [row for row, line in enumerate(lines) if (line.place.body, line.place.start) in said]
    count = 0
    while count < most:
        head = head_of(cache, examples) if len(examples) > 1 else None
        row = next_use(vectors, asked, head)
        if row is None:
            break
        line = lines[row]
        if head is not None:
            shares = head.probabilities(vectors[[row]])[0]
            line = replace(line, label=head.names[int(shares.argmax())], probability=float(shares.max()))
        answer = ask(line, tuple(examples))
        if answer is None:
            break
        if answer == UNSURE:
            raise InputError(f"a sense must have another name than {UNSURE!r}: pass the line over instead.")
        asked.append(row)
        if answer:
            examples.setdefault(answer, []).append(_span(line.place))
            write_examples(file, word, examples)
            count += 1
    return count


def _span(place: Place) -> Span:
    return Span(place.body, place.start, place.stop)


def _marked(span: Span) -> str | list[str]:
    """A use as people write it, "on the *bank*"; as three parts where its text has asterisks of its own."""
    parts = [span.text[: span.start], span.text[span.start : span.stop], span.text[span.stop :]]
    return parts if "*" in span.text else "*".join(parts)


def write_examples(file: Path, word: str, examples: Mapping[str, Sequence[Span]]) -> None:
    """Write the senses to a file that people edit, whole or not at all."""
    content = {
        "word": word,
        "senses": {name: [_marked(each) for each in of] for name, of in examples.items()},
    }
    write_whole(file, (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode())


def read_examples(file: Path, word: str, *, least: int = 2) -> Examples:
    """The senses in a file, each with its examples.

    Raises:
        InputError: it cannot be read, is not of this form, is of another word, or has fewer than two senses.
    """
    try:
        content = parse_object(file.read_bytes(), str(file))
    except (OSError, CheckpointError) as error:
        raise InputError(f"file must be a JSON file of senses: {error}") from error
    senses = content.get("senses")
    if not isinstance(senses, dict) or not all(isinstance(each, list) for each in senses.values()):
        raise InputError(f'file must have "senses", a list of examples for each name; {str(file)!r} has not.')
    if fold(str(content.get("word", ""))) != fold(word):
        raise InputError(f"word must be that of {str(file)!r}, {content.get('word')!r}; got {word!r}.")
    found: Examples = {}
    for name, examples in senses.items():
        for each in examples:
            if isinstance(each, list) and len(each) == 3 and all(isinstance(part, str) for part in each):
                span = Span("".join(each), len(each[0]), len(each[0]) + len(each[1]))
            elif isinstance(each, str):
                span = span_of(each, None)
            else:
                raise InputError(
                    f'an example must be a text with its word marked, "on the *bank*"; got {each!r}.'
                )
            found.setdefault(name, []).append(span)
    if len(found) < least or UNSURE in found:
        raise InputError(
            f"file must have examples of two senses or more, none named {UNSURE!r}; {str(file)!r} has "
            f"{', '.join(found) or 'none'}."
        )
    return found
