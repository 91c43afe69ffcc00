"""Logs for machines: a line of JSON each, without texts and keys."""

import logging
import sys
from typing import Any, Final

import orjson

log: Final = logging.getLogger("regard.serving")


class _Line(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """A record as a line; of an error its kind, not its message, which may quote a text."""
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
    handler.setFormatter(_Line())
    for name, level in ((log.name, logging.INFO), ("uvicorn", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)
