"""The progress of a flow: in any order of ends, the same nodes run with the same inputs and the output is the same."""

from collections import Counter
from collections.abc import Callable
from typing import Literal

import pytest
from foldlog.eventlog.events import ChildReturned, Evaluated
from foldlog.projections.run_state import NodeState
from foldlog.replay.strategies.swarms import flows
from foldlog.runtime.core.effects import Evaluate, RunNode
from foldlog.runtime.core.swarm import (
    Arm,
    Branch,
    Failure,
    Flow,
    Loop,
    Named,
    Node,
    Not,
    Parallel,
    Pass,
    Predicate,
    Progress,
    Series,
    holds,
    names_in,
    parse_flow,
    progress,
)
from foldlog.runtime.core.swarm.handoff import handoff_progress
from hypothesis import given
from hypothesis import strategies as st

Outputs = list[tuple[str | None, str]]
TESTS: dict[str, Callable[[str], bool]] = {
    "p": lambda text: len(text) % 2 == 0,
    "q": lambda text: "n1" in text,
}
OUTPUTS = ("", "a", "true", '{"ok": true}', "3")


class Nodes:
    """The nodes of a run, started and ended by hand."""

    def __init__(self) -> None:
        self.states: list[NodeState] = []
        self.values: dict[str, list[Evaluated]] = {}

    def start(self, node: RunNode) -> None:
        assert node.ordinal == sum(state.name == node.name for state in self.states)
        self.states.append(NodeState("", node.name, node.ordinal))

    def end(
        self, node: RunNode, output: str, status: Literal["completed", "error", "cancelled"] = "completed"
    ) -> None:
        (state,) = (s for s in self.states if (s.name, s.ordinal) == (node.name, node.ordinal))
        assert state.status is None
        state.status, state.returned = status, ChildReturned(child_run="", output=output, error=output)

    def value(self, asked: Evaluate) -> None:
        values = self.values.setdefault(asked.name, [])
        assert asked.ordinal == len(values)
        value = TESTS[asked.name.partition("@")[0]](asked.argument)
        values.append(Evaluated(name=asked.name, ordinal=asked.ordinal, value=value))

    def progress(self, flow: Flow, text: str) -> Progress:
        return progress(flow, text, self.states, self.values)


def now(text: str, **outputs: str | list[str]) -> Progress:
    """Return the progress of the flow on the input `go` after these outputs, in this order."""
    nodes = Nodes()
    for name, texts in outputs.items():
        for ordinal, output in enumerate([texts] if isinstance(texts, str) else texts):
            node = RunNode(name=name, ordinal=ordinal, input="")
            nodes.start(node)
            nodes.end(node, output)
    return nodes.progress(flow_of(text), "go")


def run(name: str, text: str, ordinal: int = 0, *, first: bool = False, files: bool | None = None) -> RunNode:
    gets = first if files is None else files
    return RunNode(name=name, ordinal=ordinal, input=text, first=first, files=gets)


def flow_of(text: str) -> Flow:
    return parse_flow(text, "abcdef")


def answer(name: str, ordinal: int, given: str) -> str:
    """Return a node's output for its input; short, so that predicates are sometimes true."""
    return OUTPUTS[sum(map(ord, f"{name}{ordinal}{given}")) % len(OUTPUTS)] or f"{name}.{ordinal}"


class Reference:
    """The flow run through at once, depth first: what it gives, and every run of a node with its input."""

    def __init__(self) -> None:
        self.ran: list[RunNode] = []

    def run(self, flow: Arm, incoming: Outputs) -> Outputs:
        match flow:
            case Node(name=name):
                ordinal = sum(each.name == name for each in self.ran)
                first = all(source is None for source, _ in incoming)
                self.ran.append(run(name, self.text(incoming), ordinal, first=first))
                return [(name, answer(name, ordinal, self.text(incoming)))]
            case Pass():
                return incoming
            case Series(stages=stages):
                for stage in stages:
                    incoming = self.run(stage, incoming)
                return incoming
            case Parallel(members=members):
                together = [output for member in members for output in self.run(member, incoming)]
                return [output for index, output in enumerate(together) if output not in together[:index]]
            case Branch(cases=cases, otherwise=otherwise):
                text = self.text(incoming)
                arm = next((case.then for case in cases if self.holds(case.when, text)), otherwise)
                return self.run(arm, incoming)
            case Loop(body=body, times=times, until=until):
                for _ in range(times):
                    incoming = self.run(body, incoming)
                    if until is not None and self.holds(until, self.text(incoming)):
                        break
                return incoming

    def holds(self, predicate: Predicate, text: str) -> bool:
        match predicate:
            case Not(predicate=inner):
                return not self.holds(inner, text)
            case Named(name=name):
                return TESTS[name](text)
            case _:
                return holds(predicate, text)

    @staticmethod
    def text(outputs: Outputs) -> str:
        if len(outputs) == 1:
            return outputs[0][1]
        return "\n\n".join(f"[{name or 'input'}]\n{text}" for name, text in outputs)


