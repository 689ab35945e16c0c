"""The run list of a namespace, as this process keeps it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ...eventlog.ports import Log

if TYPE_CHECKING:
    from ...projections.projector import RunIndex


async def open_run_index(log: Log) -> RunIndex:
    """Return the run list and approvals of a namespace, in memory unless `FOLDLOG_PROJECTIONS` names a file."""
    from ...projections.projector import RunIndex

    path = os.environ.get("FOLDLOG_PROJECTIONS")
    return await RunIndex.open(log, Path(path) if path else None)
