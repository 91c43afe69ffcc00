"""Beam search: the likeliest texts as a whole, not token by token."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from regard.core.arguments import Count, Finite, Limited, check_fields, check_function, whole
from regard.core.errors import InputError
from regard.decoding._reader import Reader
from regard.decoding._rules import Model, Rules
from regard.decoding._steps import Decoded, Until, check_chosen
from regard.models import Loaded

_PIECE = 128  # of a vocabulary

LengthPenalty = Callable[[int], float]
"""What a length counts for: a text's score is its log-probability divided by it."""


@dataclass(frozen=True)
class Power(Limited):
    """length^alpha: 0 ranks by probability, which favours short texts, 1 by the mean of a token's.

    Example:
        >>> from regard.decoding import Power
        >>> Power(1.0)(4), Power(0.5)(4)
        (4.0, 2.0)

    Source: Boulanger-Lewandowski et al. 2013, "Audio chord recognition with recurrent neural networks",
    section 3.2 (alpha = 1); in `transformers` alpha is `length_penalty`.
    """

    alpha: Finite = 1.0

    def __call__(self, length: int) -> float:
        return float(length**self.alpha)


@dataclass(frozen=True)
class Wu(Limited):
    """((5 + length) / 6)^alpha: the same, less steep for short texts.

    Example:
        >>> from regard.decoding import Wu
        >>> Wu(1.0)(7)
        2.0

    Source: Wu et al. 2016, arXiv 1609.08144, section 7, equation 14, without the penalty of coverage.
    """

    alpha: Finite = 0.6

    def __call__(self, length: int) -> float:
        return float(((5 + length) / 6) ** self.alpha)


@dataclass(frozen=True)
class Beams:
    """Beam search as a way to write: see `beam_search`, whose arguments these are.

    Example:
        >>> from regard import Beams
        >>> Beams(4)
        Beams(beams=4, counts=Power(alpha=1.0), exhaustive=False)
    """

    beams: Count = 4
    counts: LengthPenalty = Power(1.0)
    exhaustive: bool | Literal["heuristic"] = False

    def __post_init__(self) -> None:
        check_fields(self)
        if self.exhaustive not in (False, True, "heuristic"):
            raise InputError(f"exhaustive must be False, True or 'heuristic'; got {self.exhaustive!r}.")
        check_function("counts", self.counts, "of a length, that gives what it counts for")


class Hypothesis(NamedTuple):
    """One hypothesis that was kept at a step: its new tokens, their log p, and whether it ended here."""

    token_ids: tuple[int, ...]
    log_probability: float
    ended: bool


Watch = Callable[[int, list[Hypothesis]], object]
"""Is told the number of a text and its ways."""


