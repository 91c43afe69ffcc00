"""Who waits for a model, in the order of their turns, bounded in tokens."""

from collections import deque
from threading import Condition

from regard.serving._jobs import EmbedJob, Job


class Queue:
    """A ring of jobs: one that is not finished in its turn goes to the end, and lets others come before it.

    Args:
        most: the tokens that may wait. A job that finds nothing waiting is taken whatever its size.

    Attributes:
        tokens: how many wait. It moves as soon as a job comes.
    """

    def __init__(self, most: int) -> None:
        self.tokens = 0
        self._most = most
        self._jobs: deque[Job] = deque()
        self._changed = Condition()
        self._closed = False

    def admit(self, job: Job) -> bool:
        """Count a new job's tokens; False: they are too many."""
        with self._changed:
            if self.tokens and self.tokens + job.tokens > self._most:
                return False
            self.tokens += job.tokens
            job.counted = job.tokens
            return True

    def leave(self, job: Job) -> None:
        """A job waits no more: it is done, or who sent it has gone."""
        with self._changed:
            self.tokens -= job.counted
            job.counted = job.tokens = 0

    def put(self, *jobs: Job, first: bool = False) -> None:
        """Line up jobs for a turn: at the end, or first, in their order."""
        with self._changed:
            for job in jobs:
                # Who has left is not counted again; the worker takes it out when its turn comes.
                if job.counted or not job.is_left:
                    self.tokens += job.tokens - job.counted
                    job.counted = job.tokens
            if first:
                self._jobs.extendleft(reversed(jobs))
            else:
                self._jobs.extend(jobs)
            self._changed.notify()

    def take(self) -> list[Job]:
        """Wait for the jobs of the next turn: the first one alone, or all that want vectors, in order.

        Returns:
            None of them once the queue is closed and empty.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._closed)
            if not self._jobs:
                return []
            if not isinstance(self._jobs[0], EmbedJob):
                return [self._jobs.popleft()]
            taken = [job for job in self._jobs if isinstance(job, EmbedJob)]
            self._jobs = deque(job for job in self._jobs if not isinstance(job, EmbedJob))
            return list[Job](taken)

    def close(self) -> None:
        """`take` gives nothing any more once all jobs are done."""
        with self._changed:
            self._closed = True
            self._changed.notify()
