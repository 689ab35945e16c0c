"""`rt.operations`: questions of operators about a namespace, for consoles and the command line."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING

from ...eventlog.ports import Log
from ...projections.operating.board import Before, waiter_of_row
from ...projections.operating.why import Why, why
from .surroundings import Executors, below_of_rows, board_for, standing_of_row

if TYPE_CHECKING:
    from ...projections.projector import RunIndex
    from ...projections.run_list import RunRow


class Operations:
    """Every answer is of the log as it is now. Raises `LogUnavailable`, `LogCorrupted`."""

    def __init__(self, log: Log, index: Callable[[], Awaitable[RunIndex]], executors: Executors) -> None:
        self._log, self._index, self._executors = log, index, executors

    async def why(self, rows: Sequence[RunRow], tz: tzinfo | None = None) -> dict[str, Why]:
        """Return why runs of the run list wait, by run id; runs that wait for nothing are left out.

        Points in time are told in `tz` (None: the local time of this process).
        """
        index = await self._index()
        waiters = [waiter_of_row(row) for row in rows if not row.over]
        if not waiters:
            return {}
        parents = {run.root_id for run in waiters}
        below = below_of_rows(await index.families(parents))

        async def standing(run_id: str) -> Before:
            return standing_of_row(await index.run(run_id))

        board = await board_for(self._log, waiters, below, standing, self._executors)
        found = {run.run_id: why(run, board, tz) for run in waiters}
        return {run_id: each for run_id, each in found.items() if each is not None}
