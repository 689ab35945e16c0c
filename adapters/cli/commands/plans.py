"""`foldlog plans`: standing plans, which runs of agents follow and update."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from ..exits import OK
from ..options import By, FromVersion, Json
from ..settings import Settings, settings_of

if TYPE_CHECKING:
    from ....eventlog.events import PlanStatus
    from ....runtime.shared.plans import PlanVersion

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the plan.")]
app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Keep standing plans, which runs of agents follow and update.",
)


@app.command()
def save(
    context: typer.Context,
    paths: Annotated[
        list[str],
        typer.Argument(metavar="FILE...", help="TOML or JSON files, of one plan each: name, goal, steps."),
    ],
    *,
    from_: FromVersion = None,
    note: Annotated[str, typer.Option(metavar="TEXT", help="Why it is changed.")] = "",
    by: By = "",
    json: Json = False,
) -> int:
    """Store the plans of files, each as its next version, if it has changed.

    A step that is only a text keeps the status that a step with this text has.
    """
    from ..loops import run_async

    return run_async(_save(settings_of(context), paths, from_, note, by, json=json))


@app.command("list")
def list_(context: typer.Context, *, json: Json = False) -> int:
    """List the plans with their last versions."""
    from ..loops import run_async

    return run_async(_list(settings_of(context), json=json))


@app.command()
def show(
    context: typer.Context,
    name: Name,
    *,
    version: Annotated[
        int | None, typer.Option("--version", metavar="N", min=1, help="This version; default: the last one.")
    ] = None,
    json: Json = False,
) -> int:
    """Show a plan, and who changed it and when."""
    from ..loops import run_async

    return run_async(_show(settings_of(context), name, version, json=json))


@app.command()
def step(
    context: typer.Context,
    name: Name,
    step: Annotated[str, typer.Argument(metavar="STEP", help="Id of the step.")],
    status: Annotated[str, typer.Argument(metavar="STATUS", help="pending, in_progress or completed.")],
    *,
    note: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What came of it; default: as it is.")
    ] = None,
    by: By = "",
) -> int:
    """Set the status of a step."""
    from ..loops import run_async

    return run_async(_step(settings_of(context), name, step, status, note, by))


@app.command()
def remove(context: typer.Context, name: Name, *, from_: FromVersion = None, by: By = "") -> int:
    """Remove a plan. Its versions stay; runs that are configured to follow it end with an error."""
    from ..loops import run_async

    return run_async(_remove(settings_of(context), name, from_, by))


async def _save(
    settings: Settings, paths: list[str], from_: int | None, note: str, by: str, *, json: bool
) -> int:
    from ....eventlog.errors import ConfigError
    from ..actors import operator
    from ..agent_files import read_table
    from ..opening import opened
    from ..output.escaping import one_line
    from ..output.terminal import Screen

    screen = Screen(settings)
    saved: list[PlanVersion] = []
    async with opened(settings) as runtime:
        for path in paths:
            table = read_table(path)
            unknown = sorted(set(table) - {"name", "goal", "steps", *_TOLD})
            if unknown or not {"name", "steps"} <= set(table):
                what = f"unknown key {unknown[0]!r}" if unknown else "it has no name, or no steps"
                raise ConfigError(f"{path}: {what}; a plan has name, goal and steps")
            saved.append(
                await runtime.plans.save(
                    table["name"],
                    table["steps"],
                    goal=table.get("goal", ""),
                    version=from_,
                    note=note,
                    by=operator(by),
                )
            )
            if not json:
                found = saved[-1]
                screen.tell(("✓ ", "green"), f"{one_line(path)}: plan {found.name}, version {found.version}")
    if json:
        screen.json([_plain(each) for each in saved])
    return OK


_TOLD = frozenset(
    ("version", "status", "removed", "note", "by", "via", "request_id", "run", "call", "at", "changes")
)
"""The other keys of `plans show --json`, so that its output can be saved again."""


def _plain(plan: PlanVersion) -> dict[str, Any]:
    import msgspec

    found: dict[str, Any] = msgspec.to_builtins(plan)
    return found


async def _list(settings: Settings, *, json: bool) -> int:
    from ..opening import opened
    from ..output.escaping import one_line
    from ..output.tables import Column
    from ..output.terminal import Screen
    from ..output.times import moment

    screen = Screen(settings)
    async with opened(settings) as runtime:
        rows = await runtime.plans.list()
    if json:
        screen.json([_plain(row) for row in rows])
    elif not rows:
        screen.say("no standing plans: save one with foldlog plans save FILE")
    else:
        columns = (
            Column("plan"),
            Column("version"),
            Column("status"),
            Column("done"),
            Column("changed"),
            Column("by", cut=True, leaves=1),
            Column("goal", below=True),
        )
        screen.table(
            columns,
            [
                [
                    row.name,
                    str(row.version),
                    row.status,
                    _done(row),
                    moment(row.at),
                    one_line(row.by),
                    one_line(row.goal),
                ]
                for row in rows
            ],
        )
    return OK


def _done(plan: PlanVersion) -> str:
    return f"{sum(each.status == 'completed' for each in plan.steps)}/{len(plan.steps)}"


async def _show(settings: Settings, name: str, version: int | None, *, json: bool) -> int:
    from ..opening import opened
    from ..output.escaping import one_line
    from ..output.tables import Column
    from ..output.terminal import Screen
    from ..output.times import moment

    screen = Screen(settings)
    async with opened(settings) as runtime:
        changes = await runtime.plans.versions(name)
        row = await runtime.plans.get(name, changes[-1].version if version is None else version)
    if json:
        screen.json({**_plain(row), "changes": [_plain(each) for each in changes]})
        return OK
    screen.field("plan", f"{row.name}, version {row.version}{' (removed)' if row.removed else ''}", 6)
    screen.field("status", row.status, 6)
    if row.goal:
        screen.field("goal", one_line(row.goal), 6)
    screen.tell("")
    screen.table(
        (Column("step"), Column("status"), Column("text", cut=True, again=True), Column("note", below=True)),
        [[each.id, each.status, one_line(each.text), one_line(each.note)] for each in row.steps],
    )
    screen.tell("")
    columns = (
        Column("version"),
        Column("done"),
        Column("at"),
        Column("by", cut=True),
        Column("via"),
        Column("run", cut=True, leaves=1),
        Column("note", below=True),
    )
    screen.table(
        columns,
        [
            [
                str(each.version),
                "removed" if each.removed else _done(each),
                moment(each.at),
                one_line(each.by),
                each.via,
                each.run,
                one_line(each.note),
            ]
            for each in reversed(changes)
        ],
    )
    return OK


async def _step(settings: Settings, name: str, step: str, status: str, note: str | None, by: str) -> int:
    from ..actors import operator
    from ..opening import opened
    from ..output.terminal import Screen

    async with opened(settings) as runtime:
        found = await runtime.plans.set_step(
            name, step, cast("PlanStatus", status), note=note, by=operator(by)
        )
    Screen(settings).tell(f"plan {found.name}, version {found.version}: step {step} is {status}")
    return OK


async def _remove(settings: Settings, name: str, from_: int | None, by: str) -> int:
    from ..actors import operator
    from ..opening import opened
    from ..output.terminal import Screen

    async with opened(settings) as runtime:
        await runtime.plans.remove(name, version=from_, by=operator(by))
    Screen(settings).tell(f"plan {name}: removed")
    return OK
