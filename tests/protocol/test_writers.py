"""Many writers on one run, on both logs: no event is lost, and nothing forks (P5, W14)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from foldlog.eventlog import Log
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.eventlog.events import MessageQueued, Submitted, is_terminal
from foldlog.eventlog.jetstream import JetStreamLog
from foldlog.eventlog.memory import MemoryLog
from foldlog.eventlog.ports import Subject
from foldlog.replay import check_trace, load_trace
from foldlog.replay.simulation.cast import Model, Reply
from foldlog.runtime import Agent, Registry, RunHandle, Runtime, tool
from foldlog.runtime.core.submission import submitted_event
from foldlog.runtime.driving.driver import Driver
from foldlog.runtime.driving.host import Host
from foldlog.runtime.journal.journal import Journal
from foldlog.runtime.journal.open_run import open_turn

WRITERS, MESSAGES = 8, 5


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=["memory", "jetstream"])
async def log(request: pytest.FixtureRequest, anyio_backend: str) -> AsyncIterator[Log]:
    if request.param == "memory":
        yield MemoryLog()
        return
    async with EphemeralServer() as server, JetStreamLog.open(server.url) as opened:
        yield opened


class Waiting:
    """An agent whose tool waits for `go`, then answers as often as it is asked."""

    def __init__(self) -> None:
        self.entered, self.go = asyncio.Event(), asyncio.Event()

        @tool(effect="pure")
        async def wait() -> str:
            """Wait."""
            self.entered.set()
            await self.go.wait()
            return "waited"

        model = Model()
        model.scripts["waiting"] = (Reply(calls=(("wait", {}),)), *(Reply(text=("done",)) for _ in range(3)))
        self.agent = Agent("waiting", model="sim:waiting", tools=[wait])
        self.registry = Registry(agents=[self.agent], providers={"sim": model})


async def test_eight_writers_at_once_lose_no_message_and_fork_nothing(log: Log) -> None:
    waiting = Waiting()

    async def writer(run: RunHandle[str], name: int) -> None:
        for number in range(MESSAGES):
            await run.inject(f"{name}: {number}")

    async with Runtime.open(log=log, registry=waiting.registry) as runtime:
        run = await runtime.start(waiting.agent, "question")
        await waiting.entered.wait()
        await asyncio.gather(*[writer(runtime.get_run(run.run_id), name) for name in range(WRITERS)])
        waiting.go.set()
        await run.result()
        trace = await load_trace(log, run.run_id)
    queued = [event.content for event in trace.events if isinstance(event, MessageQueued)]
    assert sorted(queued) == sorted(f"{n}: {m}" for n in range(WRITERS) for m in range(MESSAGES))
    for name in range(WRITERS):
        assert [text for text in queued if text.startswith(f"{name}:")] == [
            f"{name}: {number}" for number in range(MESSAGES)
        ]
    assert [event.revision for event in trace.events] == list(range(1, len(trace.events) + 1))
    assert check_trace(trace) == []


async def test_of_two_submissions_of_one_run_one_is_stored(log: Log) -> None:
    waiting = Waiting()
    subject = Subject(0, "run", "the-run", "the-run")

    async def submit() -> bool:
        journal = Journal(log, subject)
        turn = open_turn(journal, submitted_event(waiting.agent, "question", executor="local"), "waiting")
        return await journal.store(turn.events, epoch=0)

    assert sorted(await asyncio.gather(*[submit() for _ in range(WRITERS)])) == [False] * 7 + [True]
    trace = await load_trace(log, subject)
    assert [type(event) for event in trace.events if event.type == "submitted"] == [Submitted]


async def test_of_two_claims_at_one_revision_one_wins(log: Log) -> None:
    waiting = Waiting()
    subject = Subject(0, "run", "the-run", "the-run")
    journal = Journal(log, subject)
    turn = open_turn(journal, submitted_event(waiting.agent, "question", executor="local"), "waiting")
    assert await journal.store(turn.events, epoch=0)

    async def claim(name: str) -> bool:
        own = Journal(log, subject)
        await own.load()
        await barrier.wait()
        return await Driver(Host(log=log, registry=waiting.registry, worker=name), own).claim()

    barrier = asyncio.Barrier(2)
    claimed = await asyncio.gather(*[claim(f"worker-{n}") for n in range(2)])
    state = await journal.load()
    assert (sorted(claimed), state.epoch) == ([False, True], 1)
    assert state.owner == f"worker-{claimed.index(True)}"


async def test_a_cancel_and_the_last_commit_leave_one_terminal(log: Log) -> None:
    waiting = Waiting()
    async with Runtime.open(log=log, registry=waiting.registry) as runtime:
        runs = [await runtime.start(waiting.agent, f"question {n}") for n in range(WRITERS)]
        await waiting.entered.wait()
        waiting.go.set()
        answers = await asyncio.gather(*[run.cancel("enough") for run in runs])
        traces = [await load_trace(log, run.run_id) for run in runs]
    for answer, trace in zip(answers, traces, strict=True):
        terminals = [event.status for event in trace.events if is_terminal(event)]
        assert terminals == [answer.removeprefix("already_")]
