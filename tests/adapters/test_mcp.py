"""MCP tool sources against real servers: processes over stdio, and streamable HTTP as of 2026 and before."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
import uvloop
from foldlog.adapters.mcp import McpTools, McpToolSource
from foldlog.adapters.mcp.names import tool_names
from foldlog.adapters.mcp.processes import ProcessFamily, is_alive
from foldlog.eventlog.errors import ConfigError
from foldlog.eventlog.events import Event, ToolSpec
from foldlog.runtime import File
from foldlog.runtime.ports.tools import (
    Answer,
    Asked,
    Retryable,
    ToolFailed,
    ToolSourceUnavailable,
    ToolTimedOut,
)

from tests.fakes.mcp_server import PDF, PNG, WAV

FAKES = Path(__file__).parents[1] / "fakes"
SDK, RAW = str(FAKES / "mcp_server.py"), str(FAKES / "raw_mcp_server.py")
STDIO: dict[str, Any] = {"command": sys.executable, "args": [SDK, "stdio"]}


def raw(*habits: str, **entry: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": [RAW, *habits], **entry}


class Recorder:
    """A tool context that keeps what is reported."""

    tool_call_id = "call_1"
    idempotency_key = "key"

    def __init__(self) -> None:
        self.seen: list[tuple[float, float | None, str]] = []
        self.first = asyncio.Event()
        self.memos: dict[str, Any] = {}
        self.answers: dict[str, Answer] = {}
        self.asked: list[tuple[str, str, Any]] = []

    def emit(self, event: Event) -> None:
        raise AssertionError("MCP tools emit nothing")

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        self.seen.append((done, total, message))
        self.first.set()

    async def memo(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self.memos:
            self.memos[name] = await make()
        return self.memos[name]

    def answer(self, name: str) -> Answer | None:
        return self.answers.get(name)

    async def ask(self, message: str, schema: Any = None, *, name: str = "") -> Answer:
        if name not in self.answers:
            self.asked.append((name, message, schema))
            raise Asked
        return self.answers[name]


ServeHttp = Callable[..., AbstractContextManager[str]]


@pytest.fixture(scope="module", params=["stdio", "http", "legacy-http"])
def entry(
    request: pytest.FixtureRequest, mcp_server: dict[str, Any], http_server: ServeHttp
) -> Iterator[dict[str, Any]]:
    """A server of each kind. Those over HTTP live as long as the module, the others as long as the factory."""
    if request.param == "stdio":
        yield mcp_server
    else:
        with http_server(request.param) as url:
            yield {"url": url}


@pytest.fixture(scope="module")
async def factory() -> AsyncIterator[McpToolSource]:
    """Shared by the tests that do not care, so that their servers start once."""
    factory = McpToolSource(idle_s=600)
    yield factory
    await factory.aclose()


@pytest.fixture
async def fresh() -> AsyncIterator[McpToolSource]:
    """For tests that end servers."""
    factory = McpToolSource(idle_s=600)
    yield factory
    await factory.aclose()


@asynccontextmanager
async def opened(factory: McpToolSource, entry: dict[str, Any]) -> AsyncIterator[McpTools]:
    source = await factory.open({"srv": entry})
    yield source
    await source.aclose()


async def call(source: McpTools, tool: str, context: Recorder | None = None, **arguments: Any) -> Any:
    return await source.tools[f"mcp__srv__{tool}"].call(arguments, context or Recorder())


async def failure(
    source: McpTools, tool: str, context: Recorder | None = None, **arguments: Any
) -> ToolFailed:
    with pytest.raises(ToolFailed) as caught:
        await call(source, tool, context, **arguments)
    return caught.value


async def number(source: McpTools, tool: str) -> int:
    return int((await call(source, tool))["result"])


async def until_dead(pid: int) -> None:
    """Wait for the end of a child of ours without reaping it: that is the event loop's business."""
    try:
        await anyio.to_thread.run_sync(os.waitid, os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    except ChildProcessError:
        assert not is_alive(pid)


def lines(path: Path) -> list[str]:
    return path.read_text().split()


# --- configuration ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "npx"},
        {"type": "stdio", "command": "npx", "args": ["-y", "x"], "env": {"A": "${B}"}, "cwd": "/"},
        {"url": "http://localhost/mcp", "transport": "streamable_http"},
        {"type": "http", "url": "https://x/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}},
        {"url": "http://x", "effects": {"search": "pure"}, "trust_annotations": True},
        {"url": "http://x", "tools": ["search"], "timeout_s": 5, "connect_timeout_s": 0.5},
    ],
)
def test_a_right_entry_passes_the_check_without_its_variables_being_set(entry: dict[str, Any]):
    McpToolSource().check({"srv": entry})


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            {"comand": "npx"},
            r"unknown key 'mcp_servers.srv.comand'; did you mean 'command'\?; mcp_servers.srv: give either",
        ),
        ({}, "mcp_servers.srv: give either `command`"),
        ({"command": "npx", "url": "http://x"}, "mcp_servers.srv: give either `command`"),
        (
            {"command": "npx", "enviroment": {}},
            "unknown key 'mcp_servers.srv.enviroment'; known are 'effects', ",
        ),
        ({"command": "npx", "header": {}}, "unknown key 'mcp_servers.srv.header'"),
        ({"url": "http://x", "args": []}, "unknown key 'mcp_servers.srv.args'"),
        ({"command": "npx", "args": ["-y", 1]}, r"mcp_servers.srv.args\[1\]: Expected `str`, got `int`"),
        ({"command": ""}, "mcp_servers.srv.command: Expected `str` of length >= 1"),
        ({"url": "http://x", "timeout_s": 0}, "mcp_servers.srv.timeout_s: Expected `float` > 0"),
        ({"url": "http://x", "effects": {"a": "safe"}}, "mcp_servers.srv.effects.*'safe'"),
        (
            {
                "url": "http://x",
                "postconditions": {"pay": {"assertions": [{"http_statuss": {"equals": 200}}]}},
            },
            r"srv.postconditions.pay: .*no assertion 'http_statuss'; did you mean 'http_status'\?",
        ),
        ({"url": "http://x", "postconditions": {"pay": {"assertions": []}}}, "at least one assertion"),
        (
            {"url": "http://x", "postconditions": {"pay": {"assertions": [{"file_exists": {"path": "a"}}]}}},
            "srv.postconditions.pay: an assertion about files needs a workspace",
        ),
        (
            {"url": "http://x", "postconditions": {"pay": {"probe": {"tool": "look"}}}},
            "missing required field `assertions`",
        ),
        ({"url": "http://x", "type": "sse"}, "mcp_servers.srv.type: 'sse' is not supported"),
        ({"url": "http://x", "type": "stdio"}, "mcp_servers.srv.type: 'stdio' contradicts `url`"),
        ({"url": "http://${}/"}, "mcp_servers.srv.url: a variable is written"),
        ({"command": "x", "env": {"A": "${B:-c}"}}, "mcp_servers.srv.env.A: a variable is written"),
        ("npx", "mcp_servers.srv: expected a table with `command` or `url`, got str"),
    ],
)
def test_a_wrong_entry_is_refused_by_the_name_of_its_key(entry: Any, message: str):
    with pytest.raises(ConfigError, match=message):
        McpToolSource().check({"srv": entry})


