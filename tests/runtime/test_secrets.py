"""Secrets in arguments: a tool has the value, and nothing that is stored, shown or logged has it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import html
import inspect
import json
import logging
import subprocess
import sys
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from foldlog.adapters.builtin import HttpSettings, Workspace, http_request_tool, shell_tool
from foldlog.adapters.runners import DirectRunner
from foldlog.adapters.secrets import EnvironmentSecret
from foldlog.eventlog.events import Custom, ToolCall, ToolResult
from foldlog.eventlog.memory import MemoryLog
from foldlog.eventlog.ports import Family
from foldlog.replay import export
from foldlog.runtime import Agent, Registry, ToolContext, ToolFailed, tool

from .conftest import Place, call, calls, says

pytestmark = pytest.mark.anyio

VALUE = 'tr0ub4dor & "3"ä'
SECRETS = {
    "KEY": EnvironmentSecret(variable="THE_KEY", tools=("spill", "blurt", "shell")),
    "SHORT": EnvironmentSecret(variable="THE_SHORT_ONE", tools=("spill",)),
    "OTHERS": EnvironmentSecret(variable="THE_KEY", tools=("deploy",)),
}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_KEY", VALUE)
    monkeypatch.setenv("THE_SHORT_ONE", "abc")


def spiller(seen: list[str], child: Agent[Any]) -> Any:
    @tool(effect="pure")
    async def spill(key: str, headers: dict[str, list[str]], context: ToolContext) -> dict[str, Any]:
        """Say the secret in every way."""
        seen.append(key)
        seen.extend(headers["auth"])
        context.progress(1, 2, f"with {key}")
        context.emit(Custom("said", {"key": [key], key: 1}))
        await context.memo("part", lambda: {"made": key})
        artifact = await context.artifact(key.encode())
        told = await context.run(child, f"tell {key}")
        return {"key": key, "in json": msgspec.json.encode([key]).decode(), "id": artifact.id, key: told}

    return spill


@tool(effect="pure")
def blurt(key: str) -> None:
    """Fail with it."""
    raise RuntimeError(f"cannot use {key}: {[key]}")


async def stored_bytes(place: Place, root: str) -> bytes:
    shard = (await place.runtime.locate(root)).shard
    return b"".join([each.data async for each in place.log.events.read(Family(shard, root))])


async def test_a_value_is_seen_only_by_the_tool(
    place: Place,
    script: Callable[..., str],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    seen: list[str] = []
    child = Agent("child", model=script(says("heard")))
    model = script(
        calls(
            call("spill", "c1", key="secret://KEY", headers={"auth": ["Bearer secret://KEY", "none"]}),
            call("blurt", "c2", key="secret://KEY"),
            call("shell", "c3", command=["printf", "%s", "<secret://KEY>"]),
        ),
        says("done"),
    )
    shell = shell_tool(DirectRunner(Workspace(tmp_path)))
    agent = Agent("holder", model=model, tools=[spiller(seen, child), blurt, shell])
    await place.open(agent, child, secrets=SECRETS)
    run = await place.start(agent)
    await run.result()
    assert seen == [VALUE, f"Bearer {VALUE}", "none"]
    events = await place.events(run)
    results = {event.tool_call_id: event for event in events if isinstance(event, ToolResult)}
    first: Any = results["c1"].result
    assert first["key"] == "secret://KEY"
    assert first["in json"] == '["secret://KEY"]'
    assert first["secret://KEY"] == "heard"
    assert await place.log.artifacts.find(first["id"]) == b"secret://KEY"
    assert results["c2"].error == "RuntimeError: cannot use secret://KEY: ['secret://KEY']"
    assert results["c3"].result == {"exit_code": 0, "output": "<secret://KEY>"}
    (said,) = [event for event in events if isinstance(event, Custom)]
    assert said.data == {"key": ["secret://KEY"], "secret://KEY": 1}
    assert [event.arguments for event in events if isinstance(event, ToolCall)][1] == {"key": "secret://KEY"}
    stored = await stored_bytes(place, run.run_id)
    assert b"tell secret://KEY" in stored
    assert b"tr0ub4dor" not in stored
    assert "tr0ub4dor" not in caplog.text


# --- every way out ----------------------------------------------------------------------------------------------------

LINES = "-----BEGIN KEY-----\n" + "\n".join(f"line {n} \"of\" <the> key\\ '{n}' ü%" for n in range(3))
NUMBER = "48151623"
EVERY = {
    "LINES": EnvironmentSecret(variable="THE_LINES", tools=("leak",)),
    "NUMBER": EnvironmentSecret(variable="THE_NUMBER", tools=("leak",)),
}
FORMS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "line": lambda value: value.splitlines()[-1],
    "json": json.dumps,
    "json in json": lambda value: json.dumps(json.dumps({"a": value})),
    "json in json in json": lambda value: json.dumps([json.dumps([json.dumps([value])])]),
    "readable json": lambda value: json.dumps([value], ensure_ascii=False),
    "repr": lambda value: repr([value]),
    "repr with quotes": lambda value: repr(f"'\"{value}"),
    "bytes": lambda value: repr(value.encode()),
    "ascii": lambda value: ascii([value]),
    "html": html.escape,
    "html of json": lambda value: html.escape(json.dumps([value])),
    "url": lambda value: urllib.parse.urlencode({"q": value}),
    "base64": lambda value: base64.b64encode(f"user:{value}!".encode()).decode(),
    "base64, further": lambda value: base64.b64encode(f"me:{value}".encode()).decode(),
    "base64 of urls": lambda value: base64.urlsafe_b64encode(f"a:{value}".encode()).decode(),
}


def leaks(value: str, context: ToolContext, child: Agent[Any]) -> dict[str, Callable[[], Any]]:
    """One for each way out of a call."""

    async def fail(error: Exception) -> None:
        raise error

    async def probe() -> Any:
        return await context.memo(f"memo {value}", lambda: value)

    return {
        "result": lambda: {"a": [value], value: value},
        "result as text": lambda: f"it is {value}",
        "error": lambda: fail(RuntimeError(f"no {value}")),
        "failure with a result": lambda: fail(ToolFailed(f"no {value}", result={"was": value})),
        "name and value of a memo": probe,
        "event": lambda: context.emit(Custom(f"said {value}", {"a": value, value: [value]})),
        "progress": lambda: context.progress(1, 2, value),
        "artifact": lambda: context.artifact(f"<{value}>".encode()),
        "media type": lambda: context.artifact(b"", f"text/plain; key={value}"),
        "child": lambda: context.run(child, f"tell {value}"),
    }


def way_out(seen: list[str], child: Agent[Any]) -> Any:
    @tool(effect="pure")
    async def leak(secret: str, way: str, form: str, context: ToolContext) -> Any:
        """Let it out."""
        seen.append(secret)
        left = leaks(FORMS[form](secret), context, child)[way]()
        return await left if inspect.isawaitable(left) else left

    return leak


def pieces(form: str) -> list[str]:
    """Return the part of an encoding that reveals the value; of base64, only the value's own characters."""
    if form.startswith("base64"):
        return [FORMS[form](LINES)[8:-8]]
    written = urllib.parse.quote_plus if form == "url" else str
    return [written(f"line {n} ") for n in range(3)]


