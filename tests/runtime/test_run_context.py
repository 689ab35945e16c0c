"""The facts about their run that tools can read, and that no model can change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from foldlog.eventlog import ToolResult
from foldlog.runtime import Agent, RalphLoop, RunContext, Stop, Swarm, ToolContext, tool
from foldlog.runtime.ports.models import ModelRequest

from tests.runtime.conftest import Place, call, calls, says

Script = Callable[..., str]
TENANT: dict[str, Any] = {"user": "tenant-7-user", "metadata": {"tenant": {"id": 7}}}


@tool(effect="pure")
async def whose(context: ToolContext) -> dict[str, Any]:
    """Say for whom."""
    context.metadata["tenant"]["seen"] = True  # which nobody else sees
    return {
        "agent": context.agent,
        "user": context.user,
        "tenant": context.metadata["tenant"]["id"],
        "session": context.session,
        "input": context.input,
        "used": context.usage.total_tokens > 0,
    }


def told(agent: str, text: str, session: str | None = None) -> dict[str, Any]:
    return {
        "agent": agent,
        "user": "tenant-7-user",
        "tenant": 7,
        "session": session,
        "input": text,
        "used": True,
    }


async def results(place: Place, run: Any) -> list[Any]:
    events = [event async for event in run.stream(detailed=True)]
    return [event.result for event in events if isinstance(event, ToolResult) and event.tool_name == "whose"]


async def test_a_tool_knows_the_user_the_metadata_the_session_and_the_input_of_its_run(
    place: Place, script: Script
) -> None:
    agent = Agent("clerk", model=script(calls(call("whose")), says("done")), tools=[whose])
    await place.open(agent)
    run = await place.start(agent, "For whom?", session="talk", **TENANT)
    await run.result()
    assert await results(place, run) == [told("clerk", "For whom?", "talk")]
    (row,) = await place.runtime.list_runs(user="tenant-7-user")
    assert (row.run_id, row.user) == (run.run_id, "tenant-7-user")
    assert await place.runtime.list_runs(user="bob") == []


async def test_all_runs_below_have_the_user_and_the_metadata_of_the_root(
    place: Place, script: Script
) -> None:
    helper = Agent("helper", model=script(calls(call("whose")), says("done")), tools=[whose])
    asking = Agent(
        "asking", model=script(calls(call("helper", input="as a tool")), says("a")), tools=[helper.as_tool()]
    )
    member = Agent("member", model=script(calls(call("whose")), says("b")), tools=[whose])
    looping = Agent("looping", model=script(calls(call("whose")), says("c")), tools=[whose])
    loop = RalphLoop(looping, {"any": lambda _: 1.0}, Stop(max_iterations=1), name="loop")
    swarm = Swarm([asking, member, loop], "asking >> member >> loop", name="team")
    await place.open(swarm)
    run = await place.start(swarm, "question", **TENANT)
    await run.result()
    assert [(each["agent"], each["user"], each["tenant"]) for each in await results(place, run)] == [
        ("helper", "tenant-7-user", 7),
        ("member", "tenant-7-user", 7),
        ("looping", "tenant-7-user", 7),
    ]


async def test_a_tool_may_give_a_child_another_user_and_other_metadata(cheap: Place, script: Script) -> None:
    helper = Agent("helper", model=script(calls(call("whose")), says("done")), tools=[whose])

    @tool(effect="idempotent")
    async def delegate(context: ToolContext) -> str:
        return await context.run(helper, "for bob", user="bob", metadata={"tenant": {"id": 8}})

    agent = Agent("clerk", model=script(calls(call("delegate")), says("done")), tools=[delegate])
    await cheap.open(agent)
    run = await cheap.start(agent, **TENANT)
    await run.result()
    (result,) = await results(cheap, run)
    assert (result["user"], result["tenant"]) == ("bob", 8)


async def test_a_model_can_neither_see_nor_set_the_user(cheap: Place, script: Script) -> None:
    asked: list[ModelRequest] = []

    class Liar:
        """Calls the tool for another user, in each way that it could try."""

        def check(self, model: str) -> None:
            pass

        async def stream(self, request: ModelRequest) -> Any:
            asked.append(request)
            async for delta in scripted.stream(request):
                yield delta

        async def aclose(self) -> None:
            pass

    lies = [{"user": "eve"}, {"context": {"user": "eve"}}, {"metadata": {"tenant": {"id": 9}}}]
    turns = [calls(*[call("whose", id=f"c{n}", **lie) for n, lie in enumerate(lies)]), calls(call("whose"))]
    name = script(*turns, says("done"))
    from foldlog.adapters.models.scripted import ScriptedProvider

    scripted = ScriptedProvider()
    agent = Agent("clerk", model="liar:" + name.partition(":")[2], tools=[whose])
    await cheap.open(agent, providers={"liar": Liar()})
    run = await cheap.start(agent, "question", **TENANT)
    await run.result()
    *refused, result = [event for event in await cheap.events(run) if isinstance(event, ToolResult)]
    assert [each.success for each in refused] == [False, False, False]
    assert [name in (each.error or "") for each, (name,) in zip(refused, lies, strict=True)] == [True] * 3
    assert result.result["user"] == "tenant-7-user"
    assert [each.parameters for each in asked[0].tools] == [
        {"type": "object", "properties": {}, "additionalProperties": False}
    ]
    assert "tenant" not in repr(asked[0])


@pytest.mark.parametrize("user", ["", 3])
async def test_a_user_is_text_that_is_not_empty(cheap: Place, script: Script, user: Any) -> None:
    from foldlog.eventlog import ConfigError

    agent = Agent("clerk", model=script(says("x")))
    await cheap.open(agent)
    with pytest.raises(ConfigError, match="the user must"):
        await cheap.start(agent, user=user)


@tool(effect="pure")
async def pay(user: str, context: ToolContext, tenant: str = "") -> dict[str, Any]:
    """Pay a user; its own parameters are the model's words, its context is not."""
    return {"said": [user, tenant], "user": context.user, "tenant": context.metadata["tenant"]["id"]}


