"""`foldlog workflows`: show the plan of a table, and check code against the runs that it would go on with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..exits import NO, OK
from ..options import Json
from ..settings import Settings, settings_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ....replay import Trace
    from ....replay.replaying.code_check import CodeMisfit
    from ....runtime.agents.workflow.plan import PlannedStep
    from ..output.terminal import Screen

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Plan workflows, and check their code.")


@app.callback()
def _noun() -> None:
    """Plan workflows, and check their code."""


@app.command()
def check(
    context: typer.Context,
    path: Annotated[str, typer.Argument(metavar="MODULE:REGISTRY", help="Registry with the code to check.")],
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE]...", help="Exported runs; without, the open runs of the log."),
    ] = None,
    *,
    json: Json = False,
) -> int:
    """Run the code of workflows again over the logs of their runs, without an effect.

    Checks every open run, or all runs in the files. Exit 1 if code does not fit: the first difference of each run.
    """
    from ..loops import run_async

    settings = settings_of(context)
    if not files and settings.in_memory:
        raise typer.BadParameter("nothing is open in the memory of this process: choose another --server")
    return run_async(_check(settings, path, files or [], json=json))


async def _check(settings: Settings, path: str, files: list[str], *, json: bool) -> int:
    import msgspec

    from ....replay.replaying.code_check import check_code
    from ....runtime import Registry
    from ..output.terminal import Screen
    from ..traces import read_file

    screen, registry = Screen(settings), Registry.load(path)
    traces = [trace for file in files for trace in read_file(file).traces.values()]
    found = [check_code(each, registry, ended=bool(files)) for each in traces or await _open(settings, files)]
    runs = [run for each in found for run in each.runs]
    misfits = [misfit for each in found for misfit in each.misfits]
    if json:
        told = [msgspec.structs.asdict(each) for each in misfits]
        screen.json({"fits": not misfits, "checked": runs, "misfits": told})
        return NO if misfits else OK
    for misfit in misfits:
        _tell(screen, misfit)
    count = f"checked {len(runs)} run{'' if len(runs) == 1 else 's'} of workflows"
    screen.say(f"{count}: {len(misfits)} would not go on with this code" if misfits else f"{count}: all fit")
    return NO if misfits else OK


async def _open(settings: Settings, files: list[str]) -> list[Trace]:
    """Return the families of the open roots; none if files are checked instead."""
    from ....replay import load_trace
    from ..fleet import open_roots
    from ..opening import opened

    if files:
        return []
    async with opened(settings) as runtime:
        return [await load_trace(runtime.log, row.run_id) for row in await open_roots(runtime)]


def _tell(screen: Screen, misfit: CodeMisfit) -> None:
    from ..output.escaping import one_line

    screen.tell((f"run {misfit.run} of {misfit.agent}: ", "bold red"), one_line(reason_of(misfit)))


def reason_of(misfit: CodeMisfit) -> str:
    """Return how the code does not fit, with the place and the revision."""
    revision = f" (revision {misfit.revision})" if misfit.revision else ""
    where = f"{misfit.place}{revision}: " if misfit.place else ""
    return f"{where}{misfit.why}"


@app.command()
def plan(
    context: typer.Context,
    path: Annotated[
        str, typer.Argument(metavar="FILE|MODULE:WORKFLOW", help="Table in a TOML or JSON file, or a module.")
    ],
    *,
    registry: Annotated[
        str | None,
        typer.Option(metavar="MODULE:REGISTRY", help="Registry with the tools and agents that a FILE names."),
    ] = None,
    json: Json = False,
) -> int:
    """Show the steps of a table in their order, with their effects, approvals and conditions. Starts nothing."""
    from ....eventlog.errors import ConfigError
    from ....runtime import WorkflowTable
    from ....runtime.agents.workflow.plan import plan_of
    from ..loading import load_agent
    from ..output.terminal import Screen

    known, table = load_agent(path, None, registry)
    if not isinstance(table, WorkflowTable):
        raise ConfigError(f"{path}: {table.name!r} is a {table.kind}, and only a table of steps has a plan")
    known.check(table)
    show_plan(Screen(settings_of(context)), plan_of(table), json=json)
    return OK


def show_plan(screen: Screen, steps: Sequence[PlannedStep], *, json: bool) -> None:
    """Print a plan, one row for each step."""
    import msgspec

    from ..output.tables import Column

    if json:
        screen.json([msgspec.structs.asdict(each) for each in steps])
        return
    columns = [
        Column("step"),
        Column("does", cut=True),
        Column("effect"),
        Column("needs", leaves=2, cut=True),
        Column("approval"),
        Column("if it fails", leaves=1),
        Column("when", cut=True, again=True),
    ]
    screen.table(columns, [_row(each) for each in steps])


def _row(step: PlannedStep) -> list[Any]:
    return [
        step.id,
        step.does,
        step.effect,
        ", ".join(step.needs),
        step.approval,
        step.on_error,
        step.when,
    ]