async def test_no_way_out_of_a_call_shows_a_value_in_any_form_that_our_code_makes(
    place: Place,
    script: Callable[..., str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("THE_LINES", LINES)
    seen: list[str] = []
    child = Agent("child", model=script(says("heard")))
    ways = [*leaks("", cast("ToolContext", None), child)]
    turns = [
        calls(
            *(
                call("leak", f"{n}-{w}", secret="secret://LINES", way=way, form=form)
                for w, way in enumerate(ways)
            )
        )
        for n, form in enumerate(FORMS)
    ]
    agent = Agent("holder", model=script(*turns, says("done")), tools=[way_out(seen, child)], max_steps=30)
    await place.open(agent, child, secrets=EVERY)
    run = await place.start(agent)
    await run.result()
    assert seen == [LINES] * len(ways) * len(FORMS)
    everything = await everything_of(place, run.run_id) + caplog.text
    assert everything.count("secret://LINES") > len(ways) * len(FORMS)
    for form in FORMS:
        for piece in pieces(form):
            assert (form, piece not in everything) == (form, True)


async def test_a_value_of_digits_is_hidden_in_numbers_too(
    place: Place, script: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_NUMBER", NUMBER)
    number = int(NUMBER)

    @tool(effect="pure")
    async def leak(secret: str, context: ToolContext) -> Any:
        """Let it out."""
        context.progress(number, float(number), "half")
        context.emit(Custom("numbers", [number, float(number), True, 7]))
        assert await context.memo("number", lambda: {"n": number}) == {"n": number}
        return {"pin": number, "others": [7, 0.5, False, None], "text": f"{number}"}

    agent = Agent(
        "holder", model=script(calls(call("leak", secret="secret://NUMBER")), says("done")), tools=[leak]
    )
    await place.open(agent, secrets=EVERY)
    run = await place.start(agent)
    await run.result()
    events = await place.events(run)
    (result,) = [event for event in events if isinstance(event, ToolResult)]
    assert result.result == {
        "pin": "secret://NUMBER",
        "others": [7, 0.5, False, None],
        "text": "secret://NUMBER",
    }
    (numbers,) = [event for event in events if isinstance(event, Custom)]
    assert numbers.data == ["secret://NUMBER", "secret://NUMBER.0", True, 7]
    assert NUMBER not in await everything_of(place, run.run_id)


async def test_the_name_of_a_question_is_hidden_and_its_answer_is_found(
    place: Place, script: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_NUMBER", NUMBER)

    @tool(effect="pure")
    async def leak(secret: str, context: ToolContext) -> Any:
        """Ask."""
        form = {"type": "object", "properties": {"a": {"type": "string", "description": f"not {secret}"}}}
        answer = await context.ask(f"Is it {secret}?", form, name=f"about {secret}")
        return [answer.action, context.answer(f"about {secret}") == answer]

    agent = Agent(
        "holder", model=script(calls(call("leak", secret="secret://NUMBER")), says("done")), tools=[leak]
    )
    await place.open(agent, secrets=EVERY)
    run = await place.start(agent)
    async with asyncio.timeout(120):
        journal = await run._journal()
        await journal.follow_until(lambda state: bool(state.approvals) and state.parked is not None)
    (approval_id,) = (await run.state()).approvals
    await run.resolve(approval_id, "approved")
    await run.result()
    (result,) = [event for event in await place.events(run) if isinstance(event, ToolResult)]
    assert result.result == ["accept", True]
    assert NUMBER not in await everything_of(place, run.run_id)


async def everything_of(place: Place, root: str) -> str:
    """Return all bytes of a family: the log, the streams of its readers, and its export, artifacts included."""
    run: Any = place.runtime.get_run(root)
    streamed = [msgspec.json.encode(event) async for event in run.stream(detailed=True)]
    exported = [line async for line in export(place.log, root, artifacts=True)]
    artifacts = [
        base64.b64decode(json.loads(line)["base64"]) for line in exported if b'"artifact"' in line[:20]
    ]
    return b"".join([await stored_bytes(place, root), *streamed, *exported, *artifacts]).decode(
        errors="replace"
    )


async def test_a_tool_has_only_its_own_secrets(place: Place, script: Callable[..., str]) -> None:
    seen: list[str] = []
    child = Agent("child", model=script(says("heard")))
    keys = ("secret://OTHERS", "secret://NONE", "secret://SHORT", "secret://", "secret:KEY")
    turn = calls(*(call("spill", f"c{n}", key=key, headers={"auth": []}) for n, key in enumerate(keys)))
    agent = Agent("holder", model=script(turn, says("done")), tools=[spiller(seen, child)])
    await place.open(agent, child, secrets=SECRETS)
    run = await place.start(agent)
    await run.result()
    errors = [event.error or "" for event in await place.events(run) if isinstance(event, ToolResult)]
    assert sorted(filter(None, errors)) == [
        "the secret 'SHORT' is shorter than 6 characters: it cannot be kept out of results",
        "the tool 'spill' has no secret 'NONE' (it has: KEY, SHORT)",
        "the tool 'spill' has no secret 'OTHERS' (it has: KEY, SHORT)",
    ]
    assert sorted(seen) == ["secret://", "secret:KEY"]


def test_a_registry_without_secrets_has_none() -> None:
    assert Registry().secrets == {}


async def test_a_secret_that_is_not_there_fails_the_call_without_a_word_of_it(
    place: Place, script: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("THE_KEY")
    agent = Agent(
        "holder", model=script(calls(call("blurt", "c", key="secret://KEY")), says("done")), tools=[blurt]
    )
    await place.open(agent, secrets=SECRETS)
    run = await place.start(agent)
    await run.result()
    (result,) = [event for event in await place.events(run) if isinstance(event, ToolResult)]
    assert result.error == "the environment variable THE_KEY of a secret is not set"
    with pytest.raises(ToolFailed):
        await SECRETS["KEY"].read()


# --- what the libraries log that tools are built on -------------------------------------------------------------------


@pytest.fixture
def mcp_url() -> Iterator[str]:
    """A real MCP server."""
    server = str(Path(__file__).parents[1] / "fakes" / "mcp_server.py")
    command = [sys.executable, server, "http", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
        finally:
            process.kill()


async def test_what_libraries_log_of_a_call_has_names_instead_of_values(
    mcp_url: str,
    script: Callable[..., str],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("THE_KEY", "tr0ub4dor & '3'")
    heard: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(b"HTTP/1.1 200 OK\r\nX-Echo: tr0ub4dor & '3'\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    @tool(effect="pure")
    async def log(key: str) -> str:
        """Log it as somebody else's code does."""
        logger = logging.getLogger("somebody.else")
        logger.info("%s of %d %%", key, 2)
        logger.info("of %s and %s", key)  # noqa: PLE1206 - logging would write it to stderr
        try:
            raise ValueError(key)
        except ValueError:
            logger.exception("failed")
        return "logged"

    own = ("mcp__srv__search", "http_request", "shell", "log")
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(await asyncio.start_server(answer, "127.0.0.1", 0))
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/?q=secret://KEY"
        turn = calls(
            call("mcp__srv__search", "c1", query="tides of secret://KEY"),
            call("http_request", "c2", url=url, headers={"X-Key": "secret://KEY"}),
            call("shell", "c3", command=["printf", "%s", "<secret://KEY>"]),
            call("log", "c4", key="secret://KEY"),
        )
        agent = Agent(
            "holder",
            model=script(turn, says("done")),
            tools=[
                http_request_tool(HttpSettings(private_addresses=True)),
                shell_tool(DirectRunner(Workspace(tmp_path))),
                log,
            ],
            mcp_servers={"srv": {"url": mcp_url, "tools": ["search"]}},
        )
        place = Place(MemoryLog(), "local", stack)
        await place.open(agent, secrets={"KEY": EnvironmentSecret(variable="THE_KEY", tools=own)})
        run = await place.start(agent)
        await run.result()
        results = [event for event in await place.events(run) if isinstance(event, ToolResult)]
    assert [(result.tool_call_id, result.error) for result in results if not result.success] == []
    assert "X-Key: tr0ub4dor" in heard[0]
    assert {"mcp.client.streamable_http", "somebody.else"} <= {
        record.name for record in caplog.records if "secret://KEY" in caplog.handler.format(record)
    }
    assert "tr0ub4dor" not in caplog.text
