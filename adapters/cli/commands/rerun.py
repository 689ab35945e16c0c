"""`foldlog rerun`: run a stored run again with the recorded replies and results, and compare."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..exits import NO, OK
from ..options import Json
from ..settings import Settings, settings_of

if TYPE_CHECKING:
    from ....replay import Comparison, Trace
    from ....runtime.ports.runnable import Runnable
    from ..output.terminal import Screen


def rerun(  # noqa: PLR0913 - the options
    context: typer.Context,
    what: Annotated[str, typer.Argument(metavar="RUN|FILE", help="A run, with its whole family, or a file.")],
    path: Annotated[
        str | None,
        typer.Argument(metavar="MODULE:AGENT", help="Use this agent instead of the recorded one."),
    ] = None,
    *,
    run: Annotated[
        str | None,
        typer.Option("--run", metavar="RUN", help="Run of a file that holds several families."),
    ] = None,
    lenient: Annotated[
        bool,
        typer.Option(
            "--lenient", help="Answer requests that differ with the answers recorded in their place."
        ),
    ] = False,
    executor: Annotated[str, typer.Option(metavar="NAME", help="Executor that runs it.")] = "local",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the new trace as JSON Lines."),
    ] = None,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", min=0, help="Timeout of the run.")] = 60.0,
    json: Json = False,
) -> int:
    """Run a stored family again from its recorded answers.

    Models give their recorded answers, tools their recorded results: no network, no cost, no effects. A request or call
    that differs from the recorded one fails and names the first field that differs. An open run is run as far as it is
    recorded. Exit 1 if they differ.
    """
    from ..loading import check_executor
    from ..loops import run_async

    check_executor(executor)
    options = {"strict": not lenient, "executor": executor, "timeout_s": timeout}
    return run_async(_rerun(settings_of(context), what, path, run, output, json=json, **options))


async def _rerun(
    settings: Settings,
    what: str,
    path: str | None,
    run: str | None,
    output: Path | None,
    *,
    json: bool,
    **options: Any,
) -> int:
    from ....replay import begins_with, compare
    from ....replay.rerunning.recorded import rerun as run_again
    from ....replay.traces.recording import Recording
    from ..output.records import show_logs
    from ..output.terminal import Screen
    from ..traces import family_named, load_traces

    show_logs()
    recording = Recording(family_named(what, await load_traces(settings, what), run))
    again = await run_again(recording, agent=_agent(path, str(recording.root.config["name"])), **options)
    found = compare(recording.trace, again) if recording.over else begins_with(again, recording.trace)
    screen = Screen(settings)
    if output is not None:
        _keep(output, again)
        screen.say(f"trace: {output}")
    if json:
        screen.json(_document(recording.trace, again, found, whole=recording.over))
    else:
        _tell(screen, what, recording.trace, again, found, whole=recording.over)
    return OK if found.equal else NO


def _agent(path: str | None, name: str) -> Runnable[Any] | None:
    from ....eventlog.errors import ConfigError
    from ....runtime import Registry

    if path is None:
        return None
    registry = Registry.load(path)
    if not registry.serves(name):
        known = ", ".join(registry.agents) or "none"
        raise ConfigError(f"the run's agent is {name!r}, which {path!r} does not have; it has: {known}")
    return registry.agent(name)


def _keep(path: Path, trace: Trace) -> None:
    from ....eventlog.errors import ConfigError
    from ....replay import to_jsonl

    try:
        path.write_bytes(to_jsonl(trace))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None


def _errors(again: Trace, recorded: Trace) -> list[str]:
    """Return the errors of the new run that are not in the recording."""
    from ....eventlog.events import Error, ToolResult

    def said(trace: Trace) -> list[str]:
        return [
            f"{event.agent_path}: {event.error}"
            for event in trace.events
            if isinstance(event, Error) or (isinstance(event, ToolResult) and not event.success)
        ]

    before = set(said(recorded))
    return [line for line in said(again) if line not in before]


def _tell(
    screen: Screen, name: str, recorded: Trace, again: Trace, found: Comparison, *, whole: bool
) -> None:
    from ....replay import diff as diff_of
    from ....replay.ordering.rule_texts import explain
    from ..output.escaping import one_line
    from .diff import tell, tell_verdict

    for line in _errors(again, recorded):
        screen.tell((one_line(line), "red"))
    if whole:
        tell(screen, diff_of(recorded, again), (name, "again"))
        return
    if found.first_difference is not None:
        screen.tell(one_line(found.first_difference.why))
        screen.tell(f"  {explain(found.first_difference.rule)}")
    tell_verdict(screen, found, so_far=True)


def _document(recorded: Trace, again: Trace, found: Comparison, *, whole: bool) -> dict[str, Any]:
    equal, total = found.boundaries
    first = found.first_difference
    return {
        "root": recorded.root,
        "equal": found.equal,
        "whole": whole,
        "boundaries_equal": equal,
        "boundaries": total,
        "errors": _errors(again, recorded),
        "difference": None if first is None else {"level": first.level, "rule": first.rule, "why": first.why},
    }
