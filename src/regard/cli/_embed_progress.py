"""How far a job is."""

from typing import TYPE_CHECKING

from regard.cli._progress import Progress, duration

if TYPE_CHECKING:
    from regard.embedding import job


class JobProgress(Progress):
    """Texts, tokens a second, and the time left."""

    def __call__(self, progress: "job.Progress") -> None:
        """Shows it."""
        self.show(progress.rows, progress.of, speed(progress))


def speed(progress: "job.Progress") -> str:
    """Tokens a second, and how long the rest takes by the rows done here."""
    seconds = max(progress.seconds, 1e-9)
    rest = f"{progress.tokens / seconds:,.0f} tokens/s"
    if progress.of is not None and progress.here:
        rest += f", {duration((progress.of - progress.rows) * seconds / progress.here)} left"
    return rest
