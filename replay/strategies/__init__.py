"""Hypothesis strategies: scripts, tools, inputs, faults, and whole scenarios of any runnable and of forks."""

from .forks import family_fork_scenarios, fork_scenarios
from .loops import loop_scenarios
from .runs import approvals, calls, check_simulated, faults, scenarios, scripts, traces
from .schemas import fitting
from .swarms import flows, predicates, swarm_scenarios
from .workflows import programs, workflow_scenarios

__all__ = [
    "approvals",
    "calls",
    "check_simulated",
    "family_fork_scenarios",
    "faults",
    "fitting",
    "flows",
    "fork_scenarios",
    "loop_scenarios",
    "predicates",
    "programs",
    "scenarios",
    "scripts",
    "swarm_scenarios",
    "traces",
    "workflow_scenarios",
]
