"""What waits for a model: the work of one request each, in the order of their turns, bounded in tokens."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from threading import Condition
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.core.errors import InputError
from regard.embedding import Embedder, Passage, Truncate, Windows
from regard.model import Model
from regard.serving._limits import ApiError

Overlong = Literal["refuse", "truncate", "windows"]
"""What becomes of a text that is longer than the model takes."""

TURN_TOKENS: Final = 2048
"""What is computed before those who wait are asked again: as many tokens as keep all cores busy."""
_TURN_SCORES: Final = 2**24  # and as many tokens squared: what attention over long texts costs
_MOST: Final = 256  # requests in a turn: to look at thousands costs more than to compute some

_ROUNDING: Final = 1e-9
_CHARACTERS: Final = 4  # of a token, about
_FRAME: Final = 2

END: Final = object()
"""The last of a stream's pieces."""


class Embedded(NamedTuple):
    """Vectors of the texts of a request, and what was read of each."""

    vectors: NDArray[np.float32]
    passages: list[Passage]


class Job:
    """The work of one request; the queue has `counted` its `tokens`; it has `begun` once it had a turn."""

    def __init__(self, tokens: int) -> None:
        self.tokens, self.counted, self.came = tokens, 0, time.monotonic()
        self.begun = self.is_ended = False
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()

    @property
    def is_left(self) -> bool:
        """Whether nobody waits for it any more."""
        return self.future.done()

    def fail(self, error: BaseException) -> None:
        """Raise an error where somebody waits; from the worker's thread."""
        self.is_ended = True
        self._tell(self._settle, None, error)

    def _tell(self, function: Callable[..., None], *arguments: object) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(function, *arguments)

    def _settle(self, result: Any, error: BaseException | None = None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)


def give_all(results: Mapping[Job, Any]) -> None:
    """Hand results to who waits, from the worker's thread: one call a loop, since to wake one costs most."""

    def settle(loop: asyncio.AbstractEventLoop) -> None:
        for job, result in results.items():
            if job.loop is loop:
                job._settle(result)

    for job in results:
        job.is_ended = True
    for loop, job in {job.loop: job for job in results}.items():
        job._tell(settle, loop)


class StepJob(Job):
    """A generator over a model, run alone: a step a turn, so that others come between."""

    def __init__(self, function: Callable[[Model], Generator[Any, None, Any]], tokens: int) -> None:
        super().__init__(tokens)
        self._function = function
        self._generator: Generator[Any, None, Any] | None = None
        self.pieces: asyncio.Queue[Any] = asyncio.Queue()
        self.future.add_done_callback(lambda _: self.pieces.put_nowait(END))

    def step(self, model: Model) -> None:
        """Take a step; from the worker's thread."""
        if self._generator is None:
            self._generator = self._function(model)
        try:
            self._tell(self.pieces.put_nowait, next(self._generator))
        except StopIteration as end:
            give_all({self: end.value})

    def close(self) -> None:
        """Let its generator end."""
        if self._generator is not None:
            self._generator.close()


class EmbedJob(Job):
    """Texts that want vectors, in as many turns as it takes; `cost` counts those that are left to do."""

    def __init__(self, inputs: Sequence[str | Sequence[int]], overlong: Overlong) -> None:
        super().__init__(sum(map(estimate, inputs)))
        self._inputs, self._overlong = inputs, overlong
        self.passages: list[Passage] = []
        self.cost, self._next = 0.0, 0
        self._vectors: list[NDArray[np.float32]] = []

    def read(self, embedder: Embedder, most: int) -> None:
        """Tokenise; a text that cannot be embedded, or more tokens than `most`, are refused (ApiError)."""
        window = Truncate() if self._overlong == "truncate" else Windows()
        try:
            self.passages = _read(embedder, self._inputs, window)
        except InputError as error:
            raise ApiError(400, str(error), param="input") from error
        self.tokens = sum(map(sum, (passage.rows for passage in self.passages)))
        self.cost = sum(map(_cost, self.passages))
        if self.tokens > most:
            raise ApiError(
                400, f"input has {self.tokens:,} tokens, and a request may have {most:,}; send fewer texts."
            )
        for place, passage in enumerate(self.passages):
            if self._overlong == "refuse" and len(passage.parts) > 1:
                raise too_long(place, f"{passage.tokens:,} tokens, and this model takes {embedder.limit:,}")

    def take(self, room: float, *, least: int = 0) -> list[Passage]:
        """The next texts: as many as fit into a part of a turn, but no fewer than `least`."""
        first = self._next
        for passage in self.passages[first:]:
            cost = _cost(passage)
            room -= cost
            if room < -_ROUNDING and self._next - first >= least:
                break
            self._next += 1
            self.cost -= cost
            self.tokens -= sum(passage.rows)
        return self.passages[first : self._next]

    def put(self, vectors: NDArray[np.float32]) -> Embedded | None:
        """Vectors of texts that were taken; what is asked for, if they were the last."""
        self._vectors.append(vectors)
        if self._next < len(self.passages):
            return None
        whole = self._vectors[0] if len(self._vectors) == 1 else np.concatenate(self._vectors)
        return Embedded(whole, self.passages)


