"""Who waits for a model, in the order of their turns, bounded in tokens."""

from collections import deque
from collections.abc import Sequence
from threading import Condition
from typing import Final

from regard.serving._jobs import CallJob, EmbedJob, Job, StreamJob

_MOST: Final = 256  # requests in a turn: to look at thousands costs more than to compute some


class Queue:
    """Texts to embed, the oldest first; and other work in a ring. They take turns.

    Args:
        most: the tokens that may wait. A job that finds nothing waiting is taken whatever its size.

    Attributes:
        tokens: how many wait or are being computed. It moves as soon as a job comes.
    """

    def __init__(self, most: int) -> None:
        self.tokens = 0
        self._most = most
        self._texts: deque[EmbedJob] = deque()
        self._others: deque[CallJob | StreamJob] = deque()
        self._changed = Condition()
        self._closed = self._was_texts = False

    def has_room(self, tokens: int) -> bool:
        """Whether so many more may wait."""
        return not self.tokens or self.tokens + tokens <= self._most

    def admit(self, job: CallJob | StreamJob | EmbedJob) -> None:
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

    def put(self, job: CallJob | StreamJob | EmbedJob) -> None:
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

    def take(self) -> list[EmbedJob] | CallJob | StreamJob | None:
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
