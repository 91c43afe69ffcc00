"""What waits for a model: the work of one request each, in the order of their turns, bounded in tokens."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from operator import itemgetter
from threading import Condition
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.api import Model
from regard.core.errors import InputError
from regard.embedding import Embedder, Passage, Truncate, Windows
from regard.serving._limits import ApiError

Overlong = Literal["refuse", "truncate", "windows"]
"""What becomes of a text that is longer than the model takes."""

TURN_TOKENS: Final = 512
"""What a thread computes before those who wait are asked again: as many tokens as keep one core busy."""
# Attention over n tokens costs n squared: a turn has at most so many such pairs.
_TURN_SCORES: Final = 2**22
_LEAST: Final = 0.25  # of a turn: half of less than that would be slow
_SHORT: Final = 0.125  # of a turn: so little need not wait for what is long
_MOST: Final = 256  # requests in a turn: to look at thousands costs more than to compute some

_UNREAD: Final = 256  # pieces of a stream that may wait for who asked for it

# Sums of parts of a turn may exceed it by rounding.
_ROUNDING: Final = 1e-9
# Estimates before tokenising: characters of a token, and the special tokens around a text.
_CHARACTERS: Final = 4
_FRAME: Final = 2

TOO_LONG: Final = "context_length_exceeded"
"""OpenAI's code of what is longer than the model takes."""

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
        # A loop that was closed has nobody who waits.
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(function, *arguments)

    def _settle(self, result: Any, error: BaseException | None = None) -> None:
        # It was answered, refused or cancelled meanwhile.
        if self.future.done():
            return
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)


def give_all(results: Mapping[Job, Any]) -> None:
    """Hand results to those who wait, from the worker's thread: one call a loop, for waking costs most."""

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
        self.unread, self.is_parked = 0, False  # pieces that nobody has taken; whether it waits for that
        # Whoever reads pieces must wake up at the end, also after an error.
        self.future.add_done_callback(lambda _: self.pieces.put_nowait(END))

    def step(self, model: Model) -> None:
        """Take a step; from the worker's thread."""
        if self._generator is None:
            self._generator = self._function(model)
        try:
            self._tell(self.pieces.put_nowait, next(self._generator))
        # What the generator returns is the result.
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
        self._made: list[tuple[int, NDArray[np.float32]]] = []  # by several threads, in any order

    def read(self, embedder: Embedder, most: int) -> None:
        """Tokenise; a text that cannot be embedded, or more tokens than `most`, are refused (ApiError)."""
        window = Truncate() if self._overlong == "truncate" else Windows()
        try:
            self.passages = _read(embedder, self._inputs, window)
        except InputError as error:
            raise ApiError(400, str(error), param="input") from error
        # Tokens of windows count as often as they are read; for the limit each counts once.
        self.tokens = sum(map(sum, (passage.rows for passage in self.passages)))
        self.cost = sum(map(_cost, self.passages))
        tokens = sum(passage.tokens - passage.cut for passage in self.passages)  # windows overlap
        if tokens > most:
            raise ApiError(
                400, f"input has {tokens:,} tokens, and a request may have {most:,}; send fewer texts."
            )
        for place, passage in enumerate(self.passages):
            if self._overlong == "refuse" and len(passage.parts) > 1:
                raise too_long(place, f"{passage.tokens:,} tokens, and this model takes {embedder.limit:,}")

    def take(self, room: float, *, least: int = 0) -> range:
        """The next passages: as many as fit into a part of a turn, but no fewer than `least`."""
        first = self._next
        for passage in self.passages[first:]:
            cost = _cost(passage)
            room -= cost
            # At least `least` passages are taken even where they do not fit: a long text must get its
            # turn.
            if room < -_ROUNDING and self._next - first >= least:
                break
            self._next += 1
            self.cost -= cost
            self.tokens -= sum(passage.rows)
        return range(first, self._next)

    def put(self, part: range, vectors: NDArray[np.float32]) -> Embedded | None:
        """Vectors of passages that were taken; what is asked for, if they were the last."""
        self._made.append((part.start, vectors))
        if sum(len(each) for _, each in self._made) < len(self.passages):
            return None
        # By the place of their first passage, since several threads compute them.
        parts = [each for _, each in sorted(self._made, key=itemgetter(0))]
        return Embedded(parts[0] if len(parts) == 1 else np.concatenate(parts), self.passages)


def shares(jobs: Sequence[EmbedJob], threads: int = 1) -> dict[EmbedJob, range]:
    """What each gets of a turn: half of it goes to short requests first, the rest to the oldest.

    The turn is smaller where less waits than so many threads can do at once.
    """
    parts: dict[EmbedJob, range] = {}
    # A share of what waits for each thread, but not so little that turns become slow.
    room = min(1.0, max(_LEAST, sum(job.cost for job in jobs) / threads))
    taken = 0.0
    # Sorting by a flag keeps the order within both groups.
    short_first = sorted(jobs, key=lambda job: job.cost > _SHORT)
    # First round: short requests get up to half; second round: everybody, the oldest first.
    for order, most in ((short_first, room / 2), (jobs, room)):
        for job in order:
            before = job.cost
            # The first of all takes one passage at least.
            if part := job.take(most - taken, least=0 if parts else 1):
                # A job that got something in both rounds has one range.
                parts[job] = range(parts.get(job, part).start, part.stop)
            taken += before - job.cost
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
            passages.append(embedder.passage_of_ids(ids, window=window))
        except InputError as error:
            message = f"input[{place}]: {error} LangChain sends another tokenizer's, unless it is told"
            raise InputError(f"{message} check_embedding_ctx_length=False.") from error
    return passages


