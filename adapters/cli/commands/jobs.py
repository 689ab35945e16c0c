"""`foldlog jobs`: units of work, each a run with its retries."""

from __future__ import annotations

from typing import Annotated

import typer

from ..exits import OK
from ..options import Json
from ..settings import Settings, settings_of

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Show jobs: a run with its retries is one job."
)


@app.command("list")
def list_(
    context: typer.Context,
    *,
    status: Annotated[
        str | None, typer.Option(metavar="STATUS", help="Only jobs whose last run has this status.")
    ] = None,
    agent: Annotated[str | None, typer.Option(metavar="NAME", help="Only jobs of this agent.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of jobs, newest first.")] = 50,
    json: Json = False,
) -> int:
    """List jobs with what started them, newest first. A job is in the state of its last run."""
    from ..loops import run_async

    return run_async(_list(settings_of(context), status, agent, limit, json=json))


@app.command()
def show(
    context: typer.Context,
    job: Annotated[str, typer.Argument(metavar="JOB", help="A job, or any run of it.")],
    *,
    json: Json = False,
) -> int:
    """Show a job, its attempts in order, and the runs that roll them back."""
    from ..loops import run_async

    return run_async(_show(settings_of(context), job, json=json))


async def _list(settings: Settings, status: str | None, agent: str | None, limit: int, *, json: bool) -> int:
    import msgspec

    from ..opening import opened
    from ..output.escaping import one_line
    from ..output.tables import Column
    from ..output.terminal import Screen
    from ..output.times import moment, trigger_words

    screen = Screen(settings)
    async with opened(settings) as runtime:
        jobs = await runtime.operations.jobs(limit, status=status, agent=agent)
    if json:
        screen.json([msgspec.to_builtins(job) for job in jobs])
    elif not jobs:
        screen.say("no jobs")
    else:
        columns = (
            Column("job"),
            Column("agent", cut=True),
            Column("state"),
            Column("attempts", leaves=1),
            Column("submitted"),
            Column("trigger", below=True),
        )
        screen.table(
            columns,
            [
                [
                    job.job_id,
                    one_line(job.agent),
                    job.status,
                    str(len(job.runs)),
                    moment(job.submitted_at),
                    "" if job.trigger is None else one_line(trigger_words(job.trigger)),
                ]
                for job in jobs
            ],
        )
    return OK


async def _show(settings: Settings, name: str, *, json: bool) -> int:
    import msgspec

    from ..opening import opened, run_named
    from ..output.escaping import one_line
    from ..output.tables import Column
    from ..output.terminal import Screen
    from ..output.times import moment, trigger_words

    screen = Screen(settings)
    async with opened(settings) as runtime:
        job = await runtime.operations.job(await run_named(runtime, name))
    if json:
        screen.json(msgspec.to_builtins(job))
        return OK
    trigger = "" if job.trigger is None else f", started by {one_line(trigger_words(job.trigger))}"
    screen.prose(f"job {job.job_id} of {one_line(job.agent)} is {job.status}{trigger}")
    columns = [
        *(Column(name) for name in ("attempt", "run", "status", "submitted")),
        Column("why", below=True),
    ]
    screen.table(
        columns,
        [
            [str(n), run.run_id, run.status, moment(run.submitted_at), one_line(run.error or run.reason)]
            for n, run in enumerate(job.runs, 1)
        ],
    )
    for each in job.rollbacks:
        of = each.trigger.key if each.trigger is not None else ""
        screen.prose(f"run {of} is rolled back by run {each.run_id} ({each.status})")
    return OK
