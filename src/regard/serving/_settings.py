"""What a server is told when it starts."""

from dataclasses import dataclass
from pathlib import Path

from regard.core.arguments import whole
from regard.core.errors import InputError
from regard.embedding import Precision, Request


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Limits, keys and choices of a server.

    Args:
        keys: the API keys, of which a request under /v1 must carry one; none: no key is asked for.
        index: the folder of a concordance, for /v1/usages/search.
        precision: what embeddings are computed in; see `regard.embedding.Request`.
        dimensions: the sizes that vectors may be cut to, beside those that a model's card says it was trained
            for.
        max_body: bytes of a request.
        max_texts: texts of a request.
        max_tokens: tokens of a request.
        max_queue: tokens that may wait, of each model.
        max_memory: bytes of weights that may be in memory; None for no bound.
        timeout: seconds in which a request is answered.
        body_timeout: seconds in which a request's body has arrived.
        stall: seconds after which a computation counts as hung, and the server as dead.
        access_log: whether each request is logged.

    Raises:
        InputError: a limit that leaves nothing.
    """

    keys: tuple[str, ...] = ()
    index: Path | None = None
    precision: Precision = "float32"
    dimensions: tuple[int, ...] = ()
    max_body: int = 8 * 2**20
    max_texts: int = 2048
    max_tokens: int = 2**17
    max_queue: int = 2**18
    max_memory: int | None = None
    timeout: float = 60.0
    body_timeout: float = 20.0
    stall: float = 300.0
    access_log: bool = True

    def __post_init__(self) -> None:
        Request(precision=self.precision)  # which refuses unknown ones
        for name in ("max_body", "max_texts", "max_tokens", "max_queue"):
            whole(name, getattr(self, name), least=1)
        if self.max_memory is not None:
            whole("max_memory", self.max_memory, least=1)
        for size in self.dimensions:
            whole("dimensions", size, least=1)
        for name in ("timeout", "body_timeout", "stall"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} must be more than 0 seconds; got {getattr(self, name)}.")