async def test_an_unset_variable_is_refused_at_connect_time(fresh: McpToolSource):
    entry = {"command": "x", "env": {"TOKEN": "a ${FOLDLOG_TEST_UNSET}"}}
    with pytest.raises(ConfigError, match=r"srv\.env\.TOKEN: the environment variable FOLDLOG_TEST_UNSET"):
        await fresh.open({"srv": entry})


async def test_variables_are_resolved_when_connecting(fresh: McpToolSource, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FOLDLOG_TEST_SECRET", "s3cret")
    monkeypatch.setenv("FOLDLOG_TEST_PYTHON", sys.executable)
    entry = STDIO | {"command": "${FOLDLOG_TEST_PYTHON}", "env": {"TOKEN": "<${FOLDLOG_TEST_SECRET}>"}}
    async with opened(fresh, entry) as source:
        assert await call(source, "environment", name="TOKEN") == "<s3cret>"
        assert await call(source, "environment", name="FOLDLOG_TEST_SECRET") == "<unset>"


async def test_headers_go_with_every_request(
    fresh: McpToolSource, monkeypatch: pytest.MonkeyPatch, http_server: ServeHttp
):
    monkeypatch.setenv("FOLDLOG_TEST_SECRET", "s3cret")
    with http_server(FAKE_MCP_TOKEN="s3cret") as url:
        right = {"url": url, "headers": {"Authorization": "Bearer ${FOLDLOG_TEST_SECRET}"}}
        async with opened(fresh, right) as source:
            assert await call(source, "search", query="x") == "found x"
        with pytest.raises(ToolSourceUnavailable, match="HTTP 401 Unauthorized"):
            await fresh.open({"srv": {"url": url}})


@pytest.mark.parametrize("key", ["tools", "exclude"])
async def test_a_tool_named_in_the_configuration_has_to_be_offered(
    factory: McpToolSource, key: str, mcp_server: dict[str, Any]
):
    with pytest.raises(
        ConfigError, match=f"mcp_servers.srv.{key}: .* no tool 'serch'; did you mean 'search'"
    ):
        await factory.open({"srv": mcp_server | {key: ["serch"]}})


@pytest.mark.parametrize(
    ("key", "pure", "idempotent"),
    [
        ("effects", "pure", "idempotent"),
        ("postconditions", *({"assertions": [{"text_contains": {"text": each}}]} for each in "ab")),
    ],
)
async def test_effects_and_postconditions_may_name_a_tool_that_the_server_offers_later_and_a_misspelt_one_is_logged(
    fresh: McpToolSource, caplog: pytest.LogCaptureFixture, key: str, pure: Any, idempotent: Any
):
    def told(spec: ToolSpec) -> Any:
        return spec.effect if key == "effects" else {"assertions": spec.postcondition}

    said = {key: {"late": pure, "refund": idempotent, "stay": pure}}
    async with opened(fresh, raw(env={"FAKE_MCP_TOOLS": "late,stray"}, **said)) as source:
        assert told(source.tools["mcp__srv__late"].spec) == pure
    assert [record.getMessage() for record in caplog.records] == [
        f"mcp_servers.srv.{key}: the server offers no tool 'stay'; did you mean 'stray'?"
    ]
    async with opened(fresh, raw(env={"FAKE_MCP_TOOLS": "refund"}, **said)) as source:
        assert told(source.tools["mcp__srv__refund"].spec) == idempotent


# --- names and specifications -----------------------------------------------------------------------------------------


def test_tool_names_are_legal_short_distinct_and_independent_of_the_order():
    tools = [
        ("srv", "search"),
        ("my.srv", "päth/read"),
        ("srv", "a.b"),
        ("srv", "a b"),
        ("x", "long" * 20),
        ("x", "long" * 20 + "er"),
    ]
    names = tool_names(tools)
    assert names["srv", "search"] == "mcp__srv__search"
    assert names["my.srv", "päth/read"] == "mcp__my_srv__p_th_read"
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names.values())
    assert len(set(names.values())) == len(tools)
    assert {len(names[key]) for key in tools[-2:]} == {64}
    assert tool_names(tools[::-1]) == names


