"""`foldlog parity`: run the same scripts on several executors, and compare them event for event."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..options import AgentName, AgentPath, Files, IgnoredUsage, Json, ScriptInput
from ..settings import Settings, settings_of
from ..traces import ignored

if TYPE_CHECKING:
    from ....replay.parity.parity import ParityReport
    from ....runtime.ports.files import Content


def parity(  # noqa: PLR0913 - the options
    context: typer.Context,
    path: AgentPath,
    *,
    script: Annotated[
        list[Path],
        typer.Option(metavar="FILE", help="The model's replies, in JSON. Repeatable."),
    ],
    input: ScriptInput = None,  # noqa: A002 - the word of the field
    file: Files = None,
    agent: AgentName = None,
    executors: Annotated[
        str, typer.Option(metavar="NAMES", help="Two or more, comma-separated; the first is the reference.")
    ] = "local,durable",
    faults: Annotated[
        str | None,
        typer.Option(metavar="SPEC", help="Faults to inject, such as crash@20,lost-ack@7,duplicate."),
    ] = None,
    shape: Annotated[
        bool, typer.Option("--shape", help="Compare only types and places, for non-deterministic tools.")
    ] = False,
    ignore: IgnoredUsage = None,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", min=0, help="Timeout of each run.")] = 60.0,
    json: Json = False,
) -> int:
    """Check that an agent behaves the same on several executors.

    Runs each script on each executor, on a log in memory, with the given faults. Exit 1 if they differ.
    """
    from ..files import with_files
    from ..loops import run_async

    content = with_files(input or "", file) if file else input
    options: dict[str, Any] = {
        "executors": tuple(filter(None, executors.split(","))),
        "faults": faults,
        "shape": shape,
        "ignore": ignored(ignore),
        "timeout_s": timeout,
    }
    return run_async(_parity(settings_of(context), path, agent, script, content, json=json, **options))


async def _parity(
    settings: Settings,
    path: str,
    name: str | None,
    scripts: list[Path],
    question: Content | None,
    *,
    json: bool,
    **options: Any,
) -> int:
    from ....replay.parity.parity import check_parity
    from ..exits import NO, OK
    from ..loading import load_agent
    from ..output.records import show_logs
    from ..output.terminal import Screen

    show_logs()
    registry, agent = load_agent(path, name)
    screen = Screen(settings)
    reports: list[tuple[str, ParityReport]] = []
    for script in scripts:
        report = await check_parity(agent, question, script=script, registry=registry, **options)
        reports.append((str(script), report))
        if not json:
            _tell(screen, str(script), report)
    if json:
        screen.json([_document(script, report) for script, report in reports])
    return OK if all(report.equal for _, report in reports) else NO


def _tell(screen: Any, script: str, report: ParityReport) -> None:
    from ..output.escaping import one_line

    first, *rest = map(one_line, report.render().splitlines())
    screen.tell((f"{script}: ", "dim"), (first, "bold green" if report.equal else "bold red"))
    for line in rest:
        screen.tell((f"  {line}", ""))


def _document(script: str, report: ParityReport) -> dict[str, Any]:
    from ....replay.parity.fault_spec import describe

    equal, total = report.boundaries
    difference = report.first_difference
    return {
        "script": script,
        "equal": report.equal,
        "boundaries_equal": equal,
        "boundaries": total,
        "difference": None
        if difference is None
        else {
            "level": difference.level,
            "rule": difference.rule,
            "why": difference.why,
            "left": [boundary.label for boundary in difference.left],
            "right": [boundary.label for boundary in difference.right],
        },
        "failure": report.failure,
        "findings": [
            {"executor": found.executor, "rule": found.rule, "message": found.message}
            for found in report.findings
        ],
        "faults": [describe(fault) for fault in report.fired],
    }
