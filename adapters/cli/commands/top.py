"""`foldlog top`: workers, queues, approvals and runs, live on a terminal."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from ..exits import OK
from ..settings import Settings, settings_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Group
    from rich.text import Text

    from ....projections.approvals import ApprovalRow
    from ....projections.operating.why import Why
    from ....projections.run_list import RunRow
    from ....runtime import Runtime
    from ....runtime.operating.rows import AgentRow, WorkerRow
    from ..output.tables import Cell, Column

RUNS_SHOWN = 200
SILENT_S = 3.0
"""After this time without an answer of the log, or after three missed polls, the view says that it is outdated."""


def top(
    context: typer.Context,
    *,
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.2, help="Time between two looks.")
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look once; also without a terminal.")] = False,
) -> int:
    """Watch workers, queues, approvals and open runs. `q` or Ctrl-C ends it."""
    from ..loops import run_async

    return run_async(_top(settings_of(context), interval, once=once or not sys.stdout.isatty()))


async def _top(settings: Settings, interval: float, *, once: bool) -> int:
    from ..opening import opened
    from ..output.terminal import Screen

    screen = Screen(settings)
    async with opened(settings) as runtime:
        if once:
            screen.out.print(_page(await _look(runtime), screen.out.width))
            return OK
        from rich.live import Live

        with _quiet(), Live(console=screen.out, screen=True, auto_refresh=False) as live:
            async with _watched(runtime, interval) as watched:
                while not watched.over:
                    width, height = live.console.size
                    live.update(_page(watched.seen, width, height, watched.note(interval)), refresh=True)
                    await watched.changed(interval)
    return OK


class Seen(NamedTuple):
    """The rows of one poll. `ends` maps the ids of `runs` to their unique ends."""

    namespace: str
    at: float
    counts: Mapping[str, int]
    workers: Sequence[WorkerRow]
    agents: Sequence[AgentRow]
    runs: Sequence[RunRow]
    whys: Mapping[str, Why]
    approvals: Sequence[ApprovalRow]
    ends: Mapping[str, str]


async def _look(runtime: Runtime) -> Seen:
    from ....projections.run_list import OPEN

    operations, index = runtime.operations, await runtime.index()
    counts = await index.count_runs(1_000_000)
    rows: list[RunRow] = []
    for status in sorted(OPEN, key=("running", "paused", "queued").index):
        rows += await index.runs(RUNS_SHOWN - len(rows), status=status) if len(rows) < RUNS_SHOWN else []
    approvals = await index.approvals()
    return Seen(
        runtime.log.namespace,
        runtime.log.clock.now(),
        counts,
        await operations.workers(),
        await operations.agents(),
        rows,
        await operations.why(rows),
        approvals,
        await index.ends_of_ids({row.run_id for row in rows}),
    )


# --- polling ----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class _Watched:
    """The result of the last poll; `woken` is set by a new one, a key, a signal, or a resize of the terminal."""

    runtime: Runtime
    seen: Seen
    looking: asyncio.Task[None] | None = None
    over: bool = False
    woken: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)

    async def look_again(self, interval: float) -> None:
        """Poll until cancelled. While the log cannot be reached, keep the last result."""
        from ....eventlog.errors import LogUnavailable

        while True:
            await self.runtime.log.clock.sleep(interval)
            with contextlib.suppress(LogUnavailable):
                self.seen = await _look(self.runtime)
                self.woken.set()

    async def changed(self, interval: float) -> None:
        """Wait for news, at most for the time between two polls. Raises the error that ended the polling."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.woken.wait(), interval)
        self.woken.clear()
        if self.looking is not None and self.looking.done():
            self.looking.result()

    def note(self, interval: float) -> str:
        """Return a warning if the last result is old; empty otherwise."""
        silent_s = self.runtime.log.clock.now() - self.seen.at
        if silent_s < max(SILENT_S, 3 * interval):
            return ""
        return f"the log has not answered for {silent_s:.0f} s; this is what it was before"

    def end(self) -> None:
        """End the view."""
        self.over = True
        self.woken.set()


@contextlib.asynccontextmanager
async def _watched(runtime: Runtime, interval: float) -> AsyncIterator[_Watched]:
    from ..loops import interruption

    watched = _Watched(runtime, await _look(runtime))
    with interruption() as interrupted, _terminal(watched):

        async def end() -> None:
            await interrupted.wait()
            watched.end()

        watched.looking = asyncio.create_task(watched.look_again(interval))
        ending = asyncio.create_task(end())
        try:
            yield watched
        finally:
            for task in (watched.looking, ending):
                task.cancel()
            await asyncio.gather(watched.looking, ending, return_exceptions=True)


@contextlib.contextmanager
def _terminal(watched: _Watched) -> Iterator[None]:
    """Read keys as they are pressed, and notice resizes. On terminals that lack this, Ctrl-C still works."""
    try:
        import termios
        import tty

        before = termios.tcgetattr(sys.stdin)
    except (ImportError, OSError, ValueError):
        yield
        return
    loop = asyncio.get_running_loop()

    def pressed() -> None:
        keys = os.read(sys.stdin.fileno(), 1024)  # all: bytes left in a buffer would not wake the loop
        if not keys or b"q" in keys.lower():
            watched.end()

    tty.setcbreak(sys.stdin)
    loop.add_reader(sys.stdin, pressed)
    loop.add_signal_handler(signal.SIGWINCH, watched.woken.set)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)
        loop.remove_reader(sys.stdin)
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress log lines, which would spoil the screen; the view itself says if the server is lost."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


