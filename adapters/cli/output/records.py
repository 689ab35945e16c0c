"""Print our log records on stderr: one line each, tracebacks only with `FOLDLOG_DEBUG`."""

from __future__ import annotations

import logging
import os
import sys

from ..exits import DEBUG
from .escaping import one_line


class OneLine(logging.Formatter):
    """Formats a record on one line, an exception as its type and message."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        if os.environ.get(DEBUG):
            return super().format(record)
        error = record.exc_info[1] if record.exc_info else None
        told = f": {type(error).__name__}: {error}" if error is not None else ""
        return one_line(
            f"{self.formatTime(record, self.datefmt)} {record.levelname.lower()} {record.getMessage()}{told}"
        )


def show_logs(level: int = logging.WARNING) -> None:
    """Show the package's log records of this level and above."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S"))
    logger = logging.getLogger("foldlog")
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(logging.DEBUG if os.environ.get(DEBUG) else level)
