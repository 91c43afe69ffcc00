"""Beam search: the likeliest texts as a whole, not token by token."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.core.arguments import number, whole
from regard.decoding._decoded import Decoded
from regard.decoding._greedy import finished
from regard.decoding._reader import Reader
from regard.decoding._rules import Model, Rules
from regard.models import Loaded

Counts = Callable[[int], float]
"""What a length counts for: a text's score is its log-probability divided by it."""


@dataclass(frozen=True)
class Power:
    """length^alpha: 0 ranks by probability, which favours short texts, 1 by the mean of a token's.

    Example:
        >>> Power(1.0)(4), Power(0.5)(4)
        (4.0, 2.0)

    Source: Boulanger-Lewandowski et al. 2013, "Audio chord recognition with recurrent neural networks",
    section 3.2 (alpha = 1); in `transformers` alpha is `length_penalty`.
    """

    alpha: float = 1.0

    def __post_init__(self) -> None:
        number("alpha", self.alpha)

    def __call__(self, length: int) -> float:
        return float(length**self.alpha)


@dataclass(frozen=True)
class Wu:
    """((5 + length) / 6)^alpha: the same, less steep for short texts.

    Example:
        >>> Wu(1.0)(7)
        2.0

    Source: Wu et al. 2016, arXiv 1609.08144, section 7, equation 14, without the penalty of coverage.
    """

    alpha: float = 0.6

    def __post_init__(self) -> None:
        number("alpha", self.alpha)

    def __call__(self, length: int) -> float:
        return float(((5 + length) / 6) ** self.alpha)


