"""A recorded run runs again without its model and its tools, and says where it would have gone another way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from foldlog.eventlog import ConfigError, MemoryLog, RunFailed, TokenUsage
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.eventlog.events import Status
from foldlog.projections.messages import Message
from foldlog.replay import Trace, begins_with, canonical, check_trace, compare, load_trace, replay, to_jsonl
from foldlog.replay.parity.inputs import Answer
from foldlog.replay.parity.parity import check_parity
from foldlog.replay.rerunning.recorded import RecordedProvider, Recording, rerun
from foldlog.replay.strategies.runs import traces
from foldlog.runtime import Agent, Registry, Runtime, Swarm, ToolContext, tool
from foldlog.runtime.ports.models import Delta, Finished, ModelRequest, TextDelta
from hypothesis import HealthCheck, given, settings

from .scenes import AGENT, EVERYTHING, TWO_CALLS, call, calls, says
from .test_parity import HISTORY, INPUTS

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def labels(trace: Trace) -> list[str]:
    return [boundary.label for boundary in canonical(trace).boundaries]


@pytest.fixture
async def everything(anyio_backend: str) -> Trace:
    """A trace of all that there is."""
    report = await check_parity(AGENT, "question", script=EVERYTHING, inputs=INPUTS, messages=HISTORY)
    return report.traces["local"]


@pytest.mark.parametrize("executor", ["local", "durable"])
async def test_a_recorded_run_is_the_same_again_with_nothing_but_its_trace(
    everything: Trace, executor: str
) -> None:
    again = await rerun(everything, executor=executor)
    assert check_trace(again) == []
    assert compare(everything, again).equal, compare(everything, again).first_difference


async def test_no_tool_is_run_again() -> None:
    ran = []

    @tool
    async def send(to: str) -> str:
        """Send something."""
        ran.append(to)
        return "sent"

    agent = Agent("sender", model="openai:gpt-4o", tools=[send])
    report = await check_parity(agent, "question", script=[calls(call("send", to="a")), says("done")])
    assert len(ran) == 2
    again = await rerun(report.traces["local"], agent=agent)
    assert len(ran) == 2
    assert compare(report.traces["local"], again).equal


async def test_a_request_that_differs_fails_a_strict_run_and_the_first_difference_is_named(
    everything: Trace,
) -> None:
    changed = Agent(
        "helper",
        model="openai:gpt-4o",
        tools=list(AGENT.tools.values()),
        hitl_tools=["deploy"],
        instructions="Be kind.",
    )
    again = await rerun(everything, agent=changed)
    error = next(event for event in again.events if event.type == "error")
    assert error.error_type == "invalid_request"  # type: ignore[attr-defined]
    assert 'message 1 (system) is "Be kind." now and missing in the recording' in error.error  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"settings": {"temperature": 0.5}}, "temperature is 0.5 now and missing in the recording"),
        ({"settings": {"max_tokens": 9}}, "max_tokens is 9 now and missing in the recording"),
    ],
)
async def test_a_parameter_that_differs_is_named(fields: dict[str, float], named: str) -> None:
    report = await check_parity(AGENT, "question", script=TWO_CALLS)
    agent = Agent(
        "helper", model="openai:gpt-4o", tools=list(AGENT.tools.values()), hitl_tools=["deploy"], **fields
    )  # type: ignore[arg-type]
    again = await rerun(report.traces["local"], agent=agent)
    assert named in next(event for event in again.events if event.type == "error").error  # type: ignore[attr-defined]


async def test_a_model_that_differs_is_another_request_unless_the_run_is_lenient() -> None:
    report = await check_parity(AGENT, "question", script=TWO_CALLS)
    agent = Agent("helper", model="openai:gpt-5", tools=list(AGENT.tools.values()), hitl_tools=["deploy"])
    again = await rerun(report.traces["local"], agent=agent)
    assert 'model is "openai:gpt-4o" in the recording and "openai:gpt-5" now' in _error_of(again)
    lenient = await rerun(report.traces["local"], agent=agent, strict=False)
    assert labels(lenient) == labels(report.traces["local"])


def _error_of(trace: Trace) -> str:
    return str(next(event for event in trace.events if event.type == "error").error)  # type: ignore[attr-defined]


async def test_a_tool_whose_description_changed_is_another_request() -> None:
    @tool(effect="pure")
    async def look(at: str) -> str:
        """Look at something else."""
        return at

    report = await check_parity(AGENT, "question", script=TWO_CALLS)
    changed = [look if name == "look" else each for name, each in AGENT.tools.items()]
    agent = Agent("helper", model="openai:gpt-4o", tools=changed, hitl_tools=["deploy"])
    again = await rerun(report.traces["local"], agent=agent)
    told = _error_of(again)
    assert "tool 'look', description is \"Look at" in told
    assert '" in the recording and "Look at something else." now' in told


async def test_a_lenient_run_goes_on_with_the_nearest_answer() -> None:
    report = await check_parity(AGENT, "question", script=TWO_CALLS)
    changed = Agent("helper", model="openai:gpt-5", tools=list(AGENT.tools.values()), instructions="Be kind.")
    again = await rerun(report.traces["local"], agent=changed, strict=False)
    assert [b.label for b in canonical(again).boundaries] == [
        b.label for b in canonical(report.traces["local"]).boundaries
    ]


async def test_a_run_that_failed_fails_again_in_the_same_way() -> None:
    script = [{"error": {"type": "auth", "times": 9}}]
    report = await check_parity(AGENT, "question", script=script)
    again = await rerun(report.traces["local"])
    assert labels(again)[-2:] == ["error(auth)", "status(error)"]


async def test_the_provider_answers_from_a_file_by_its_path(tmp_path: Path) -> None:
    report = await check_parity(AGENT, "question", script=[says("Final ", "answer")])
    path = tmp_path / "trace.jsonl"
    path.write_bytes(to_jsonl(report.traces["local"]))
    agent = Agent("helper", model=f"recorded:{path}", tools=list(AGENT.tools.values()), hitl_tools=["deploy"])
    registry = Registry(agents=[agent], providers={"recorded": RecordedProvider()})
    async with Runtime.open(log=MemoryLog(), registry=registry) as runtime:
        assert (await runtime.run(agent, "question")).output == "Final answer"


async def test_the_provider_answers_from_a_run_by_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "script.json"
    path.write_text('{"turns": [{"text": ["Final ", "answer"]}]}')
    scripted, answers = Agent("helper", model=f"scripted:{path}"), RecordedProvider()
    async with (
        EphemeralServer() as server,
        Runtime.open(server.url, registry=Registry([scripted])) as runtime,
    ):
        first = await runtime.run(scripted, "question")
        monkeypatch.setenv("NATS_URL", server.url)
        monkeypatch.delenv("FOLDLOG_NAMESPACE", raising=False)
        for model, output in ((first.run_id, "Final answer"), ("00-nobody", None)):
            agent = Agent("helper", model=f"recorded:{model}")
            registry = Registry([agent], providers={"recorded": answers})
            async with Runtime.open("memory://", registry=registry) as again:
                if output is not None:
                    assert (await again.run(agent, "question")).output == output
                    continue
                with pytest.raises(RunFailed, match="no run '00-nobody'"):
                    await again.run(agent, "question")


def test_a_file_that_is_not_a_trace_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.jsonl cannot be read"):
        RecordedProvider().check(str(tmp_path / "nowhere.jsonl"))
    (tmp_path / "other.jsonl").write_text("hello\n")
    with pytest.raises(ConfigError):
        RecordedProvider().check(str(tmp_path / "other.jsonl"))


async def test_another_agent_than_the_recorded_one_is_refused(everything: Trace) -> None:
    with pytest.raises(ConfigError, match="of the agent 'helper', not of 'other'"):
        await rerun(everything, agent=Agent("other"))


@pytest.mark.parametrize("decision", ["rejected", "timed_out"])
async def test_what_people_decided_is_decided_again(decision: str) -> None:
    inputs = [Answer(call="1.0", decision=decision)]  # type: ignore[arg-type]
    script = [calls(call("deploy", to="x")), says("ok")]
    report = await check_parity(AGENT, "question", script=script, inputs=inputs)
    assert compare(report.traces["local"], await rerun(report.traces["local"])).equal


async def test_a_run_that_paused_for_want_of_a_model_pauses_again_and_goes_on() -> None:
    retry = {"attempts": 2, "base_s": 0.001, "max_s": 0.002, "exhausted": "pause"}
    agent = Agent("patient", model="openai:gpt-4o", retry=retry)
    script = [{"text": ["done"], "error": {"type": "transient", "times": 3}}]
    recorded = (await check_parity(agent, "question", script=script)).traces["local"]
    again = await rerun(recorded, timeout_s=120)
    assert [e.reason for e in again.events if isinstance(e, Status) and e.status == "paused"] == ["policy"]
    assert compare(recorded, again).equal


@settings(
    max_examples=20, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
@given(traces())
def test_any_trace_is_the_same_again(trace: Trace) -> None:
    again = asyncio.run(rerun(Recording(trace)))
    assert compare(trace, again).equal, compare(trace, again).first_difference


async def test_the_artifacts_of_a_recorded_call_are_those_of_the_call_again(tmp_path: Path) -> None:
    @tool(effect="idempotent")
    async def keep(text: str, context: ToolContext) -> str:
        """Keep a text."""
        return (await context.artifact(text.encode(), "text/plain")).id

    path = tmp_path / "keeper.json"
    turn = {"tool_calls": [{"id": "1", "name": "keep", "arguments": {"text": "x"}}]}
    path.write_text(json.dumps({"turns": [turn, {"text": "kept"}]}))
    agent = Agent("keeper", model=f"scripted:{path}", tools=[keep])
    log = MemoryLog()
    async with Runtime.open(log=log, registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "question")
        await run.result()
        recorded = await load_trace(log, run.run_id)
    assert compare(recorded, await rerun(recorded, agent=agent)).equal


class Turns:
    """A model that never says the same twice."""

    def __init__(self) -> None:
        self.said = 0

    def check(self, model: str) -> None:
        """Any."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        self.said += 1
        yield TextDelta(f"answer {self.said}")
        yield Finished(reason="stop", usage=TokenUsage(input_tokens=1, output_tokens=1, total_tokens=2))

    async def aclose(self) -> None:
        """Nothing is held open."""


