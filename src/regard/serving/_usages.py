"""The concordance at work: one index, on the thread of the model that its vectors are of."""

import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from regard.concordance import Concordance
from regard.core.errors import InputError
from regard.model import Model
from regard.serving._engine import Engine
from regard.serving._errors import ApiError

_TURN: Final = 2.0  # seconds in which vectors are computed before others get their turn
_QUERY: Final = 2.0  # seconds that a query of the index may take
_TOKENS: Final = 512  # what a search counts as, in the queue


class _NotYet(Exception):
    """A turn is over, and vectors are missing; what it computed is kept."""


class Usages:
    """The concordance of a server, with the engine of its model, and the seconds that a search may take.

    Raises:
        InputError: there is no index, or it has vectors of a model that is not served.
    """

    def __init__(self, folder: Path, engines: Mapping[str, Engine], timeout: float) -> None:
        self.name, self._folder, self._timeout = folder.name, folder, timeout
        there = Concordance(folder)
        fitting = [engine for engine in engines.values() if _is_of(there, engine)]
        if not fitting:
            raise InputError(
                f"index must have vectors of a model that is served, or none; {folder.name!r} has others."
            )
        self.engine = fitting[0]

    async def find(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """What `Concordance.find` gives; 503 where it takes longer; the next request goes on."""
        ends = time.monotonic() + self._timeout
        while True:
            try:
                return await self.engine.call(partial(self._find, asked=asked), tokens=_TOKENS)
            except _NotYet as error:
                if time.monotonic() > ends:
                    raise ApiError(
                        503,
                        f"the vectors of this word's uses are being computed, {error}; ask again, or give "
                        "sample.",
                        code="timeout",
                        retry_after=1,
                    ) from error

    def _find(self, model: Model, asked: Mapping[str, Any]) -> dict[str, Any]:
        kept = self.engine.kept
        if "concordance" not in kept:
            kept["concordance"] = Concordance(self._folder, model)
        concordance: Concordance = kept["concordance"]
        ends = time.monotonic() + _TURN

        def go_on(done: int, total: int) -> None:
            if done < total and time.monotonic() > ends:
                raise _NotYet(f"{done:,} of {total:,} in this turn")

        with concordance.within(_QUERY):
            found = concordance.find(**asked, progress=go_on)
        return {"total": found.total, "about": found.about, "lines": found.to_rows()}


def _is_of(concordance: Concordance, engine: Engine) -> bool:
    """Whether the vectors of an index, if any, are of a model; of one that is not loaded its name says it."""
    model = getattr(engine, "model", None)
    if model is None:
        return concordance.model_name in (None, engine.source_name)
    return concordance.fits(model)
