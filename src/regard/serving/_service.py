"""What all routes share: the models at work, and the settings."""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, cast

from fastapi import Request

from regard.api import Model
from regard.core.arguments import one_of
from regard.core.errors import InputError
from regard.serving._engine import Engine
from regard.serving._limits import ApiError, Settings
from regard.serving._operations import Metrics, RequestsLog
from regard.serving._usages import Usages

_KEPT: Final = 2**19  # tokens


Messages = Sequence[Mapping[str, str]]
"""Messages of a chat, each with its role and content."""


class Answers:
    """What was read and written for the last answers, by their ids: of each the model, its messages, and ids
    of tokens.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[str, Messages, list[list[int]]]] = {}

    def keep(self, id: str, model: str, messages: Messages, rows: list[list[int]]) -> None:
        """Keep one more. The oldest go, so that all have 524,288 tokens at most."""
        self._kept[id] = model, messages, rows
        # dicts keep their order: the first is the oldest.
        while sum(len(row) for *_, rows in self._kept.values() for row in rows) > _KEPT:
            del self._kept[next(iter(self._kept))]

    def choice_of(self, id: str, choice: int) -> tuple[str, Messages, list[int]]:
        """The model, the messages, and the tokens of a choice of an answer, or 404."""
        model, messages, rows = self._kept.get(id, ("", (), []))
        if not 0 <= choice < len(rows):
            raise ApiError(404, "there is no such answer any more: the last ones are kept.", param="id")
        return model, messages, rows[choice]


class Service:
    """The models of a server, by the names that requests give, and its concordance, if any.

    `draining` says that it is about to stop, `cut_off` how many requests that left without an answer. Refused
    (InputError): no model, one that alone is too large for the memory, an index with vectors of none of them.
    """

    def __init__(self, models: Mapping[str, Model | str], settings: Settings) -> None:
        if not models:
            raise InputError("models must hold one at least; got none.")
        self.settings, self.metrics, self.requests_log = settings, Metrics(), RequestsLog()
        self.draining, self.cut_off = False, 0
        self.answers = Answers()
        # Engines do not load anything yet.
        self.engines = {name: Engine(name, model, settings, self.metrics) for name, model in models.items()}
        for engine in self.engines.values():
            # A model alone must fit, or no request for it could ever be answered.
            if engine.bytes > (most := settings.max_memory or engine.bytes):
                least = f"{engine.bytes:,}, the bytes of {engine.name}"
                raise InputError(f"max_memory must be at least {least}; got {most:,}.")
        index = settings.index
        # Its vectors must be those of a model that is served.
        self.usages = None if index is None else Usages(index, self.engines, settings.timeout)

    def start(self) -> None:
        """Begin with as many models as may be in memory, in order."""
        for engine in self.engines.values():
            # Those that do not fit are loaded when somebody asks, in the place of others.
            if self._held() + engine.bytes <= (self.settings.max_memory or float("inf")):
                engine.start()

    def engine(self, name: str | None) -> Engine:
        """The engine of a request's `model`, or the first; 404: there is none, 503: no room for it."""
        missing = partial(ApiError, 404, param="model", code="model_not_found")
        first = next(iter(self.engines))
        # 404 with the nearest name.
        engine = self.engines[one_of("model", first if name is None else name, self.engines, error=missing)]
        if not engine.is_started:
            self._make_room(engine)
        # For `_make_room`: what was asked for longest ago goes first.
        engine.touched = time.monotonic()
        return engine

    def _held(self) -> int:
        return sum(each.bytes for each in self.engines.values() if each.is_started)

    def _make_room(self, engine: Engine) -> None:
        """End engines that have nothing to do, those first that were asked for longest ago."""
        most = self.settings.max_memory
        idle = sorted((each for each in self.engines.values() if each.is_idle), key=lambda each: each.touched)
        while most is not None and self._held() + engine.bytes > most:
            # Everything else is at work.
            if not idle:
                words = f"there is no room for {engine.name} while other models are at work; try again later."
                raise ApiError(503, words, code="memory_full", retry_after=2)
            idle.pop(0).stop()

    @property
    def is_at_work(self) -> bool:
        """Whether any model is being computed with, or loaded."""
        return any(engine.busy for engine in self.engines.values())

    def check(self) -> BaseException | None:
        """What killed a model's thread, if any; a computation that hangs counts."""
        for engine in self.engines.values():
            engine.check()
        return next((each.dead for each in self.engines.values() if each.dead is not None), None)


def service_of(request: Request) -> Service:
    """The service that a request came to."""
    return cast(Service, request.app.state.service)