async def test_a_tool_is_specified_by_its_server_and_the_configuration(
    factory: McpToolSource, mcp_server: dict[str, Any]
):
    async with opened(
        factory, mcp_server | {"effects": {"search": "pure", "delete": "unsafe"}, "timeout_s": 7}
    ) as plain:
        assert plain.tools["mcp__srv__search"].spec == ToolSpec(
            name="mcp__srv__search",
            description="Search for something.",
            parameters={
                "type": "object",
                "properties": {"query": {"title": "Query", "type": "string"}},
                "required": ["query"],
                "title": "searchArguments",
            },
            effect="pure",
            lock="server:srv",
            exclusive=False,
            timeout_s=7,
            source="mcp:srv",
        )
    async with opened(
        factory, mcp_server | {"trust_annotations": True, "effects": {"delete": "unsafe"}}
    ) as trusting:
        specs = {name.removeprefix("mcp__srv__"): tool.spec for name, tool in trusting.tools.items()}
        assert {name: specs[name].effect for name in ("weather", "forget", "delete", "boom")} == {
            "weather": "pure",
            "forget": "idempotent",
            "delete": "unsafe",
            "boom": "unsafe",
        }
        assert not specs["weather"].exclusive
        assert specs["forget"].exclusive
    assert all(tool.spec.effect in ("pure", "unsafe") for tool in plain.tools.values())


async def test_the_list_of_tools_is_read_page_by_page_and_can_be_narrowed(fresh: McpToolSource):
    async with opened(fresh, raw()) as source:
        assert "mcp__srv__late" in source.tools
        assert "mcp__srv__child_holds_pipes" in source.tools
    async with opened(fresh, raw(tools=["late"])) as source:
        assert list(source.tools) == ["mcp__srv__late"]
    async with opened(fresh, raw(tools=["late", "stray"], exclude=["stray"])) as source:
        assert list(source.tools) == ["mcp__srv__late"]


async def test_tools_are_chosen_by_the_names_that_a_model_sees_too(fresh: McpToolSource):
    long = "search the web " * 6
    async with opened(fresh, raw(env={"FAKE_MCP_TOOLS": f"{long},a.b,c.d"})) as source:
        shown = [name.removeprefix("mcp__srv__") for name in source.tools]
        assert shown[1:] == ["a_b", "c_d"]
    entry = raw(env={"FAKE_MCP_TOOLS": f"{long},a.b,c.d"}, tools=shown, exclude=["a_b"])
    async with opened(fresh, entry) as source:
        assert list(source.tools) == [f"mcp__srv__{shown[0]}", "mcp__srv__c_d"]


