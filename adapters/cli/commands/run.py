"""`foldlog run`: run an agent and show its events."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ..actors import operator
from ..exits import OK
from ..json_options import messages_option, metadata_option, settings_option
from ..options import AgentName, Detailed, Files, JsonLines
from ..settings import Settings, settings_of

if TYPE_CHECKING:
    from ..output.watching import Watch


def run(  # noqa: PLR0913 - the options
    context: typer.Context,
    path: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:AGENT|FILE|stored:NAME",
            help="An agent or workflow, a registry (with --agent NAME), a TOML or JSON file, or a stored agent; "
            "stored:NAME@N is its version N.",
        ),
    ],
    input: Annotated[str, typer.Argument(metavar="INPUT", help="Input of the run.")],  # noqa: A002 - the word of the field
    *,
    agent: AgentName = None,
    registry: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:REGISTRY",
            help="Registry with the tools and agents that a FILE or a stored agent names.",
        ),
    ] = None,
    executor: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="local (in this process; the default), durable (on workers; that of a stored agent without "
            "--registry), or another installed one.",
        ),
    ] = None,
    detailed: Detailed = False,
    json: JsonLines = False,
    session: Annotated[
        str | None, typer.Option(metavar="NAME", help="Session that the run belongs to.")
    ] = None,
    lane: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Lane of the session: runs of one lane go one after the other."),
    ] = None,
    priority: Annotated[
        str | None,
        typer.Option(
            metavar="CLASS",
            help="urgent, normal (the default) or background, or a number from 0 to 9 (the most urgent).",
        ),
    ] = None,
    user: Annotated[str | None, typer.Option(metavar="ID", help="User for whom the run acts.")] = None,
    metadata: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE|JSON",
            help="Metadata to store with the run, or a JSON object of it. Repeatable.",
        ),
    ] = None,
    messages: Annotated[
        str | None, typer.Option(metavar="FILE", help="JSON list of messages that precede the input.")
    ] = None,
    file: Files = None,
    model: Annotated[
        str | None, typer.Option(metavar="PROVIDER:MODEL", help="Use this model instead of the agent's.")
    ] = None,
    max_steps: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Maximum number of steps; not above the agent's limit."),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--setting",
            metavar="KEY=VALUE",
            help="Model setting, such as reasoning=low; overrides the agent's. Repeatable.",
        ),
    ] = None,
    run_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Id of the run; if such a run exists, it is shown.")
    ] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="If a run with this key exists, it is shown.")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Start later: at 2026-03-01T12:00, or in 30m, 2d. Not in a session."
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0, help="Stop waiting (exit 4); the run continues."),
    ] = None,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Do not wait for an approval: exit 5 when the run pauses.")
    ] = False,
) -> int:
    """Run an agent and show its events.

    Ctrl-C cancels a local run. A durable one continues; `foldlog runs stream` shows it again.
    """
    from ..loading import STORED, check_executor
    from ..loops import run_async
    from ..output.watching import Watch

    if executor is None:
        executor = "durable" if path.startswith(STORED) and registry is None else "local"
    check_executor(executor)
    how = Watch(json=json, detailed=detailed, timeout_s=timeout, wait=not no_wait)
    options = {
        "executor": executor,
        "session": session,
        "lane": lane,
        "priority": int(priority) if priority is not None and priority.isdecimal() else priority,
        "user": user,
        "metadata": metadata_option("--metadata", metadata or ()),
        "messages": messages_option("--messages", messages),
        "run_id": run_id,
        "idempotency_key": idempotency_key,
        "model": model,
        "max_steps": max_steps,
        "settings": settings_option("--setting", setting or ()) or None,
        "at": at,
    }
    source = Source(path, agent, registry)
    return run_async(_run(settings_of(context), source, [input, *(file or ())], how, **options))


class Source(NamedTuple):
    """The origin of the agent: a module or a file, its name in a registry, and the registry of a file."""

    path: str
    agent: str | None
    registry: str | None


async def _run(settings: Settings, source: Source, given: list[str], how: Watch, /, **options: Any) -> int:
    from ....runtime import Runtime, Trigger
    from ..files import with_files
    from ..loading import STORED, load_agent, load_stored, stored_registry
    from ..loops import interruption
    from ..output.records import show_logs
    from ..output.terminal import Screen
    from ..output.times import coming_time
    from ..output.watching import Watcher

    show_logs()
    stored = source.path.removeprefix(STORED) if source.path.startswith(STORED) else None
    registry, agent = (
        load_agent(source.path, source.agent, source.registry)
        if stored is None
        else (stored_registry(source.registry), None)
    )
    question, *paths = given
    content = with_files(question, paths)
    async with Runtime.open(settings.server, namespace=settings.namespace, registry=registry) as runtime:
        runs_in = runtime.executor(options["executor"]).runs_in
        if runs_in == "workers" and settings.in_memory:
            raise typer.BadParameter(
                "workers cannot reach a log in the memory of this process: choose another --server, or --executor local"
            )
        if agent is None:
            agent = await load_stored(runtime, stored or "")
        options["trigger"], options["by"] = Trigger(kind="cli"), operator()
        now = runtime.log.clock.now()
        options["at"] = later = None if options["at"] is None else coming_time(options["at"], now)
        run = await runtime.start(agent, content, **options)
        if later is not None and runs_in == "workers" and not (await run.state()).over:
            Screen(settings).tell(f"run {run.run_id}: starts at {later.isoformat()}")
            return OK
        if runs_in == "process":
            how = dataclasses.replace(how, cancels=True, drives=source.registry or source.path)
        with interruption() as interrupted:
            return await Watcher(runtime, run, Screen(settings), settings, how).watch(interrupted)
