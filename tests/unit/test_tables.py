"""Workflows that are tables: the pure decider for any order and outcomes, and what may be wrong with a table (R30)."""

from __future__ import annotations

from typing import Any

import pytest
from foldlog.eventlog import AgentConfigError
from foldlog.runtime import Registry, WorkflowTable, tool
from foldlog.runtime.core.workflow.table import Move, Outcome, Skipped, Step, cycles, in_order, next_move
from hypothesis import given
from hypothesis import strategies as st


@st.composite
def tables(draw: st.DrawFn) -> list[Step]:
    """Steps that need earlier ones, in a shuffled order."""
    count = draw(st.integers(1, 8))
    steps = [
        Step(
            id=f"s{number}",
            needs=tuple(draw(st.sets(st.sampled_from([f"s{n}" for n in range(number)]))) if number else ()),
            on_error=draw(st.sampled_from(["fail", "continue"])),
        )
        for number in range(count)
    ]
    return draw(st.permutations(steps))


def play(steps: list[Step], data: st.DataObject) -> tuple[dict[str, Outcome], list[str], str]:
    """Run a table with outcomes from the strategy; return them, the order of starts, and the end."""
    found: dict[str, Outcome] = {}
    started: list[str] = []
    for _ in range(10 * len(steps) + 1):
        move = next_move(steps, found)
        if move.end:
            return found, started, move.end
        for each in move.skip:
            found[each.id] = "skipped"
        for step in move.start:
            assert step not in found
            started.append(step)
            found[step] = "skipped" if data.draw(st.booleans(), label=f"skips {step}") else "open"
        at_work = [step for step, outcome in found.items() if outcome == "open"]
        must_end = not (move.start or move.skip)
        if at_work and (must_end or data.draw(st.booleans())):
            ended = data.draw(st.sampled_from(at_work))
            found[ended] = data.draw(st.sampled_from(["done", "failed"]))
    raise AssertionError("the table does not end")


@given(tables(), st.data())
def test_any_table_ends_with_each_step_done_skipped_or_failed_after_all_that_it_needs(
    steps: list[Step], data: st.DataObject
) -> None:
    found, started, end = play(steps, data)
    by_id = {step.id: step for step in steps}
    for number, step in enumerate(started):
        assert set(by_id[step].needs) <= set(started[:number])
        assert "skipped" not in {found[need] for need in by_id[step].needs}
    fatal = {step.id for step in steps if found.get(step.id) == "failed" and step.on_error == "fail"}
    assert (end == "failed") == bool(fatal)
    assert "open" not in found.values()
    for step in steps:
        if step.id not in found:
            assert fatal
        elif any(found.get(need) == "skipped" for need in step.needs):
            assert found[step.id] == "skipped"


def test_a_step_that_needs_a_skipped_one_is_skipped_and_does_not_start() -> None:
    steps = [Step(id="a"), Step(id="b"), Step(id="c", needs=("a", "b"))]
    skip = Skipped("c", "it needs 'b', which was skipped")
    assert next_move(steps, {"a": "done", "b": "skipped"}) == Move(skip=(skip,))


@given(tables(), st.data())
def test_nothing_starts_after_a_failure_that_ends_the_table(steps: list[Step], data: st.DataObject) -> None:
    found, _, _ = play(steps, data)
    if any(step.on_error == "fail" and found.get(step.id) == "failed" for step in steps):
        move = next_move(steps, {**found, steps[0].id: found.get(steps[0].id, "open")})
        assert (move.start, move.skip) == ((), ())


@given(tables())
def test_the_order_of_a_plan_puts_each_step_after_all_that_it_needs(steps: list[Step]) -> None:
    ordered = [step.id for step in in_order(steps)]
    assert sorted(ordered) == sorted(step.id for step in steps)
    assert all(ordered.index(need) < ordered.index(step.id) for step in steps for need in step.needs)
    assert cycles({step.id: step.needs for step in steps}) == []


@given(tables(), st.data())
def test_a_cycle_is_found_and_named_from_one_of_its_steps_to_itself(
    steps: list[Step], data: st.DataObject
) -> None:
    needs = {step.id: list(step.needs) for step in steps}
    length = data.draw(st.integers(2, 4))
    ring = [f"r{number}" for number in range(length)]
    needs |= {step: [ring[(number + 1) % length]] for number, step in enumerate(ring)}
    (found,) = cycles(needs)
    assert found[0] == found[-1]
    assert set(found) == set(ring)


