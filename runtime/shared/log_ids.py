"""Ids of the work at hand in log records: of the run, its agent, the step, the call, and the request that started it.

They are context variables, so that the records of a tool have them, too, also from its threads and from libraries that
it uses. foldlog adds them to no record by itself: a handler that shall show them gets the filter `LogIds`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextvars import Context, ContextVar, Token, copy_context
from types import MappingProxyType

Ids = Mapping[str, str | int]

NAMES = ("run", "agent", "step", "call", "request", "trace")
_ids: ContextVar[Ids] = ContextVar("foldlog_log_ids", default=MappingProxyType({}))


def at_work(ids: Ids) -> Token[Ids]:
    """Add ids to the records of this task from now on, and of all that it starts."""
    return _ids.set({**_ids.get(), **ids})


def done_with(token: Token[Ids]) -> None:
    """Remove the ids that `at_work` has added."""
    _ids.reset(token)


def at_no_work() -> Context:
    """Return the context for a task that works for all runs, whichever of them happens to start it."""
    context = copy_context()
    context.run(_ids.set, MappingProxyType({}))
    return context


class LogIds(logging.Filter):
    """Adds `foldlog`, a mapping of ids, to each record: those of `NAMES` that are known.

    It lets every record pass. Put it on a handler; a formatter then finds the ids:

        handler.addFilter(LogIds())
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the ids."""
        record.foldlog = dict(_ids.get())
        return True
