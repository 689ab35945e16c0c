"""`foldlog top`: workers, queues, runs and approvals, live on a terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..exits import OK
from ..settings import Settings, settings_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Group
    from rich.table import Table

    from ....projections.approvals import ApprovalRow
    from ....projections.operating.why import Why
    from ....projections.run_list import RunRow
    from ....runtime import Runtime
    from ....runtime.operating.rows import AgentRow, WorkerRow

RUNS_SHOWN = 20


def top(
    context: typer.Context,
    *,
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.2, help="Time between two looks.")
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look once; also without a terminal.")] = False,
) -> int:
    """Watch workers, queues, open runs and approvals. Ctrl-C ends it."""
    from ..loops import run_async

    return run_async(_top(settings_of(context), interval, once=once or not sys.stdout.isatty()))


async def _top(settings: Settings, interval: float, *, once: bool) -> int:
    from ..opening import opened
    from ..output.terminal import Screen

    screen = Screen(settings)
    async with opened(settings) as runtime:
        if once:
            screen.out.print(await _frame(runtime))
            return OK
        from rich.live import Live

        with Live(await _frame(runtime), console=screen.out, screen=True, auto_refresh=False) as live:
            while True:
                await runtime.log.clock.sleep(interval)
                live.update(await _frame(runtime), refresh=True)


async def _frame(runtime: Runtime) -> Group:
    from rich.console import Group
    from rich.text import Text

    from ....projections.run_list import OPEN
    from ..output.times import moment

    operations, index = runtime.operations, await runtime.index()
    counts = await index.count_runs(1_000_000)
    rows: list[RunRow] = []
    for status in ("running", "paused", "queued"):
        rows += await index.runs(RUNS_SHOWN - len(rows), status=status) if len(rows) < RUNS_SHOWN else []
    open_count = sum(counts[status] for status in OPEN)
    head = f"{runtime.log.namespace}  {moment(runtime.log.clock.now())}  "
    told = ", ".join(f"{count:,} {status}" for status, count in counts.items() if count) or "no runs"
    return Group(
        Text.assemble((head, "bold"), told),
        _workers(await operations.workers()),
        _agents(await operations.agents()),
        _runs(rows, await operations.why(rows), open_count),
        _approvals(await index.approvals()),
    )


def _table(title: str, *columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, expand=sys.stdout.isatty(), pad_edge=False
    )
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _text(*cells: Any) -> list[Any]:
    from rich.text import Text

    from ..output.escaping import one_line

    return [Text(one_line(str(cell))) for cell in cells]


def _workers(rows: Sequence[WorkerRow]) -> Table:
    table = _table(f"Workers ({len(rows)})", "worker", "runs", "last sign", "build", "serves")
    for row in rows:
        runs = f"{len(row.drives)} of {row.concurrency}" if row.serves else str(len(row.drives))
        sign = f"{row.silent_s:.1f} s" if row.drives else ""
        table.add_row(*_text(row.worker, runs, sign, row.build or row.release, ", ".join(row.serves)))
    return table


def _agents(rows: Sequence[AgentRow]) -> Table:
    table = _table("Queue", "agent", "queued", "driven", "parked", "wake-ups", "workers")
    for row in rows:
        table.add_row(*_text(row.agent, row.queued, row.driven, row.parked, row.wakeups, len(row.workers)))
    return table


def _runs(rows: Sequence[RunRow], whys: dict[str, Why], count: int) -> Table:
    table = _table(f"Open runs ({count})", "run", "agent", "status", "steps", "why")
    for row in rows:
        why = whys[row.run_id].sentence if row.run_id in whys else ""
        table.add_row(*_text(row.run_id, row.agent, row.status, row.steps, why))
    return table


def _approvals(rows: Sequence[ApprovalRow]) -> Table:
    from ..output.times import moment

    table = _table(f"Approvals ({len(rows)})", "approval", "kind", "tool", "run", "requested")
    for row in rows[:RUNS_SHOWN]:
        table.add_row(*_text(row.approval_id, row.kind, row.tool_name, row.run_id, moment(row.requested_at)))
    return table
