"""Print our log records on stderr: one line each, as text or JSON; tracebacks only with `FOLDLOG_DEBUG`."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from ..exits import DEBUG
from .escaping import one_line

if TYPE_CHECKING:
    from .terminal import Screen

LogFormat = Literal["text", "json"]


class OneLine(logging.Formatter):
    """Formats a record on one line with its date and zone, an exception as its type and message."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        if os.environ.get(DEBUG):
            return super().format(record)
        told = _error(record)
        return one_line(
            f"{self.formatTime(record, self.datefmt)} {record.levelname.lower()} {record.getMessage()}"
            f"{f': {told}' if told else ''}"
        )


class JsonLine(logging.Formatter):
    """Formats a record as one JSON object on a line: time (UTC), level, logger, message, error, and the known ids."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "foldlog", {}),
        }
        if told := _error(record):
            line["error"] = told
        if record.exc_info and os.environ.get(DEBUG):
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)  # ASCII, so no character of a stranger reaches a terminal


def show_logs(level: int = logging.WARNING, *, form: LogFormat = "text") -> None:
    """Show the package's log records of this level and above."""
    from ....runtime.shared.log_ids import LogIds

    handler = logging.StreamHandler(sys.stderr)
    line = (
        JsonLine()
        if form == "json"
        else OneLine("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S%z")
    )
    handler.setFormatter(line)
    handler.addFilter(LogIds())
    logger = logging.getLogger("foldlog")
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(logging.DEBUG if os.environ.get(DEBUG) else level)


def announcer(screen: Screen, form: LogFormat) -> Callable[[str], None]:
    """Return a function that says what a process does: to its user, or in its log if programs read that."""
    return screen.say if form == "text" else logging.getLogger("foldlog").info


def _error(record: logging.LogRecord) -> str:
    error = record.exc_info[1] if record.exc_info else None
    return "" if error is None else f"{type(error).__name__}: {error}"
