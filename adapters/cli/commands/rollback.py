"""`foldlog rollback`: show what would undo a run, ask, and start it as a workflow with an approval for each step."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer

from ..exits import NO, OK
from ..options import Detailed
from ..settings import Settings, settings_of

if TYPE_CHECKING:
    from ....runtime.rollbacks.rollback import RollbackPlan
    from ..output.terminal import Screen
    from ..output.watching import Watch


def rollback(  # noqa: PLR0913 - the options
    context: typer.Context,
    run: Annotated[str, typer.Argument(metavar="RUN", help="Run to roll back; it must be over.")],
    path: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:REGISTRY", help="Registry with the run's tools and their compensations."
        ),
    ],
    *,
    from_step: Annotated[
        str | None,
        typer.Option("--from", metavar="STEP", help="Only this call or step of the run, and those after it."),
    ] = None,
    executor: Annotated[
        str | None, typer.Option(metavar="NAME", help="Executor; default: local, in this process.")
    ] = None,
    by: Annotated[
        str, typer.Option(metavar="NAME", help="Person who rolls it back; default: your user name.")
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the plan.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Start without confirmation.")] = False,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Do not wait for approvals: exit 5 when the rollback pauses.")
    ] = False,
    detailed: Detailed = False,
    json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print the plan as JSON; with --yes, the plan and the events, one per line."
        ),
    ] = False,
) -> int:
    """Undo what the calls of a run did, the last one first.

    The compensations of its tools become the steps of a workflow, each with an approval; what has none is done by hand.
    With --json but without --yes, it only prints the plan.
    """
    from ..loading import check_executor
    from ..loops import run_async
    from ..output.watching import Watch

    check_executor(executor)
    how = Watch(json=json, detailed=detailed, wait=not no_wait)
    only_plan = dry_run or (json and not yes)
    return run_async(
        _rollback(settings_of(context), run, path, executor, from_step, by, how, yes=yes, only_plan=only_plan)
    )


async def _rollback(  # noqa: PLR0913 - the options
    settings: Settings,
    run: str,
    path: str,
    executor: str | None,
    from_step: str | None,
    by: str,
    how: Watch,
    *,
    yes: bool,
    only_plan: bool,
) -> int:
    from ..actors import operator
    from ..confirming import agreed
    from ..loading import executor_for, load_registry
    from ..loops import interruption
    from ..opening import opened, run_named
    from ..output.records import show_logs
    from ..output.terminal import Screen
    from ..output.watching import Watcher

    show_logs()
    registry, screen = load_registry(path), Screen(settings)
    async with opened(settings, registry) as runtime:
        executor_for(runtime, executor, path)
        run = await run_named(runtime, run)
        plan = await runtime.plan_rollback(run, from_step=from_step)
        status = "" if plan.rollback is None else await runtime.get_run(plan.rollback).status()
    _show(screen, plan, status, how, line=not only_plan)
    if only_plan:
        return OK
    if not yes and plan.rollback is None and not agreed(screen, "Start the rollback?", "start the rollback"):
        return NO
    async with opened(settings, registry) as runtime:
        name, runs_in = executor_for(runtime, executor, path)
        started = await runtime.rollback(run, from_step=from_step, by=operator(by), executor=name)
        if runs_in == "process":
            how = dataclasses.replace(how, cancels=True, drives=path)
        with interruption() as interrupted:
            return await Watcher(runtime, started, screen, settings, how).watch(interrupted)


def _show(screen: Screen, plan: RollbackPlan, status: str, how: Watch, *, line: bool) -> None:
    """Print the plan; `status` is that of the rollback that it names."""
    import msgspec

    if how.json and line:
        screen.json_line({"type": "rollback_plan", **plan.as_json()})
        return
    if how.json:
        screen.json(plan.as_json())
        return
    if plan.rollback is not None:
        screen.tell(f"run {plan.run} is rolled back by run {plan.rollback} ({status})")
        return
    rows = [
        (
            each.step,
            f"{each.tool} {msgspec.json.encode(each.arguments).decode()}" if each.tool else "by hand",
            f"{each.call.tool} {each.call.call}",
            "" if each.tool else each.text,
        )
        for each in plan.steps
    ]
    screen.table(["step", "does", "undoes", "text"], rows)