async def test_several_servers_give_one_set_of_tools(factory: McpToolSource, mcp_server: dict[str, Any]):
    source = await factory.open({"one": mcp_server, "two": raw()})
    assert await source.tools["mcp__one__search"].call({"query": "x"}, Recorder()) == "found x"
    assert await source.tools["mcp__two__stray"].call({}, Recorder()) == "done"
    await source.aclose()


# --- progress ---------------------------------------------------------------------------------------------------------


async def test_the_search_of_the_canonical_trace_reports_twice_before_its_result(
    factory: McpToolSource, entry: dict[str, Any]
):
    async with opened(factory, entry) as source:
        context = Recorder()
        assert await call(source, "search", context, query="x") == "found x"
        assert context.seen == [(1, 2, "first"), (2, 2, "second")]


async def test_all_progress_of_a_burst_is_reported_in_order_before_the_result(
    factory: McpToolSource, entry: dict[str, Any]
):
    async with opened(factory, entry) as source:
        for _ in range(5):
            context = Recorder()
            assert await call(source, "burst", context, count=200) == "done"
            assert context.seen == [(number + 1, 200, "") for number in range(200)]


async def test_concurrent_calls_get_their_own_progress(factory: McpToolSource, entry: dict[str, Any]):
    async with opened(factory, entry) as source:
        contexts = {count: Recorder() for count in range(1, 21)}
        await asyncio.gather(
            *(call(source, "burst", context, count=count) for count, context in contexts.items())
        )
        for count, context in contexts.items():
            assert context.seen == [(number + 1, count, "") for number in range(count)]


async def test_progress_after_the_response_is_dropped_and_counted_and_numbers_stay_as_sent(
    fresh: McpToolSource,
):
    async with opened(fresh, raw()) as source:
        context = Recorder()
        assert await call(source, "late", context) == "done"
        await call(source, "stray")  # Its response comes behind all that `late` sent.
        assert context.seen == [(1, 2, ""), (1.5, 2, "half")]
        assert [type(done) for done, _, _ in context.seen] == [int, float]
        assert source.progress_dropped == 4  # Two late, one malformed, one of nobody.


async def test_a_context_that_fails_to_report_does_not_lose_the_result(
    factory: McpToolSource, entry: dict[str, Any]
):
    class Broken(Recorder):
        def progress(self, done: float, total: float | None = None, message: str = "") -> None:
            raise RuntimeError

    async with opened(factory, entry) as source:
        assert await call(source, "search", Broken(), query="x") == "found x"


# --- results ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "arguments", "result"),
    [
        ("search", {"query": "x"}, "found x"),
        (
            "delete",
            {"path": "/x"},
            "deleted /x",
        ),  # The server wraps it for an output schema; it stays a text.
        ("lines", {}, "one\ntwo"),
        ("nothing", {}, ""),
        ("weather", {"city": "Bern"}, {"city": "Bern", "degrees": 21.5}),
        ("numbers", {}, {"result": [1, 2]}),
        (
            "mixed",
            {},
            [
                "a picture",
                File.from_bytes(PNG, media_type="image/png"),
                File.from_bytes(WAV, media_type="audio/wav"),
                "file:///notes.txt\nby hand",
                File.from_bytes(PDF, name="a b.pdf"),
            ],
        ),
        ("large", {"size": 3_000_000}, "x" * 3_000_000),
    ],
)
async def test_an_answer_becomes_a_string_json_or_blocks(
    factory: McpToolSource, entry: dict[str, Any], tool: str, arguments: dict[str, Any], result: Any
):
    async with opened(factory, entry) as source:
        assert await call(source, tool, **arguments) == result


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        ("boom", "bad input"),
        ("weather", "Field required"),
        ("unknown", "Unknown tool: unknown"),
    ],
)
async def test_a_failed_call_says_why(factory: McpToolSource, entry: dict[str, Any], tool: str, message: str):
    async with opened(factory, entry) as source:
        if tool == "unknown":
            lost: Any = source.tools["mcp__srv__boom"]
            lost._tool = lost._tool.model_copy(update={"name": "unknown"})
            error = await failure(source, "boom")
        else:
            error = await failure(source, tool)
        assert message in str(error)
        assert not isinstance(error, Retryable | ToolTimedOut)


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        ("protocol_error", re.escape("no such thing (MCP error -32602)")),
        ("connection_closed_error", re.escape("Connection closed (MCP error -32000)")),
        ("malformed", "MCP server 'srv' violated the protocol: "),
    ],
)
async def test_an_answer_that_is_not_a_result_is_a_failure_and_the_connection_stays(
    fresh: McpToolSource, tool: str, message: str
):
    async with opened(
        fresh, raw(effects={"protocol_error": "pure", "connection_closed_error": "pure"})
    ) as source:
        error = await failure(source, tool)
        assert re.match(message, str(error))
        assert not isinstance(error, Retryable)
        assert await call(source, "stray") == "done"


