"""The part of `foldlog doctor` about workers: those that are present, and runs that none of them serves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from .checks import Check
from .opening import opened
from .settings import Settings

if TYPE_CHECKING:
    from ...eventlog.ports import Presence
    from ...projections.run_list import RunRow
    from ...runtime import Runtime

NAMED_MAX = 10
"""The number of runs of an agent, or agents of a worker, that are named; the others are counted."""


async def open_roots(runtime: Runtime) -> list[RunRow]:
    """Return the open root runs, oldest first."""
    from ...projections.run_list import OPEN

    index = await runtime.index()
    rows = [row for status in OPEN for row in await index.runs(limit=-1, status=status, children=False)]
    return sorted(rows, key=lambda row: (row.submitted_at, row.run_id))


class Fleet:
    """The processes that are present in a namespace, the open runs that wait for a worker, and the damaged runs."""

    def __init__(
        self, present: Sequence[Presence], waiting: Sequence[RunRow], damaged: Sequence[RunRow]
    ) -> None:
        self.present, self.waiting, self.damaged = present, waiting, damaged

    @classmethod
    async def of(cls, settings: Settings) -> Fleet:
        """Read the state of a namespace, which must exist. Raises `FoldlogError`."""
        from .commands.listing import rows_with_unserved

        async with opened(settings) as runtime:
            rows = await rows_with_unserved(runtime, await open_roots(runtime))
            present = await runtime.log.leases.present()
            damaged = await (await runtime.index()).damaged()
        waiting = [row for row in rows if row.waiting_for == "worker" and row.damage is None]
        return cls(present, waiting, damaged)

    def checks(self) -> Iterator[Check]:
        """Yield a finding for each worker, for each agent whose runs wait, and for each damaged run."""
        workers = [each for each in self.present if each.serves]
        for worker in workers:
            yield Check(name="worker", state="ok", detail=_told(worker))
        if not workers:
            yield Check(name="worker", state="ok", detail="none is there; programs drive runs of their own")
        for _, rows in groupby(sorted(self.waiting, key=_why), _why):
            yield _waits(list(rows))
        for row in self.damaged:
            if row.damage is not None:
                remedy = f"foldlog runs delete {row.run_id}"
                yield Check(name="runs", state="wrong", detail=row.damage.detail, remedy=remedy)

    def document(self) -> dict[str, Any]:
        """Return the fleet as JSON values."""
        import msgspec

        return {
            "workers": [msgspec.structs.asdict(each) for each in self.present],
            "waiting": [
                {"run_id": row.run_id, "agent": row.agent, "reason": row.reason} for row in self.waiting
            ],
        }


def _told(worker: Presence) -> str:
    build = f"build {worker.build}, " if worker.build else ""
    return (
        f"{worker.worker} ({build}foldlog {worker.release}, process {worker.pid} on {worker.host}) serves "
        f"{_some(worker.serves)}, up to {worker.concurrency} runs at a time"
        f"{'; it drains, and takes no more runs' if worker.draining else ''}"
    )


def _why(row: RunRow) -> tuple[str, str]:
    return row.agent, row.reason


def _waits(rows: Sequence[RunRow]) -> Check:
    from .output.escaping import one_line

    named = _some([row.run_id for row in rows])
    runs = f"{len(rows)} run{'s' if len(rows) > 1 else ''} of {rows[0].agent}"
    return Check(
        name="runs",
        state="wrong",
        detail=f"{runs} wait{'' if len(rows) > 1 else 's'}: {one_line(rows[0].reason)} ({named})",
        remedy="start a worker that has what they need, or cancel them: foldlog runs cancel RUN",
    )


def _some(names: Sequence[str]) -> str:
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
