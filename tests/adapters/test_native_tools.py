"""Native tools over the real SDKs: offered, recorded, given back, never run, and refused by name."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from foldlog import Agent, Registry, Runtime, tool
from foldlog.eventlog import AgentConfigError, ConfigError, ToolCall, ToolResult
from foldlog.eventlog.memory import MemoryLog
from foldlog.replay import check_trace, load_trace, replay
from foldlog.runtime.ports.models import InvalidRequest, NativeTool, ProviderCall, TransientModelError

from ..fakes import gemini_server
from ..fakes.openai_server import Call, Reply, Search
from ..fakes.reasoning_server import ReasoningServer
from .wires import WIRES, Wire, end_of, in_history, set_keys, text_of

PLACE = "https://example.com/ann"
SEARCHED = Search(id="srv_1", query="who is Ann?", found=PLACE)
LOOK = Reply(
    reasoning=("Let me", " look."),
    searches=(SEARCHED,),
    text=("One ", "moment."),
    calls=(Call(id="call_a", name="note", arguments=('{"of":"Ann"}',)),),
)
DONE = Reply(text=("Ann is a painter.",))
SEARCH = NativeTool(type="web_search")
WITH_NATIVE = {
    "responses": replace(WIRES["responses"], model="gpt-5", server=ReasoningServer),
    "anthropic": WIRES["anthropic"],
    "google": WIRES["google"],
}
every_wire = pytest.mark.parametrize("wire", WITH_NATIVE.values(), ids=WITH_NATIVE.keys())


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    set_keys(monkeypatch)


@tool(effect="pure")
def note(of: str) -> str:
    """Note something."""
    return f"noted {of}"


@asynccontextmanager
async def running(wire: Wire, *replies: Reply, **fields: Any) -> AsyncIterator[tuple[Any, Runtime, Agent]]:
    async with wire.served(*replies) as (server, provider):
        native = fields.pop("native_tools", ["web_search"])
        agent = Agent(
            "finder", model=f"{wire.name}:{wire.model}", tools=[note], native_tools=native, **fields
        )
        registry = Registry(agents=[agent], providers={wire.name: provider})
        async with Runtime.open(log=MemoryLog(), registry=registry) as rt:
            yield server, rt, agent


@every_wire
async def test_what_a_provider_searched_is_recorded_and_goes_back_unaltered(wire: Wire) -> None:
    async with running(wire, LOOK, DONE) as (server, rt, agent):
        result = await rt.run(agent, "Who is Ann?")
        trace = await load_trace(rt.log, result.run_id)
    assert (result.output, len(server.requests)) == ("Ann is a painter.", 2)
    calls = [event for event in trace.events if isinstance(event, ToolCall)]
    results = [event for event in trace.events if isinstance(event, ToolResult)]
    assert [(call.tool_name, call.executed_by) for call in calls] == [
        ("web_search", "provider"),
        ("note", ""),
    ]
    assert "who is Ann?" in json.dumps(calls[0].arguments)
    assert (results[0].executed_by, results[0].success, results[0].metadata) == (
        "provider",
        True,
        {"status": "success", "executed_by": "provider"},
    )
    assert PLACE in json.dumps(results[0].result)
    assert "sealed/" not in json.dumps(results[0].result)
    commit = next(each.commit for each in trace.commits if "usage" in {e.type for e in each.commit.events})
    assert [event.type for event in commit.events] == [
        "reasoning",
        "text",
        "reply_state",
        "usage",
        "tool_call",
        "tool_result",
        "tool_call",
    ]
    assert check_trace(trace) == []
    assert replay(trace).divergence is None


@every_wire
async def test_the_tools_of_one_run_narrow_the_native_ones_too(wire: Wire) -> None:
    async with running(wire, DONE, DONE, DONE, native_tools=["web_search", "code_execution"]) as (
        server,
        rt,
        agent,
    ):
        for names in (["note"], ["web_search"], []):
            run = await rt.start(agent, "Who is Ann?", tools=names)
            await run.result()
            submitted = (await run.state()).submitted
            assert submitted is not None
            assert submitted.config["tools"] == [name for name in names if name == "note"]
            native = [each["type"] for each in submitted.config.get("native_tools") or ()]
            assert native == [name for name in names if name != "note"]
        with pytest.raises(ConfigError, match="has no tool 'web_serch'; did you mean 'web_search'"):
            await rt.start(agent, "Who is Ann?", tools=["web_serch"])
        only_native = [json.dumps(request.body.get("tools", [])) for request in server.requests]
        assert ["note" in text for text in only_native] == [True, False, False]
        assert [
            bool(re.search("web_?search|google_?search", text, re.IGNORECASE)) for text in only_native
        ] == [
            False,
            True,
            False,
        ]


@every_wire
async def test_a_server_refuses_a_loop_that_lost_what_it_searched(wire: Wire) -> None:
    """The servers of these tests notice what is missing, so that the test above says something."""
    async with wire.served(LOOK, DONE) as (_, provider):
        deltas = await wire.answer(provider, native_tools=(SEARCH,))
        first, answer, result = in_history(deltas, wire.name)
        assert answer.reply_state is not None
        kept = [item for item in answer.reply_state.items if not is_search(item)]
        assert len(kept) < len(answer.reply_state.items)
        lost = msgspec.structs.replace(
            answer, reply_state=msgspec.structs.replace(answer.reply_state, items=kept)
        )
        with pytest.raises(InvalidRequest):
            await wire.answer(provider, native_tools=(SEARCH,), messages=(first, lost, result))


def is_search(item: Any) -> bool:
    return "web_search" in json.dumps(item)


OFFERED = {
    "responses": {
        "type": "web_search",
        "filters": {"allowed_domains": ["example.com"]},
        "search_context_size": "low",
        "user_location": {"type": "approximate", "country": "CH"},
    },
    "anthropic": {"name": "web_search", "allowed_domains": ["example.com"], "max_uses": 3},
    "google": {"googleSearch": {}},
}
OPTIONS = {
    "responses": {
        "allowed_domains": ["example.com"],
        "search_context_size": "low",
        "user_location": {"country": "CH"},
    },
    "anthropic": {"allowed_domains": ["example.com"], "max_uses": 3},
    "google": {},
}


@every_wire
async def test_a_native_tool_is_offered_in_the_words_of_its_provider(wire: Wire) -> None:
    tools = [{"type": "web_search", **OPTIONS[wire.name]}]
    async with running(wire, DONE, native_tools=tools) as (server, rt, agent):
        await rt.run(agent, "Who is Ann?")
    wanted, tools_sent = OFFERED[wire.name], server.requests[0].body["tools"]
    assert [one for one in tools_sent if {name: one.get(name) for name in wanted} == wanted]


@pytest.mark.parametrize(
    ("name", "tool_type", "options", "wanted"),
    [
        ("responses", "code_execution", {}, {"type": "code_interpreter", "container": {"type": "auto"}}),
        (
            "responses",
            "file_search",
            {"store_ids": ("vs_1",), "max_results": 4},
            {"type": "file_search", "vector_store_ids": ["vs_1"], "max_num_results": 4},
        ),
        ("anthropic", "code_execution", {}, {"name": "code_execution"}),
        ("google", "code_execution", {}, {"codeExecution": {}}),
        (
            "google",
            "file_search",
            {"store_ids": ["fileSearchStores/a"]},
            {"fileSearch": {"file_search_store_names": ["fileSearchStores/a"]}},
        ),
    ],
)
async def test_code_and_file_search_are_offered_too(
    name: str, tool_type: str, options: dict[str, Any], wanted: dict[str, Any]
) -> None:
    wire = WITH_NATIVE[name]
    async with wire.served(DONE) as (server, provider):
        await wire.answer(provider, native_tools=(NativeTool(type=tool_type, options=options),), tools=())
    (offered,) = server.requests[0].body["tools"]
    assert {name: offered.get(name) for name in wanted} == wanted


# --- what else a provider may have done -------------------------------------------------------------------------------


async def made(name: str, *events: Any) -> list[ProviderCall]:
    """The calls that a server ran, by the events before its answer ends."""
    wire = WITH_NATIVE[name]
    *before, last = wire.events(wire.model, DONE)
    until = next(number for number, event in enumerate([*before, last]) if wire.ends(event))
    whole = [*before, last]
    reply = replace(DONE, events=(*whole[:until], *events, *whole[until:]))
    every = tuple(NativeTool(type=each) for each in ("web_search", "code_execution"))
    async with wire.served(reply) as (_, provider):
        deltas = await wire.answer(provider, native_tools=every, tools=())
    assert text_of(deltas) == "Ann is a painter."
    assert end_of(deltas).reason == "stop"
    return [delta for delta in deltas if isinstance(delta, ProviderCall)]


async def test_code_that_openai_ran_is_recorded_with_its_output() -> None:
    item = {
        "type": "code_interpreter_call",
        "id": "ci_1",
        "container_id": "cntr_1",
        "code": "print(4)",
        "status": "completed",
        "outputs": [{"type": "logs", "logs": "4"}],
    }
    (call,) = await made("responses", {"type": "response.output_item.done", "output_index": 0, "item": item})
    assert (call.name, call.arguments, call.result, call.error) == (
        "code_execution",
        {"code": "print(4)"},
        [{"type": "logs", "logs": "4"}],
        None,
    )


async def test_a_search_that_failed_is_recorded_as_failed() -> None:
    item = {"type": "file_search_call", "id": "fs_1", "queries": ["Ann"], "status": "failed"}
    (call,) = await made("responses", {"type": "response.output_item.done", "output_index": 0, "item": item})
    assert (call.name, call.error) == ("file_search", "the provider's tool ended failed")
    used = {"type": "server_tool_use", "id": "srv_9", "name": "web_search", "input": {"query": "Ann"}}
    error = {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}
    result = {"type": "web_search_tool_result", "tool_use_id": "srv_9", "content": error}
    events = [
        {"type": kind, "index": index, **({"content_block": block} if kind.endswith("start") else {})}
        for index, block in enumerate((used, result), start=7)
        for kind in ("content_block_start", "content_block_stop")
    ]
    (call,) = await made("anthropic", *events)
    assert (call.name, call.arguments, call.error) == ("web_search", {"query": "Ann"}, "max_uses_exceeded")


async def test_code_that_gemini_ran_is_recorded_with_its_output() -> None:
    parts: list[dict[str, Any]] = [
        {"executableCode": {"code": "print(4)", "language": "PYTHON"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "4"}},
        {"executableCode": {"code": "1/0", "language": "PYTHON"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_FAILED", "output": "ZeroDivisionError"}},
    ]
    calls = await made("google", *(gemini_server.chunk("m", part) for part in parts))
    assert [(call.name, call.arguments["code"], call.error) for call in calls] == [
        ("code_execution", "print(4)", None),
        ("code_execution", "1/0", "OUTCOME_FAILED"),
    ]
    assert "4" in json.dumps(calls[0].result)


async def test_an_older_gemini_tells_its_searches_with_the_end_of_the_answer() -> None:
    wire = replace(WIRES["google"], model="gemini-2.5-flash")
    *before, last = wire.events(wire.model, DONE)
    last["candidates"][0]["groundingMetadata"] = {
        "webSearchQueries": ["who is Ann?"],
        "groundingChunks": [{"web": {"uri": PLACE, "title": "Ann"}}],
    }
    async with wire.served(replace(DONE, events=(*before, last))) as (_, provider):
        deltas = await wire.answer(provider, native_tools=(SEARCH,), tools=())
    (call,) = [delta for delta in deltas if isinstance(delta, ProviderCall)]
    assert (call.id, call.arguments) == ("", {"queries": ["who is Ann?"]})  # not an id that differs each time
    assert PLACE in json.dumps(call.result)


# --- pauses -----------------------------------------------------------------------------------------------------------

PAUSED = Reply(searches=(SEARCHED,), text=("Wait. ",), finish="pause_turn")


async def test_an_answer_that_anthropic_paused_goes_on_and_is_one_answer() -> None:
    wire = WIRES["anthropic"]
    async with running(wire, PAUSED, LOOK, DONE) as (server, rt, agent):
        result = await rt.run(agent, "Who is Ann?")
        trace = await load_trace(rt.log, result.run_id)
    assert result.output == "Ann is a painter."
    again = server.requests[1].body["messages"]
    assert [message["role"] for message in again] == ["user", "assistant"]
    assert [block["type"] for block in again[1]["content"]] == [
        "server_tool_use",
        "web_search_tool_result",
        "text",
    ]
    (first, *_) = [event.text for event in trace.events if event.type == "text"]
    assert first == "Wait. One moment."
    assert [event.tool_name for event in trace.events if event.type == "tool_call"] == [
        "web_search",
        "web_search",
        "note",
    ]
    usage = next(event.usage for event in trace.events if event.type == "usage")
    assert (usage.input_tokens, usage.output_tokens) == (22, 14)
    assert check_trace(trace) == []
    assert replay(trace).divergence is None


async def test_an_answer_that_is_paused_without_end_is_transient() -> None:
    wire = WIRES["anthropic"]
    async with wire.served(PAUSED) as (server, provider):
        with pytest.raises(TransientModelError, match="paused its answer 20 times"):
            await wire.answer(provider, native_tools=(SEARCH,))
        assert len(server.requests) == 21


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "native", "told"),
    [
        ("openai:gpt-5", "web_search", "'openai:gpt-5' has no 'web_search': chat completions have none"),
        (
            "anthropic:claude-sonnet-5",
            {"type": "file_search", "store_ids": ["a"]},
            "anthropic has code_execution",
        ),
        (
            "anthropic:c",
            {"type": "web_search", "search_context_size": "low"},
            "has no search_context_size for it",
        ),
        ("google:gemini-3-pro", {"type": "web_search", "max_uses": 2}, "google has no max_uses for it"),
        ("google:gemini-2.5-pro", "web_search", "takes no native tools together with tools of the agent"),
        ("mistral:large", "web_search", "mistral has none"),
        (
            "openai-responses:gpt-5",
            {"type": "web_search", "max_uses": 2},
            "the Responses API has no max_uses",
        ),
    ],
)
async def test_a_provider_that_lacks_a_native_tool_refuses_it_by_name(
    model: str, native: Any, told: str
) -> None:
    agent = Agent("finder", model=model, native_tools=[native], tools=[note])
    async with Runtime.open("memory://", registry=Registry(agents=[agent])) as rt:
        with pytest.raises(ConfigError, match=re.escape(told)) as caught:
            await rt.start(agent, "Who is Ann?")
        assert "agent 'finder': native_tools: " in str(caught.value)
        assert [run async for run in rt.list_runs()] == []


async def test_a_fallback_that_lacks_it_is_refused_too() -> None:
    agent = Agent(
        "finder", model="anthropic:c", fallback_models=["openai:gpt-5"], native_tools=["web_search"]
    )
    async with Runtime.open("memory://", registry=Registry(agents=[agent])) as rt:
        with pytest.raises(ConfigError, match="'openai:gpt-5' has no 'web_search'"):
            await rt.start(agent, "Who is Ann?")


@pytest.mark.parametrize(
    ("native", "told"),
    [
        (["web_serch"], "native_tools.0: 'web_serch' is not a native tool; did you mean 'web_search'?"),
        ([{"max_uses": 2}], "native_tools.0: a table needs the key type"),
        (
            [{"type": "web_search", "max_use": 2}],
            "web_search has no option 'max_use'; did you mean 'max_uses'?",
        ),
        ([{"type": "web_search", "max_uses": 0}], "native_tools.0"),
        ([{"type": "file_search"}], "store_ids"),
        ([7], "native_tools.0: must be the name of a native tool or a table with its type, not 7"),
        (["web_search", {"type": "web_search"}], "native_tools: 'web_search' occurs twice"),
    ],
)
def test_a_wrong_native_tool_is_told_with_its_place(native: list[Any], told: str) -> None:
    with pytest.raises(AgentConfigError, match=re.escape(told)):
        Agent("finder", native_tools=native)


DENY = {"tool": "web_*", "action": "deny", "reason": "no web"}


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ({"rules": [DENY]}, "the policy denies it: policy rule 1 (tool 'web_*': no web)"),
        ({"rules": [DENY | {"arguments": {"query": "*Ann*"}}]}, "the policy denies it"),
        ({"default": "deny"}, "the policy denies it: the policy's default"),
        (
            {"rules": [DENY | {"action": "require_approval"}]},
            "requires an approval, which cannot be requested for it",
        ),
    ],
)
def test_a_native_tool_that_the_policy_denies_is_refused_by_name(policy: Any, told: str) -> None:
    """It runs where nobody can look at a call before it is made, so leaving it out in silence would be worse."""
    with pytest.raises(AgentConfigError, match=re.escape(told)):
        Agent("finder", native_tools=["web_search"], policy=policy)
    allowed = {"default": "deny", "rules": [{"tool": "web_search", "action": "allow"}]}
    Agent("finder", native_tools=["web_search"], policy=allowed)


async def test_the_policy_of_the_project_refuses_a_run_with_a_native_tool_before_its_first_event() -> None:
    agent = Agent("finder", model="anthropic:c", native_tools=["web_search"])
    shared = {"rules": [DENY | {"when": "user == 'ann'"}]}
    async with Runtime.open("memory://", registry=Registry(agents=[agent]), policy=shared) as rt:
        with pytest.raises(ConfigError, match="the policy denies it: namespace policy rule 1"):
            await rt.start(agent, "Who is Ann?")
        assert [run async for run in rt.list_runs()] == []


def test_a_native_tool_cannot_be_approved() -> None:
    with pytest.raises(AgentConfigError, match="hitl_tools: 'web_search' runs at the provider"):
        Agent("finder", native_tools=["web_search"], hitl_tools=["web_search"])


def test_an_agent_without_native_tools_stores_nothing_of_them() -> None:
    plain = Agent("finder").to_config()
    assert "native_tools" not in plain
    assert Agent("finder", native_tools=[]).to_config() == plain
    native = Agent("finder", native_tools=["web_search"]).to_config()
    assert native["native_tools"] == [{"type": "web_search"}]
    assert Agent.from_config(native).to_config() == native
