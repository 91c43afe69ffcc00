"""A model at work: threads that read and compute what waits, one a core."""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from threading import Thread, get_ident
from typing import Any, TypeVar, cast

from regard.api import Model, load
from regard.blocks import learned
from regard.checkpoints import find
from regard.embedding import Embedder, Request
from regard.serving._jobs import (
    END,
    TURN_TOKENS,
    Embedded,
    EmbedJob,
    Job,
    Overlong,
    Queue,
    StepJob,
    give_all,
    shares,
)
from regard.serving._limits import ApiError, Settings
from regard.serving._operations import Metrics

T = TypeVar("T")

_REMEMBERED = 0.2  # how much the last turn counts in the speed
_PATIENCE = 5.0  # seconds for a thread to end


class Engine:
    """A model, or the name by which it is loaded when needed, and the threads that alone compute with it.

    Texts of all requests are embedded together, as many as fill a turn of a thread; each thread takes what
    waits as soon as it is free, so that no core waits for another. Functions run alone, between turns.
    Nothing hangs: if a thread ends, `dead` says why, and all who wait get an error. What others keep of the
    loaded model is in `kept`, which is emptied when the model is let go of.
    """

    model: Model
    embedder: Embedder
    width: int
    # These exist only while the model is loaded.
    dimensions: list[int]

    def __init__(self, name: str, model: Model | str, settings: Settings, metrics: Metrics) -> None:
        self.name, self.queue = name, Queue(settings.max_queue)
        self._source = model
        if isinstance(model, Model):
            self.model, self.source_name = model, model.name
            self.bytes = sum(each.bytes for each in learned(model.network))
        else:
            self.source_name = model
            self.bytes = sum(file.stat().st_size for file in find(model).folder.glob("*.safetensors"))
        # What pages and the concordance keep; emptied in `stop`.
        self.kept: dict[str, Any] = {}
        self.dead: BaseException | None = None
        # By thread: since when it computes.
        self.busy: dict[int, float] = {}
        self.is_loaded = False
        self.touched = self.worked = 0.0  # when it was last asked for, and computed
        self._settings = settings
        self._metrics = metrics.of_model(name, lambda: self.queue.tokens)
        self._open: set[Job] = set()
        self._threads: list[Thread] = []
        self._speed = 0.0  # tokens a second of one thread

    def start(self) -> None:
        """Load the model, warm up and wait for work; once."""
        # Later starts find threads, and do nothing.
        if not self._threads:
            self._begin(self._load)

    def _begin(self, work: Callable[[], None]) -> None:
        self._threads.append(Thread(target=self._guarded, args=(work,), name=self.name, daemon=True))
        self._threads[-1].start()

    def stop(self) -> None:
        """Finish what waits, end the threads, and let go of the model; a later `start` begins anew."""
        if not self._threads:
            return
        # Threads finish what waits, and then end.
        self.queue.close()
        for thread in self._threads:
            # A thread that hangs is left behind: it is a daemon.
            thread.join(_PATIENCE)
        self._threads = []
        self.is_loaded = False
        self.queue = Queue(self._settings.max_queue)
        self.kept.clear()
        # Loaded by name, so it can be loaded again.
        if isinstance(self._source, str):
            self.__dict__.pop("model", None)
            self.__dict__.pop("embedder", None)

    @property
    def is_started(self) -> bool:
        """Whether the model is in memory, or about to be."""
        return bool(self._threads)

    @property
    def is_idle(self) -> bool:
        """Whether the model is there, and nobody waits for it."""
        return self.is_loaded and not self._open

    async def embed(
        self, inputs: Sequence[str | Sequence[int]], *, overlong: Overlong = "refuse"
    ) -> Embedded:
        """Vectors of texts, or of token ids as given (either all or none of them are ids).

        ApiError: 400 what cannot be embedded, 429 too much waits, 503 or 504 out of time, 503 dead.
        """
        return cast(Embedded, await self._answer(EmbedJob(inputs, overlong)))

    async def call(self, function: Callable[[Model], T], *, tokens: int) -> T:
        """What `function(model)` gives or raises, run alone; it counts as so many tokens; else as `embed`."""

        # A function is a generator of no step.
        def once(model: Model) -> Generator[None, None, T]:
            yield from ()
            return function(model)

        return cast(T, await self._answer(StepJob(once, tokens)))

    async def stream(
        self, function: Callable[[Model], Generator[T, None, Any]], *, tokens: int
    ) -> AsyncGenerator[T, None]:
        """What the generator `function(model)` yields, a step a turn; `aclose` closes it; else as `embed`."""
        job = StepJob(function, tokens)
        # The whole stream has one time limit, not each piece.
        ends = asyncio.get_running_loop().time() + self._settings.timeout
        with self._admitted(job):
            while True:
                async with asyncio.timeout_at(ends):
                    piece = await job.pieces.get()
                # The end: the future has the error, if there was one.
                if piece is END:
                    await job.future
                    return
                self.queue.taken(job)
                yield piece

    async def _answer(self, job: EmbedJob | StepJob) -> Any:
        with self._admitted(job):
            async with asyncio.timeout(self._settings.timeout):
                return await job.future

    @contextmanager
    def _admitted(self, job: EmbedJob | StepJob) -> Iterator[None]:
        """Wait with a job: it is lined up, and forgotten at the end."""
        self.start()
        # Before anything can fail: a thread that dies tells all open jobs.
        self._open.add(job)
        try:
            if self.dead is not None:
                raise _gone()
            self.check_room(job.tokens)
            self.queue.admit(job)
            yield
        except TimeoutError as error:
            raise self._late(job) from error
        finally:
            # Answered, refused or left: nothing waits for it any more.
            job.future.cancel()
            self._open.discard(job)
            self.queue.leave(job)

    def check_room(self, tokens: int) -> None:
        """Refuse (429) what cannot be answered in time now, not when its time is over."""
        # Half of the time is for waiting: tokens are estimated, and the speed was that of other texts.
        speed, most = self._speed * self.queue.threads, self._settings.timeout / 2
        wait = self.queue.tokens / speed if speed else 0.0
        if wait > most or not self.queue.has_room(tokens):
            raise ApiError(
                429,
                f"{self.queue.tokens:,} tokens wait for this model already, and with these {tokens:,} it "
                f"would be more than {self._settings.max_queue:,}, or more than {most:g} seconds' work; "
                "try again later.",
                code="queue_full",
                retry_after=min(wait or 1.0, most),
            )

    def _late(self, job: Job) -> ApiError:
        told = f"no answer within {self._settings.timeout:g} seconds"
        # It had its turn: the request itself is too much. Else the server is too busy.
        if job.begun:
            return ApiError(504, f"{told}; send or ask for less at once.", code="timeout")
        return ApiError(503, f"{told}: too much waits; try again later.", code="timeout", retry_after=5)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._die(error)
        finally:
            self.busy.pop(get_ident(), None)

    def _die(self, error: BaseException) -> None:
        self.dead = error
        for job in list(self._open):
            job.fail(_gone())

    def check(self) -> None:
        """Count as dead once a computation hangs."""
        # The longest of the computations that run now.
        busy = min(list(self.busy.values()), default=math.inf)
        if self.dead is None and time.monotonic() - busy > self._settings.stall:
            self._die(TimeoutError(f"a computation has taken more than {self._settings.stall:g} seconds"))

    def _load(self) -> None:
        # Loading may take as long as it takes.
        self.busy[get_ident()] = math.inf
        if isinstance(self._source, str):
            self.model = load(self._source)
        self.embedder = Embedder(self.model.loaded, Request(precision=self._settings.precision))
        # The first text compiles kernels and fills pools of memory: it should not be a client's.
        self.width = self.embedder.sentences(["warm up"]).vectors.shape[1]
        # Sizes that the model was trained to be cut to, and those that the operator allows.
        trained = self.embedder.sentence.dimensions
        shorter = {size for size in (*self._settings.dimensions, *trained) if size < self.width}
        self.dimensions = sorted({self.width, *shorter})
        del self.busy[get_ident()]
        # As many threads as the embedder found best, one core each.
        self.queue.threads = self.embedder.settled["threads"]
        self.is_loaded = True
        # This thread is the first worker.
        for _ in range(self.queue.threads - 1):
            self._begin(self._work)
        self._work()

    def _work(self) -> None:
        while (work := self.queue.take()) is not None and self.dead is None:
            begun = self.busy[get_ident()] = time.monotonic()
            try:
                # A list of texts from several requests, or one step of something else.
                if isinstance(work, list):
                    self._embed_some(work, begun)
                else:
                    self._step(work)
            except BaseException as error:
                # Before another thread takes what waits.
                self.dead = error
                raise
            finally:
                del self.busy[get_ident()]
                self.worked = time.monotonic()
                self.queue.done()

    def _embed_some(self, jobs: list[EmbedJob], begun: float) -> None:
        # Clients that have left, or whose text is wrong, take no part in the turn.
        waiting = [job for job in jobs if not (job.is_left or job.is_ended) and self._is_read(job)]
        if waiting:
            parts = shares(waiting, self.queue.idle)
            # What is left of a long request waits before those that came later.
            self.queue.put_back([job for job in waiting if job.tokens])
            self._note_wait(*parts)
            self._embed(parts)
            rows = (sum(job.passages[place].rows) for job, part in parts.items() for place in part)
            self._measure(sum(rows), begun)

    def _note_wait(self, *jobs: Job) -> None:
        for job in jobs:
            if not job.begun:
                job.begun = True
                self._metrics.wait.observe(time.monotonic() - job.came)

    def _measure(self, tokens: int, begun: float) -> None:
        seconds = max(1e-6, time.monotonic() - begun)
        # A turn that is hardly filled does not say what can be done.
        if tokens > TURN_TOKENS // 2:
            # A moving average; the first measurement counts fully.
            self._speed += (_REMEMBERED if self._speed else 1.0) * (tokens / seconds - self._speed)
        self._metrics.compute.observe(seconds)
        self._metrics.fill.observe(tokens / TURN_TOKENS)
        self._metrics.tokens.inc(tokens)

    def _step(self, job: StepJob) -> None:
        if job.is_left:
            job.close()
            return
        self._note_wait(job)
        try:
            job.step(self.model)
        except Exception as error:
            job.fail(error)
        # A generator that has given a piece waits for its next turn.
        if not job.is_ended:
            self.queue.stepped(job)

    def _embed(self, parts: dict[EmbedJob, range]) -> None:
        passages = [job.passages[place] for job, part in parts.items() for place in part]
        try:
            # A text by itself is done by all cores: it may be read in many windows.
            vectors = self.embedder.vectors(passages, alone=len(passages) > 1).vectors
        except Exception as error:
            # One request's fault is not another's: each by itself.
            for job, part in parts.items():
                # It failed by itself: the error is its own.
                if len(parts) == 1:
                    job.fail(error)
                else:
                    self._embed({job: part})
            return
        start, done = 0, dict[Job, Embedded]()
        for job, part in parts.items():
            # The vectors are in the order of the parts.
            result = job.put(part, vectors[start : start + len(part)])
            start += len(part)
            if result is not None:
                done[job] = result
        # All at once: waking a loop costs more than setting a result.
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
        # Truncated as asked: counted for whoever operates it.
        self._metrics.truncated.inc(sum(passage.cut > 0 for passage in job.passages))
        return True


def _gone() -> ApiError:
    return ApiError(503, "the model's thread has ended; this server is stopping.", code="engine_dead")