OTHERS: dict[str, Any] = {"user": "eve", "tenant": "9"}
TRUE = {"user": "tenant-7-user", "tenant": 7}


def paid(results: list[Any]) -> list[Any]:
    return [{"user": each["user"], "tenant": each["tenant"]} for each in results]


async def all_results(place: Place, run: Any, name: str) -> list[ToolResult]:
    events = [event async for event in run.stream(detailed=True)]
    return [event for event in events if isinstance(event, ToolResult) and event.tool_name == name]


async def test_a_parameter_or_an_injected_argument_called_user_is_not_the_user(
    place: Place, script: Script
) -> None:
    injected = {"metadata": {"tenant": {"id": 9}}, "session": "eve", "context": {"user": "eve"}}
    model = script(
        calls(call("pay", "c1", **OTHERS), call("pay", "c2", **OTHERS, **injected)),
        calls(call("pay", "c3", **OTHERS, run_id="eve", **injected)),
        says("done"),
    )
    names = dict.fromkeys([*injected, "run_id"], "any")
    agent = Agent("clerk", model=model, tools=[pay], injected_tool_args=names)
    await place.open(agent)
    run = await place.start(agent, "question", **TENANT)
    await run.result()
    found = await all_results(place, run, "pay")
    assert [each.success for each in found] == [True, True, True]
    assert paid([each.result for each in found]) == [TRUE] * 3
    assert [each.result["said"] for each in found] == [["eve", "9"]] * 3
    submitted = (await run.state()).submitted
    assert submitted is not None
    assert (submitted.user, submitted.metadata) == (TENANT["user"], TENANT["metadata"])


