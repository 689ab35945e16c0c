"""Log records of ours on stderr: one line each, a traceback only when `FOLDLOG_DEBUG` asks for it."""

from __future__ import annotations

import logging
import os
import sys

from ..exits import DEBUG
from .escaping import one_line


class OneLine(logging.Formatter):
    """A record on one line; of an exception, its type and message."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        if os.environ.get(DEBUG):
            return super().format(record)
        error = record.exc_info[1] if record.exc_info else None
        told = f": {type(error).__name__}: {error}" if error is not None else ""
        return one_line(
            f"{self.formatTime(record, self.datefmt)} {record.levelname.lower()} {record.getMessage()}{told}"
        )


def show_logs(level: int = logging.WARNING) -> None:
    """Show what the package logs, from this level on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S"))
    logger = logging.getLogger("foldlog")
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(logging.DEBUG if os.environ.get(DEBUG) else level)
