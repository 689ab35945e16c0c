"""Regular expressions of flows: a stored run is decided by the engine that it was submitted under."""

from __future__ import annotations

import pytest
from foldlog.eventlog.events import ChildReturned, Submitted
from foldlog.projections.run_state import NodeState, RunState
from foldlog.runtime.core.effects import RunNode
from foldlog.runtime.core.rules import LINEAR_PATTERNS, RULES_NOW
from foldlog.runtime.core.swarm.coordinator import SwarmCoordinator


def after(output: str, pattern: str, rules: int) -> str:
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
        rules=rules,
    )
    said = NodeState("run-1", "first", 0, "completed", ChildReturned(child_run="run-1", output=output))
    state = RunState(run="run", root="run", path="swarm", submitted=submitted, nodes=[said])
    (wanted,) = SwarmCoordinator().wanted(state)
    assert isinstance(wanted, RunNode)
    return wanted.name


@pytest.mark.parametrize(
    ("output", "pattern", "before", "since"),
    [
        ("bug", "bug", "found", "found"),
        ("é", r"\w", "found", "lost"),
        ("done\n", "done$", "found", "lost"),
        ("٣", r"\d", "found", "lost"),
    ],
)
def test_each_run_is_decided_by_the_engine_of_its_rules(
    output: str, pattern: str, before: str, since: str
) -> None:
    assert after(output, pattern, LINEAR_PATTERNS - 1) == before
    assert after(output, pattern, RULES_NOW) == since


def test_a_stored_run_may_have_what_is_no_regular_expression_any_more() -> None:
    assert after("a bug", "a(?= bug)", LINEAR_PATTERNS - 1) == "found"
    assert after("abab", r"^(ab)\1$", 0) == "found"
