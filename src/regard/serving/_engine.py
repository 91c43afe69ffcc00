"""A model at work: one thread that reads and computes what waits."""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from threading import Event, Thread
from typing import Any, TypeVar, cast

from regard.checkpoints import find
from regard.embedding import Embedder, Passage, Request, read_sentence_settings
from regard.model import Model, load
from regard.serving._errors import ApiError
from regard.serving._jobs import (
    END,
    TURN_TOKENS,
    CallJob,
    Embedded,
    EmbedJob,
    Job,
    Overlong,
    StreamJob,
    give_all,
)
from regard.serving._metrics import Metrics
from regard.serving._queue import Queue
from regard.serving._settings import Settings

T = TypeVar("T")

_REMEMBERED = 0.2  # how much the last turn counts in the speed
_PATIENCE = 5.0  # seconds for a thread to end


class Engine:
    """A model, and the thread that alone computes with it.

    Texts of all requests are embedded together, as many as fill a turn; functions run alone, between two
    turns. What waits is bounded in tokens. Nothing hangs: if a thread ends, all who wait get an error.

    Args:
        name: what requests call the model.
        model: that is served, or the name by which it is loaded when it is needed.
        settings: of the server.
        metrics: of the server.

    Attributes:
        queue: who waits.
        bytes: of the weights.
        model, embedder, width: what is loaded, and the size of its vectors; once `is_loaded`.
        dimensions: the sizes that its vectors may have; then too.
        touched: when it was last asked for, on the monotonic clock; `worked`: when it last computed.
        kept: what others keep that is of the loaded model; let go of with it.
        dead: why nothing is computed any more; None while something is.
    """

    model: Model
    embedder: Embedder
    width: int
    dimensions: list[int]

    def __init__(self, name: str, model: Model | str, settings: Settings, metrics: Metrics) -> None:
        self.name, self.queue = name, Queue(settings.max_queue)
        self._source = model
        self.bytes = _bytes_of(model)
        if isinstance(model, Model):
            self.model = model
        self.kept: dict[str, Any] = {}
        self.dead: BaseException | None = None
        self.touched = self.worked = 0.0
        self._settings = settings
        self._metrics = metrics.of(name, lambda: self.queue.tokens)
        self._open: set[Job] = set()
        self._loaded = Event()
        self._thread: Thread | None = None
        self._speed = 0.0  # tokens a second
        self._busy: float | None = None

    def start(self) -> None:
        """Load the model, warm up and wait for work; once."""
        if self._thread is None:
            self._thread = Thread(target=self._guarded, name=self.name, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Finish what waits, end the thread, and let go of the model; a later `start` begins anew."""
        if self._thread is None:
            return
        self.queue.close()
        self._thread.join(_PATIENCE)
        self._thread = None
        self._loaded.clear()
        self.queue = Queue(self._settings.max_queue)
        self.kept.clear()
        if isinstance(self._source, str):
            self.__dict__.pop("model", None)
            self.__dict__.pop("embedder", None)

    @property
    def is_started(self) -> bool:
        """Whether the model is in memory, or about to be."""
        return self._thread is not None

    @property
    def source_name(self) -> str:
        """The name of what is served, or its folder."""
        return self._source if isinstance(self._source, str) else self._source.name

    @property
    def is_loaded(self) -> bool:
        """Whether the model is there, warm."""
        return self._loaded.is_set()

    @property
    def is_at_work(self) -> bool:
        """Whether its thread computes, or loads the model."""
        return self._busy is not None

    @property
    def is_idle(self) -> bool:
        """Whether the model is there, and nobody waits for it."""
        return self.is_loaded and not self._open

    async def embed(
        self, inputs: Sequence[str | Sequence[int]], *, overlong: Overlong = "refuse"
    ) -> Embedded:
        """Vectors of texts, or of token ids as given (either all or none of them are ids).

        Raises:
            ApiError: 400 what cannot be embedded, 429 too much waits, 503 or 504 out of time, 503 dead.
        """
        return cast(Embedded, await self._answer(EmbedJob(inputs, overlong)))

    async def call(self, function: Callable[[Model], T], *, tokens: int) -> T:
        """What `function(model)` gives, run alone on the model's thread; it counts as so many tokens.

        Raises:
            ApiError: as `embed`.
            Exception: what the function raises.
        """
        return cast(T, await self._answer(CallJob(function, tokens)))

    async def stream(
        self, function: Callable[[Model], Generator[T, None, Any]], *, tokens: int
    ) -> AsyncGenerator[T, None]:
        """What the generator `function(model)` yields, a step a turn; `aclose` closes it.

        Raises:
            ApiError: as `embed`.
            Exception: what the generator raises, at the piece where it does.
        """
        job = StreamJob(function, tokens)
        self._admit(job)
        try:
            while True:
                async with asyncio.timeout(self._settings.timeout):
                    piece = await job.pieces.get()
                if piece is END:
                    await job.future
                    return
                yield piece
        except TimeoutError as error:
            raise self._late(job) from error
        finally:
            self._forget(job)

    def _admit(self, job: CallJob | EmbedJob | StreamJob) -> None:
        self.start()
        self._open.add(job)  # first: if the thread dies now, it is told
        try:
            if self.dead is not None:
                raise _gone()
            self.check_room(job.tokens)
        except ApiError:
            self._open.discard(job)
            raise
        self.queue.admit(job)

    def check_room(self, tokens: int) -> None:
        """Refuse what cannot be answered in time now, not when its time is over.

        Raises:
            ApiError: 429, with so many tokens more too many wait.
        """
        # Half of the time is for waiting: tokens are estimated, and the speed was that of other texts.
        wait, most = self.queue.tokens / self._speed if self._speed else 0.0, self._settings.timeout / 2
        if wait > most or not self.queue.has_room(tokens):
            raise ApiError(
                429,
                f"{self.queue.tokens:,} tokens wait for this model already, and with these {tokens:,} it "
                f"would be more than {self._settings.max_queue:,}, or more than {most:g} seconds' work; "
                "try again later.",
                code="queue_full",
                retry_after=min(wait or 1.0, most),
            )

    async def _answer(self, job: CallJob | EmbedJob) -> Any:
        self._admit(job)
        try:
            async with asyncio.timeout(self._settings.timeout):
                return await job.future
        except TimeoutError as error:
            raise self._late(job) from error
        finally:
            self._forget(job)

    def _forget(self, job: Job) -> None:
        job.future.cancel()
        self._open.discard(job)
        self.queue.leave(job)

    def _late(self, job: Job) -> ApiError:
        told = f"no answer within {self._settings.timeout:g} seconds"
        if job.begun:
            return ApiError(504, f"{told}; send less at once.", code="timeout")
        return ApiError(503, f"{told}: too much waits; try again later.", code="timeout", retry_after=5)

    def _guarded(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._die(error)
        finally:
            self._busy = None

    def _die(self, error: BaseException) -> None:
        self.dead = error
        for job in list(self._open):
            job.fail(_gone())

    def check(self) -> None:
        """Count as dead once a computation hangs."""
        busy = self._busy
        if self.dead is None and busy is not None and time.monotonic() - busy > self._settings.stall:
            self._die(TimeoutError(f"a computation has taken more than {self._settings.stall:g} seconds"))

    def _work(self) -> None:
        self._busy = math.inf  # to load may take as long as it takes
        if isinstance(self._source, str):
            self.model = load(self._source)
        self.embedder = Embedder(self.model.loaded, Request(precision=self._settings.precision))
        self.width = self.embedder.sentences(["warm up"]).vectors.shape[1]
        trained = read_sentence_settings(self.model.loaded.source.folder).dimensions
        shorter = {size for size in (*self._settings.dimensions, *trained) if size < self.width}
        self.dimensions = sorted({self.width, *shorter})
        self._busy = None
        self._loaded.set()
        while (work := self.queue.take()) is not None:
            begun = self._busy = time.monotonic()
            if isinstance(work, list):
                self._embed_some(work, begun)
            else:
                self._step(work)
            self._busy, self.worked = None, time.monotonic()

    def _embed_some(self, jobs: list[EmbedJob], begun: float) -> None:
        waiting = [job for job in jobs if not job.is_left and self._is_read(job)]
        if waiting:
            parts = shares(waiting)
            self._begin(*parts)
            self._embed(parts)
            self.queue.put_back([job for job in waiting if not job.is_ended])
            self._measure(sum(sum(passage.rows) for each in parts.values() for passage in each), begun)

    def _begin(self, *jobs: Job) -> None:
        for job in jobs:
            if not job.begun:
                job.begun = True
                self._metrics.wait.observe(time.monotonic() - job.came)

    def _measure(self, tokens: int, begun: float) -> None:
        seconds = max(1e-6, time.monotonic() - begun)
        if tokens > TURN_TOKENS // 2:  # a turn that is hardly filled does not say what can be done
            self._speed += (_REMEMBERED if self._speed else 1.0) * (tokens / seconds - self._speed)
        self._metrics.compute.observe(seconds)
        self._metrics.fill.observe(tokens / TURN_TOKENS)
        self._metrics.tokens.inc(tokens)

    def _step(self, job: CallJob | StreamJob) -> None:
        if job.is_left:
            job.close()
            return
        self._begin(job)
        try:
            job.step(self.model)
        except Exception as error:
            job.fail(error)
        if not job.is_ended:
            self.queue.put(job)

    def _embed(self, parts: dict[EmbedJob, list[Passage]]) -> None:
        try:
            vectors = self.embedder.vectors([each for some in parts.values() for each in some]).vectors
        except Exception as error:
            # One request's fault is not another's: each by itself.
            for job, some in parts.items():
                if len(parts) == 1:
                    job.fail(error)
                else:
                    self._embed({job: some})
            return
        start, done = 0, dict[Job, Embedded]()
        for job, some in parts.items():
            made = job.put(vectors[start : start + len(some)])
            start += len(some)
            if made is not None:
                done[job] = made
        give_all(done)

    def _is_read(self, job: EmbedJob) -> bool:
        """Tokenise what a job wants embedded, if that is not done; False: it has got an error."""
        if job.passages:
            return True
        try:
            job.read(self.embedder, self._settings.max_tokens)
        except ApiError as error:
            job.fail(error)
            return False
        self._metrics.truncated.inc(sum(passage.cut > 0 for passage in job.passages))
        return True


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


def _bytes_of(model: Model | str) -> int:
    if isinstance(model, str):
        return sum(file.stat().st_size for file in find(model).folder.glob("*.safetensors"))
    return sum(each.numel() * each.element_size() for each in model.network.parameters())


def _gone() -> ApiError:
    return ApiError(503, "the model's thread has ended; this server is stopping.", code="engine_dead")