@torch.no_grad()
def beam_search(
    model: Model,
    texts: Sequence[Sequence[int]],
    *,
    beams: int = 4,
    best: int = 1,
    counts: Counts = Power(1.0),
    exhaustive: bool = False,
    rules: Rules | None = None,
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
        model, texts, rules, cached: as in `greedy`.
        beams: how many ways are followed.
        best: how many are returned, at most `beams`.
        counts: what a length counts for: `Power`, `Wu`, or any function that rises with the length or falls.
        exhaustive: whether a text is done only when nothing that is unfinished could come among the `best`,
            however it went on: slower by far where lengths count, for then only the limit ends it.

    Returns:
        For each text the best ways, the best first; fewer where there are not so many.

    Raises:
        InputError: as `greedy`; more ways wanted than beams.
        RegardError: logits that are no numbers.

    Example:
        >>> from regard.models.gpt2 import Gpt2Config, build
        >>> config = Gpt2Config(vocab_size=13, d_model=6, num_layers=1, num_heads=2, d_ff=11)
        >>> rules = Rules(end_ids=(2,), max_length=5)
        >>> (ways,) = beam_search(build(config).eval(), [[3, 1]], beams=3, best=2, rules=rules)
        >>> len(ways), ways[0].score >= ways[1].score
        (2, True)

    Source: Graves 2012, arXiv 1211.3711, section 3; Sutskever et al. 2014, arXiv 1409.3215, section 3.2.
    """
    whole("beams", beams, least=1)
    whole("best", best, least=1, most=beams)
    rules = Rules.of(model) if rules is None else rules
    network = model.network if isinstance(model, Loaded) else model
    reader = Reader(network, texts, rules, cached=cached)
    found = [_Found(beams, best, counts, limit, exhaustive) for limit in reader.limits]
    device = next(network.parameters()).device
    ends = torch.tensor(rules.end_ids, dtype=torch.int64, device=device)
    going = list(range(len(texts)))  # the texts that are not done
    sums = torch.zeros(len(texts), 1, dtype=torch.float64, device=device)  # (texts, ways)
    written = torch.empty(len(texts), 1, 0, dtype=torch.int64, device=device)
    length = 0
    while True:
        ways = sums.shape[1]
        limits = [reader.limits[text] for text in going for _ in range(ways)]
        scores = rules.apply(torch.log_softmax(reader.logits(), dim=1), length, limits)
        totals, parents, tokens = _likeliest(scores, sums, beams, len(ends))
        length += 1
        written = torch.cat((written.gather(1, _wide(parents, written)), tokens[:, :, None]), dim=2)
        is_end = torch.isin(tokens, ends)
        at = is_end.to(torch.int8).argsort(dim=1, stable=True)[:, :beams]  # those that go on, in their order
        sums = totals.masked_fill(is_end, -torch.inf).gather(1, at)
        going_on = written.gather(1, _wide(at, written))
        has_end = is_end[:, :beams].any(dim=1).tolist()
        left = []
        for row, (text, highest) in enumerate(zip(going, sums[:, 0].tolist(), strict=True)):
            if has_end[row]:
                found[text].add(written[row, :beams], totals[row, :beams], is_end[row, :beams])
            if length == reader.limits[text]:
                found[text].add(going_on[row], sums[row], None)
            elif not found[text].is_done(length, highest):
                left.append(row)
        if not left:
            return [each.ranked() for each in found]
        kept = torch.tensor(left, device=device)
        rows = (kept[:, None] * ways + parents.gather(1, at)[kept]).flatten()
        of_one_source = len(left) == len(going) and at.shape[1] == ways
        sums, written = sums[kept], going_on[kept]
        reader.pick(rows, of_one_source=of_one_source)
        reader.add(written[:, :, -1].flatten())
        going = [going[row] for row in left]


def _likeliest(scores: Tensor, sums: Tensor, beams: int, ends: int) -> tuple[Tensor, Tensor, Tensor]:
    """The likeliest ways that come out of those there are, (texts, some), the best first.

    So many that `beams` of them do not end, as far as there are: every way has `ends` tokens that end it.

    Returns:
        Their log-probabilities, float64; which way each goes on from; and its last token.
    """
    texts, ways = sums.shape
    values, tokens = scores.topk(min(scores.shape[1], beams + ends), dim=1)
    totals = (sums.view(-1, 1) + values).view(texts, -1)
    highest, places = totals.topk(min(totals.shape[1], beams + ways * ends), dim=1)
    return highest, places // values.shape[1], tokens.view(texts, -1).gather(1, places)


def _wide(ways: Tensor, written: Tensor) -> Tensor:
    return ways[:, :, None].expand(-1, -1, written.shape[2])


class _Found:
    """The finished ways of one text."""

    def __init__(self, beams: int, best: int, counts: Counts, limit: int, exhaustive: bool) -> None:
        self.beams, self.best, self.counts, self.limit = beams, best, counts, limit
        self.exhaustive = exhaustive
        self.ways: list[Decoded] = []

    def add(self, written: Tensor, totals: Tensor, is_end: Tensor | None) -> None:
        """Note those of some ways that have come to an end; all of them, with None, without one."""
        ended = is_end is not None
        chosen = range(len(totals)) if is_end is None else is_end.nonzero()[:, 0].tolist()
        for way in chosen:
            ids, total = written[way].tolist(), float(totals[way])
            if total > -torch.inf:
                score = total / self.counts(len(ids))
                ids = ids[:-1] if ended else ids
                self.ways.append(finished(ids, total, score, ended=ended))

    def is_done(self, length: int, highest: float) -> bool:
        """Whether nothing more is to be looked for, where the unfinished have at most such a probability."""
        if highest == -torch.inf:
            return True
        if not self.exhaustive:
            return len(self.ways) >= self.beams
        if len(self.ways) < self.best:
            return False
        # Probabilities only fall; lengths grow to the limit at most.
        hope = max(highest / self.counts(length + 1), highest / self.counts(self.limit))
        return self.ranked()[-1].score >= hope

    def ranked(self) -> list[Decoded]:
        """The best, the best first; of equals the one that was finished first."""
        if not self.ways:
            finished((), float("nan"), 0.0, ended=False)
        return sorted(self.ways, key=lambda way: -way.score)[: self.best]