async def test_a_pattern_of_a_servers_schema_that_python_searches_for_ever_costs_no_time(
    fresh: McpToolSource,
):
    async with opened(fresh, raw(env={"FAKE_MCP_TOOLS": "patterned"})) as source:
        with pytest.raises(Exception, match=r"does not match '\(a\+\)\+\$'"):
            await call(source, "patterned")


async def test_lines_that_are_not_messages_are_left_out_and_a_long_one_is_read(fresh: McpToolSource):
    async with opened(fresh, raw()) as source:
        assert await call(source, "stray") == "done"
        assert len(await call(source, "large")) == 5_000_000


# --- time-out and cancellation ----------------------------------------------------------------------------------------


async def test_a_call_over_its_time_is_stopped_on_the_server_too(
    factory: McpToolSource, entry: dict[str, Any]
):
    async with opened(factory, entry | {"timeout_s": 0.3}) as source:
        error = await failure(source, "slow")
        assert isinstance(error, ToolTimedOut)
        assert str(error) == "timed out after 0.3 s"
    async with opened(factory, entry | {"timeout_s": 0.3}) as source:
        assert await call(source, "wait_until_slow_is_cancelled") == "cancelled"


async def test_a_cancelled_call_ends_and_is_cancelled_on_the_server(
    factory: McpToolSource, entry: dict[str, Any]
):
    async with opened(factory, entry) as source:
        context = Recorder()
        task = asyncio.create_task(call(source, "slow", context))
        await context.first.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await call(source, "wait_until_slow_is_cancelled") == "cancelled"
        assert await call(source, "search", query="x") == "found x"


async def test_open_call_and_close_may_come_from_different_tasks(fresh: McpToolSource, entry: dict[str, Any]):
    source = await asyncio.create_task(fresh.open({"srv": entry}))
    assert await asyncio.create_task(call(source, "search", query="x")) == "found x"
    await asyncio.create_task(source.aclose())
    await asyncio.create_task(fresh.aclose())


# --- lost connections -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("effect", ["pure", "idempotent", "unsafe"])
async def test_a_server_that_dies_in_a_call_means_what_the_effect_says_and_is_started_again(
    fresh: McpToolSource, effect: str, mcp_server: dict[str, Any]
):
    async with opened(fresh, mcp_server | {"effects": {"exit_now": effect}}) as source:
        before = await number(source, "pid")
        error = await failure(source, "exit_now")
        assert "exit code 7; the connection was lost during the call and its outcome is unknown" in str(error)
        assert isinstance(error, Retryable) == (effect != "unsafe")
        assert await number(source, "pid") != before


@pytest.mark.parametrize("kind", ["http", "legacy-http"])
async def test_an_http_server_that_dies_in_a_call_and_comes_back_is_used_again(
    fresh: McpToolSource, kind: str, http_server: ServeHttp
):
    with http_server(kind) as url:
        source = await fresh.open({"srv": {"url": url, "effects": {"search": "pure"}}})
        error = await failure(source, "exit_now")
        assert "its outcome is unknown" in str(error)
        assert not isinstance(error, Retryable)
    gone = await failure(source, "search", query="x")
    assert isinstance(gone, Retryable)
    assert "the call was not sent" in str(gone)
    assert not isinstance(await failure(source, "numbers"), Retryable)
    with http_server(kind, port=int(url.split(":")[2].split("/")[0])):
        assert await call(source, "delete", path="/x") == "deleted /x"
    await source.aclose()


async def test_a_server_killed_between_calls_is_started_again_for_the_next_one(fresh: McpToolSource):
    async with opened(fresh, STDIO) as source:
        before = await number(source, "pid")
        os.kill(before, signal.SIGKILL)
        await until_dead(before)
        assert await call(source, "delete", path="/x") == "deleted /x"
        assert await number(source, "pid") != before


def port_of(url: str) -> int:
    return int(url.split(":")[2].split("/", maxsplit=1)[0])


@pytest.mark.parametrize(
    ("kind", "status"), [("http", 404), ("legacy-http", 404), ("legacy-http", 400), ("legacy-http", 422)]
)
async def test_an_http_server_restarted_between_calls_does_not_fail_the_next_one(
    fresh: McpToolSource, kind: str, status: int, http_server: ServeHttp
):
    with http_server(kind) as url:
        source = await fresh.open({"srv": {"url": url}})
        before = await number(source, "pid")
    with http_server(kind, port_of(url), FAKE_MCP_UNKNOWN=str(status)):
        deleted = await asyncio.gather(*(call(source, "delete", path=path) for path in ("/x", "/y")))
        assert deleted == ["deleted /x", "deleted /y"]
        assert await number(source, "pid") != before
    await source.aclose()


