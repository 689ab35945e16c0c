"""Commands for many runs: select them, limit the rate, and report the outcome of each.

Each run gets an idempotent command of its own. So an interrupted bulk command can be repeated without doing anything
twice, and a failure of one run does not affect the others.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import inspect
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from .commands.listing import Filters, families_of, tell_runs
from .exits import NO, OK
from .loops import Interruption, interruption
from .opening import run_named
from .output.terminal import Screen

if TYPE_CHECKING:
    from ...projections.run_list import RunRow
    from ...runtime import Runtime

AT_ONCE_MAX = 8
NOT_BEGUN = {"error": "not begun"}
BROKEN_OFF = {"error": "broken off: it may have been done"}
"""The documents of runs that a command did not come to, or was busy with, when it ended early."""
_RATE = re.compile(r"([1-9]\d{0,5})/([smh])")
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0}
_OPTIONS: dict[str, Any] = {
    "everything": (
        Annotated[bool, typer.Option("--all", help="Select all runs, without a filter.")],
        False,
    ),
    "limit": (
        Annotated[int | None, typer.Option(metavar="N", min=1, help="At most so many runs, newest first.")],
        None,
    ),
    "rate": (
        Annotated[str | None, typer.Option(metavar="RATE", help="At most so many in a time: 10/s, 60/m.")],
        None,
    ),
    "dry_run": (Annotated[bool, typer.Option("--dry-run", help="Only show the selected runs.")], False),
    "json": (Annotated[bool, typer.Option("--json", help="Print one JSON document.")], False),
}
"""The options of a bulk command, by the fields of `Bulk`, with their defaults."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bulk:
    """The options of a bulk command."""

    everything: bool = False
    limit: int | None = None
    rate: str | None = None
    dry_run: bool = False
    json: bool = False

    @property
    def interval_s(self) -> float:
        """The seconds between two runs. Raises `typer.BadParameter`."""
        if self.rate is None:
            return 0.0
        found = _RATE.fullmatch(self.rate)
        if found is None:
            raise typer.BadParameter(f"a rate is written 10/s, 60/m or 100/h, not {self.rate!r:.40}")
        return _UNITS_S[found[2]] / int(found[1])


def in_bulk(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command the options of bulk commands; it receives them as `bulk`."""

    @functools.wraps(command)
    def with_bulk(*args: Any, **given: Any) -> int:
        return command(*args, bulk=Bulk(**{name: given.pop(name) for name in _OPTIONS}), **given)

    signature = inspect.signature(command, eval_str=True)
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in _OPTIONS.items()
    ]
    own = [parameter for parameter in signature.parameters.values() if parameter.name != "bulk"]
    with_bulk.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
    with_bulk.__annotations__ = {each.name: each.annotation for each in [*own, *added]}
    return with_bulk


@dataclasses.dataclass(frozen=True, kw_only=True)
class Done:
    """The outcome for one run: a sentence, its JSON document, and the exit code if it were the only run."""

    run_id: str
    words: str
    document: dict[str, Any]
    code: int = OK
    more: Sequence[str] = ()
    """Further lines."""


async def selected(
    runtime: Runtime,
    run: str | None,
    filters: Filters,
    bulk: Bulk,
    action: Literal["cancel", "resume", "retry"],
) -> list[RunRow]:
    """Return the named run, whatever its state, or the runs that the filters select for this action; no erased ones.

    Raises `typer.BadParameter` unless exactly one of a run and filters is given.
    """
    _ = bulk.interval_s  # refuse an invalid rate before searching
    if (run is None) != (filters.given or bulk.everything):
        raise typer.BadParameter("give a RUN, or select runs by options (not both); --all selects all runs")
    from ...projections.run_list import is_meant

    index = await runtime.index()
    if run is not None:
        return [await index.run(await run_named(runtime, run))]
    found = await index.runs(**await filters.query(runtime), buried=False, limit=-1)
    rows = [row for row in found if is_meant(row, action, filters.status)]
    return rows if bulk.limit is None else rows[: bulk.limit]


async def carry_out(
    runs: Sequence[str], do: Callable[[str], Awaitable[Done]], bulk: Bulk, screen: Screen, *, single: bool
) -> int:
    """Call `do` for each run, print each outcome as it arrives, and return the exit code.

    An error of one run is told and does not stop the others. With `--json` all are told at the end, in order. A signal,
    or the loss of the log, ends the command: what was done until then is told, and what was not.
    """
    from ...eventlog.errors import FoldlogError, LogUnavailable

    free, interval_s = asyncio.Semaphore(AT_ONCE_MAX), bulk.interval_s
    begun, found = set[str](), dict[str, Done]()

    async def one(number: int, run: str) -> None:
        await asyncio.sleep(number * interval_s)
        await free.acquire()  # one that ends the command does not give it back: no other begins
        begun.add(run)
        try:
            done = await do(run)
        except FoldlogError as error:
            if single or isinstance(error, LogUnavailable):
                raise
            done = Done(run_id=run, words=f"failed: {error}", document={"error": str(error)}, code=NO)
        if not bulk.json:
            tell(screen, done)
        found[run] = done
        free.release()

    with interruption() as interrupted:
        failure = await _until_over([one(number, run) for number, run in enumerate(runs)], interrupted)
    if failure is not None and single:
        raise failure
    left = {run: BROKEN_OFF if run in begun else NOT_BEGUN for run in runs if run not in found}
    if bulk.json:
        documents = [{"run_id": run, **(found[run].document if run in found else left[run])} for run in runs]
        screen.json(documents[0] if single else documents)
    if left and not single:
        _tell_left(screen, len(found), list(left.values()))
    if failure is not None:
        raise failure
    codes = {each.code for each in found.values()}
    return interrupted.code if left else NO if NO in codes else max(codes, default=NO)


def _tell_left(screen: Screen, done: int, left: Sequence[dict[str, str]]) -> None:
    broken_off, not_begun = left.count(BROKEN_OFF), left.count(NOT_BEGUN)
    screen.say(
        f"ended early: {done} of {done + len(left)} runs done, {broken_off} broken off, {not_begun} not begun; "
        "repeat the command, it does nothing twice"
    )


async def _until_over(
    doing: Iterable[Coroutine[Any, Any, None]], interrupted: Interruption
) -> BaseException | None:
    """Wait until all is done, one of them fails, or a signal comes; then end the others. Return what failed first."""
    tasks = [asyncio.create_task(each) for each in doing]
    signalled = asyncio.create_task(interrupted.wait())
    every: asyncio.Future[Any] = asyncio.gather(*tasks)
    try:
        await asyncio.wait([every, signalled], return_when=asyncio.FIRST_COMPLETED)
        return every.exception() if every.done() else None
    finally:
        for task in (*tasks, signalled):
            task.cancel()
        await asyncio.gather(every, *tasks, signalled, return_exceptions=True)


def tell(screen: Screen, done: Done) -> None:
    """Print the outcome for one run."""
    from .output.escaping import one_line

    screen.tell(f"run {done.run_id}: {one_line(done.words)}")
    for line in done.more:
        screen.tell(f"    {line}")


async def show(runtime: Runtime, screen: Screen, runs: Sequence[str], what: str, *, json: bool) -> int:
    """Print the selected runs without changing them."""
    index = await runtime.index()
    lines = await families_of(index, runs)
    if json:
        screen.json([{"run_id": run} for run in runs])
    elif lines:
        await tell_runs(screen, index, lines)
        screen.say(f"{len(runs)} run{'' if len(runs) == 1 else 's'} {what}")
    else:
        screen.say("no matching runs")
    return OK if runs else NO
