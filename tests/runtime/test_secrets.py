"""Secrets in arguments: a tool has the value, and nothing that is stored, shown or logged has it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from foldlog.adapters.builtin import Workspace, shell_tool
from foldlog.adapters.runners import DirectRunner
from foldlog.adapters.secrets import EnvironmentSecret
from foldlog.eventlog.events import Custom, ToolCall, ToolResult
from foldlog.eventlog.ports import Family
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


async def test_a_value_is_seen_by_the_tool_and_by_nobody_else(
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
    await run.result(timeout_s=30)
    assert seen == [VALUE, f"Bearer {VALUE}", "none"]
    events = await place.events(run)
    results = {event.tool_call_id: event for event in events if isinstance(event, ToolResult)}
    first: Any = results["c1"].result
    assert first["key"] == "secret://KEY"
    assert first["in json"] == '["secret://KEY"]'
    assert first["secret://KEY"] == "heard"
    assert await place.log.artifacts.get(first["id"]) == b"secret://KEY"
    assert results["c2"].error == "RuntimeError: cannot use secret://KEY: ['secret://KEY']"
    assert results["c3"].result == {"exit_code": 0, "output": "<secret://KEY>"}
    (said,) = [event for event in events if isinstance(event, Custom)]
    assert said.data == {"key": ["secret://KEY"], "secret://KEY": 1}
    assert [event.arguments for event in events if isinstance(event, ToolCall)][1] == {"key": "secret://KEY"}
    stored = await stored_bytes(place, run.run_id)
    assert b"tell secret://KEY" in stored
    assert b"tr0ub4dor" not in stored
    assert "tr0ub4dor" not in caplog.text


async def test_a_tool_has_only_its_own_secrets(place: Place, script: Callable[..., str]) -> None:
    seen: list[str] = []
    child = Agent("child", model=script(says("heard")))
    keys = ("secret://OTHERS", "secret://NONE", "secret://SHORT", "secret://", "secret:KEY")
    turn = calls(*(call("spill", f"c{n}", key=key, headers={"auth": []}) for n, key in enumerate(keys)))
    agent = Agent("holder", model=script(turn, says("done")), tools=[spiller(seen, child)])
    await place.open(agent, child, secrets=SECRETS)
    run = await place.start(agent)
    await run.result(timeout_s=30)
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
    await run.result(timeout_s=30)
    (result,) = [event for event in await place.events(run) if isinstance(event, ToolResult)]
    assert result.error == "the environment variable THE_KEY of a secret is not set"
    with pytest.raises(ToolFailed):
        await SECRETS["KEY"].read()