async def test_no_copy_of_an_agent_and_no_edited_call_has_another_user(cheap: Place, script: Script) -> None:
    job: dict[str, Any] = {"task": "pay", "additional_context": "user: eve"}
    lies = [
        call("spawn_self", "s1", **job, user="eve"),
        call("spawn_self", "s2", **job, metadata={"tenant": {"id": 9}}),
        call("parallel_subagents", "p1", jobs=[{**job, "user": "eve"}]),
        call("spawn_self", "s3", **job),
        call("parallel_subagents", "p2", jobs=[job]),
    ]
    model = script(
        calls(*lies),
        says("done"),
        scenes=[{"input": "pay", "turns": [{**calls(call("pay", **OTHERS))}, {**says("paid")}]}],
    )
    agent = Agent("clerk", model=model, tools=[pay], allow_self_spawn=True, allow_parallel_subagents=True)
    await cheap.open(agent)
    run = await cheap.start(agent, "question", **TENANT)
    await run.result()
    spawned = [
        *await all_results(cheap, run, "spawn_self"),
        *await all_results(cheap, run, "parallel_subagents"),
    ]
    by_call = {each.tool_call_id: each for each in spawned}
    assert [key for key, each in sorted(by_call.items()) if not each.success] == ["p1", "s1", "s2"]
    found = await all_results(cheap, run, "pay")
    assert paid([each.result for each in found]) == [TRUE] * 2


async def test_an_agent_as_a_tool_and_its_own_agents_have_no_other_user_whatever_the_model_hands_down(
    place: Place, script: Script
) -> None:
    lies = {"user": "eve", "metadata": {"tenant": {"id": 9}}, "context": {"user": "eve"}}
    inner = Agent("inner", model=script(calls(call("pay", **OTHERS)), says("paid")), tools=[pay])
    asks_inner = calls(call("inner", "i1", input="x", **lies), call("inner", "i2", input="user: eve"))
    helper = Agent("helper", model=script(asks_inner, says("done")), tools=[inner.as_tool()])
    asks_helper = calls(
        *(call("helper", f"h{n}", input="x", **{name: lies[name]}) for n, name in enumerate(lies)),
        call("helper", "h9", input=str(lies)),
    )
    agent = Agent("clerk", model=script(asks_helper, says("done")), tools=[helper.as_tool()])
    await place.open(agent, helper, inner)
    run = await place.start(agent, "question", **TENANT)
    await run.result()
    whole = [event async for event in run.stream(detailed=True, family=True) if isinstance(event, ToolResult)]
    assert sorted(event.tool_call_id for event in whole if not event.success) == ["h0", "h1", "h2", "i1"]
    assert paid([event.result for event in whole if event.tool_name == "pay"]) == [TRUE]
    assert await place.runtime.list_runs(user="eve") == []


async def test_an_operator_who_edits_a_call_changes_its_arguments_and_not_its_user(
    cheap: Place, script: Script
) -> None:
    model = script(calls(call("pay", **OTHERS)), says("done"))
    agent = Agent("clerk", model=model, tools=[pay], hitl_tools=["pay"])
    await cheap.open(agent)
    run = await cheap.start(agent, "question", **TENANT)
    async for event in run.stream():
        if event.type == "approval_requested":
            await run.resolve(event.approval_id, "approved", arguments={"user": "mallory"})
    (found,) = await all_results(cheap, run, "pay")
    assert paid([found.result]) == [TRUE]
    assert found.result["said"] == ["mallory", ""]


@pytest.mark.parametrize("name", ["context", "deps", "user"])
async def test_instructions_and_validators_are_given_the_user_that_the_caller_named(
    cheap: Place, script: Script, name: str
) -> None:
    seen: list[str | None] = []
    agent = Agent(
        "clerk",
        model=script(calls(call("pay", **{**OTHERS, name: "eve"})), says("done")),
        instructions=lambda run: f"Serve {run.user}.",
        tools=[pay],
    )

    @agent.output_validator
    def look(run: RunContext, output: str) -> None:
        seen.append(run.user)

    await cheap.open(agent)
    run = await cheap.start(agent, "question", **TENANT)
    await run.result()
    assert seen == ["tenant-7-user"]
    assert (await run.state()).messages[0].content == "Serve tenant-7-user."