def shares(jobs: Sequence[EmbedJob]) -> dict[EmbedJob, list[Passage]]:
    """What each gets of a turn: all, if that is no more than an equal part; the rest goes to the oldest."""
    parts: dict[EmbedJob, list[Passage]] = {}
    room = 1.0
    for job in sorted(jobs, key=lambda job: job.cost > 1 / len(jobs)):  # which keeps their order
        before = job.cost
        if passages := job.take(room, least=0 if parts else 1):
            parts[job] = passages
        room -= before - job.cost
    return parts


def _read(embedder: Embedder, inputs: Sequence[Any], window: Windows | Truncate) -> list[Passage]:
    try:
        if isinstance(inputs[0], str):
            return embedder.read(inputs, window=window)
    except InputError as error:
        raise InputError(str(error).replace("texts[", "input[", 1)) from error
    passages = []
    for place, ids in enumerate(inputs):
        try:
            passages.append(embedder.given(ids, window=window))
        except InputError as error:
            told = f"input[{place}]: {error} LangChain sends another tokenizer's, unless it is told"
            raise InputError(f"{told} check_embedding_ctx_length=False.") from error
    return passages


def too_long(place: int, told: str) -> ApiError:
    """A text has more tokens than the model takes."""
    told = f'input[{place}] has {told}; shorten it, or send "overlong": "truncate" or "windows".'
    return ApiError(400, told, param="input", code="context_length_exceeded")


def estimate(text: str | Sequence[int]) -> int:
    """The tokens of a text, before it is tokenised."""
    return len(text) // _CHARACTERS + _FRAME if isinstance(text, str) else len(text)


def _cost(passage: Passage) -> float:
    """The part of a turn that a text takes."""
    rows = passage.rows
    return max(sum(rows) / TURN_TOKENS, sum(row * row for row in rows) / _TURN_SCORES)


class Queue:
    """Texts to embed, the oldest first, and other work in a ring: they take turns.

    At `most` tokens may wait, or one job of whatever size; `tokens` moves as soon as a job comes.
    """

    def __init__(self, most: int) -> None:
        self.tokens, self._most = 0, most
        self._texts: deque[EmbedJob] = deque()
        self._others: deque[StepJob] = deque()
        self._changed = Condition()
        self._closed = self._was_texts = False

    def has_room(self, tokens: int) -> bool:
        """Whether so many more may wait."""
        return not self.tokens or self.tokens + tokens <= self._most

    def admit(self, job: EmbedJob | StepJob) -> None:
        """Count a new job's tokens, and line it up."""
        with self._changed:
            self.tokens += job.tokens
            job.counted = job.tokens
        self.put(job)

    def leave(self, job: Job) -> None:
        """A job waits no more: it is done, or who sent it has gone."""
        with self._changed:
            self.tokens -= job.counted
            job.counted = job.tokens = 0

    def put(self, job: EmbedJob | StepJob) -> None:
        """Line up a job for a turn, at the end."""
        with self._changed:
            if isinstance(job, EmbedJob):
                self._texts.append(job)
            else:
                self._others.append(job)
            self._changed.notify()

    def put_back(self, jobs: Sequence[EmbedJob]) -> None:
        """Line up jobs that a turn has not ended, before those that came in the meantime."""
        with self._changed:
            for job in jobs:
                if job.counted:  # else who sent it has gone
                    self.tokens += job.tokens - job.counted
                    job.counted = job.tokens
            self._texts.extendleft(reversed(jobs))

    def take(self) -> list[EmbedJob] | StepJob | None:
        """Wait for a turn's work: many that want texts embedded, or one of the others; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._texts or self._others or self._closed)
            if self._others and (self._was_texts or not self._texts):
                self._was_texts = False
                return self._others.popleft()
            self._was_texts = True
            return [self._texts.popleft() for _ in range(min(_MOST, len(self._texts)))] or None

    def close(self) -> None:
        """`take` gives nothing any more once all jobs are done."""
        with self._changed:
            self._closed = True
            self._changed.notify()
