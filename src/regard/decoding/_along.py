"""Texts as they are written, token by token, each way of each text by itself."""

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from regard.core.errors import InputError
from regard.decoding._beam import Beams
from regard.decoding._choice import Choice
from regard.decoding._job import Given, Job, at_rest
from regard.decoding._reader import rows_of
from regard.decoding._rules import Model, Rules
from regard.decoding._speculation import Speculation
from regard.decoding._steps import Step
from regard.text import Tokenizer

_BROKEN = "\N{REPLACEMENT CHARACTER}"


class Token(NamedTuple):
    """A token: its text after those before it, where that begins in all that was written, and its log p."""

    id: int
    text: str
    start: int
    log_probability: float


class Added(NamedTuple):
    """What a step adds to one way of a text.

    Attributes:
        way: its number, `count` times the text's plus which of its ways.
        text: what no later token changes; never half a character, and nothing of a stop.
        token: what was written; None where it ended, by a token of its own or before.
        likeliest: tokens that could have come in its place, the likeliest first.
        end: "stop" at its end or before a stop, "length" at the most tokens, "" while it goes on.
    """

    way: int
    text: str
    token: Token | None = None
    likeliest: tuple[Token, ...] = ()
    end: Literal["", "stop", "length"] = ""


def along(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[str | Sequence[int]],
    *,
    choice: Choice | None = None,
    count: int = 1,
    stop: str | Sequence[str] = (),
    rules: Rules | None = None,
    top: int = 0,
) -> tuple[list[int], Generator[list[Added], None, None]]:
    """Write texts, and give what each step adds to each of their ways.

    Args:
        model, tokenizer, choice, count, stop, rules: as of `decode_texts`.
        texts: sources or prompts, or their ids.
        top: how many of the likeliest tokens are told of each step.

    Returns:
        How many tokens each text has, and the steps. Closing the generator ends the writing.

    Raises:
        InputError: as `decode_texts`, before anything is written; an id that the model does not have; beams
            and guesses.
    """
    if isinstance(choice, Beams | Speculation):
        raise InputError("choice must take one token after another, as Sampling does; use generate.")
    job = Job.of(model, tokenizer, choice, count, stop, None, rules, "")
    given = [_given(job, text, place) for place, text in enumerate(texts)]
    return [len(each.ids) for each in given], _along(job, given, top)


def _given(job: Job, text: str | Sequence[int], place: int) -> Given:
    if isinstance(text, str):
        (given,) = job.encoded([text], [place])
        return given
    size = rows_of(job.network)
    if odd := [id for id in text if not 0 <= id < size]:
        raise InputError(f"texts[{place}] must be ids from 0 to {size - 1}; got {odd[0]}.")
    return Given(list(text), [])


def _along(job: Job, given: Sequence[Given], top: int) -> Generator[list[Added], None, None]:
    ways = [_Way(job, given[place // job.count], place, top) for place in range(len(given) * job.count)]
    going: list[int] = []
    with at_rest(job.network):
        for step in job.steps(given):
            ended = [ways[place].ended() for place in going if place not in step.ways]
            yield ended + [ways[place].add(step, row) for row, place in enumerate(step.ways)]
            going = step.ways
        yield [ways[place].ended() for place in going]


class _Way:
    """One way of a text, as far as it is written."""

    def __init__(self, job: Job, given: Given, place: int, top: int) -> None:
        self._pieces = job.pieces(given)
        self._plain = replace(job, stops=()).pieces(given)
        self._tokenizer, self._ends = job.tokenizer.target, job.rules.end_ids
        self._place, self._top = place, top
        self._ids: list[int] = []
        self._given = ""
        self._has_ended = False

    def add(self, step: Step, row: int) -> Added:
        token = step.tokens[row]
        if token in self._ends:
            self._has_ended = True
            return Added(self._place, "")
        before = self._plain.text(self._ids)
        scores = step.scores[row]
        best = scores.topk(min(self._top, len(scores)))
        likeliest = tuple(
            Token(id, self._spelled(id, before), len(before), score)
            for id, score in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        )
        written = Token(token, self._spelled(token, before), len(before), float(scores[token]))
        self._ids.append(token)
        return Added(self._place, self._new(self._pieces.settled(self._ids)), written, likeliest)

    def ended(self) -> Added:
        stopped = self._has_ended or self._pieces.has_stop(self._ids)
        rest = self._new(self._pieces.text(self._ids))
        return Added(self._place, rest, end="stop" if stopped else "length")

    def _new(self, text: str) -> str:
        added = text[len(self._given) :] if text.startswith(self._given) else ""
        self._given += added
        return added

    def _spelled(self, id: int, before: str) -> str:
        """A token as it reads after those before it; as in the vocabulary where it is no text by itself."""
        text = self._plain.text([*self._ids, id])
        added = text.removeprefix(before) if text.startswith(before) else _BROKEN
        return added if added and _BROKEN not in added else self._tokenizer.piece_of(id) or str(id)
