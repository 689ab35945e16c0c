"""Code that agrees with a stored run is silent; other code is found at the first decision it takes otherwise."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from foldlog.eventlog.commits import Commit, decode, encode
from foldlog.eventlog.errors import ConfigError, RunNotFound
from foldlog.eventlog.events import Budget, Submitted
from foldlog.eventlog.memory import MemoryLog
from foldlog.eventlog.names import run_subject
from foldlog.eventlog.ports import Stored
from foldlog.projections import call_texts
from foldlog.replay import Divergence, Trace, export, read_archive, replay, state_at, trace_of
from foldlog.replay.replaying import replaying
from foldlog.runtime import Agent, Registry, Runtime, tool
from foldlog.runtime.core import model_calls, model_request, steps
from foldlog.runtime.core import tool_calls as calls_module
from foldlog.runtime.core.turn import Turn

from tests.replay.conftest import played
from tests.replay.scenarios import SCENARIOS, Model, World, calls, says


def only(name: str, index: int = 0) -> Trace:
    return list(played(name)[1].traces.values())[index]


def diverged(trace: Trace, registry: Registry | None = None) -> Divergence:
    found = replay(trace, registry).divergence
    assert found is not None
    return found


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_code_agrees_with_every_run_that_it_made(name: str) -> None:
    world, archive = played(name)
    assert archive.traces
    for root, trace in archive.traces.items():
        found = replay(trace, world.registry())
        assert found.divergence is None
        assert found.agrees
        assert found.root == root
        assert found.turns + found.shared == len(trace.commits) - len(found.unread)
        submitted = [event for event in trace.events if isinstance(event, Submitted)]
        shared = {event.run_id: event.fork.shared for event in submitted if event.fork is not None}
        decided = [event for event in trace.events if (event.revision or 0) > shared.get(event.run_id, 0)]
        assert found.requests == sum(event.type == "model_requested" for event in decided)


def test_a_run_of_a_newer_writer_is_replayed_up_to_what_is_new() -> None:
    trace = only("from_a_newer_writer")
    found = replay(trace)
    assert found.agrees
    assert found.unread == {trace.root: trace.events[-1].revision}


def test_a_trace_without_its_artifacts_is_refused() -> None:
    with pytest.raises(ConfigError, match="--artifacts"):
        replay(trace_of(only("emitted").stored))


# --- code that changed ------------------------------------------------------------------------------------------------


def test_another_request_digest_is_named_with_its_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        model_calls, "request_digest", lambda *asked: model_request.request_digest(*asked)[::-1]
    )
    found = diverged(only("tools_and_progress"))
    assert (found.fields, found.revision) == (("digest",), 6)
    assert found.why.startswith("the code sends the model a different request in step 1; rule R12: ")
    assert "docs/maintainers/contract.md#r12" in found.why
    assert 'message 1 (system) "You are helper."; message 2 (user) ' in found.why
    assert "settings none" in found.why
    assert "step 1" in found.why


def test_another_rendering_of_results_is_found_at_the_next_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_texts, "answer_text", lambda result: f"result: {result}")
    found = diverged(only("tools_and_progress"))
    assert found.fields == ("digest",)
    assert "step 2" in found.why


def test_a_longer_backoff_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    backoff_s = model_calls.backoff_s
    monkeypatch.setattr(
        model_calls, "backoff_s", lambda retry, failures, seed: 20 * backoff_s(retry, failures, seed)
    )
    found = diverged(only("retries"))
    assert found.fields == ("retry_at",)
    assert "backoff" in found.why


def test_another_expiry_of_approvals_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    rules_of = replaying.rules_of_run
    sooner = {"approval_timeout_s": 3600.0}
    monkeypatch.setattr(
        replaying, "rules_of_run", lambda submitted: msgspec.structs.replace(rules_of(submitted), **sooner)
    )
    assert diverged(only("approvals")).fields == ("expires_at",)


def test_fewer_attempts_at_a_model_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_calls, "RETRIED_ERRORS", frozenset[str]())
    found = diverged(only("retries"))
    assert found.recorded is not None
    assert found.recorded.type == "model_failed"
    assert found.fields == ("retry_at",)
    assert found.values["retry_at"][1] is None


def test_a_shorter_wait_before_parking_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_calls, "PARK_RETRY_S", 3600.0)
    found = diverged(only("waiting", 2))
    assert found.recorded is not None
    assert found.recorded.type == "parked"
    assert "does not decide it" in found.why


def test_a_decision_that_the_code_does_not_take_any_more_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "complete", lambda _turn: None)
    found = diverged(only("tools_and_progress"))
    assert found.why == "step(1, completed) was recorded, but the code does not decide it"


def test_a_decision_that_the_code_takes_besides_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    settle = calls_module._settle

    def eager(turn: Turn, call: Any) -> None:
        settle(turn, call)
        if call.result is None and call.name == "deploy":
            calls_module._result(turn, call, status="error", error="no patience")

    monkeypatch.setattr(calls_module, "_settle", eager)
    found = diverged(only("approvals"))
    assert found.decided is not None
    assert found.decided.type == "tool_result"
    assert "also decides" in found.why or "the code decides" in found.why


def test_a_result_of_a_call_that_was_not_asked_for_yet_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls_module, "startable", lambda *_: ())
    found = diverged(only("tools_and_progress"))
    assert "would not have requested it yet" in found.why


def test_the_first_difference_of_a_family_is_the_first_in_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_calls, "request_digest", lambda *_: "other")
    trace = only("child")
    assert diverged(trace).run == trace.root


# --- the user's code that changed -------------------------------------------------------------------------------------


@tool(effect="pure")
async def look(at: str) -> str:
    """Look at something."""
    return at


async def recorded(agent: Agent[Any], model: Model) -> Trace:
    log = MemoryLog()
    async with Runtime.open(log=log, registry=Registry(agents=[agent], providers={"sim": model})) as rt:
        await rt.run(agent, "question")
    return read_archive(b"".join([line async for line in export(log)])).trace()


def looker(**fields: Any) -> Agent[Any]:
    return Agent("looker", **{"model": "sim:looker", "tools": [look], "instructions": "Be kind.", **fields})


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"instructions": "Be brief."}, "instructions"),
        ({"max_steps": 3}, "max_steps"),
        ({"retry": {"base_s": 1.0}}, "retry"),
        ({"settings": {"temperature": 0.5}}, "settings"),
        ({"model": "sim:other"}, "model"),
    ],
)
async def test_a_changed_agent_is_found_and_the_setting_named(fields: dict[str, Any], named: str) -> None:
    model = Model()
    model.scripts["looker"] = (calls(("look", {"at": "x"})), says("done"))
    trace = await recorded(looker(), model)
    assert replay(trace, Registry(agents=[looker()])).agrees
    found = diverged(trace, Registry(agents=[looker(**fields)]))
    assert (found.revision, found.fields) == (1, (named,))
    assert "agent 'looker'" in found.why


async def test_a_changed_tool_schema_is_found_and_the_tool_named() -> None:
    model = Model()
    model.scripts["looker"] = (says("done"),)
    trace = await recorded(looker(), model)

    @tool(effect="pure", name="look")
    async def look_harder(at: str, twice: bool = False) -> str:
        """Look at something."""
        return at

    found = diverged(trace, Registry(agents=[looker(tools=[look_harder])]))
    assert found.fields == ("parameters",)
    assert found.why == "tool 'look' has changed: parameters"


async def test_an_agent_that_is_not_registered_is_left_alone() -> None:
    model = Model()
    model.scripts["looker"] = (says("done"),)
    assert replay(await recorded(looker(), model), Registry(agents=[Agent("other", model="sim:x")])).agrees


# --- records that were changed ----------------------------------------------------------------------------------------


def altered(trace: Trace, change: Any) -> Trace:
    """The trace with other events, its chain made whole again."""
    heads: dict[str, tuple[int, str]] = {}
    stored: list[Stored] = []
    for each in trace.stored:
        commit = decode(each.data)
        revision, prev = heads.get(commit.run, (0, ""))
        events = change(commit)
        changed = msgspec.structs.replace(commit, events=tuple(events), rev=revision + 1, prev=prev)
        data = encode(changed)
        stored.append(Stored(each.subject, each.position, data))
        from hashlib import sha256

        heads[commit.run] = revision + len(events), sha256(data).hexdigest()
    return trace_of(stored)


@pytest.mark.parametrize(
    "kind", ["model_requested", "usage", "tool_result", "status", "tool_call", "claimed", "prepared", "step"]
)
def test_no_event_of_a_run_can_be_left_out(kind: str) -> None:
    trace = only("tools_and_progress")
    left_out: list[int] = []

    def without_first(commit: Commit) -> list[Any]:
        kept = []
        for event in commit.events:
            if event.type == kind and not left_out:
                left_out.append(commit.rev)
                continue
            kept.append(event)
        return kept

    assert not replay(altered(trace, without_first)).agrees
    assert left_out


# --- what is large ----------------------------------------------------------------------------------------------------


async def test_a_turn_that_was_cut_into_several_commits_is_one_turn() -> None:
    world = World()
    many = tuple(("fill", {"n": n}) for n in range(40))
    world.model.scripts["filler"] = (calls(*many), says("done"))

    @tool(effect="pure")
    async def fill(n: int) -> str:
        """Fill a commit."""
        return f"{n:05d}" * 6000

    agent: Agent[Any] = Agent("filler", model="sim:filler", tools=[fill])
    world.agents.append(agent)
    async with world.runtime() as rt:
        await rt.run(agent, "question")
    trace = read_archive(b"".join([line async for line in export(world.log)])).trace()
    results = [sum(e.type == "tool_result" for e in c.commit.events) for c in trace.commits]
    assert sum(count > 0 for count in results) > 1
    assert replay(trace).divergence is None


# --- the state at any point -------------------------------------------------------------------------------------------


def test_the_state_at_a_revision_is_what_was_known_and_to_be_done_there() -> None:
    trace = only("approvals")
    first = next(e for e in trace.events if e.type == "status" and getattr(e, "status", "") == "paused")
    point = state_at(trace, first.revision or 0)
    assert point.state.status == "paused"
    assert [a.request.tool_call_id for a in point.state.pending_approvals] == ["call-0-0", "call-0-1"]
    assert [getattr(effect, "call_id", "") for effect in point.pending] == ["call-0-2"]
    assert [message.role for message in point.state.messages] == ["system", "user"]
    last = state_at(trace, trace.events[-1].revision or 0)
    assert (last.state.status, last.pending) == ("completed", ())


def test_the_state_of_a_child_is_found_by_its_id() -> None:
    trace = only("child")
    child = next(e for e in trace.events if e.type == "child_started")
    point = state_at(trace, 1, child.child_run)  # type: ignore[attr-defined]
    assert (point.state.run, point.state.path) == (child.child_run, "outer/inner")  # type: ignore[attr-defined]


def test_a_revision_or_run_that_is_not_there_is_named() -> None:
    trace = only("approvals")
    with pytest.raises(ConfigError, match=r"revisions 1 to \d+, not 999"):
        state_at(trace, 999)
    with pytest.raises(RunNotFound, match="nobody"):
        state_at(trace, 1, "nobody")
    assert run_subject(0, trace.root, trace.root) == trace.stored[0].subject


def test_the_state_at_a_revision_tells_how_far_each_budget_is_used() -> None:
    _, archive = played("kept_in_bounds")
    passed = {}
    for trace in archive.traces.values():
        for event in trace.events:
            if isinstance(event, Budget) and event.kind == "limit":
                point = state_at(trace, event.revision or 0, event.run_id)
                passed |= {use.scope: (float(use.used or 0), float(use.limit)) for use in point.budgets}
                assert event.scope in passed
                assert passed[event.scope] == (event.used, event.limit)
    assert passed.keys() >= {"steps", "tokens"}
