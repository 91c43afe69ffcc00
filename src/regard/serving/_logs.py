"""Logs for machines: a line of JSON each, without texts and keys."""

import asyncio
import logging
import sys
import time
from typing import Any, Final

import orjson

log: Final = logging.getLogger("regard.serving")

_SECONDS: Final = 0.05


class RequestsLog:
    """A line for each request, written with those of a moment: one by one costs a tenth of a request."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, told: dict[str, Any]) -> None:
        """Write it, soon."""
        if not self._lines:
            asyncio.get_running_loop().call_later(_SECONDS, self.flush)
        head = {"time": round(time.time(), 3), "level": "info", "event": "request"}
        self._lines.append(orjson.dumps(head | told).decode())

    def flush(self) -> None:
        """Write what waits, now."""
        if self._lines:
            log.info("\n".join(self._lines), extra={"is_json": True})
            self._lines = []


class Line(logging.Formatter):
    """Writes a record as a line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """A record as a line; of an error its kind, not its message, which may quote a text."""
        if hasattr(record, "is_json"):
            return record.getMessage()
        told: dict[str, Any] = {"time": round(record.created, 3), "level": record.levelname.lower()}
        # uvicorn tells of a start that failed by a whole traceback, whose last line says why.
        event = record.getMessage().strip().rpartition("\n")[2]
        told |= {"event": event} | getattr(record, "told", {})
        if record.exc_info and record.exc_info[0] is not None:
            told["error"] = record.exc_info[0].__name__
        return orjson.dumps(told).decode()


def log_to_stderr() -> None:
    """Write the server's log, and uvicorn's, to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Line())
    for name, level in ((log.name, logging.INFO), ("uvicorn", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)