@pytest.mark.parametrize("executor", ["local", "durable"])
async def test_agents_that_ask_the_same_have_each_the_answer_that_it_had(executor: str) -> None:
    one, other = Agent("one", model="turns:x"), Agent("other", model="turns:x")
    swarm = Swarm([one, other], "(one | other)*3", name="twins")
    async with Runtime.open("memory://", registry=Registry([swarm], providers={"turns": Turns()})) as runtime:
        run = await runtime.start(swarm, "question")
        await run.result()
        recorded = await load_trace(runtime.log, run.run_id)
    again = await rerun(recorded, executor=executor)
    assert compare(recorded, again).equal, compare(recorded, again).first_difference


async def test_children_of_one_call_that_ask_the_same_are_told_apart(tmp_path: Path) -> None:
    one = Agent("one", model="turns:x")

    @tool(effect="pure", timeout_s=None)
    async def ask(context: ToolContext) -> list[str]:
        """Ask three at once."""
        return list(await asyncio.gather(*(context.run(one, "the same") for _ in range(3))))

    path = tmp_path / "asker.json"
    path.write_text(json.dumps({"turns": [calls(call("ask")), says("done")]}))
    asker = Agent("asker", model=f"scripted:{path}", tools=[ask])
    registry = Registry([asker, one], providers={"turns": Turns()})
    async with Runtime.open("memory://", registry=registry) as runtime:
        run = await runtime.start(asker, "question")
        await run.result()
        recorded = await load_trace(runtime.log, run.run_id)
    assert compare(recorded, await rerun(recorded)).equal
    provider = RecordedProvider(Recording(recorded))
    told = [await _text(provider, f"run-{number}:1") for number in (1, 2, 1, 3)]
    assert len(set(told)) == 3
    assert told[0] == told[2]


