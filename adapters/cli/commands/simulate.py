"""`foldlog simulate`: run scenarios under random schedules of faults."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..options import AgentName, Json, ScriptInput
from ..settings import settings_of

if TYPE_CHECKING:
    from ....replay.simulation import Failure, Scenario, SimulationReport
    from ..output.terminal import Screen

SCHEDULES = 1000
"""Default number of schedules."""
WORTH_A_PROCESS = 200
"""Fewer schedules than this run in one process."""


def simulate(  # noqa: PLR0913 - the options
    context: typer.Context,
    path: Annotated[
        str | None,
        typer.Argument(
            metavar="MODULE:AGENT", help="An agent, or a registry; default: foldlog's own scenarios."
        ),
    ] = None,
    *,
    script: Annotated[Path | None, typer.Option(metavar="FILE", help="The model's replies, in JSON.")] = None,
    input: ScriptInput = None,  # noqa: A002 - the word of the field
    agent: AgentName = None,
    scenario: Annotated[
        str | None, typer.Option(metavar="NAME", help="Run only this scenario; default: all, in turn.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="First seed; without --schedules and --for, the only one.")
    ] = None,
    schedules: Annotated[
        int | None, typer.Option(metavar="N", min=1, help=f"Number of schedules (default {SCHEDULES}).")
    ] = None,
    for_: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="Run schedules for this long: 30s, 10m.")
    ] = None,
    shrink: Annotated[
        bool, typer.Option("--shrink", help="Shrink the schedule of a failure to a minimum.")
    ] = False,
    processes: Annotated[
        int, typer.Option(metavar="N", min=0, help="Number of processes; default: one per core.")
    ] = 0,
    json: Json = False,
) -> int:
    """Run random schedules of faults in virtual time.

    Crashes, zombies, lost acks, stale reads and user actions. Each schedule comes from a seed, with which it can be
    repeated. Exit 1, with a report, if a schedule broke a property.
    """
    from ....replay.simulation import search
    from ..exits import NO, OK
    from ..output.terminal import Screen

    load = functools.partial(_scenarios, path, agent, script, input)
    for_s = None if for_ is None else _seconds(for_)
    first, count = _seeds(load, seed, schedules, for_s, scenario)
    report = search(
        load,
        first=first,
        schedules=count,
        for_s=for_s,
        processes=_processes(processes, count),
        shrinks=shrink,
        scenario=scenario,
    )
    screen = Screen(settings_of(context))
    if json:
        screen.json(_document(report, first))
    else:
        _tell(screen, report, first, _command(path, agent, script, input))
    return OK if report.ok else NO


def _scenarios(
    path: str | None, name: str | None, script: Path | None, question: str | None
) -> Mapping[str, Scenario]:
    """Return the scenarios; called in each process."""
    from ....eventlog.errors import ConfigError
    from ....replay.simulation import SCENARIOS, agent_scenario

    if path is None:
        if script is not None:
            raise ConfigError("a script needs an agent: foldlog simulate MODULE:AGENT --script FILE")
        return SCENARIOS
    if script is None:
        raise ConfigError("an agent needs a script for its model: --script FILE")
    from ..loading import load_agent

    registry, agent = load_agent(path, name)
    return agent_scenario(agent, question, script=script, registry=registry)


def _seeds(
    load: functools.partial[Mapping[str, Scenario]],
    seed: int | None,
    schedules: int | None,
    for_s: float | None,
    scenario: str | None,
) -> tuple[int, int | None]:
    """Return the first seed and the number of schedules; None if only time limits them."""
    if schedules is None and for_s is None:
        alone = 1 if scenario is not None else len(load())
        return (0, SCHEDULES) if seed is None else (seed, alone)
    if seed is None and for_s is not None:
        import secrets

        return secrets.randbelow(1_000_000), schedules
    return seed or 0, schedules


def _processes(asked: int, schedules: int | None) -> int:
    """Return one process for each core, or one alone if there are few schedules."""
    if asked:
        return asked
    if schedules is not None and schedules < WORTH_A_PROCESS:
        return 1
    allowed = getattr(os, "sched_getaffinity", None)  # not on every system
    return len(allowed(0)) if allowed is not None else os.cpu_count() or 1


def _seconds(text: str) -> float:
    from ..output.times import seconds_of

    return seconds_of(text)


def _command(path: str | None, name: str | None, script: Path | None, question: str | None) -> str:
    """Return the beginning of the command that repeats a schedule."""
    import shlex

    given = {"--agent": name, "--script": script, "--input": question}
    options = [f"{option} {shlex.quote(str(value))}" for option, value in given.items() if value is not None]
    return " ".join(["foldlog simulate", *([path] if path else []), *options])


# --- output -----------------------------------------------------------------------------------------------------------


def _tell(screen: Screen, report: SimulationReport, first: int, command: str) -> None:
    style = "bold green" if report.ok else "bold red"
    failed = "none failed" if report.ok else f"{len(report.failures)} failed"
    screen.tell((f"simulation: {report.schedules} schedules from seed {first}, ", ""), (failed, style))
    screen.tell((f"{report.rate:.0f} schedules a second, {report.seconds:.1f} s", "dim"))
    if report.faults:
        faults = ", ".join(f"{kind} {report.faults[kind]}" for kind in sorted(report.faults))
        screen.tell((f"faults: {faults}", ""))
    if report.ok and report.coverage:
        for line in _table(report):
            screen.tell((line, "dim"))
    for failure in report.failures:
        _tell_failure(screen, failure, command)


def _tell_failure(screen: Screen, failure: Failure, command: str) -> None:
    from ..output.escaping import one_line

    for line in failure.render().splitlines():
        screen.tell((one_line(line), ""))
    again = f"{command} --scenario {failure.scenario} --seed {failure.seed}"
    screen.tell(("again: ", "dim"), (again + ("" if failure.shrunk else " --shrink"), "bold"))


def _table(report: SimulationReport) -> list[str]:
    """Return a table of how often a fault of each kind met an event of each type."""
    kinds = sorted({kind for _, kind in report.coverage})
    types = sorted({event for event, _ in report.coverage})
    width = max(len(event) for event in types)
    head = " ".join(f"{_short(kind):>6}" for kind in kinds)
    lines = [f"{'event x fault':{width}} {head}"]
    for event in types:
        cells = (report.coverage.get((event, kind), 0) for kind in kinds)
        lines.append(f"{event:{width}} " + " ".join(f"{count or '.':>6}" for count in cells))
    return lines


def _short(kind: str) -> str:
    """Abbreviate a kind of fault to six letters."""
    return (
        kind.replace("-after", "+").replace("-", "")[:6]
        if "-after" not in kind
        else kind[:5].rstrip("-") + "+"
    )


def _document(report: SimulationReport, first: int) -> dict[str, Any]:
    return {
        "schedules": report.schedules,
        "first_seed": first,
        "seconds": round(report.seconds, 3),
        "faults": dict(sorted(report.faults.items())),
        "coverage": [
            {"event": event, "fault": kind, "count": count}
            for (event, kind), count in sorted(report.coverage.items())
        ],
        "failures": [_failure(failure) for failure in report.failures],
    }


def _failure(failure: Failure) -> dict[str, Any]:
    import msgspec

    shown = failure.smallest
    return {
        "scenario": failure.scenario,
        "seed": failure.seed,
        "problems": list(failure.played.problems),
        "schedule": msgspec.to_builtins(shown.schedule),
        "shrunk": failure.shrunk is not None,
        "trace": [str(line) for line in shown.trace],
    }