@given(flows(), st.data())
def test_any_order_of_endings_gives_the_runs_and_the_output_of_one_after_the_other(
    flow: Flow, data: st.DataObject
) -> None:
    expected = Reference()
    output = Reference.text(expected.run(flow, [(None, "the input")]))
    nodes, started = Nodes(), list[RunNode]()
    while (far := nodes.progress(flow, "the input")).output is None:
        assert far.failure is None
        for node in far.wanted:
            if isinstance(node, RunNode) and node not in started:
                started.append(node)
                nodes.start(node)
        assert nodes.progress(flow, "the input").wanted == far.wanted
        ended = data.draw(st.sampled_from(far.wanted))
        if isinstance(ended, RunNode):
            nodes.end(ended, answer(ended.name, ended.ordinal, ended.input))
        else:
            nodes.value(ended)
    assert far == Progress(output=output)
    assert Counter(started) == Counter(expected.ran)


@given(flows(), st.sampled_from(["error", "cancelled"]))
def test_a_node_that_fails_fails_the_flow_by_its_name(
    flow: Flow, status: Literal["error", "cancelled"]
) -> None:
    for name in names_in(flow):
        nodes = Nodes()
        nodes.start(run(name, ""))
        nodes.end(run(name, ""), "no key", status)
        end = "was cancelled: no key" if status == "cancelled" else "failed: no key"
        assert nodes.progress(flow, "x") == Progress(failure=Failure("node_failed", f"node {name!r} {end}"))


def test_a_series_gives_each_stage_the_output_of_the_one_before() -> None:
    flow = "a >> b >> c"
    assert now(flow).wanted == (run("a", "go", first=True),)
    assert now(flow, a="A").wanted == (run("b", "A"),)
    assert now(flow, a="A", b="B").wanted == (run("c", "B"),)
    assert now(flow, a="A", b="B", c="C").output == "C"


def test_a_group_runs_together_and_its_outputs_are_joined_by_name_in_the_order_of_the_text() -> None:
    flow = "a >> (b | c >> d | e) >> f"
    assert now(flow, a="A").wanted == (run("b", "A"), run("c", "A"), run("e", "A"))
    assert now(flow, a="A", e="E", c="C").wanted == (run("b", "A"), run("d", "C"))
    assert now(flow, a="A", e="E", c="C", d="D", b="B\nB").wanted == (
        run("f", "[b]\nB\nB\n\n[d]\nD\n\n[e]\nE"),
    )


def test_every_node_of_a_group_that_begins_the_flow_is_a_first_node() -> None:
    assert now("(a | b >> c) >> d").wanted == (run("a", "go", first=True), run("b", "go", first=True))


def test_a_group_within_a_group_is_the_group_of_all() -> None:
    far = now("((a | b) >> c | (d | e)) >> f", a="A", b="B", c="C", d="D", e="E")
    assert far.wanted == (run("f", "[c]\nC\n\n[d]\nD\n\n[e]\nE"),)


def test_a_branch_takes_the_first_case_that_holds() -> None:
    flow = 'a >> {contains "x": b, /x|y/: c, else: pass} >> d'
    assert now(flow, a="xy").wanted == (run("b", "xy"),)
    assert now(flow, a="y").wanted == (run("c", "y"),)
    assert now(flow, a="z").wanted == (run("d", "z"),)


def test_what_arms_hand_on_from_one_node_is_joined_once() -> None:
    flow = 'a >> ({"x": b, else: pass} | {"y": c, else: pass}) >> d'
    assert now(flow, a="z").wanted == (run("d", "z"),)
    assert now(flow, a="y", c="C").wanted == (run("d", "[a]\ny\n\n[c]\nC"),)


