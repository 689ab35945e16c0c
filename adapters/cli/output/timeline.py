"""The rows of `foldlog runs show`: those of the timeline, safe for a terminal and styled."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ....eventlog.events import TERMINAL_STATUSES, Event
from ....projections.timeline.rows import Row as TimelineRow
from ....projections.timeline.rows import RowFold
from .escaping import exact, one_line
from .times import moment
from .views import ASK, BAD, CALL, DIM, GOOD

if TYPE_CHECKING:
    from ....projections.timeline.rows import Tone

_STYLES: dict[Tone, str] = {
    "": "",
    "dim": DIM,
    "strong": "bold",
    "call": CALL,
    "good": GOOD,
    "bad": BAD,
    "ask": ASK,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One thing that happened, `at_s` seconds after the run was submitted; `took_s` is set if its beginning is known.

    `revision` is that of its event, in its run. `value` is the JSON at the end of `detail`, if an operator decides
    about it. `agent` is the last name of `agent_path`, numbered if a run started several of it, and `depth` the number
    of levels below the run shown. `child` is the child run that the row is about.
    """

    at_s: float
    agent_path: str
    run_id: str = ""
    agent: str = ""
    depth: int = 0
    child: str = ""
    revision: int | None = None
    what: str
    detail: str = ""
    took_s: float | None = None
    style: str = ""
    value: Any = None


def timeline(events: Iterable[Event]) -> list[Row]:
    """Return the rows for the events of a run and all runs below it, in log order, each thing said once."""
    fold = RowFold()
    rows = [fold.add(event) for event in events]
    return [_shown(row, rows[0]) for row in rows if not row.repeated]


def _shown(row: TimelineRow, first: TimelineRow) -> Row:
    detail = one_line(row.detail)
    if row.until is not None:
        detail += f" until {moment(row.until)}"
    if row.child:
        detail += f"  {row.child}"
    if row.value is not None:
        detail = f"{detail} {exact(row.value)}".lstrip()
    ended = row.type == "status" and row.what in TERMINAL_STATUSES
    return Row(
        at_s=row.at - first.at,
        agent_path=row.agent_path,
        run_id=row.run_id,
        agent=row.agent,
        depth=row.agent_path.count("/") - first.agent_path.count("/"),
        child=row.child,
        revision=row.revision,
        what=one_line(row.what),
        detail=detail,
        took_s=row.took_s,
        style=f"bold {_STYLES[row.tone]}" if ended else _STYLES[row.tone],
        value=row.value,
    )
