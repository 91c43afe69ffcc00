"""Greedy and sampled texts, step by step, and what a text is when it is written."""

import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.core.arguments import whole
from regard.core.errors import RegardError
from regard.decoding._choice import Choice, MostLikely, Sampling, key_of
from regard.decoding._reader import Reader
from regard.decoding._rules import Model, Rules
from regard.models import Loaded
from regard.text import Chat, Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """One text that a decoder wrote, as tokens.

    Args:
        token_ids: the new tokens, without the one that ended them.
        log_probabilities: log p of each given all before it, and of the end where there was one: the model's
            own, after `Rules.repetition_penalty`; 0 for a token that was forced. Temperature and filters
            decide what is chosen, not what is told here.
        score: what texts are ranked by: `log_probability`, divided by what a length counts for.
        ended: whether it came to an end or a stop, and not to the most tokens that it could have.
    """

    token_ids: tuple[int, ...]
    log_probabilities: tuple[float, ...]
    score: float
    ended: bool

    @property
    def log_probability(self) -> float:
        """The sum of `log_probabilities`: log p of the text as a whole, its end included."""
        return sum(self.log_probabilities)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Written(Decoded):
    """One text that a model wrote: `str()` gives the text alone.

    Args:
        prompt: what it goes on from, or the source of a translation.
        text: what was written, without special tokens, and cut before a stop. After a prompt it begins with a
            blank where one belongs: prompt + text is the whole.
        prompt_ids: the prompt, or the source, as the model read it.
        token_ids, log_probabilities, score, ended: as in `Decoded`; of a text that a stop cut all the tokens,
            those of the stop included.

    Example:
        >>> from regard.decoding import Written
        >>> Written(
        ...     prompt="A river", text=" bank", token_ids=(7,), log_probabilities=(-0.5, -1.5), score=-2.0,
        ...     ended=True,
        ... )
        Written(' bank', 1 token, log p -2.00, ended)
    """

    prompt: str
    text: str
    prompt_ids: tuple[int, ...] = ()

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The chat, with this answer as its last message; [] where the prompt is not one."""
        # Ready to be handed in again for the next turn.
        answer = {"role": "assistant", "content": self.text}
        return [*self.prompt.messages, answer] if isinstance(self.prompt, Chat) else []

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        tokens = f"{len(self.token_ids)} token{'s' * (len(self.token_ids) != 1)}"
        end = "ended" if self.ended else "cut at the limit"
        return f"Written({self.text!r}, {tokens}, log p {self.log_probability:.2f}, {end})"

    def _repr_html_(self) -> str:
        prompt, text = escape(self.prompt), escape(self.text)
        return (
            f'<div style="white-space:pre-wrap"><span style="opacity:.6">{prompt}</span><b>{text}</b></div>'
        )

    def to_json(self) -> dict[str, Any]:
        """Its fields as plain values, and the messages where it answers some."""
        return {
            **({"messages": self.messages} if self.messages else {}),
            "prompt": self.prompt,
            "prompt_ids": list(self.prompt_ids),
            "text": self.text,
            "token_ids": list(self.token_ids),
            "log_probabilities": list(self.log_probabilities),
            "score": self.score,
            "ended": self.ended,
        }


_Ids = Sequence[int]

_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
"""A token that is a byte, in vocabularies that fall back to those; a run of them is read as a whole."""

_BROKEN = "\N{REPLACEMENT CHARACTER}"


class Pieces:
    """The text of tokens that follow a prompt.

    Args:
        tokenizer: of what is written.
        before: the tokens of the prompt; () where what is written begins a text of its own.
        stops: texts before which it ends.
        begun: tokens that were given as its beginning: part of it, but no stop is looked for in them.
    """

    def __init__(
        self, tokenizer: Tokenizer, before: _Ids, stops: Sequence[str] = (), begun: _Ids = ()
    ) -> None:
        self._tokenizer, self._stops = tokenizer, tuple(stops)
        # Read after a token of the prompt, a first word keeps its blank.
        plain = (id for id in reversed(before) if not tokenizer.is_special(id) and not self._is_byte(id))
        self._before = [id for id in [next(plain, None)] if id is not None]
        self._begun: list[int] = []
        # What the prompt's token itself reads as is no part of the result.
        self._skipped = len(self._read([]))
        self._begun = list(begun)
        # Characters of what the translation began with: a stop within these does not count.
        self._given = len(self._read([])) - self._skipped

    def text(self, ids: Sequence[int]) -> str:
        """All of it, cut before the first stop."""
        text = self._read(ids)[self._skipped :]
        return text[: self._stop_in(text)]

    def has_stop(self, ids: Sequence[int]) -> bool:
        """Whether there is a stop in it."""
        return bool(self._stops) and self._stop_in(self._read(ids)[self._skipped :]) is not None

    def settled(self, ids: Sequence[int]) -> str:
        """The prefix that can be shown now: it ends in no half character and no possible start of a stop."""
        end = len(ids)
        # Bytes may be half of a character: they wait for the rest.
        while end and self._is_byte(ids[end - 1]):
            end -= 1
        # So does a character that is not whole yet.
        text = self.text(ids[:end]).rstrip(_BROKEN)
        # How much of the end could be the start of a stop.
        begun = (
            size for stop in self._stops for size in range(len(stop) - 1, 0, -1) if text.endswith(stop[:size])
        )
        return text[: len(text) - max(begun, default=0)]

    def _read(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode([*self._before, *self._begun, *ids], skip_special=True)

    def _stop_in(self, text: str) -> int | None:
        # A stop may begin in what was given, and end after it.
        places = (text.find(stop, max(0, self._given - len(stop) + 1)) for stop in self._stops)
        return min((place for place in places if place >= 0), default=None)

    def _is_byte(self, id: int) -> bool:
        return _BYTE.fullmatch(self._tokenizer.piece_of(id) or "") is not None


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
        >>> from regard.decoding import Rules, greedy
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
        >>> from regard.decoding import Rules, sample
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
    # One for each way; the random numbers depend on text and place only.
    keys = [key_of(ids, place) for ids in texts for place in range(count)]
    # Way n is return n % count of text n // count.
    growing = [Growing(rules, reader.limits[way // count], way // count, until) for way in range(len(keys))]
    finished: dict[int, Decoded] = {}
    ways = list(range(len(keys)))  # those that go on
    # All ways of a text share what is read before its first token; then each has a row of its own.
    rows = torch.arange(len(texts), device=device).repeat_interleave(count)  # the reader's, of each way
    read = reader.read[rows]
    length = 0
    while True:
        limits = [reader.limits[way // count] for way in ways]
        logits = reader.logits()
        # At the first step there is one row of logits for all ways of a text.
        scores = rules.apply(logits if len(logits) == len(ways) else logits[rows], read, length, limits)
        chosen = choice(scores, [keys[way] for way in ways], length)
        tokens = chosen.tolist()
        length += 1
        going = []
        # Each way gets its token and the log p of it; `done` is the whole text.
        for place, gain in enumerate(scores.gather(1, chosen[:, None])[:, 0].tolist()):
            done = growing[ways[place]].add(tokens[place], gain)
            if done is None:
                going.append(place)
            else:
                finished[ways[place]] = done
        # Also the step in which the last way ends.
        yield Step(ways, tokens, scores)
        if not going:
            return [[finished[text * count + place] for place in range(count)] for text in range(len(texts))]
        # Some ended, or ways get rows of their own: the reader's state follows.
        if len(going) < len(ways) or len(rows) != len(logits):
            at = torch.tensor(going, device=device)
            reader.pick(rows[at])
            ways, chosen, read = [ways[place] for place in going], chosen[at], read[at]
        # From now on, way n has row n.
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
        # Not a number, or all forbidden: better an error than a wrong text.
        check_chosen(gain)
        self._gained.append(gain)
        ended = token in self._ends
        if not ended:
            # An end is counted in the probability, and is no token of the text.
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
            # A generator's return value comes in the exception.
            decoded: list[list[Decoded]] = end.value
            return decoded


def check_chosen(log_probability: float) -> None:
    """Raise RegardError if the log-probability of a chosen token is not a number, or none could be chosen."""
    if not log_probability > -torch.inf:
        raise RegardError(
            "no token could be chosen: the network's logits are not numbers, or rules forbid all of them."
        )
