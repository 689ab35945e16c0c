"""The order that a flow demands is compared, and no other: nodes of a swarm, and its output."""

from __future__ import annotations

from random import Random

import pytest
from foldlog.eventlog.events import (
    ChildFinished,
    ChildReturned,
    ChildStarted,
    Evaluated,
    Event,
    OutputMade,
    Status,
    Submitted,
)
from foldlog.projections.run_state import NodeState
from foldlog.replay import canonical, compare, diff
from foldlog.replay.strategies.swarms import flows
from foldlog.runtime.core.effects import RunNode
from foldlog.runtime.core.rules import RULES_NOW
from foldlog.runtime.core.swarm import Flow, format_flow, names_in, parse_flow, progress
from hypothesis import given
from hypothesis import strategies as st

from .traces import renumbered

randoms = st.randoms(use_true_random=False)


class Play:
    """A swarm's events when its nodes start and end in an order that the flow allows."""

    def __init__(self, flow: Flow, random: Random, salt: str) -> None:
        self.flow, self.random, self.root = flow, random, f"root-{salt}"
        self.nodes: list[NodeState] = []
        self.values: dict[str, list[Evaluated]] = {}
        self.events: list[Event] = []

    def add(self, *events: Event, run: str = "", path: str = "swarm") -> None:
        place = {"run_id": run or self.root, "root_id": self.root, "agent_path": path}
        self.events += [type(event)(**{**_fields(event), **place}) for event in events]

    def run(self) -> list[Event]:
        names = names_in(self.flow)
        config = {"mode": "workflow", "flow": format_flow(self.flow), "agents": [{"name": n} for n in names]}
        digests = {"config_digest": "", "input_digest": "", "executor": "local", "rules": RULES_NOW}
        self.add(Submitted(kind="swarm", config=config, input="go", **digests), Status(status="starting"))
        while True:
            now = progress(self.flow, "go", self.nodes, self.values)
            if now.output is not None:
                self.add(OutputMade(output=now.output), Status(status="completed"))
                return renumbered(self.events)
            chosen = self.random.choice(now.wanted)
            if isinstance(chosen, RunNode):
                self.go_on(chosen)
            else:
                value = Evaluated(
                    name=chosen.name, ordinal=chosen.ordinal, value=len(chosen.argument) % 2 == 0
                )
                self.values.setdefault(chosen.name, []).append(value)
                self.add(value)

    def go_on(self, wanted: RunNode) -> None:
        run, path = f"{self.root}-{wanted.name}-{wanted.ordinal}", f"swarm/{wanted.name}"
        node = next((each for each in self.nodes if each.child_run == run), None)
        if node is None:
            self.nodes.append(NodeState(run, wanted.name, wanted.ordinal))
            self.add(ChildStarted(child_run=run, name=wanted.name, kind="agent"))
            self.add(Status(status="starting"), run=run, path=path)
        else:
            output = f"{wanted.name}{wanted.ordinal}"
            node.status, node.returned = "completed", ChildReturned(child_run=run, output=output)
            self.add(Status(status="completed"), run=run, path=path)
            self.add(node.returned, ChildFinished(child_run=run, status="completed"))


def _fields(event: Event) -> dict[str, object]:
    return {name: getattr(event, name) for name in event.__struct_fields__}


def played(text: str, seed: int = 0, salt: str = "a") -> list[Event]:
    return Play(parse_flow(text, ("a", "b", "c", "d")), Random(seed), salt).run()


@given(flows(), randoms, randoms)
def test_in_whichever_order_a_flow_lets_its_nodes_run_the_form_is_the_same(
    flow: Flow, one: Random, other: Random
) -> None:
    left, right = Play(flow, one, "a").run(), Play(flow, other, "b").run()
    assert compare(canonical(left), canonical(right)).first_difference is None


FLOWS = [
    "a >> b >> c",
    "b >> a >> c",
    "a >> c >> b",
    "(a | b) >> c",
    "a >> (b | c)",
    "(a | b | c)",
    "((a >> b) | c)",
]


@pytest.mark.parametrize("left", FLOWS)
@pytest.mark.parametrize("right", FLOWS)
def test_two_flows_of_the_same_nodes_have_equal_forms_only_if_they_are_one(left: str, right: str) -> None:
    for seed in range(8):
        assert compare(canonical(played(left, seed)), canonical(played(right, 7 - seed))).equal == (
            left == right
        )


def test_the_passes_of_a_loop_follow_each_other() -> None:
    together, apart = canonical(played("(a | b)*2")), canonical(played("((a*2) | (b*2))"))
    row = next(row for row in diff(together, apart).rows if row.kind != "same")
    assert row.values == {"after": (["a#0", "b#0"], ["a#0"])}


def test_a_node_that_starts_before_the_one_it_waits_for_is_over_is_found() -> None:
    events = played("a >> b")
    early = next(i for i, e in enumerate(events) if isinstance(e, ChildStarted) and e.name == "b")
    over = next(i for i, e in enumerate(events) if isinstance(e, ChildFinished))
    moved = renumbered([*events[:over], events[early], *events[over:early], *events[early + 1 :]])
    assert not diff(canonical(events), canonical(moved)).equal


def test_another_output_of_the_same_nodes_is_found() -> None:
    events = played("(a | b)")
    (at,) = (i for i, event in enumerate(events) if isinstance(event, OutputMade))
    events[at] = OutputMade(**{**_fields(events[at]), "output": "[b]\nb0\n\n[a]\na0"})
    found = diff(canonical(played("(a | b)")), canonical(events))
    (row,) = (row for row in found.rows if row.kind != "same")
    assert row.values == {"output": ("[a]\na0\n\n[b]\nb0", "[b]\nb0\n\n[a]\na0")}