def test_the_swarms_own_input_is_joined_as_input() -> None:
    flow = '({"x": a, else: pass} | b) >> c'
    assert now(flow, b="B").wanted == (run("c", "[input]\ngo\n\n[b]\nB"),)


def test_a_loop_runs_again_with_its_own_output_until_the_predicate_holds() -> None:
    flow = '(a >> b)*3 until "ok" >> c'
    assert now(flow, a="A1", b="B1").wanted == (run("a", "B1", 1),)
    assert now(flow, a=["A1", "A2"], b=["B1", "ok"]).wanted == (run("c", "ok"),)


def test_a_loop_that_never_meets_its_predicate_ends_by_its_count() -> None:
    assert now('a*2 until "ok" >> b', a=["1", "2"]).wanted == (run("b", "2"),)


def test_the_loops_of_a_loop_count_on() -> None:
    assert now("(a*2 >> b)*2", a=["1", "2"], b="B").wanted == (run("a", "B", 2),)


def test_a_predicate_that_is_a_function_is_asked_once_at_each_of_its_places() -> None:
    flow = parse_flow("({p: a, else: b} | {not p: c, else: d})*2", "abcd")
    nodes = Nodes()
    asked = (
        Evaluate(name="p@0.0.0.0", ordinal=0, argument="go"),
        Evaluate(name="p@0.0.1.0", ordinal=0, argument="go"),
    )
    assert nodes.progress(flow, "go").wanted == asked
    nodes.value(asked[1])
    assert nodes.progress(flow, "go").wanted == (asked[0], run("d", "go", first=True))
    nodes.value(asked[0])
    for name in "ad":
        node = run(name, "go", first=True)
        nodes.start(node)
        nodes.end(node, "abc")
    assert [(e.name, e.ordinal) for e in nodes.progress(flow, "go").wanted] == [
        ("p@0.0.0.0", 1),
        ("p@0.0.1.0", 1),
    ]


def test_a_predicate_that_fails_fails_the_flow_by_its_name() -> None:
    flow = parse_flow("a*3 until urgent", "a")
    nodes = Nodes()
    nodes.start(run("a", "go"))
    nodes.end(run("a", "go"), "A")
    nodes.values["urgent@0"] = [Evaluated(name="urgent@0", ordinal=0, error="ValueError: no")]
    failure = Failure("predicate_failed", "predicate 'urgent' failed: ValueError: no")
    assert nodes.progress(flow, "go") == Progress(failure=failure)


# --- handing over -----------------------------------------------------------------------------------------------------


def handed(*answers: tuple[str, str], agents: str = "ab", max_handoffs: int = 2) -> Progress:
    """Return the progress of a swarm that `a` begins, after these answers."""
    nodes = Nodes()
    for name, output in answers:
        node = run(name, "", sum(state.name == name for state in nodes.states))
        nodes.start(node)
        nodes.end(node, output)
    return handoff_progress("a", "go", nodes.states, frozenset(agents), max_handoffs)


def to(name: str | None, message: str) -> str:
    target = "null" if name is None else f'"{name}"'
    return f'{{"handoff_to": {target}, "message": "{message}"}}'


def test_the_target_of_a_handoff_continues_with_the_message() -> None:
    assert handed().wanted == (run("a", "go", first=True),)
    assert handed(("a", to("b", "you"))).wanted == (run("b", "you", files=True),)
    assert handed(("a", to("b", "you")), ("b", to("a", "no, you"))).wanted == (
        run("a", "no, you", 1, files=True),
    )
    assert handed(("a", to("b", "you")), ("b", to(None, "done"))).output == "done"


def test_a_handoff_too_many_ends_the_swarm_with_an_error() -> None:
    far = handed(("a", to("b", "1")), ("b", to("a", "2")), ("a", to("b", "3")))
    assert far.failure == Failure(
        "max_handoffs", "the agents handed over more than 2 times, the last time to 'b'"
    )


@pytest.mark.parametrize("output", ["text", "[]", '{"message": "x"}', '{"handoff_to": 3, "message": "x"}'])
def test_an_answer_that_hands_over_to_nobody_is_the_output(output: str) -> None:
    assert handed(("a", output)).output == output


def test_a_swarm_hands_over_to_nobody() -> None:
    assert handed(("a", to("b", "x")), agents="b").output == to("b", "x")
