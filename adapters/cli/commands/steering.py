"""`foldlog runs cancel` and `runs resume`, for one run or all that the filters of `runs list` select."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import typer

from ..exits import NO, OK, PAUSED
from ..opening import opened, run_named
from ..output.terminal import Screen
from ..settings import Settings
from .listing import Filters, families_of, tell_runs

if TYPE_CHECKING:
    from ....projections.pending import Pending
    from ....projections.run_list import RunRow
    from ....runtime import Runtime

AT_ONCE_MAX = 8
T = TypeVar("T")


async def cancel_runs(
    settings: Settings, run: str | None, filters: Filters, reason: str, by: str, *, dry_run: bool, json: bool
) -> int:
    """Cancel the selected runs, and return the exit code."""
    _check(run, filters)
    screen = Screen(settings)
    async with opened(settings) as runtime:
        rows = await _meant(runtime, run, filters, lambda row: not row.over)
        above = {row.run_id for row in rows}
        meant = [row.run_id for row in rows if not above & {row.parent, row.root_id} - {row.run_id}]
        if dry_run or not meant:
            return await _show(runtime, screen, meant, "would be cancelled", json=json)
        found = await _each(meant, lambda each: runtime.get_run(each).cancel(reason, by=by))
    documents = [{"run_id": each, "found": answer} for each, answer in zip(meant, found, strict=True)]
    if json:
        screen.json(documents[0] if run is not None else documents)
    else:
        for document in documents:
            screen.tell(f"run {document['run_id']}: {document['found'].replace('_', ' ')}")
    return OK if all(answer.endswith("cancelled") for answer in found) else NO


async def resume_runs(
    settings: Settings, run: str | None, filters: Filters, *, dry_run: bool, json: bool
) -> int:
    """Resume the selected runs, and return the exit code."""
    import msgspec

    _check(run, filters)
    screen = Screen(settings)
    async with opened(settings) as runtime:
        rows = await _meant(runtime, run, filters, lambda row: row.status == "paused")
        meant = [row.run_id for row in rows]
        if dry_run or not meant:
            return await _show(runtime, screen, meant, "would be resumed", json=json)

        async def resumed(each: str) -> Pending:
            handle = runtime.get_run(each)
            await handle.resume()
            return await handle.pending()

        found = await _each(meant, resumed)
    told = list(zip(meant, found, strict=True))
    if json:
        documents = [{"run_id": each, **msgspec.to_builtins(pending)} for each, pending in told]
        screen.json(documents[0] if run is not None else documents)
    else:
        for each, pending in told:
            _tell_resumed(screen, settings, each, pending)
    return OK if all(pending.paused is None for pending in found) else PAUSED


def _tell_resumed(screen: Screen, settings: Settings, run: str, pending: Pending) -> None:
    from ..output.views import answers_to

    if pending.paused is None:
        screen.tell(f"run {run}: resumed")
        return
    screen.tell(f"run {run}: still paused ({pending.paused}); to continue it")
    for approval in pending.approvals:
        for answer in answers_to(settings, approval.approval_id, approval.kind, approval.arguments):
            screen.tell(f"    {answer}")


def _check(run: str | None, filters: Filters) -> None:
    if (run is None) != filters.given:
        raise typer.BadParameter("give a RUN, or select runs by options (not both)")


async def _meant(
    runtime: Runtime, run: str | None, filters: Filters, can: Callable[[RunRow], bool]
) -> list[RunRow]:
    """Return the named run in any state, or the runs that the filters select and that satisfy `can`."""
    index = await runtime.index()
    if run is not None:
        return [await index.run(await run_named(runtime, run))]
    return [row for row in await index.runs(**await filters.query(runtime), limit=-1) if can(row)]


async def _each(runs: Sequence[str], do: Callable[[str], Awaitable[T]]) -> list[T]:
    """Do it with each run, `AT_ONCE_MAX` at a time."""
    free = asyncio.Semaphore(AT_ONCE_MAX)

    async def one(run: str) -> T:
        async with free:
            return await do(run)

    return list(await asyncio.gather(*map(one, runs)))


async def _show(runtime: Runtime, screen: Screen, runs: Sequence[str], what: str, *, json: bool) -> int:
    """Print the selected runs, and leave them alone."""
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