# --- what is shown ----------------------------------------------------------------------------------------------------


class _Part(NamedTuple):
    """A table with a title that says how many there are."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    total: int

    def lines(self, width: int, most: int | None) -> list[Text]:
        """Return its lines; with `most`, at most so many, with the number of rows that are shown in the title."""
        from rich.text import Text

        from ..output.tables import laid_out

        found: list[Text] = []
        for shown in range(len(self.rows) if most is None else min(len(self.rows), most), -1, -1):
            beyond = self.total - shown
            title = f"{self.title} ({self.total})" + (f"  {shown} shown" if beyond and shown else "")
            found = [Text(title, "bold reverse")]
            found += laid_out(self.columns, self.rows[:shown], width) if shown else ()
            if most is None or len(found) <= most:
                return found
        return found[:most]


def _page(seen: Seen, width: int, height: int | None = None, note: str = "") -> Group:
    """Return the view, cut to `height` if given: small parts are complete, and large ones share the remaining lines."""
    from rich.console import Group
    from rich.text import Text

    from ..output.times import moment

    told = ", ".join(f"{count:,} {status}" for status, count in seen.counts.items() if count) or "no runs"
    head = Text.assemble((f"{seen.namespace}  {moment(seen.at)}  ", "bold"), told)
    if note:
        head = Text(note, "bold red")
    parts = [
        _workers(seen.workers),
        _agents(seen.agents),
        _approvals(seen),
        _runs(seen, whole=height is None),
    ]
    if height is None:
        return Group(head, *(line for part in parts for line in part.lines(width, None)))
    head.truncate(width)
    asked = {n: len(part.lines(width, None)) for n, part in enumerate(parts)}
    left, room = height - 1, dict[int, int]()
    for number, n in enumerate(sorted(asked, key=lambda n: asked[n])):
        room[n] = min(asked[n], left // (len(parts) - number))
        left -= room[n]
    lines = [line for n, part in enumerate(parts) for line in part.lines(width, room[n])]
    for line in lines:
        line.no_wrap = True
    return Group(head, *lines[: height - 1])


def _columns(*names: str, cut: str = "", leaving: Sequence[str] = (), below: str = "") -> list[Column]:
    """Return columns: those in `leaving` are dropped in that order, those in `cut` may be cut."""
    from ..output.tables import Column

    leaves = {name: number for number, name in enumerate(leaving, start=1)}
    return [
        Column(name, leaves=leaves.get(name, 0), cut=name in cut.split(), below=name == below)
        for name in names
    ]


def _workers(rows: Sequence[WorkerRow]) -> _Part:
    from ..output.escaping import one_line

    columns = _columns(
        "worker", "runs", "last sign", "build", "serves", cut="worker serves", leaving=("build", "last sign")
    )
    cells: list[list[Cell]] = []
    for row in rows:
        runs = f"{len(row.drives)} of {row.concurrency}" if row.serves else str(len(row.drives))
        sign = f"{row.silent_s:.1f} s" if row.drives else ""
        told = (one_line(row.worker), runs, sign, one_line(row.build or row.release))
        serves = one_line(", ".join(row.serves))
        cells.append([*told, f"nothing more: it drains ({serves})" if row.draining else serves])
    return _Part("Workers", columns, cells, len(rows))


def _agents(rows: Sequence[AgentRow]) -> _Part:
    from ..output.escaping import one_line

    columns = _columns("agent", "queued", "driven", "parked", "wake-ups", "workers", cut="agent")
    cells: list[list[Cell]] = [
        [
            one_line(row.agent),
            *map(str, (row.queued, row.driven, row.parked, row.wakeups, len(row.workers))),
        ]
        for row in rows
    ]
    return _Part("Queue", columns, cells, len(rows))


def _approvals(seen: Seen) -> _Part:
    """Return the table of pending approvals. The run's id is always complete, if necessary below the row."""
    from ..output.escaping import one_line
    from ..output.times import moment

    columns = _columns("approval", "kind", "tool", "requested", "run", cut="tool", leaving=("kind",))
    cells: list[list[Cell]] = [
        [
            row.approval_id,
            row.kind,
            one_line(row.tool_name) or f"({row.kind})",
            moment(row.requested_at),
            row.run_id,
        ]
        for row in seen.approvals[:RUNS_SHOWN]
    ]
    return _Part("Approvals", columns, cells, len(seen.approvals))


def _runs(seen: Seen, *, whole: bool) -> _Part:
    """Return the table of open runs; with `whole`, their reasons are complete, if necessary below the rows."""
    from ....projections.run_list import OPEN
    from ..output.escaping import one_line
    from ..output.tables import Id

    columns = _columns(
        *("run", "agent", "status", "steps", "why"),
        cut="agent" if whole else "agent why",
        leaving=("steps", "agent"),
        below="why" if whole else "",
    )
    cells: list[list[Cell]] = [
        [
            Id(row.run_id, seen.ends.get(row.run_id, row.run_id), below=row.run_id != row.root_id),
            one_line(row.agent),
            row.status,
            str(row.steps),
            one_line(seen.whys[row.run_id].sentence) if row.run_id in seen.whys else "",
        ]
        for row in seen.runs
    ]
    return _Part("Open runs", columns, cells, sum(seen.counts[status] for status in OPEN))
