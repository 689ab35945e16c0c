"""Simulation: runs the whole runtime on a log in memory, in virtual time, with everything random drawn from a seed.

    report = simulate(AGENT, script="refund.json", schedules=500)
    assert report.ok, report.render()

A seed determines one schedule: the order of callbacks, the faults and their places, the workers, and the acts of
callers. Workers crash, freeze and come back, lose replies, receive messages twice and read stale data; callers cancel,
interrupt and answer. Then the log is checked (`properties`), and a failing schedule is made smaller (`shrinking`).
"""

from __future__ import annotations

from typing import Any

from ...runtime import Registry
from ...runtime.ports.runnable import Runnable
from ..parity.scripts import ScriptLike
from .agents import agent_scenario
from .injected import KINDS, Injected
from .loop import Picks, SimulatedClock, SimulatedLoop, Stuck, TooLong, run_simulated
from .playing import Played
from .scenarios import SCENARIOS, Scenario, scenario
from .schedule import Act, Schedule, Staff, draw_schedule
from .searching import Failure, Simulation, SimulationReport, search
from .shrinking import Shrunk, shrink
from .telling import Line
from .world import Job, World

__all__ = [
    "KINDS",
    "SCENARIOS",
    "Act",
    "Failure",
    "Injected",
    "Job",
    "Line",
    "Picks",
    "Played",
    "Scenario",
    "Schedule",
    "Shrunk",
    "SimulatedClock",
    "SimulatedLoop",
    "Simulation",
    "SimulationReport",
    "Staff",
    "Stuck",
    "TooLong",
    "World",
    "agent_scenario",
    "draw_schedule",
    "run_simulated",
    "scenario",
    "search",
    "shrink",
    "simulate",
]


def simulate(
    runnable: Runnable[Any],
    input: str | None = None,  # noqa: A002 - as in `start`
    *,
    script: ScriptLike,
    registry: Registry | None = None,
    seed: int = 0,
    schedules: int = 100,
    shrinks: bool = True,
) -> SimulationReport:
    """Play an agent with the model of `script` in `schedules` random schedules, from `seed` on, until one fails.

    Script and registry are as for `check_parity`. The agent's tools are run in virtual time: they must be deterministic
    and wait only with asyncio. It cannot be called within a running event loop. Raises `ConfigError`.
    """
    scenarios = agent_scenario(runnable, input, script=script, registry=registry)
    return search(lambda: scenarios, first=seed, schedules=schedules, shrinks=shrinks)
