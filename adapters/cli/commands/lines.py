"""`foldlog slots`, `lanes` and `budgets`: which runs are active, which wait for their turn, and what may be spent."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import typer

from ..exits import NO, OK
from ..options import Json
from ..settings import Settings, settings_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from ....runtime.operating.rows import BudgetRow

slots = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Show the slots of agents, tools and limits."
)
lanes = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Show the lanes of sessions.")

budgets = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Show the budgets of the namespace.")


@slots.callback()
def _slots() -> None:
    pass


@lanes.callback()
def _lanes() -> None:
    pass


@budgets.callback()
def _budgets() -> None:
    pass


@slots.command("list")
def list_slots(context: typer.Context, *, json: Json = False) -> int:
    """List the slots that are held or waited for: by which runs, and which of their calls."""
    from ..loops import run_async

    return run_async(_list_slots(settings_of(context), json=json))


@slots.command("clear")
def clear_slots(context: typer.Context, *, json: Json = False) -> int:
    """Remove entries of ended runs from slots. They block no run, but are listed.

    A limit that is no longer configured disappears after its last run has ended. Exit 1 if there is nothing to remove.
    """
    from ..loops import run_async

    return run_async(_clear_slots(settings_of(context), json=json))


async def _clear_slots(settings: Settings, *, json: bool) -> int:
    from ..opening import opened
    from ..output.escaping import one_line
    from ..output.terminal import Screen

    screen = Screen(settings)
    async with opened(settings) as runtime:
        found = await runtime.operations.clear_slots()
    if json:
        screen.json([{"name": name, "runs": runs} for name, runs in found.items()])
    elif not found:
        screen.say("no run that is over is left in a slot")
    else:
        for name, runs in found.items():
            screen.tell(f"{one_line(name)}: removed {', '.join(runs)}")
    return OK if found else NO


@lanes.command("list")
def list_lanes(context: typer.Context, *, json: Json = False) -> int:
    """List the lanes with open runs: the one whose turn it is, and those after it."""
    from ..loops import run_async

    return run_async(_list_lanes(settings_of(context), json=json))


@budgets.command("list")
def list_budgets(context: typer.Context, *, json: Json = False) -> int:
    """List what is spent of the project's budgets in their present periods, and what is left.

    Without a configuration: what the processes that drive runs have counted.
    """
    from ..loops import run_async

    return run_async(_list_budgets(settings_of(context), json=json))


async def _list_slots(settings: Settings, *, json: bool) -> int:
    import msgspec

    from ..opening import opened
    from ..output.escaping import one_line
    from ..output.tables import Column
    from ..output.terminal import Screen
    from ..output.times import moment

    screen = Screen(settings)
    async with opened(settings) as runtime:
        rows = await runtime.operations.slots(_configured())
    if json:
        screen.json([msgspec.to_builtins(row) for row in rows])
    elif not rows:
        screen.say("no slots are held or waited for")
    else:
        lines = [
            [
                one_line(row.name),
                "" if at else f"{len(row.holders)} of {row.places}" if row.places else str(len(row.holders)),
                what,
                each.run_id,
                one_line(each.tool or each.call),
                moment(each.since) if each.since else "",
            ]
            for row in rows
            for at, (what, each) in enumerate(
                [*(("holds", h) for h in row.holders), *(("waits", w) for w in row.waiting)]
            )
        ]
        columns = (
            Column("slot", cut=True, again=True),
            Column("held"),
            Column("what"),
            Column("run"),
            Column("call", cut=True, leaves=1),
            Column("since"),
        )
        screen.table(columns, lines)
        for row in rows:
            if row.configured is False:
                screen.say(f"{one_line(row.name)} is no longer configured; see: foldlog slots clear")
    return OK


def _configured() -> Collection[str] | None:
    """Return the limits of the project; None if its configuration is invalid, which must not prevent listing."""
    from ....eventlog.errors import ConfigError
    from ....runtime.driving.namespace import project_limits

    try:
        return project_limits(None)
    except ConfigError:
        return None


async def _list_lanes(settings: Settings, *, json: bool) -> int:
    import msgspec

    from ..opening import opened
    from ..output.escaping import one_line
    from ..output.tables import Column
    from ..output.terminal import Screen
    from ..output.times import moment

    screen = Screen(settings)
    async with opened(settings) as runtime:
        rows = await runtime.operations.lanes()
    if json:
        screen.json([msgspec.to_builtins(row) for row in rows])
    elif not rows:
        screen.say("no lane has open runs")
    else:
        lines = [
            [one_line(row.lane), str(place), run.run_id, one_line(run.agent), run.status, moment(run.since)]
            for row in rows
            for place, run in enumerate(row.runs, 1)
        ]
        columns = (
            Column("lane", cut=True, again=True),
            Column("place"),
            Column("run"),
            Column("agent", cut=True, leaves=1),
            Column("status"),
            Column("since"),
        )
        screen.table(columns, lines)
    return OK


async def _list_budgets(settings: Settings, *, json: bool) -> int:
    import msgspec

    from ....runtime.core.shared_budgets import told_at
    from ....runtime.driving.namespace import project_budgets
    from ..opening import opened
    from ..output.escaping import one_line
    from ..output.tables import Column
    from ..output.terminal import Screen

    screen = Screen(settings)
    configured = project_budgets(None)
    async with opened(settings) as runtime:
        rows = (await runtime.operations.budgets(configured)).page()
    if json:
        screen.json([msgspec.to_builtins(row) for row in rows])
    elif not rows:
        screen.say("nothing is spent of any budget" if configured else "the project has no [budgets]")
    else:
        lines = [
            [
                one_line(row.owner),
                row.amount or "unknown",
                _amounts(row, row.cost_usd, row.tokens),
                _amounts(row, row.left_usd, row.left_tokens),
                str(row.calls),
                "" if row.until is None else told_at(row.until, row.time_zone),
            ]
            for row in rows
        ]
        heads = (Column("budget"), Column("amount"), Column("spent"), Column("left"), Column("calls"))
        screen.table((*heads, Column("until", leaves=1)), lines)
    return OK


def _amounts(row: BudgetRow, cost_usd: str | None, tokens: int | None) -> str:
    """Return the amounts that the budget limits, or all amounts if its limits are unknown here."""
    shown = []
    if cost_usd is not None and (row.left_usd is not None or not row.amount):
        shown.append(f"{Decimal(cost_usd):,f} USD")
    if tokens is not None and (row.left_tokens is not None or not row.amount):
        shown.append(f"{tokens:,} tokens")
    return " and ".join(shown)
