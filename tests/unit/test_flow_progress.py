"""How far a flow is: in whatever order its nodes end, the same run with the same inputs, and the same comes out."""

from collections.abc import Callable

import pytest
from foldlog.runtime.swarm import (
    Arm,
    Branch,
    Flow,
    Loop,
    Node,
    NodeRun,
    Parallel,
    Pass,
    Progress,
    Series,
    Start,
    holds,
    names_in,
    parse_flow,
    progress,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.flows import flows

Outputs = list[tuple[str | None, str]]
Runs = dict[str, list[NodeRun]]
TESTS: dict[str, Callable[[str], bool]] = {
    "p": lambda text: len(text) % 2 == 0,
    "q": lambda text: "n1" in text,
}
OUTPUTS = ("", "a", "true", '{"ok": true}', "3")


def flow_of(text: str) -> Flow:
    return parse_flow(text, "abcdef")


def done(output: str) -> list[NodeRun]:
    return [NodeRun("completed", output)]


def answer(name: str, ordinal: int, given: str) -> str:
    """What a node makes of its input; short, so that predicates are met now and then."""
    return OUTPUTS[sum(map(ord, f"{name}{ordinal}{given}")) % len(OUTPUTS)] or f"{name}.{ordinal}"


class Reference:
    """The flow run through at once, depth first: what it gives, and every run of a node with its input."""

    def __init__(self) -> None:
        self.ran: list[Start] = []

    def run(self, flow: Arm, incoming: Outputs) -> Outputs:
        match flow:
            case Node(name=name):
                ordinal = sum(each.name == name for each in self.ran)
                first = all(source is None for source, _ in incoming)
                start = Start(name, ordinal, self.text(incoming), first=first)
                self.ran.append(start)
                return [(name, answer(name, ordinal, start.input))]
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
                arm = next((case.then for case in cases if holds(case.when, text, TESTS)), otherwise)
                return self.run(arm, incoming)
            case Loop(body=body, times=times, until=until):
                for _ in range(times):
                    incoming = self.run(body, incoming)
                    if until is not None and holds(until, self.text(incoming), TESTS):
                        break
                return incoming

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
    runs: Runs = {}
    started: list[Start] = []
    while (now := progress(flow, "the input", runs, TESTS)).output is None:
        assert now.failure is None
        started += now.starts
        for start in now.starts:
            assert len(runs.setdefault(start.name, [])) == start.ordinal
            runs[start.name].append(NodeRun())
        assert progress(flow, "the input", runs, TESTS) == Progress()
        running = [start for start in started if runs[start.name][start.ordinal].status == "running"]
        ended = data.draw(st.sampled_from(running))
        runs[ended.name][ended.ordinal] = NodeRun("completed", answer(ended.name, ended.ordinal, ended.input))
    assert now == Progress(output=output)
    assert sorted(started, key=repr) == sorted(expected.ran, key=repr)


@given(flows(), st.sampled_from(["error", "cancelled"]))
def test_a_node_that_fails_fails_the_flow_by_its_name(flow: Flow, status: str) -> None:
    names = names_in(flow)
    for name in names:
        runs = {name: [NodeRun(status, error="no key")]}  # type: ignore[arg-type]
        failure = f"node {name!r} failed: no key" if status == "error" else f"node {name!r} was cancelled"
        assert progress(flow, "x", runs, TESTS) == Progress(failure=failure)


def test_a_series_gives_each_stage_the_output_of_the_one_before() -> None:
    flow = flow_of("a >> b >> c")
    assert progress(flow, "go", {}).starts == (Start("a", 0, "go", first=True),)
    assert progress(flow, "go", {"a": done("A")}).starts == (Start("b", 0, "A"),)
    assert progress(flow, "go", {"a": done("A"), "b": done("B")}).starts == (Start("c", 0, "B"),)
    assert progress(flow, "go", {"a": done("A"), "b": done("B"), "c": done("C")}).output == "C"


def test_a_group_starts_together_and_its_outputs_are_joined_by_name_in_the_order_of_the_text() -> None:
    flow = flow_of("a >> (b | c >> d | e) >> f")
    starts = progress(flow, "go", {"a": done("A")}).starts
    assert starts == (Start("b", 0, "A"), Start("c", 0, "A"), Start("e", 0, "A"))
    runs = {"e": done("E"), "d": done("D"), "c": done("C"), "b": done("B\nB"), "a": done("A")}
    (start,) = progress(flow, "go", runs).starts
    assert start == Start("f", 0, "[b]\nB\nB\n\n[d]\nD\n\n[e]\nE")


def test_every_node_of_a_group_that_begins_the_flow_is_a_first_node() -> None:
    starts = progress(flow_of("(a | b >> c) >> d"), "go", {}).starts
    assert starts == (Start("a", 0, "go", first=True), Start("b", 0, "go", first=True))


def test_a_group_within_a_group_is_the_group_of_all() -> None:
    outer = progress(flow_of("((a | b) >> c | (d | e)) >> f"), "go", {k: done(k.upper()) for k in "abcde"})
    assert [start.input for start in outer.starts] == ["[c]\nC\n\n[d]\nD\n\n[e]\nE"]


def test_a_branch_takes_the_first_case_that_holds() -> None:
    flow = flow_of('a >> {contains "x": b, /x|y/: c, else: pass} >> d')
    assert [start.name for start in progress(flow, "go", {"a": done("xy")}).starts] == ["b"]
    assert [start.name for start in progress(flow, "go", {"a": done("y")}).starts] == ["c"]
    assert progress(flow, "go", {"a": done("z")}).starts == (Start("d", 0, "z"),)


def test_what_arms_hand_on_from_one_node_is_joined_once() -> None:
    flow = flow_of('a >> ({"x": b, else: pass} | {"y": c, else: pass}) >> d')
    assert progress(flow, "go", {"a": done("z")}).starts == (Start("d", 0, "z"),)
    assert progress(flow, "go", {"a": done("y"), "c": done("C")}).starts[0].input == "[a]\ny\n\n[c]\nC"


def test_the_swarms_own_input_is_joined_as_input() -> None:
    flow = flow_of('({"x": a, else: pass} | b) >> c')
    assert progress(flow, "go", {"b": done("B")}).starts == (Start("c", 0, "[input]\ngo\n\n[b]\nB"),)


def test_a_loop_runs_again_with_its_own_output_until_the_predicate_holds() -> None:
    flow = flow_of('(a >> b)*3 until "ok" >> c')
    first = NodeRun("completed", "B1")
    assert progress(flow, "go", {"a": done("A1"), "b": [first]}).starts == (Start("a", 1, "B1"),)
    runs = {"a": done("A1") + done("A2"), "b": [first, NodeRun("completed", "ok")]}
    assert progress(flow, "go", runs).starts == (Start("c", 0, "ok"),)


def test_a_loop_that_never_meets_its_predicate_ends_by_its_count() -> None:
    flow = flow_of('a*2 until "ok" >> b')
    assert progress(flow, "go", {"a": done("1") + done("2")}).starts == (Start("b", 0, "2"),)


def test_the_loops_of_a_loop_count_on() -> None:
    flow = flow_of("(a*2 >> b)*2")
    runs = {"a": done("1") + done("2"), "b": done("B")}
    assert progress(flow, "go", runs).starts == (Start("a", 2, "B"),)


def test_a_predicate_that_fails_fails_the_flow_by_its_name() -> None:
    flow = parse_flow("{urgent: a, else: b}", "ab")

    def urgent(text: str) -> bool:
        raise ValueError(text)

    failed = Progress(failure="predicate 'urgent' failed: ValueError: go")
    assert progress(flow, "go", {}, {"urgent": urgent}) == failed
    assert progress(flow, "go", {}) == Progress(failure="no predicate is named 'urgent'")


@pytest.mark.parametrize("text", ["a", "(a | b)", "a*2", "{/x/: a, else: b}"])
def test_a_flow_whose_nodes_are_running_waits(text: str) -> None:
    runs = {name: [NodeRun()] for name in "ab"}
    assert progress(flow_of(text), "go", runs) == Progress()