def too_long(place: int, told: str) -> ApiError:
    """A text has more tokens than the model takes."""
    told = f'input[{place}] has {told}; shorten it, or send "overlong": "truncate" or "windows".'
    return ApiError(400, told, param="input", code=TOO_LONG)


def estimate(text: str | Sequence[int]) -> int:
    """The tokens of a text, before it is tokenised."""
    return len(text) // _CHARACTERS + _FRAME if isinstance(text, str) else len(text)


def _cost(passage: Passage) -> float:
    """The part of a turn that a text takes."""
    rows = passage.rows
    # By tokens or by pairs of tokens, whichever is the larger part of a turn.
    return max(sum(rows) / TURN_TOKENS, sum(row * row for row in rows) / _TURN_SCORES)


class Queue:
    """Texts to embed, the oldest first, on several threads; and other work in a ring, alone: they take turns.

    At `most` tokens may wait, or one job of whatever size; `tokens` moves as soon as a job comes.
    """

    def __init__(self, most: int) -> None:
        self.tokens, self.threads, self._most = 0, 1, most
        self._texts: deque[EmbedJob] = deque()
        self._others: deque[StepJob] = deque()
        self._changed = Condition()
        self._closed = self._alone = False
        self._working = self._since = 0  # threads in a turn; turns of texts since one of the others

    def has_room(self, tokens: int) -> bool:
        """Whether so many more may wait."""
        # One job of any size may come when nothing waits.
        return not self.tokens or self.tokens + tokens <= self._most

    def admit(self, job: EmbedJob | StepJob) -> None:
        """Count a new job's tokens, and line it up."""
        with self._changed:
            self.tokens += job.tokens
            job.counted = job.tokens
        self.put(job)

    def leave(self, job: Job) -> None:
        """A job waits no more: it is done, or its sender has gone."""
        with self._changed:
            self.tokens -= job.counted
            # Not counted twice when it leaves twice.
            job.counted = job.tokens = 0
        if isinstance(job, StepJob):
            # A parked generator must not wait for ever: its pieces count as taken.
            self.taken(job, job.unread)

    def stepped(self, job: StepJob) -> None:
        """Line up a job that has given a piece; one whose pieces nobody takes is parked."""
        with self._changed:
            job.unread += 1
            job.is_parked = job.unread >= _UNREAD
        if not job.is_parked:
            self.put(job)

    def taken(self, job: StepJob, pieces: int = 1) -> None:
        """Somebody has taken pieces of a job; it goes on once half of them are gone."""
        with self._changed:
            job.unread -= pieces
            # Half of them: stopping and going on at the same number would alternate with every piece.
            goes_on = job.is_parked and job.unread <= _UNREAD // 2
            job.is_parked = job.is_parked and not goes_on
        if goes_on:
            self.put(job)

    def put(self, job: EmbedJob | StepJob) -> None:
        """Line up a job for a turn, at the end."""
        with self._changed:
            if isinstance(job, EmbedJob):
                self._texts.append(job)
            else:
                self._others.append(job)
            self._changed.notify()

    def put_back(self, jobs: Sequence[EmbedJob]) -> None:
        """Line up jobs of which texts are left, before those that came in the meantime."""
        with self._changed:
            for job in jobs:
                # Its sender may have gone while it was computed.
                if job.counted:
                    # Tokenised meanwhile: the estimate is replaced by what is left.
                    self.tokens += job.tokens - job.counted
                    job.counted = job.tokens
            # extendleft turns the order round: hence reversed.
            self._texts.extendleft(reversed(jobs))
            self._changed.notify()

    def take(self) -> list[EmbedJob] | StepJob | None:
        """Wait for a turn, until `done`: many that want texts embedded, or one of the others; or None."""
        with self._changed:
            self._changed.wait_for(self._is_next)
            # Closed, and nothing left.
            if not self._texts and not self._others:
                return None
            self._working += 1
            if self._are_others_next():
                # Other work runs alone: no thread embeds meanwhile.
                self._since, self._alone = 0, True
                return self._others.popleft()
            self._since += 1
            return [self._texts.popleft() for _ in range(min(_MOST, len(self._texts)))]

    def _are_others_next(self) -> bool:
        # As soon as texts have had a turn for each thread: so neither keeps the other waiting.
        return bool(self._others) and (self._since >= self.threads or not self._texts)

    def _is_next(self) -> bool:
        if self._are_others_next():
            # It waits until all turns of texts have ended.
            return not self._working
        # Texts wait while other work runs alone.
        return not self._alone if self._texts else self._closed

    def done(self) -> None:
        """A turn has ended."""
        with self._changed:
            self._working -= 1
            self._alone = False
            self._changed.notify_all()

    @property
    def idle(self) -> int:
        """Threads that could share what waits, the asking one among them."""
        # The asking thread counts itself among those that work.
        return self.threads - self._working + 1

    def close(self) -> None:
        """`take` gives nothing any more once all jobs are done."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