async def _text(provider: RecordedProvider, key: str) -> str:
    request = ModelRequest(
        model="x", messages=(Message(role="user", content="the same"),), idempotency_key=key, round=1
    )
    return "".join([delta.text async for delta in provider.stream(request) if isinstance(delta, TextDelta)])


@pytest.mark.parametrize("executor", ["local", "durable"])
async def test_a_fork_is_run_again_with_the_history_that_it_shares(tmp_path: Path, executor: str) -> None:
    ran: list[str] = []

    @tool
    async def send(to: str) -> str:
        """Send something."""
        ran.append(to)
        return f"sent to {to}"

    def scripted(name: str, *turns: object) -> str:
        (tmp_path / f"{name}.json").write_text(json.dumps({"turns": turns}))
        return f"scripted:{tmp_path / name}.json"

    model = scripted("first", calls(call("send", to="a")), calls(call("send", to="b")), says("done"))
    other = scripted("other", says("x"), calls(call("send", to="c")), says("other"), says("and more"))
    sender = Agent("sender", model=model, tools=[send])
    swarm = Swarm([sender, Agent("last", model=model, tools=[send])], "sender >> last")
    async with Runtime.open("memory://", registry=Registry([sender, swarm])) as runtime:
        for runnable, at, told in ((sender, 9, "and then?"), (swarm, 5, None)):
            parent = await runtime.start(runnable, "question")
            await parent.result()
            fork = await runtime.fork(parent.run_id, at=at, model=other, input=told)
            async for event in fork.stream():
                if event.type == "approval_requested":
                    await runtime.get_run(event.run_id).resolve(event.approval_id, "approved")
            recorded = await load_trace(runtime.log, fork.run_id)
            ran.clear()
            again = await rerun(recorded, executor=executor)
            assert compare(recorded, again).equal, compare(recorded, again).first_difference
            assert ran == []
            assert check_trace(again) == []
            assert replay(again).agrees
            changed = await rerun(recorded, agent=_told_otherwise(runnable))
            assert "the request differs from the recorded one" in _error_of(changed)


