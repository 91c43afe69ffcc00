"""Texts written token by token, each token chosen once and for all."""

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.core.arguments import whole
from regard.core.errors import RegardError
from regard.decoding._choice import Choice, MostLikely, Sampling, key_of
from regard.decoding._decoded import Decoded
from regard.decoding._reader import Reader
from regard.decoding._rules import Model, Rules
from regard.models import Loaded

Until = Callable[[int, Sequence[int]], bool]
"""Whether a text is to end, by its number and its new tokens: such as one that has a stop in it."""


def greedy(
    model: Model,
    texts: Sequence[Sequence[int]],
    *,
    rules: Rules | None = None,
    until: Until | None = None,
    prefixes: Sequence[Sequence[int]] | None = None,
    cached: bool = True,
) -> list[Decoded]:
    """Write each text with the most likely token at every step.

        y_t = argmax_w log p(w | y_1 .. y_t-1, text)

    All texts run as one batch; one that is finished leaves it. What a text becomes does not depend on the
    others: prompts are padded on the left, sources on the right, and positions counted from the tokens.

    Args:
        model: the network, in evaluation mode, or a checkpoint with its files.
        texts: token ids, a list a text: the prompts of a decoder, the sources of an encoder-decoder.
        rules: where texts begin and end, and how long they are; by default what the model says.
        until: is asked after every token whether the text ends with it.
        prefixes: of an encoder-decoder, for each text the tokens that its decoder reads after its start, as
            if it had written them; `Rules.first_id` holds only without.
        cached: whether keys and values are kept; otherwise every token costs a pass over all before it.

    Returns:
        For each text what was written after it.

    Raises:
        InputError: a network that cannot write, a text that is empty or too long, lengths that do not fit.
        RegardError: logits that are no numbers.

    Example:
        >>> from regard.models.families.gpt2 import Gpt2Config, build
        >>> config = Gpt2Config(vocab_size=13, d_model=6, num_layers=1, num_heads=2, d_ff=11)
        >>> network = build(config).eval()
        >>> rules = Rules(max_length=5)
        >>> [len(written.token_ids) for written in greedy(network, [[3, 1], [4, 1, 5, 9]], rules=rules)]
        [5, 5]
    """
    common: dict[str, Any] = {"rules": rules, "until": until, "prefixes": prefixes, "cached": cached}
    ways = last_of(steps(model, texts, choice=MostLikely(), **common))
    return [each[0] for each in ways]


def sample(
    model: Model,
    texts: Sequence[Sequence[int]],
    *,
    choice: Choice | None = None,
    count: int = 1,
    rules: Rules | None = None,
    until: Until | None = None,
    prefixes: Sequence[Sequence[int]] | None = None,
    cached: bool = True,
) -> list[list[Decoded]]:
    """Write each text with tokens that are drawn: see `Sampling`.

    Args:
        model, texts, rules, until, prefixes, cached: as in `greedy`.
        choice: how tokens are drawn; None is `Sampling()`.
        count: how many ways of each text are written; its prompt or source is read once.

    Returns:
        For each text its ways.

    Raises:
        InputError, RegardError: as `greedy`.

    Example:
        >>> from regard.models.families.gpt2 import Gpt2Config, build
        >>> config = Gpt2Config(vocab_size=13, d_model=6, num_layers=1, num_heads=2, d_ff=11)
        >>> network, rules = build(config).eval(), Rules(max_length=5)
        >>> (alone,) = sample(network, [[3, 1]], count=3, rules=rules)
        >>> _, together = sample(network, [[4, 1, 5], [3, 1]], count=3, rules=rules)
        >>> [way.token_ids for way in alone] == [way.token_ids for way in together]
        True
    """
    drawn = Sampling() if choice is None else choice
    common: dict[str, Any] = {"rules": rules, "until": until, "prefixes": prefixes, "cached": cached}
    return last_of(steps(model, texts, choice=drawn, count=count, **common))


