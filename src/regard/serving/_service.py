"""What all routes share: the models at work, and the settings."""

from collections.abc import Sequence
from typing import cast

from fastapi import Request

from regard.serving._engine import Engine
from regard.serving._errors import ApiError
from regard.serving._settings import Settings


class Service:
    """The models of a server.

    Attributes:
        engines: by the names that requests give, in order.
        settings: of the server.
        draining: whether it is about to stop.
    """

    def __init__(self, engines: Sequence[Engine], settings: Settings) -> None:
        self.engines = {engine.name: engine for engine in engines}
        self.settings = settings
        self.draining = False

    def engine(self, name: str | None) -> Engine:
        """The engine of a request's `model`; of a request that names none, the first.

        Raises:
            ApiError: 404, no model of that name.
        """
        if name is None:
            return next(iter(self.engines.values()))
        if name not in self.engines:
            known = ", ".join(self.engines)
            raise ApiError(
                404, f"model must be one of {known}; got {name!r}.", param="model", code="model_not_found"
            )
        return self.engines[name]

    def check(self) -> BaseException | None:
        """What killed a model's thread, if any; a computation that hangs counts."""
        for engine in self.engines.values():
            engine.check()
        return next((each.dead for each in self.engines.values() if each.dead is not None), None)


def service_of(request: Request) -> Service:
    """The service that a request came to."""
    return cast(Service, request.app.state.service)
