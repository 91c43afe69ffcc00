"""What waits for a model: the work of one request each."""

import asyncio
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.core.errors import InputError
from regard.embedding import Embedder, Passage, Truncate, Windows
from regard.model import Model
from regard.serving._errors import ApiError

Overlong = Literal["refuse", "truncate", "windows"]
"""What becomes of a text that is longer than the model takes."""

TURN_TOKENS: Final = 2048
"""What is computed before those who wait are asked again: as many tokens as keep all cores busy."""
_TURN_SCORES: Final = 2**24  # and as many tokens squared: what attention over long texts costs

_ROUNDING: Final = 1e-9
_CHARACTERS: Final = 4  # of a token, about
_FRAME: Final = 2


class Embedded(NamedTuple):
    """Vectors of the texts of a request, the tokens of each, and how many of these were cut off."""

    vectors: NDArray[np.float32]
    tokens: list[int]
    cut: list[int]


END: Final = object()
"""The last of a stream's pieces."""


class Job:
    """The work of one request.

    Attributes:
        tokens: how many wait with it.
        counted: how many of them the queue has counted.
        begun: whether it has had a turn.
        is_ended: whether it has its result, or an error.
        came: when, on the monotonic clock.
    """

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


class CallJob(Job):
    """A function of the model, run alone."""

    def __init__(self, function: Callable[[Model], Any], tokens: int) -> None:
        super().__init__(tokens)
        self._function = function

    def step(self, model: Model) -> None:
        """Do it."""
        give_all({self: self._function(model)})

    def close(self) -> None:
        """It ends here; from the worker's thread."""


class StreamJob(Job):
    """A generator over a model: a step a turn, so that others come between."""

    def __init__(self, function: Callable[[Model], Generator[Any, None, Any]], tokens: int) -> None:
        super().__init__(tokens)
        self._function = function
        self._generator: Generator[Any, None, Any] | None = None
        self.pieces: asyncio.Queue[Any] = asyncio.Queue()
        self.future.add_done_callback(lambda _: self.pieces.put_nowait(END))

    def step(self, model: Model) -> None:
        """Take a step."""
        if self._generator is None:
            self._generator = self._function(model)
        try:
            piece = next(self._generator)
        except StopIteration as end:
            give_all({self: end.value})
        else:
            self._tell(self.pieces.put_nowait, piece)

    def close(self) -> None:
        """See `CallJob.close`."""
        if self._generator is not None:
            self._generator.close()


class EmbedJob(Job):
    """Texts that want vectors, in as many turns as it takes.

    Attributes:
        passages: the texts, once they are read.
        cost: the turns, or the part of one, that is left to do.
    """

    def __init__(self, inputs: Sequence[str | Sequence[int]], overlong: Overlong) -> None:
        super().__init__(sum(estimate(each) for each in inputs))
        self._inputs, self._overlong = inputs, overlong
        self.passages: list[Passage] = []
        self.cost = 0.0
        self._vectors: list[NDArray[np.float32]] = []
        self._next = 0

    def read(self, embedder: Embedder, most: int) -> None:
        """Tokenise; most tokens are allowed in a request.

        Raises:
            ApiError: a text that cannot be embedded, and which.
        """
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
                raise ApiError(
                    400,
                    f"input[{place}] has {passage.tokens:,} tokens, and this model takes {embedder.limit:,}; "
                    'shorten it, or send "overlong": "truncate" or "windows".',
                    param="input",
                    code="context_length_exceeded",
                )

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
        return Embedded(whole, [each.tokens for each in self.passages], [each.cut for each in self.passages])


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


def estimate(text: str | Sequence[int]) -> int:
    """The tokens of a text, before it is tokenised."""
    return len(text) // _CHARACTERS + _FRAME if isinstance(text, str) else len(text)


def _cost(passage: Passage) -> float:
    """The part of a turn that a text takes."""
    rows = passage.rows
    return max(sum(rows) / TURN_TOKENS, sum(row * row for row in rows) / _TURN_SCORES)
