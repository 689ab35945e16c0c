"""`foldlog doctor`: check that everything runs need is there, and configured as the guarantees require."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..exits import NO, OK
from ..options import Json
from ..settings import Settings, settings_of

if TYPE_CHECKING:
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
    json: Json = False,
) -> int:
    """Check this machine, the server and the log's streams. Exit 1 if something is wrong."""
    from ..loops import run_async

    return run_async(_doctor(settings_of(context), repair=repair, json=json))


async def _doctor(settings: Settings, *, repair: bool, json: bool) -> int:
    import dataclasses

    from ..checks import all_checks
    from ..fleet import Fleet
    from ..output.records import show_logs
    from ..output.terminal import Screen
    from ..repair import wake_idle_runs

    show_logs()
    screen, found = Screen(settings), []
    async for check in all_checks(settings):
        found.append(check)
        if not json:
            _tell(screen, check)
    blocked = any(check.state == "wrong" and check.name != "losses" for check in found)
    fleet = None
    if not blocked and any(
        check.name == "losses" for check in found
    ):  # there is a namespace, and it can be read
        fleet = await Fleet.of(settings)
        for check in fleet.checks():
            found.append(check)
            if not json:
                _tell(screen, check)
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


def _tell(screen: Screen, check: Check) -> None:
    mark, style = _MARKS[check.state]
    screen.tell((f"{mark} ", style), (f"{check.name:<12} ", "bold"), check.detail)
    if check.remedy:
        screen.tell(f"  {'':<12} ", (f"→ {check.remedy}", style))
