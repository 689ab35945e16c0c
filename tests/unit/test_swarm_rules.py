"""Regular expressions of flows are searched for by RE2, for every worker alike."""

from __future__ import annotations

import pytest
from foldlog.eventlog.events import ChildReturned, Submitted
from foldlog.projections.run_state import NodeState, RunState
from foldlog.runtime.core.effects import RunNode
from foldlog.runtime.core.rules import RULES_NOW
from foldlog.runtime.core.swarm.coordinator import SwarmCoordinator


def after(output: str, pattern: str) -> str:
    """Which agent is next, behind one that said this."""
    config = {
        "mode": "workflow",
        "flow": f"first >> {{/{pattern}/: found, else: lost}}",
        "agents": [{"name": name} for name in ("first", "found", "lost")],
    }
    submitted = Submitted(
        kind="swarm",
        config=config,
        config_digest="",
        input="go",
        input_digest="",
        executor="local",
        rules=RULES_NOW,
    )
    said = NodeState("run-1", "first", 0, "completed", ChildReturned(child_run="run-1", output=output))
    state = RunState(run="run", root="run", path="swarm", submitted=submitted, nodes=[said])
    (wanted,) = SwarmCoordinator().wanted(state)
    assert isinstance(wanted, RunNode)
    return wanted.name


@pytest.mark.parametrize(
    ("output", "pattern", "next_agent"),
    [
        ("bug", "bug", "found"),
        ("é", r"\w", "lost"),
        ("done\n", "done$", "lost"),
        ("٣", r"\d", "lost"),
    ],
)
def test_a_flow_goes_by_the_regular_expressions_of_re2(output: str, pattern: str, next_agent: str) -> None:
    assert after(output, pattern) == next_agent
