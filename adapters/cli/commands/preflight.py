"""`foldlog preflight`: check a release against what is open, before it is deployed."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated

import typer

from ..exits import NO, OK
from ..options import Json
from ..settings import Settings, settings_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from ....projections.run_list import RunRow
    from ....runtime import Registry, Runtime
    from ....runtime.executors.preflight import Misfit, Preflight
    from ..output.terminal import Screen


def preflight(
    context: typer.Context,
    path: Annotated[str, typer.Argument(metavar="MODULE:REGISTRY", help="Registry of the new release.")],
    *,
    json: Json = False,
) -> int:
    """Check whether workers of a registry could go on with everything that is open. Changes nothing.

    Checks open runs of workers as a worker does before it claims one, runs the code of open workflows over their logs,
    without an effect, and checks the agents of schedules and hooks.
    Exit 1 if a run, schedule or hook does not fit.
    """
    from ..loops import run_async

    settings = settings_of(context)
    if settings.in_memory:
        raise typer.BadParameter("nothing is open in the memory of this process: choose another --server")
    return run_async(_preflight(settings, path, json=json))


async def _preflight(settings: Settings, path: str, *, json: bool) -> int:
    import msgspec

    from ....runtime.executors.preflight import Preflight
    from ..loading import load_registry
    from ..opening import opened
    from ..output.terminal import Screen

    screen, registry = Screen(settings), load_registry(path)
    async with opened(settings) as runtime:
        check = Preflight(runtime.log, registry)
        rows = await _runs_of_workers(runtime)
        async for misfit in check.runs(rows):
            _tell(screen, misfit, json=json)
        async for misfit in _changed_code(runtime, registry, rows, {each.name for each in check.misfits}):
            check.misfits.append(misfit)
            _tell(screen, misfit, json=json)
        async for misfit in check.schedules():
            _tell(screen, misfit, json=json)
        for name, agent in _hooks():
            for misfit in check.hook(name, agent):
                _tell(screen, misfit, json=json)
    if json:
        misfits = [msgspec.structs.asdict(each) for each in check.misfits]
        screen.json({"fits": not misfits, "checked": check.checked, "misfits": misfits})
    else:
        screen.say(_summary(check))
    return NO if check.misfits else OK


async def _changed_code(
    runtime: Runtime, registry: Registry, rows: list[RunRow], named: set[str]
) -> AsyncIterator[Misfit]:
    """Yield the open workflows whose code does not fit their logs, except for runs that were `named` already."""
    from ....eventlog.errors import LogCorrupted, RunGone, RunNotFound
    from ....replay import load_trace
    from ....replay.replaying.code_check import check_code
    from ....runtime.executors.preflight import Misfit
    from .workflows import reason_of

    for row in rows:
        if row.run_id in named:
            continue
        with contextlib.suppress(RunGone, RunNotFound, LogCorrupted):  # reported already, or gone by now
            for found in check_code(await load_trace(runtime.log, row.run_id), registry, ended=False).misfits:
                yield Misfit("run", found.run, found.agent, reason_of(found))


async def _runs_of_workers(runtime: Runtime) -> list[RunRow]:
    """Return the open roots that workers drive, or an executor that is not installed here, oldest first."""
    from ..fleet import open_roots

    rows = await open_roots(runtime)
    known = {name: runtime.known_executor(name) for name in {row.executor for row in rows}}
    elsewhere = {name for name, executor in known.items() if executor and executor.runs_in != "workers"}
    return [row for row in rows if row.executor not in elsewhere]


def _hooks() -> Iterator[tuple[str, str]]:
    """Yield the names and agents of the project's hooks that start runs. Raises `ConfigError`."""
    from ...configuration.event_hooks import load_event_hooks
    from ...http.hooks import hook_tables

    for hook in load_event_hooks():
        yield hook.name, hook.agent
    for name, table in hook_tables().tables.items():
        if isinstance(table, dict) and isinstance(table.get("agent"), str):
            yield name, table["agent"]


def _tell(screen: Screen, misfit: Misfit, *, json: bool) -> None:
    from ..output.escaping import one_line

    if not json:
        of = f" of {misfit.agent}" if misfit.kind == "run" else ""
        screen.tell((f"{misfit.kind} {misfit.name}{of}: ", "bold red"), one_line(misfit.reason))


def _summary(check: Preflight) -> str:
    counts = ", ".join(f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in check.checked.items())
    wrong = len(check.misfits)
    return f"checked {counts}: " + (f"{wrong} would not go on with this registry" if wrong else "all fit")
