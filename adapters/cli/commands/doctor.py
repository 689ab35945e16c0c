"""`foldlog doctor`: check that everything runs need is there, and configured as the guarantees require."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..exits import NO, OK
from ..options import Json
from ..settings import Settings, settings_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ..checks import Check
    from ..output.terminal import Screen

_MARKS = {"ok": ("✓", "green"), "unknown": ("?", "yellow"), "wrong": ("✗", "bold red")}


def doctor(
    context: typer.Context,
    *,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="Wake every run that should be driven and has been idle for three leases."
        ),
    ] = False,
    cluster: Annotated[
        bool,
        typer.Option("--cluster", help="Check replicas, leaders, sizes, sync and space of the servers, too."),
    ] = False,
    monitor: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL", help="Monitoring of a server, for --cluster: http://host:8222. Repeatable."
        ),
    ] = None,
    json: Json = False,
) -> int:
    """Check this machine, the server and the log's streams. Exit 1 if something is wrong."""
    from ..loops import run_async

    if monitor and not cluster:
        raise typer.BadParameter("it belongs to --cluster", param_hint="--monitor")
    monitors = monitor or [] if cluster else None
    return run_async(_doctor(settings_of(context), monitors, repair=repair, json=json))


async def _doctor(  # noqa: C901 - one finding after the other
    settings: Settings, monitors: list[str] | None, *, repair: bool, json: bool
) -> int:
    import dataclasses

    from ....eventlog.errors import LogCorrupted, LogUnavailable
    from ..checks import Check, all_checks
    from ..fleet import Fleet
    from ..output.records import show_logs
    from ..output.terminal import Screen
    from ..repair import wake_idle_runs

    show_logs()
    screen, found = Screen(settings), list[Check]()
    fleet: Fleet | None = None

    def note(check: Check) -> None:
        found.append(check)
        if not json:
            _tell(screen, check)

    async for check in all_checks(settings):
        note(check)
    blocked = any(check.state == "wrong" and check.name != "losses" for check in found)
    # Only then there is a namespace, and it can be read.
    if not blocked and any(check.name == "losses" for check in found):
        try:
            fleet = await Fleet.of(settings)
        except LogUnavailable as error:  # such as during an election
            note(Check(name="worker", state="wrong", detail=str(error), remedy="try again"))
        except LogCorrupted as error:
            detail = f"no list of runs can be read: {error}"
            note(Check(name="runs", state="wrong", detail=detail, remedy=f"foldlog runs delete {error.run}"))
        for check in fleet.checks() if fleet is not None else ():
            note(check)
    async for check in _of_cluster(settings, monitors):
        note(check)
    healthy = all(check.state != "wrong" for check in found)
    woken = [run async for run in wake_idle_runs(settings)] if repair and not blocked else []
    if json:
        checks = [dataclasses.asdict(check) for check in found]
        drivers = {"workers": [], "waiting": []} if fleet is None else fleet.document()
        screen.json({"healthy": healthy, "checks": checks, **drivers, "woken": woken})
    else:
        for run in woken:
            screen.tell(f"woken: run {run}")
        if repair and blocked:
            screen.say("nothing was repaired: first fix the problems above")
    return OK if healthy else NO


async def _of_cluster(settings: Settings, monitors: list[str] | None) -> AsyncIterator[Check]:
    """Yield the findings of `--cluster`, if it was asked for."""
    if monitors is not None:
        from ..cluster import cluster_checks

        async for check in cluster_checks(settings, monitors):
            yield check


def _tell(screen: Screen, check: Check) -> None:
    mark, style = _MARKS[check.state]
    screen.tell((f"{mark} ", style), (f"{check.name:<12} ", "bold"), check.detail)
    if check.remedy:
        screen.tell(f"  {'':<12} ", (f"→ {check.remedy}", style))
