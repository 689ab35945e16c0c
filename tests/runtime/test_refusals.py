"""Impossible requests are refused by name, before the first event where possible, and never hang."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from foldlog.eventlog import (
    AgentConfigError,
    ApprovalError,
    ConfigError,
    FoldlogError,
    Log,
    LogUnavailable,
    NotRegistered,
    PayloadTooLarge,
    RunFailed,
    Subject,
    Submitted,
    UnsupportedByExecutor,
)
from foldlog.eventlog.memory import MemoryLog
from foldlog.eventlog.ports import COMMIT_BYTES_MAX
from foldlog.runtime import (
    CAPABILITIES,
    Agent,
    RalphLoop,
    Registry,
    Runtime,
    Swarm,
    ToolContext,
    tool,
)
from foldlog.runtime.executors import worker as worker_module
from foldlog.runtime.ports.executor import RunsIn
from foldlog.runtime.ports.models import Delta, Finished, ModelRequest, ModelSettings, TextDelta

from .conftest import Place, call, calls, says

pytestmark = pytest.mark.anyio
Script = Callable[..., str]


@tool(effect="pure")
async def search(query: str) -> str:
    """Search for something."""
    return query


class Lacking:
    """An executor that lacks one capability."""

    name = "lacking"
    runs_in: RunsIn = "elsewhere"

    def __init__(self, missing: str) -> None:
        self.capabilities = CAPABILITIES - {missing}

    async def submit(self, subject: Subject, submitted: Submitted, agent: Agent[Any]) -> bool:
        raise AssertionError("nothing may be submitted")

    async def drive(self, subject: Subject, agent: Agent[Any] | None = None) -> None:
        raise AssertionError("nothing may be driven")

    async def failure(self, run_id: str) -> FoldlogError | None:
        return None

    async def aclose(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize(
    ("missing", "fields", "options"),
    [
        ("approvals", {"hitl_tools": ["search"]}, {}),
        ("messages", {}, {"messages": [{"role": "user", "content": "before"}]}),
        ("progress", {"mcp_servers": {"srv": {"command": "true"}}}, {}),
        ("fallback", {"fallback_models": ["scripted:b"]}, {}),
        ("concurrency", {"concurrency": {"runs_max": 1}}, {}),
    ],
)
async def test_an_executor_that_lacks_what_a_run_needs_is_refused(
    script: Script, missing: str, fields: dict[str, Any], options: dict[str, Any]
) -> None:
    agent = Agent("helper", model=script(says("x")), tools=[search], **fields)
    async with Runtime.open(
        log=MemoryLog(), registry=Registry(agents=[agent]), executors={"lacking": Lacking(missing)}
    ) as runtime:
        with pytest.raises(UnsupportedByExecutor) as refusal:
            await runtime.start(agent, "question", executor="lacking", **options)
        assert (refusal.value.feature, refusal.value.executor) == (missing, "lacking")
        assert refusal.value.remedy
        assert await runtime.list_runs() == []


@pytest.mark.parametrize(
    ("missing", "fields"),
    [
        ("children", {}),
        ("approvals", {"hitl_tools": ["search"]}),
        ("planning", {"planning_enabled": True}),
        ("memory", {"memory": {"scope": "session"}}),
        ("context", {"context": {"mode": "pilot"}}),
        ("fallback", {"fallback_models": ["scripted:b"]}),
        ("concurrency", {"concurrency": {"runs_max": 1}}),
    ],
)
@pytest.mark.parametrize("kind", ["swarm", "loop", "loop in a swarm", "tool", "tool in a tool of a node"])
async def test_what_a_member_needs_is_refused(
    script: Script, kind: str, missing: str, fields: dict[str, Any]
) -> None:
    member = Agent("helper", model=script(says("x")), tools=[search], **fields)
    loop = RalphLoop(member, name="loop")
    lead = Agent("lead", model=script(says("x")), tools=[member.as_tool()])
    outer = Agent("outer", model=script(says("x")), tools=[lead.as_tool()])
    runnable = {
        "swarm": Swarm([member], "helper"),
        "loop": loop,
        "loop in a swarm": Swarm([loop], "loop"),
        "tool": lead,
        "tool in a tool of a node": Swarm([outer], "outer"),
    }[kind]
    async with Runtime.open(
        log=MemoryLog(), registry=Registry(agents=[runnable]), executors={"lacking": Lacking(missing)}
    ) as runtime:
        with pytest.raises(UnsupportedByExecutor) as refusal:
            await runtime.start(runnable, "question", executor="lacking")
        assert (refusal.value.feature, refusal.value.executor) == (missing, "lacking")
        assert await runtime.list_runs() == []


ASKED_FOR_AT_A_RUN = {"detailed_events", "inject", "pause"}
"""Refused by the call that asks for it; see `test_capabilities.py` and the end of this part."""
PART_OF_EVERY_RUN = {"drafts", "artifacts"}
"""No run asks for them by itself: the parity kit does, of an executor whose runs lack them."""


def test_every_capability_that_a_run_may_need_is_refused_where_it_lacks() -> None:
    marks = test_an_executor_that_lacks_what_a_run_needs_is_refused, test_what_a_member_needs_is_refused
    tested = {
        row[0]
        for test in marks
        for mark in test.pytestmark
        if "missing" in mark.args[0]
        for row in mark.args[1]
    }
    assert tested | ASKED_FOR_AT_A_RUN | PART_OF_EVERY_RUN == CAPABILITIES


@pytest.mark.parametrize("executor", ["local", "durable"])
async def test_the_executors_that_are_shipped_lack_nothing(executor: str) -> None:
    async with Runtime.open("memory://") as runtime:
        assert runtime.executor(executor).capabilities == CAPABILITIES


async def test_details_of_an_executor_that_has_none_are_refused_before_anything_is_shown(
    script: Script,
) -> None:
    agent = Agent("helper", model=script(says("x")))
    log = MemoryLog()
    async with Runtime.open(log=log, registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "question")
        await run.result()
    executors = {"local": Lacking("detailed_events")}
    async with Runtime.open(log=log, registry=Registry(agents=[agent]), executors=executors) as runtime:
        with pytest.raises(UnsupportedByExecutor, match="detailed_events"):
            await anext(runtime.get_run(run.run_id).stream(detailed=True))


async def test_an_unknown_model_provider_is_refused(place: Place) -> None:
    agent = Agent("helper", model="nobody:model")
    await place.open(agent)
    with pytest.raises(ConfigError, match="nobody"):
        await place.start(agent)


async def test_an_unknown_provider_of_a_fallback_is_refused_too(place: Place, script: Script) -> None:
    agent = Agent("helper", model=script(says("x")), fallback_models=["nobody:model"])
    await place.open(agent)
    with pytest.raises(ConfigError, match="nobody"):
        await place.start(agent)


async def test_a_missing_key_is_a_failed_preparation(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    agent = Agent("helper", model="openai:gpt-4o")
    await place.open(agent)
    run = await place.start(agent)
    with pytest.raises(RunFailed, match="OPENAI_API_KEY") as failure:
        await run.result()
    assert failure.value.steps == 0
    assert [e.type for e in await place.events(run)] == ["status", "error", "status"]


async def test_a_malformed_script_is_a_failed_preparation(place: Place, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text('{"turns": [{"txt": []}]}')
    agent = Agent("helper", model=f"scripted:{tmp_path / 'bad.json'}")
    await place.open(agent)
    run = await place.start(agent)
    with pytest.raises(RunFailed, match=r"bad\.json.*txt") as failure:
        await run.result()
    assert failure.value.steps == 0


@pytest.mark.parametrize(
    ("fields", "error"),
    [({"model": "nobody:model"}, ConfigError), ({"tools": ["serch"]}, NotRegistered)],
    ids=["provider", "tool"],
)
async def test_what_an_agent_lacks_that_is_a_tool_of_another_is_refused_before_the_first_event(
    place: Place, script: Script, fields: dict[str, Any], error: type[Exception]
) -> None:
    inner = Agent("inner", **{"model": script(says("x")), **fields})
    agent = Agent("helper", model=script(says("x")), tools=[inner.as_tool()])
    runtime = await place.open(agent)
    with pytest.raises(error, match=r"nobody|serch"):
        await place.start(agent)
    assert await runtime.list_runs() == []


async def test_agents_that_are_tools_of_each_other_can_be_started(place: Place, script: Script) -> None:
    asked = Agent("asked", model=script(says("answer")), tools=["helper"])
    agent = Agent(
        "helper", model=script(calls(call("asked", input="x")), says("done")), tools=[asked.as_tool()]
    )
    await place.open(agent, tools=[agent.as_tool()])
    assert (await (await place.start(agent)).result()).output == "done"


async def test_an_unknown_tool_name_is_refused(place: Place, script: Script) -> None:
    agent = Agent("helper", model=script(says("x")), tools=["serch"])
    place.registry = Registry(agents=[agent])
    await place.open(agent)
    with pytest.raises(NotRegistered, match="serch"):
        await place.start(agent)


async def test_a_worker_without_the_tool_leaves_the_run_to_one_that_has_it(
    script: Script, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "LEFT_LOOKS", 2)
    full = Agent("helper", model=script(calls(call("search", query="x")), says("done")), tools=[search])
    bare = Agent("helper", model=full.config.model, tools=["search"])
    async with contextlib.AsyncExitStack() as stack:
        place = Place(log, "durable", stack)
        runtime = await place.open(bare, workers=2)
        run = await runtime.start(full, "question", executor="durable")
        journal = await run._journal()
        async with asyncio.timeout(120):
            await journal.follow_until(lambda state: bool(state.left))
        assert "there is no tool 'search'" in (await run.pending()).left[0]
        place.registry = Registry(agents=[full])
        await place.add_worker("worker-2")
        assert (await run.result()).output == "done"


async def test_input_over_the_limit_is_refused_with_its_size(place: Place, script: Script) -> None:
    agent = Agent("helper", model=script(says("x")))
    await place.open(agent)
    with pytest.raises(PayloadTooLarge) as refusal:
        await place.start(agent, "x" * 1_000_000)
    assert refusal.value.size_bytes > 1_000_000 > refusal.value.limit_bytes


async def test_a_result_over_the_limit_is_stored_beside_the_log(place: Place, script: Script) -> None:
    @tool(effect="pure")
    async def big() -> str:
        """Return much."""
        return "y" * 2_000_000

    agent = Agent("helper", model=script(calls(call("big")), says("done")), tools=[big])
    await place.open(agent)
    run = await place.start(agent)
    await run.result()
    result = next(e for e in await place.events(run) if e.type == "tool_result")
    assert result.result == "y" * 2_000_000
    assert max(len(s.data) for s in (await _stored(place, run.run_id))) < 100_000


async def _stored(place: Place, run_id: str) -> list[Any]:
    subject = await place.runtime.locate(run_id)
    return [stored async for stored in place.log.events.read(subject)]


async def test_whatever_a_model_says_over_the_limit_is_stored_beside_the_log(
    place: Place, script: Script
) -> None:
    @tool(effect="pure")
    async def count(text: str) -> int:
        """Count the characters."""
        return len(text)

    asks = [call("count", name, text=name * 700_000) for name in "ab"]
    turns = [{"text": "x" * 600_000, "reasoning": "y" * 600_000, "tool_calls": asks}, says("z" * 1_200_000)]
    agent = Agent("helper", model=script(*turns), tools=[count], hitl_tools=["count"])
    await place.open(agent)
    run = await place.start(agent)
    async for event in run.stream():
        if event.type == "approval_requested":
            await run.resolve(event.approval_id, "approved")
    result = await run.result()
    assert (result.output, result.steps) == ("z" * 1_200_000, 2)
    events = await place.events(run)
    told = [e.arguments["text"] for e in events if e.type == "tool_call"]
    assert told == ["a" * 700_000, "b" * 700_000]
    assert [e.arguments["text"] for e in events if e.type == "approval_requested"] == told
    assert [e.result for e in events if e.type == "tool_result"] == [700_000, 700_000]
    assert [len(e.text) for e in events if e.type == "text"] == [600_000, 1_200_000]
    sizes = [len(stored.data) for stored in await _stored(place, run.run_id)]
    assert max(sizes) <= COMMIT_BYTES_MAX


async def test_an_input_that_leaves_no_room_for_the_tools_is_taken(place: Place, script: Script) -> None:
    tools = [tool(_named(f"tool_{number}"), description="d" * 2_000) for number in range(60)]
    agent = Agent("helper", model=script(says("read")), tools=tools)
    await place.open(agent)
    run = await place.start(agent, "q" * 850_000)
    assert (await run.result()).output == "read"
    assert len((await run.state()).tools) == 60


async def test_an_input_that_leaves_no_room_for_the_tools_of_a_child_is_taken_and_a_larger_one_fails_alone(
    place: Place, script: Script
) -> None:
    tools = [tool(_named(f"tool_{number}"), description="d" * 2_000) for number in range(60)]
    inner = Agent("inner", model=script(says("read")), tools=tools)

    @tool(effect="pure")
    async def ask(size: int, context: ToolContext) -> str:
        """Run the inner agent."""
        return str(await context.run(inner, "q" * size))

    agent = Agent(
        "helper",
        model=script(calls(call("ask", "a", size=850_000), call("ask", "b", size=1_000_000)), says("done")),
        tools=[ask],
    )
    await place.open(agent, inner)
    run = await place.start(agent)
    await run.result()
    results = {e.tool_call_id: e for e in await place.events(run) if e.type == "tool_result"}
    assert results["a"].result == "read"
    assert "more than the 905,216" in results["b"].error


def _named(name: str) -> Callable[[], str]:
    def called() -> str:
        return ""

    called.__name__ = name
    return called


async def test_messages_that_are_too_large_together_reach_the_model_with_one_step(
    place: Place, script: Script
) -> None:
    agent = Agent("helper", model=script(says("first"), says("second")))
    await place.open(agent, workers=0)
    run = await place.start(agent, executor="durable")
    for letter in "ab":
        await run.inject(letter * 600_000)
    await place.add_worker("late")
    assert (await run.result()).output == "first"
    contents = [message.content for message in await run.history()]
    assert contents == ["question", "a" * 600_000, "b" * 600_000, "first"]


async def test_an_agent_that_this_process_does_not_know_is_not_driven(place: Place, script: Script) -> None:
    agent = Agent("helper", model=script(says("x")))
    await place.open(agent, workers=0)
    run = await place.start(agent, executor="durable")
    async with Runtime.open(log=place.log, registry=Registry()) as stranger:
        with pytest.raises(NotRegistered, match="helper"):
            await stranger.drive(run.run_id)


@pytest.mark.parametrize("url", ["nats://127.0.0.1:1", "http://127.0.0.1:1", "nonsense"])
async def test_a_server_that_is_not_there_is_one_clear_error(url: str) -> None:
    with pytest.raises((LogUnavailable, ConfigError), match=r"127\.0\.0\.1:1|nonsense"):
        async with Runtime.open(url):
            pass


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"executor": "cloud"}, "cloud"),
        ({"run_id": "no spaces"}, "run id"),
        ({"messages": [{"role": "king", "content": ""}]}, "message 1"),
        ({"messages": [{"role": "tool", "tool_call_id": "x", "content": ""}]}, "message 1"),
        ({"metadata": {"when": object()}}, "metadata"),
        ({"metadata": []}, "metadata must be a JSON object, not list"),
        ({"metadata": {"memory": {"scope": {"user_id": ""}}}}, "length >= 1 - at `\\$.scope.user_id`"),
        ({"session": ""}, "the session must not be empty"),
        ({"idempotency_key": ""}, "the idempotency key must not be empty"),
    ],
)
async def test_a_wrong_argument_is_named(script: Script, options: dict[str, Any], what: str) -> None:
    agent = Agent("helper", model=script(says("x")))
    async with Runtime.open("memory://", registry=Registry(agents=[agent])) as runtime:
        with pytest.raises(ConfigError, match=what):
            await runtime.start(agent, "question", **options)


async def test_an_unknown_option_names_the_nearest(script: Script) -> None:
    agent = Agent("helper", model=script(says("x")))
    async with Runtime.open("memory://", registry=Registry(agents=[agent])) as runtime:
        with pytest.raises(ConfigError, match=r"a run has no option 'sesion'; did you mean 'session'\?"):
            await runtime.start(agent, "question", sesion="tour")  # type: ignore[call-arg]


async def test_an_unknown_configuration_key_names_the_nearest(script: Script) -> None:
    with pytest.raises(AgentConfigError, match="max_steps"):
        Agent("helper", max_stepps=3)  # type: ignore[call-arg]


async def test_an_approval_is_answered_once_and_only_if_it_exists(place: Place, script: Script) -> None:
    @tool
    async def deploy() -> str:
        """Deploy."""
        return "deployed"

    agent = Agent(
        "ops", model=script(calls(call("deploy")), says("done")), tools=[deploy], hitl_tools=["deploy"]
    )
    await place.open(agent)
    run = await place.start(agent)
    async for event in run.stream():
        if event.type == "approval_requested":
            approval_id = event.approval_id
            break
    with pytest.raises(ApprovalError, match="nothing"):
        await run.resolve("nothing", "approved")
    with pytest.raises(ApprovalError, match="outcome"):
        await run.resolve(approval_id, "approved", outcome="retry")
    await run.resolve(approval_id, "rejected", by="ann")
    await run.resolve(approval_id, "rejected")
    with pytest.raises(ApprovalError, match="rejected by ann"):
        await run.resolve(approval_id, "approved")
    assert (await run.result()).output == "done"


class Plain:
    """A provider that lacks what it says it lacks, and would answer all the same."""

    def __init__(self, *lacks: str) -> None:
        self.lacks = lacks

    def check(self, model: str) -> None:
        """Every model can be called."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        yield TextDelta("hello")
        yield Finished(reason="stop")

    async def aclose(self) -> None:
        """Nothing to close."""