async def test_a_server_error_for_an_unknown_session_leaves_an_unsafe_call_open_and_the_session_is_replaced(
    fresh: McpToolSource, http_server: ServeHttp
):
    with http_server("legacy-http") as url:
        source = await fresh.open({"srv": {"url": url, "effects": {"search": "pure"}}})
    with http_server("legacy-http", port_of(url), FAKE_MCP_UNKNOWN="500"):
        unsafe = await failure(source, "delete", path="/x")
        assert "HTTP 500" in str(unsafe)
        assert "its outcome is unknown" in str(unsafe)
        assert not isinstance(unsafe, Retryable)
        assert await call(source, "delete", path="/x") == "deleted /x"
    with http_server("legacy-http", port_of(url), FAKE_MCP_UNKNOWN="500"):
        assert isinstance(await failure(source, "search", query="x"), Retryable)
        assert await call(source, "search", query="x") == "found x"
    await source.aclose()


@pytest.mark.parametrize(
    ("refusal", "message", "data"),
    [
        (
            [403, "application/json", '{"error": "no seat for you"}'],
            'it answered HTTP 403 Forbidden: {"error": "no seat for you"} (MCP error -32000)',
            None,
        ),
        (
            [
                400,
                "application/json",
                '{"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": "no such city", "data": [1]}}',
            ],
            "no such city (HTTP 400 Bad Request) (MCP error -32602)",
            [1],
        ),
        (
            [413, "text/plain", "too much\nof it"],
            "it answered HTTP 413 Request Entity Too Large: too much of it (MCP error -32000)",
            None,
        ),
        ([404, "text/html", "<p>no"], "it answered HTTP 404 Not Found (MCP error -32000)", None),
    ],
)
@pytest.mark.parametrize("kind", ["http", "legacy-http"])
async def test_a_refused_call_keeps_the_status_and_the_words_of_the_server(
    fresh: McpToolSource, kind: str, refusal: list[Any], message: str, data: Any, http_server: ServeHttp
):
    with http_server(kind, FAKE_MCP_REFUSAL=json.dumps(refusal)) as url:
        async with opened(fresh, {"url": url, "effects": {"search": "pure"}}) as source:
            error = await failure(source, "search", query="x")
    assert str(error) == message
    assert error.result == data
    assert not isinstance(error, Retryable)


@pytest.mark.parametrize("kind", ["http", "legacy-http"])
async def test_a_server_error_means_that_the_outcome_is_unknown(
    fresh: McpToolSource, kind: str, http_server: ServeHttp
):
    refusal = [502, "application/json", '{"message": "upstream is gone"}']
    with http_server(kind, FAKE_MCP_REFUSAL=json.dumps(refusal)) as url:
        async with opened(fresh, {"url": url, "effects": {"search": "pure"}}) as source:
            lost = await failure(source, "search", query="x")
            unsafe = await failure(source, "delete", path="/x")
    assert isinstance(lost, Retryable)
    assert not isinstance(unsafe, Retryable)
    for error in (lost, unsafe):
        assert 'HTTP 502 Bad Gateway: {"message": "upstream is gone"}; the connection was lost' in str(error)
        assert "its outcome is unknown" in str(error)


async def test_the_last_words_of_a_server_that_exits_are_heard(fresh: McpToolSource, tmp_path: Path):
    log = tmp_path / "log"
    async with opened(fresh, raw(env={"FAKE_MCP_LOG": str(log)})) as source:
        for _ in range(5):
            assert await call(source, "last_words") == "bye"
            await until_dead(int(lines(log)[-1]))


async def test_a_server_whose_child_holds_the_pipes_is_found_dead_and_the_child_killed(
    fresh: McpToolSource, tmp_path: Path
):
    log = tmp_path / "log"
    async with opened(fresh, raw(env={"FAKE_MCP_LOG": str(log)})) as source:
        error = await failure(source, "child_holds_pipes")
        assert "exit code 3; the connection was lost" in str(error)
        assert ProcessFamily(int(lines(log)[0])).is_gone()


# --- opening and closing ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            {"command": "no-such-command", "args": ["${A}"]},
            r"'srv' \(no-such-command \$\{A\}\).*No such file",
        ),
        (
            {"command": sys.executable, "cwd": "/no/such/folder"},
            "No such file or directory: '/no/such/folder'",
        ),
        (
            {"command": sys.executable, "args": [SDK, "nonsense"]},
            r"the process ended with exit code 1; its stderr ends with:\nusage: mcp_server.py stdio",
        ),
        (raw("mute", connect_timeout_s=0.5), "did not answer within 0.5 s"),
        (raw("endless"), "its list of tools has more than 1000 pages"),
        (raw("twins"), "lists two tools 'twin'"),
    ],
)
async def test_a_server_that_cannot_be_used_is_named_with_the_reason(
    fresh: McpToolSource, monkeypatch: pytest.MonkeyPatch, entry: dict[str, Any], message: str
):
    monkeypatch.setenv("A", "a-secret-value")
    monkeypatch.setattr("foldlog.adapters.mcp.stdio.GRACE_S", 0.2)
    with pytest.raises(ToolSourceUnavailable, match=message) as caught:
        await fresh.open({"srv": entry})
    assert "a-secret-value" not in str(caught.value)