@torch.no_grad()
def beam_search(
    model: Model,
    texts: Sequence[Sequence[int]],
    *,
    beams: int = 4,
    best: int = 1,
    counts: LengthPenalty = Power(1.0),
    exhaustive: bool | Literal["heuristic"] = False,
    rules: Rules | None = None,
    until: Until | None = None,
    watch: Watch | None = None,
    prefixes: Sequence[Sequence[int]] | None = None,
    cached: bool = True,
) -> list[list[Decoded]]:
    """Write each text in several ways at once, and keep those of the highest score.

        score(y) = log p(y | text) / counts(|y|)          |y| with the end

    At every step each of the `beams` unfinished ways goes on with every token; of all that come out, the
    `beams` of the highest log-probability stay, and those of them that are ended are finished. A text is done
    when `beams` ways are finished, or at its length limit, where unfinished ways count too. One beam is
    `greedy`.

    All texts run as one batch; one that is done leaves it. What a text becomes does not depend on the others.

    Args:
        model, texts, rules, until, prefixes, cached: as in `greedy`.
        beams: how many ways are followed.
        watch: is told at every step the number of each text and its ways: those that go on, the likeliest
            first, and those that ended.
        best: how many are returned, at most `beams`.
        counts: what a length counts for: `Power`, `Wu`, or any function that rises with the length or falls.
        exhaustive: whether a text is done only when nothing that is unfinished could come among the `best`,
            however it went on: slower by far where lengths count, for then only the limit ends it. With
            "heuristic", the default of `transformers`, it is done when `beams` ways are finished and nothing
            unfinished has a higher score, at its length so far, than the last of the `beams` best.

    Returns:
        For each text the best ways, the best first; fewer where there are not so many.

    Raises:
        InputError: as `greedy`; more ways wanted than beams.
        RegardError: logits that are no numbers.

    Example:
        >>> from regard.decoding import Rules, beam_search
        >>> from regard.models.families.gpt2 import Gpt2Config, build
        >>> config = Gpt2Config(vocab_size=13, d_model=6, num_layers=1, num_heads=2, d_ff=11)
        >>> rules = Rules(end_ids=(2,), max_length=5)
        >>> (ways,) = beam_search(build(config).eval(), [[3, 1]], beams=3, best=2, rules=rules)
        >>> len(ways), ways[0].score >= ways[1].score
        (2, True)

    Source: Graves 2012, arXiv 1211.3711, section 3; Sutskever et al. 2014, arXiv 1409.3215, section 3.2.
    """
    # Its checks are those of the arguments.
    search = Beams(beams, counts, exhaustive)
    if whole("best", best, least=1) > beams:
        raise InputError(f"best must be at most the number of beams, {beams}; got {best}.")
    rules = Rules.of(model) if rules is None else rules
    network = model.network if isinstance(model, Loaded) else model
    reader = Reader(network, texts, rules, prefixes=prefixes, cached=cached)
    rules = reader.rules
    # One collection of finished ways for each text.
    finished = [_Found(search, best, limit, rules.end_ids) for limit in reader.limits]
    device = next(network.parameters()).device
    ends = torch.tensor(rules.end_ids, dtype=torch.int64, device=device)
    going = list(range(len(texts)))  # the texts that are not done
    sums = torch.zeros(len(texts), 1, dtype=torch.float64, device=device)  # (texts, ways); 1 so far
    written = reader.read[:, None]  # (texts, ways, N): all that was read
    gained = sums[:, :, None][:, :, :0]  # (texts, ways, length): log p of each new token
    length = 0
    # Each turn: score, keep the likeliest, set finished ones aside, read on.
    while True:
        # 1 at first, then `beams`.
        ways = sums.shape[1]
        limits = [reader.limits[text] for text in going for _ in range(ways)]
        # (texts * ways, vocab_size)
        scores = rules.apply(reader.logits(), written.flatten(0, 1), length, limits)
        # (texts, some): total log p, the gain of this step, the way it came out of, its token
        totals, gains, parents, tokens = _likeliest(scores, sums, beams, len(ends))
        length += 1
        # Each candidate gets its parent's tokens and its own.
        written = torch.cat((written.gather(1, _wide(parents, written)), tokens[:, :, None]), dim=2)
        gained = torch.cat((gained.gather(1, _wide(parents, gained)), gains[:, :, None]), dim=2)
        is_end = torch.isin(tokens, ends)
        if until is not None:
            new = written[:, :, -length:].tolist()
            # Stop texts are found in the text, so that the tokens leave the device.
            stops = [[until(text, ids) for ids in rows] for text, rows in zip(going, new, strict=True)]
            is_end |= torch.tensor(stops, device=device)
        at = is_end.to(torch.int8).argsort(dim=1, stable=True)[:, :beams]  # those that go on, in their order
        # A way that ended takes no part any more: -inf.
        sums = totals.masked_fill(is_end, -torch.inf).gather(1, at)
        going_on, gained_on = (each.gather(1, _wide(at, each)) for each in (written, gained))
        # Ends beyond the `beams` likeliest are of ways that the search does not follow.
        has_end = (is_end & (totals > -torch.inf))[:, :beams]
        alive = sums > -torch.inf
        any_end = has_end.any(dim=1).tolist()
        if watch is not None:
            for row, text in enumerate(going):
                on, over = alive[row], has_end[row]
                # What goes on, and what ended in this step.
                stayed = _told(going_on[row, on, -length:], sums[row, on], ended=False)
                ended = _told(written[row, :beams][over][:, -length:], totals[row, :beams][over], ended=True)
                watch(text, stayed + ended)
        left = []
        # Which texts are done: `left` are the rows of those that are not.
        for row, (text, highest) in enumerate(zip(going, sums[:, 0].tolist(), strict=True)):
            # Ended ways enter the result.
            if any_end[row]:
                over = has_end[row]
                finished[text].add(written[row, :beams][over], gained[row, :beams][over], ended=True)
            # At the limit the others enter it too, unfinished.
            if length == reader.limits[text]:
                finished[text].add(going_on[row, alive[row]], gained_on[row, alive[row]], ended=False)
            elif not finished[text].is_done(length, highest):
                left.append(row)
        if not left:
            return [each.ranked(best) for each in finished]
        kept = torch.tensor(left, device=device)
        # Texts that are done leave the batch, so that no pass is spent on them.
        rows = (kept[:, None] * ways + parents.gather(1, at)[kept]).flatten()
        # From candidates to the ways of the next turn.
        sums, written, gained = sums[kept], going_on[kept], gained_on[kept]
        reader.pick(rows, sources=kept)
        # The tokens that were chosen are read next.
        reader.add(written[:, :, -1].flatten())
        going = [going[row] for row in left]


