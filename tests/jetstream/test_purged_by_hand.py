"""A stranger removes messages of runs from a real server: nothing is wedged, nothing runs twice, and all is named."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from foldlog.eventlog import LogCorrupted, RunGone, RunOpen, Subject
from foldlog.eventlog.conformance.suite import everything
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.eventlog.jetstream import JetStreamLog
from foldlog.eventlog.names import lane_subject
from foldlog.runtime import Agent, tool

from tests.runtime.conftest import Place, call, calls, says, script

pytestmark = pytest.mark.anyio
__all__ = ["script"]
Script = Callable[..., str]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def server(anyio_backend: str) -> AsyncIterator[EphemeralServer]:
    async with EphemeralServer() as server:
        yield server


@contextlib.asynccontextmanager
async def opened(server: EphemeralServer, namespace: str) -> AsyncIterator[Place]:
    async with (
        JetStreamLog.open(server.url, namespace=namespace, shards=1, request_timeout_s=30) as log,
        contextlib.AsyncExitStack() as stack,
    ):
        yield Place(log, "durable", stack)


def sender(script: Script, sent: list[str], **fields: Any) -> Agent[Any]:
    @tool(effect="unsafe")
    async def send(to: str) -> str:
        """Send."""
        sent.append(to)
        return "sent"

    model = script(calls(call("send", to="a")), says("answered"))
    return Agent("helper", model=model, tools=[send], memory={"scope": "session"}, **fields)


async def remove(log: Any, subject: Subject, *, which: int) -> None:
    """Do what `nats stream rmm` does, to one of the commits of a subject."""
    position = (await everything(log.events.read(subject)))[which].position
    await log._wire.api(f"STREAM.MSG.DELETE.{log._layout.shard(subject.shard)}", {"seq": position}, dict)


@pytest.mark.parametrize("which", [0, 3])
async def test_of_a_run_that_lacks_a_commit_nothing_runs_again_and_its_session_goes_on(
    server: EphemeralServer, script: Script, which: int
) -> None:
    sent: list[str] = []
    async with opened(server, f"lacks-{which}") as place:
        agent = sender(script, sent)
        runtime = await place.open(agent)
        first = {"session": "s", "idempotency_key": "k"}
        run = await place.start(agent, "first", **first)
        await run.result()
        await remove(place.log, await runtime.locate(run.run_id), which=which)
        with pytest.raises(LogCorrupted, match=run.run_id):
            await (await place.start(agent, "first", **first)).result()
        after = await place.start(agent, "second", session="s")
        await after.result()
        assert sent == ["a", "a"]
        history = await runtime.history("s")
        assert [turn.run for turn in history.turns] == [after.run_id]
        assert history.damaged == (run.run_id,)
        audit = await place.log.audit()  # type: ignore[attr-defined]
        assert (len(audit.losses), list(audit.damaged), audit.missing) == (1, [run.run_id], ())
        assert run.run_id in audit.lines()[-1]
        assert [row.run_id for row in await (await runtime.index()).damaged()] == [run.run_id]
        assert [each.run_id for each in (await runtime.delete(run.run_id, dry_run=True)).erased] == [
            run.run_id
        ]
        (erased,) = (await runtime.delete(run.run_id, by="ann")).erased
        assert list(erased.damaged) == [run.run_id]
        rows = {row.run_id: row.buried for row in await (await runtime.index()).runs()}
        assert rows == {run.run_id: "deleted", after.run_id: ""}
        with pytest.raises(RunGone):
            await place.start(agent, "first", **first)
        assert (await runtime.history("s")).damaged == ()
        assert (await place.log.audit()).damaged == {}  # type: ignore[attr-defined]


async def test_a_run_whose_end_was_removed_ends_again_without_its_effects(
    server: EphemeralServer, script: Script
) -> None:
    sent: list[str] = []
    async with opened(server, "endless") as place:
        agent = sender(script, sent)
        runtime = await place.open(agent)
        first = {"session": "s", "idempotency_key": "k"}
        run = await place.start(agent, "first", **first)
        await run.result()
        await remove(place.log, await runtime.locate(run.run_id), which=-1)
    async with opened(server, "endless") as place:
        await place.open(agent)
        again = await place.start(agent, "first", **first)
        assert (again.run_id, (await again.result()).output, sent) == (run.run_id, "answered", ["a"])
        assert len((await place.log.audit()).losses) == 1  # type: ignore[attr-defined]


async def test_a_lane_whose_last_commit_was_removed_does_not_wait_for_a_run_that_is_over(
    server: EphemeralServer, script: Script
) -> None:
    async with opened(server, "lane") as place:
        agent = sender(script, [])
        runtime = await place.open(agent)
        runs = []
        for text in ("first", "second"):
            runs.append(run := await place.start(agent, text, session="s"))
            await run.result()
            lane = (await (await runtime.index()).run(run.run_id)).lane
            assert lane is not None
            await remove(place.log, lane_subject(lane, 1), which=-1)
        await (last := await place.start(agent, "third", session="s")).result()
        assert [turn.run for turn in (await runtime.history("s")).turns][-1] == last.run_id


async def test_an_open_run_that_lacks_a_commit_can_be_deleted_and_its_session_goes_on(
    server: EphemeralServer, script: Script
) -> None:
    async with opened(server, "open") as place:
        agent = sender(script, [], hitl_tools=["send"])
        runtime = await place.open(agent)
        run = await place.start(agent, "first", session="s")
        waiting = await place.start(agent, "second", session="s")
        async for event in run.stream():
            if event.type == "approval_requested":
                break
        with pytest.raises(RunOpen):
            await runtime.delete(run.run_id)
        await remove(place.log, await runtime.locate(run.run_id), which=1)
        await runtime.delete(run.run_id)
        async for event in waiting.stream():
            if event.type == "approval_requested":
                return
        pytest.fail("the next run of the session ended without its approval")