async def test_a_url_that_nobody_serves_is_named_with_the_reason(fresh: McpToolSource):
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # Not listening.
        url = f"http://127.0.0.1:{bound.getsockname()[1]}/mcp"
        with pytest.raises(
            ToolSourceUnavailable, match=rf"'srv' \({url}\) is not available: cannot be reached"
        ):
            await fresh.open({"srv": {"url": url}})


async def test_a_server_that_hangs_up_on_what_it_does_not_know_is_asked_the_old_way(fresh: McpToolSource):
    async with opened(fresh, raw("touchy")) as source:
        assert await call(source, "stray") == "done"


async def test_a_failed_open_leaves_no_process(fresh: McpToolSource, tmp_path: Path):
    log = tmp_path / "log"
    env = {"FAKE_MCP_LOG": str(log)}
    with pytest.raises(ConfigError):
        await fresh.open({"good": raw(env=env), "bad": raw(env=env, tools=["nope"])})
    assert len(lines(log)) == 2
    assert not any(is_alive(int(pid)) for pid in lines(log))


async def test_a_cancelled_open_leaves_no_process(
    fresh: McpToolSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("foldlog.adapters.mcp.stdio.GRACE_S", 0.2)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    task = asyncio.create_task(fresh.open({"srv": raw("mute", env={"FAKE_MCP_LOG": str(fifo)})}))
    pid = int(await anyio.to_thread.run_sync(fifo.read_text))
    assert is_alive(pid)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not is_alive(pid)


async def test_closing_ends_the_server_with_all_it_started(fresh: McpToolSource):
    async with opened(fresh, STDIO) as source:
        server, child = await number(source, "pid"), await number(source, "spawn")
        assert is_alive(child)
    await fresh.aclose()
    assert not is_alive(child)
    assert not is_alive(server)


async def test_a_server_that_ignores_the_end_of_its_input_and_sigterm_is_killed(
    fresh: McpToolSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("foldlog.adapters.mcp.stdio.GRACE_S", 0.2)
    log = tmp_path / "log"
    async with opened(fresh, raw("stubborn", env={"FAKE_MCP_LOG": str(log)})):
        pass
    await fresh.aclose()
    assert not is_alive(int(lines(log)[0]))


async def test_a_call_in_flight_when_its_server_is_closed_fails_instead_of_hanging(
    fresh: McpToolSource, entry: dict[str, Any]
):
    source = await fresh.open({"srv": entry})
    context = Recorder()
    task = asyncio.create_task(failure(source, "slow", context))
    await asyncio.wait({task, asyncio.create_task(context.first.wait())}, return_when="FIRST_COMPLETED")
    await fresh.aclose()
    assert "its outcome is unknown" in str(await task)
    assert "it has been closed" in str(await failure(source, "numbers"))
    await source.aclose()


@pytest.mark.parametrize("kind", ["http", "legacy-http"])
async def test_a_server_that_stands_still_holds_up_neither_a_cancellation_nor_the_end(
    fresh: McpToolSource, monkeypatch: pytest.MonkeyPatch, kind: str, http_server: ServeHttp
):
    monkeypatch.setattr("foldlog.adapters.mcp.streamable_http.RECEIPT_TIMEOUT_S", 0.2)
    with http_server(kind) as url:
        source = await fresh.open({"srv": {"url": url}})
        hasty = await fresh.open({"srv": {"url": url, "timeout_s": 0.5}})
        process, context = await number(source, "pid"), Recorder()
        task = asyncio.create_task(call(source, "slow", context))
        await context.first.wait()
        os.kill(process, signal.SIGSTOP)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert isinstance(await failure(hasty, "search", query="x"), ToolTimedOut)
        await fresh.aclose()


async def test_equal_entries_share_a_server_and_others_do_not(
    fresh: McpToolSource, mcp_server: dict[str, Any]
):
    first, second = await fresh.open({"srv": mcp_server}), await fresh.open({"srv": mcp_server})
    other = await fresh.open({"srv": mcp_server | {"env": {"A": "b"}}})
    assert await number(first, "pid") == await number(second, "pid") != await number(other, "pid")
    await first.aclose()
    await first.aclose()
    third = await fresh.open({"srv": mcp_server})
    assert await number(second, "pid") == await number(third, "pid")


async def test_a_server_outlives_its_last_use_for_the_idle_time_only():
    patient, hasty = McpToolSource(idle_s=600), McpToolSource(idle_s=0)
    pids: list[int] = []
    for factory in (patient, patient, hasty):
        async with opened(factory, STDIO) as source:
            pids.append(await number(source, "pid"))
    assert pids[0] == pids[1]
    await until_dead(pids[2])
    assert is_alive(pids[0])
    await patient.aclose()
    await hasty.aclose()
    assert not is_alive(pids[0])


def test_a_factory_works_in_one_event_loop_after_the_other_and_on_uvloop():
    factory = McpToolSource()
    pids: list[int] = []

    async def use() -> None:
        async with opened(factory, STDIO) as source:
            context = Recorder()
            assert await call(source, "burst", context, count=50) == "done"
            assert len(context.seen) == 50
            pids.extend([await number(source, "pid"), await number(source, "spawn")])

    loops: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop, uvloop.new_event_loop]
    for loop_factory in loops:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(use())
            # Not closed: the end of the loop has to end the servers too.
        assert not any(is_alive(pid) for pid in pids)
    assert len(set(pids)) == 4


def test_the_adapter_is_imported_without_the_sdk():
    code = "import sys, foldlog.adapters.mcp as it; it.McpToolSource().check({}); print('mcp' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"


async def test_the_server_of_the_demo_reports_twice_and_finds_something(fresh: McpToolSource):
    demo = {"command": sys.executable, "args": ["-m", "foldlog.adapters.demo.mcp_server"]}
    async with opened(fresh, demo | {"env": {"FOLDLOG_DEMO_SEARCH_S": "0.05"}}) as source:
        context = Recorder()
        assert "Log" in await call(source, "search", context, query="logs")
        assert [(done, total) for done, total, _ in context.seen] == [(1, 2), (2, 2)]


# --- questions --------------------------------------------------------------------------------------------------------

KEY = "k" * 32
YES = Answer(action="accept", content={"approve": True})


async def question(source: McpTools, context: Recorder) -> str:
    """The name of the question that ends a call of `confirmed`."""
    with pytest.raises(Asked):
        await call(source, "confirmed", context)
    name, message, form = context.asked[-1]
    assert (message, form["required"]) == ("Really?", ["approve"])
    return name


async def test_a_question_of_a_server_ends_the_attempt_and_the_next_one_carries_the_answer(
    fresh: McpToolSource, entry: dict[str, Any]
):
    async with opened(fresh, {**entry, "effects": {"confirmed": "idempotent"}}) as source:
        for answer, told in (
            (YES, "True"),
            (Answer(action="accept", content={"approve": False}), "False"),
        ):
            context = Recorder()
            context.answers[await question(source, context)] = answer
            assert await call(source, "confirmed", context) == told
        context = Recorder()
        context.answers[await question(source, context)] = Answer(action="decline")
        assert "declin" in str(await failure(source, "confirmed", context))


@pytest.mark.parametrize(("effect", "key"), [("unsafe", KEY), ("idempotent", KEY), ("idempotent", "")])
async def test_an_answer_reaches_a_server_that_was_restarted_meanwhile(
    effect: str, key: str, mcp_server: dict[str, Any]
):
    context = Recorder()
    entry = {**mcp_server, "env": {"FAKE_MCP_KEY": key}, "effects": {"confirmed": effect}}
    for asks in (True, False):
        factory = McpToolSource(idle_s=0)
        async with opened(factory, entry) as source:
            if asks:
                context.answers[await question(source, context)] = YES
                context.memos = {name: dict(value) for name, value in context.memos.items()}
            else:
                assert await call(source, "confirmed", context) == "True"
        await factory.aclose()
    assert len(context.asked) == 1


async def test_a_server_that_lost_its_state_is_not_called_again_for_an_unsafe_tool(
    mcp_server: dict[str, Any],
):
    context = Recorder()
    for asks in (True, False):
        factory = McpToolSource(idle_s=0)
        async with opened(factory, mcp_server) as source:
            if asks:
                context.answers[await question(source, context)] = YES
            else:
                assert "MCP error" in str(await failure(source, "confirmed", context))
        await factory.aclose()


async def test_a_server_before_2026_that_asks_within_an_unsafe_call_gets_a_cancel(http_server: ServeHttp):
    factory = McpToolSource(idle_s=0)
    with http_server("legacy-http") as url:
        async with opened(factory, {"url": url}) as source:
            context = Recorder()
            assert "cancel" in str(await failure(source, "confirmed", context))
            assert context.asked == []
        await factory.aclose()