class Knowing(Plain):
    """A provider that knows every setting."""

    def unknown_settings(self, model: str, settings: ModelSettings) -> dict[str, str]:
        return {}


LACKS = "the provider of 'plain:a' lacks '{}', which {} of agent 'helper' uses"


@pytest.mark.parametrize(
    ("feature", "fields", "told"),
    [
        ("tools", {"tools": [search]}, LACKS.format("tools", "tools")),
        (
            "tools",
            {"tools": [search], "allow_self_spawn": True},
            LACKS.format("tools", "tools and allow_self_spawn"),
        ),
        (
            "output_schema",
            {"output_schema": {"type": "string"}},
            LACKS.format("output_schema", "output_schema"),
        ),
        (
            "temperature",
            {"settings": {"temperature": 0}},
            "'plain:a' does not know the setting 'temperature': its provider lacks it",
        ),
        ("", {"settings": {"seed": 0}}, "'plain:a' does not know the setting 'seed'; leave it out"),
    ],
)
async def test_a_feature_that_a_provider_lacks_is_refused_by_name_and_only_if_it_is_needed(
    place: Place, feature: str, fields: dict[str, Any], told: str
) -> None:
    models: list[dict[str, Any]] = [
        {"model": "plain:a"},
        {"model": "whole:b", "planning_enabled": True, "planning_model": "plain:a"},
        {"model": "whole:b", "fallback_models": ["plain:a"]},
    ]
    modest = Agent("modest", model="plain:a", planning_model="plain:a")
    runtime = await place.open(modest, providers={"plain": Plain(feature), "whole": Knowing()})
    for model in models:
        refused = Agent("helper", **{**model, **fields})
        for runnable in (refused, Swarm([refused], "helper", name="around")):
            with pytest.raises(ConfigError, match=told):
                await place.start(runnable)
        assert told in str([problem.message for problem in place.registry.problems(refused)])
    assert await runtime.list_runs() == []
    assert (await (await place.start(modest)).result()).output == "hello"


async def test_a_setting_that_a_provider_does_not_know_is_left_out_where_the_agent_says_so() -> None:
    requests: list[ModelRequest] = []

    class Asked(Plain):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
            requests.append(request)
            async for delta in super().stream(request):
                yield delta

    settings = ModelSettings(temperature=0.5, seed=7, timeout_s=9, strict=False)
    agent = Agent("lenient", model="plain:a", settings=settings)
    registry = Registry(agents=[agent], providers={"plain": Asked()})
    async with Runtime.open("memory://", registry=registry) as rt:
        await rt.run(agent, "Hello")
    assert [request.settings.given() for request in requests] == [
        {"temperature": 0.5, "timeout_s": 9.0, "strict": False}
    ]