def _likeliest(scores: Tensor, sums: Tensor, beams: int, ends: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The likeliest hypotheses that come out of those there are, (texts, some), the best first.

    So many that `beams` of them do not end, as far as there are: every one has `ends` tokens that end it.
    Returned are their log-probabilities, float64, and those of their last tokens; which one each goes on
    from; and its last token.
    """
    texts, ways = sums.shape
    # Ends take places away: so many more are looked at that `beams` still go on.
    values, tokens = _highest(scores, min(scores.shape[1], beams + ends))
    values = values.double()  # sums of many: float32 would make near hypotheses equal
    # log p of a way and its next token.
    totals = (sums.view(-1, 1) + values).view(texts, -1)
    highest, places = totals.topk(min(totals.shape[1], beams + ways * ends), dim=1)
    # A place is way * columns + column.
    gains, last = (each.view(texts, -1).gather(1, places) for each in (values, tokens))
    return highest, gains, places // values.shape[1], last


def _highest(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """`scores.topk(count, dim=1)`, quicker over a vocabulary: 0.4 for 2.9 ms, of 64 rows of 37,000.

    The highest scores are in those pieces whose own highest are the highest.
    """
    rows, size = scores.shape
    end = size // _PIECE * _PIECE
    # A short vocabulary: no gain in two steps.
    if end < 8 * count * _PIECE:
        return scores.topk(count, dim=1)
    # The `count` pieces with the highest maxima hold the `count` highest scores.
    pieces = scores[:, :end].reshape(rows, -1, _PIECE).amax(dim=2).topk(count, dim=1).indices
    inside = torch.arange(_PIECE, device=scores.device)
    # Columns behind the last whole piece are all looked at.
    rest = torch.arange(end, size, device=scores.device).expand(rows, -1)
    columns = torch.cat(((pieces[:, :, None] * _PIECE + inside).flatten(1), rest), dim=1)
    values, places = scores.gather(1, columns).topk(count, dim=1)
    return values, columns.gather(1, places)


def _told(written: Tensor, totals: Tensor, *, ended: bool) -> list[Hypothesis]:
    pairs = zip(written.tolist(), totals.tolist(), strict=True)
    return [Hypothesis(tuple(ids), total, ended) for ids, total in pairs]


def _wide(ways: Tensor, written: Tensor) -> Tensor:
    return ways[:, :, None].expand(-1, -1, written.shape[2])


class _Found:
    """The finished ways of one text."""

    def __init__(self, search: Beams, best: int, limit: int, ends: tuple[int, ...]) -> None:
        self.search, self.best, self.limit, self.ends = search, best, limit, ends
        self.ways: list[Decoded] = []

    def add(self, written: Tensor, gained: Tensor, *, ended: bool) -> None:
        """Note hypotheses that have ended, or have reached the limit."""
        length = gained.shape[1]
        for ids, gains in zip(written[:, -length:].tolist(), gained.tolist(), strict=True):
            self.ways.append(
                Decoded(
                    # The end counts for the score, but is no part of the text.
                    token_ids=tuple(ids[:-1] if ids[-1] in self.ends else ids),
                    log_probabilities=tuple(gains),
                    score=sum(gains) / self.search.counts(length),
                    ended=ended,
                )
            )

    def is_done(self, length: int, highest: float) -> bool:
        """Whether nothing more is to be looked for, where the unfinished have at most such a probability."""
        # No way goes on.
        if highest == -torch.inf:
            return True
        counts, exhaustive = self.search.counts, self.search.exhaustive
        # Not enough finished ones yet.
        if len(self.ways) < (self.best if exhaustive is True else self.search.beams):
            return False
        # Enough finished: stop, even if a better one could still come.
        if not exhaustive:
            return True
        # As if the unfinished ended now, which is not always their best.
        if exhaustive == "heuristic":
            return self.ranked(self.search.beams)[-1].score >= highest / counts(length)
        # Probabilities only fall; lengths grow to the limit at most.
        hope = max(highest / counts(length + 1), highest / counts(self.limit))
        return self.ranked(self.best)[-1].score >= hope

    def ranked(self, count: int) -> list[Decoded]:
        """The best, the best first; of equals the one that was finished first."""
        check_chosen(0.0 if self.ways else -torch.inf)
        return sorted(self.ways, key=lambda way: -way.score)[:count]