@tool(effect="unsafe")
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def table(*steps: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return {"kind": "workflow", "name": "t", "steps": list(steps), **keys}


PAY = {"id": "pay", "tool": "pay", "arguments": {"amount": 1}}


@pytest.mark.parametrize(
    ("given_", "told"),
    [
        (table(), "steps: Tuple should have at least 1 item"),
        (table({**PAY, "tool": "pya"}), "steps.0.tool: there is no tool 'pya'; did you mean 'pay'?"),
        (table({"id": "a", "agent": "b", "input": ""}), "steps.0.agent: there is no agent 'b'"),
        (table({"id": "a", "agent": "b"}), "steps.0.input: the agent needs an input"),
        (table({**PAY, "retries": 3}), "unknown key 'steps.0.retries'; did you mean 'retry'?"),
        (table({**PAY, "retry": {"attempts": 2}}), "steps.0.retry: the tool 'pay' is unsafe"),
        (table({**PAY, "arguments": {}}), "steps.0.arguments: the tool 'pay' requires 'amount'"),
        (table({**PAY, "arguments": {"amount": 1, "to": 2}}), "there is no parameter 'to'"),
        (table({**PAY, "needs": ["pay"]}), "steps.0.needs: step 'pay' needs itself"),
        (table({**PAY, "arguments": {"amount": "${pay.result}"}}), "step 'pay' needs itself"),
        (table(PAY, {**PAY, "when": "pay2.status == ''"}), "steps.1.when: "),
        (table(PAY, PAY), "steps.1.id: 'pay' is also step 0"),
        (table({**PAY, "id": "a b"}), "steps.0.id: 'a b' must be a letter or '_'"),
        (table({**PAY, "id": "input"}), "steps.0.id: 'input' means something else"),
        (table({**PAY, "arguments": {"amount": "${input.a"}}), "has a ${ without its }"),
        (table({**PAY, "arguments": {"amount": "${1 + 1}"}}), "${1 + 1} is not a path"),
        (table({**PAY, "when": "1 +"}), "steps.0.when: '1 +' is not CEL"),
        (table({**PAY, "ask": "Pay?"}), "steps.0: a step has one of tool, agent, ask, wait, sleep"),
        (table({"id": "a"}), "it has none"),
        (
            table({"id": "a", "ask": "Pay?", "timeout_s": 3.0}),
            "steps.0.timeout_s: belongs to 'tool' or 'wait'",
        ),
        (table({"id": "a", "sleep": {"weeks": 3}}), "steps.0.sleep: unknown key 'weeks'"),
        (table({"id": "a", "sleep": -1}), "steps.0.sleep: must not be negative"),
        (table({"id": "a", "wait": "a b"}), "steps.0.wait: a signal is named by"),
        (table({**PAY, "postcondition": [{"no_such": {}}]}), "steps.0.postcondition: "),
        (table(PAY, output="${paid.result}"), "output: there is no step 'paid'; did you mean 'pay'?"),
        (
            table({**PAY, "needs": ["b"]}, {**PAY, "id": "b", "needs": ["pay"]}),
            "steps.0.needs: a cycle: 'pay' needs 'b' needs 'pay'",
        ),
    ],
)
def test_what_is_wrong_with_a_table_is_told_with_its_place(given_: dict[str, Any], told: str) -> None:
    with pytest.raises(AgentConfigError) as failed:
        WorkflowTable.from_config(given_, Registry(tools=[pay]))
    assert told in str(failed.value)


def test_the_names_of_the_steps_are_told_once_to_who_needs_another() -> None:
    with pytest.raises(AgentConfigError) as failed:
        WorkflowTable.from_config(table(PAY, output="${zzz.result}"), Registry(tools=[pay]))
    (problem,) = failed.value.problems
    assert problem.message == "output: there is no step 'zzz'; known: input, pay"


def test_all_that_is_wrong_is_told_at_once_in_the_order_of_the_steps() -> None:
    wrong = table({**PAY, "tool": "pya", "colour": 1}, {**PAY, "id": "b", "needs": ["c"]}, size=1)
    with pytest.raises(AgentConfigError) as failed:
        WorkflowTable.from_config(wrong, Registry(tools=[pay]))
    assert [problem.key for problem in failed.value.problems] == [
        "size",
        "steps.0.colour",
        "steps.0.tool",
        "steps.1.needs",
    ]


def test_a_table_is_the_same_after_it_was_stored() -> None:
    read = WorkflowTable.from_config(
        table(
            {**PAY, "approval": "required", "timeout_s": 3},
            {"id": "b", "agent": "b", "input": {"n": 1}, "retry": {"attempts": 2}},
            {"id": "c", "ask": "Go on?", "schema": {"type": "object"}, "when": "b.result != ''"},
            {"id": "d", "wait": "paid", "timeout_s": 3, "needs": ["c"]},
            {"id": "e", "sleep": {"days": 3}},
        )
    )
    again = WorkflowTable.from_config(read.to_config())
    assert again.to_config() == read.to_config()
    assert again.digest == read.digest