def _told_otherwise(runnable: Agent | Swarm) -> Agent | Swarm:
    """As the runnable, with other instructions."""
    if isinstance(runnable, Agent):
        return runnable.extended(instructions="Be kind.")
    members = [each.extended(instructions="Be kind.") for each in runnable.members.values()]  # type: ignore[attr-defined]
    return Swarm(members, "sender >> last")


async def test_a_run_that_is_still_going_is_run_again_as_far_as_it_is_recorded(tmp_path: Path) -> None:
    held = asyncio.Event()

    @tool(effect="pure")
    async def hold() -> str:
        """Wait."""
        await held.wait()
        return "held"

    @tool
    async def send(to: str) -> str:
        """Send something."""
        return f"sent to {to}"

    def scripted(name: str, *turns: object) -> str:
        (tmp_path / f"{name}.json").write_text(json.dumps({"turns": turns}))
        return f"scripted:{tmp_path / name}.json"

    waits = Agent("waits", model=scripted("waits", calls(call("hold")), says("A")), tools=[hold])
    asks = Agent(
        "asks", model=scripted("asks", calls(call("send", to="a"))), tools=[send], hitl_tools=["send"]
    )
    quick = Agent("quick", model=scripted("quick", says("Q")))
    swarm = Swarm([waits, asks, quick], "(waits | asks | quick)")
    async with Runtime.open("memory://", registry=Registry([swarm])) as runtime:
        run = await runtime.start(swarm, "question")
        async with asyncio.timeout(120):
            seen = set[str]()
            async for event in run.stream(detailed=True):
                seen.add(f"{event.type} {event.agent}")
                if {"tool_call waits", "approval_requested asks", "child_finished swarm"} <= seen:
                    break
        for _ in range(2):
            recorded = await load_trace(runtime.log, run.run_id)
            again = await rerun(recorded)
            assert begins_with(again, recorded).equal, begins_with(again, recorded).first_difference
            assert not any(event.type == "error" for event in again.events)
            await run.cancel()


async def test_what_a_provider_wants_back_is_asked_with_on_both_executors_and_in_a_rerun() -> None:
    wanted = [{"thought": "ü" * 20}, {"call": 0}]
    script = [
        {**calls(call("look", at="a")), "reply_items": wanted},
        {**calls(call("look", at="b")), "reply_items": wanted},
        says("done"),
    ]
    agent = Agent("thinker", model="openai:gpt-5", tools=[AGENT.tools["look"]], settings={"seed": 7})
    report = await check_parity(agent, "question", script=script)
    assert report.equal, report
    again = await rerun(report.traces["local"], agent=agent)
    assert compare(report.traces["local"], again).equal
    for trace in (*report.traces.values(), again):
        assert [event.items for event in trace.events if event.type == "reply_state"] == [wanted, wanted]
        assert replay(trace).divergence is None
    digests = [
        [event.digest for event in trace.events if event.type == "model_requested"]
        for trace in (report.traces["local"], again)
    ]
    assert digests[0] == digests[1]