class Step(NamedTuple):
    """One token more of every text that goes on.

    Attributes:
        ways: their numbers, `count` times the text's plus which of its ways.
        tokens: what was chosen for each.
        scores: (ways, vocab_size), the log-probabilities it was chosen from.
    """

    ways: list[int]
    tokens: list[int]
    scores: Tensor


@torch.no_grad()
def steps(
    model: Model,
    texts: Sequence[Sequence[int]],
    *,
    choice: Choice,
    count: int = 1,
    rules: Rules | None = None,
    until: Until | None = None,
    prefixes: Sequence[Sequence[int]] | None = None,
    cached: bool = True,
) -> Generator[Step, None, list[list[Decoded]]]:
    """Write each text with the token that `choice` takes at every step; other arguments as of `sample`.

    Yields:
        Every step, as soon as it is taken; what is yielded last ends the last text.

    Returns:
        For each text its ways, as the generator's value.
    """
    whole("count", count, least=1)
    rules = Rules.of(model) if rules is None else rules
    network = model.network if isinstance(model, Loaded) else model
    reader = Reader(network, texts, rules, prefixes=prefixes, cached=cached)
    rules = reader.rules
    device = reader.read.device
    keys = [key_of(ids, place) for ids in texts for place in range(count)]
    growing = [Growing(rules, reader.limits[way // count], way // count, until) for way in range(len(keys))]
    found: dict[int, Decoded] = {}
    ways = list(range(len(keys)))  # those that go on
    rows = torch.arange(len(texts), device=device).repeat_interleave(count)  # the reader's, of each way
    read = reader.read[rows]
    length = 0
    while True:
        limits = [reader.limits[way // count] for way in ways]
        logits = reader.logits()
        scores = rules.apply(logits if len(logits) == len(ways) else logits[rows], read, length, limits)
        chosen = choice(scores, [keys[way] for way in ways], length)
        tokens = chosen.tolist()
        length += 1
        going = []
        for place, gain in enumerate(scores.gather(1, chosen[:, None])[:, 0].tolist()):
            done = growing[ways[place]].add(tokens[place], gain)
            if done is None:
                going.append(place)
            else:
                found[ways[place]] = done
        yield Step(ways, tokens, scores)
        if not going:
            return [[found[text * count + place] for place in range(count)] for text in range(len(texts))]
        if len(going) < len(ways) or len(rows) != len(logits):
            at = torch.tensor(going, device=device)
            reader.pick(rows[at])
            ways, chosen, read = [ways[place] for place in going], chosen[at], read[at]
        rows = torch.arange(len(ways), device=device)
        read = torch.cat((read, chosen[:, None]), dim=1)
        reader.add(chosen)


class Growing:
    """One text while it is written token by token; it decides where the text ends."""

    def __init__(self, rules: Rules, limit: int, text: int, until: Until | None) -> None:
        self._ends, self._limit, self._text, self._until = rules.end_ids, limit, text, until
        self.token_ids: list[int] = []
        self._gained: list[float] = []

    def add(self, token: int, gain: float) -> Decoded | None:
        """Adds a token with its log-probability; gives the whole text if it ends here."""
        check_chosen(gain)
        self._gained.append(gain)
        ended = token in self._ends
        if not ended:
            self.token_ids.append(token)
            ended = self._until is not None and self._until(self._text, self.token_ids)
        if not ended and len(self._gained) < self._limit:
            return None
        ids, gains = tuple(self.token_ids), tuple(self._gained)
        return Decoded(token_ids=ids, log_probabilities=gains, score=sum(gains), ended=ended)


def last_of(taken: Generator[Step, None, list[list[Decoded]]]) -> list[list[Decoded]]:
    """What the steps come to."""
    while True:
        try:
            next(taken)
        except StopIteration as end:
            found: list[list[Decoded]] = end.value
            return found


def check_chosen(log_probability: float) -> None:
    """Raise RegardError if the log-probability of a chosen token is not a number, or none could be chosen."""
    if not log_probability > -torch.inf:
        raise RegardError(
            "no token could be chosen: the network's logits are not numbers, or rules forbid all of them."
        )
