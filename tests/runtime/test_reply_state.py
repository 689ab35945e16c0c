"""The items that a provider wants back with its reply go to the same provider and model family, and nowhere else."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from foldlog.eventlog import MemoryLog
from foldlog.runtime import Agent, Registry, Runtime, tool
from foldlog.runtime.core.model_request import family_of
from foldlog.runtime.ports.models import CallDelta, Delta, Finished, ModelRequest, TextDelta

from .conftest import Place

pytestmark = pytest.mark.anyio


@tool(effect="pure")
def look() -> str:
    """Look."""
    return "seen"


class Thinker:
    """Looks twice, and wants its thoughts back."""

    def __init__(self, size: int = 10) -> None:
        self.requests: list[ModelRequest] = []
        self._size = size

    def check(self, model: str) -> None:
        """Every model can be called."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        self.requests.append(request)
        if request.round < 3:
            yield CallDelta(index=0, id=f"c{request.round}", name="look", arguments="{}")
        else:
            yield TextDelta("done")
        yield Finished(reason="stop", reply_items=self.items(request.round))

    def items(self, number: int) -> list[Any]:
        return [{"thought": f"{number}" * self._size}, {"call": 0}]

    async def aclose(self) -> None:
        """Nothing to close."""


def given_back(request: ModelRequest) -> list[Any]:
    return [message.reply_state.items for message in request.messages if message.reply_state is not None]


@pytest.mark.parametrize(
    ("model", "kept"),
    [(None, True), ("sim:deep-2026-01-31", True), ("sim:other", False), ("elsewhere:deep", False)],
)
async def test_a_fork_gives_thoughts_back_to_the_family_of_the_model_alone(
    model: str | None, kept: bool
) -> None:
    sim, other = Thinker(), Thinker()
    agent = Agent("thinker", model="sim:deep", tools=[look])
    registry = Registry(agents=[agent], providers={"sim": sim, "elsewhere": other})
    async with Runtime.open("memory://", registry=registry) as rt:
        run = await rt.start(agent, "Look!")
        await run.result()
        ends = [e.revision async for e in run.stream(detailed=True) if e.type == "step"]
        before = len(sim.requests)
        fork = await rt.fork(run.run_id, at=ends[1], tools="run", model=model)
        assert (await fork.result()).output == "done"
    asked = [*sim.requests[before:], *other.requests]
    assert [request.round for request in asked] == [2, 3]
    own = sim.items(1), sim.items(2)
    assert [given_back(request) for request in asked] == [[own[0]] if kept else [], [*own[not kept :]]]


async def test_thoughts_too_large_for_the_log_are_artifacts_and_come_back_whole_after_a_restart() -> None:
    log, large = MemoryLog(), Thinker(40_000)
    agent = Agent("thinker", model="sim:deep", tools=[look], hitl_tools=["look"])
    registry = Registry(agents=[agent], providers={"sim": large})
    async with Runtime.open(log=log, registry=registry) as rt:
        run = await rt.start(agent, "Look!")
        async for event in run.stream():
            if event.type == "approval_requested":
                await run.resolve(event.approval_id, "approved")
                break
    async with Runtime.open(log=log, registry=registry) as rt:
        await rt.drive(run.run_id)
        again = rt.get_run(run.run_id)
        async for event in again.stream():
            if event.type == "approval_requested" and event.step == 2:
                await again.resolve(event.approval_id, "approved")
        assert (await again.result()).output == "done"
    assert given_back(large.requests[-1]) == [large.items(1), large.items(2)]


async def test_a_megabyte_of_thoughts_goes_back_whole_to_the_worker_that_takes_the_run_over(
    log: Any,
) -> None:
    large = Thinker(1_000_000)
    agent = Agent("thinker", model="sim:deep", tools=[look], hitl_tools=["look"])
    async with contextlib.AsyncExitStack() as stack:
        place = Place(log, "durable", stack)
        await place.open(agent, providers={"sim": large})
        run = await place.start(agent, "Look!")
        async for event in run.stream():
            if event.type == "approval_requested":
                if event.step == 1:
                    await place.hand_over(run)
                await run.resolve(event.approval_id, "approved")
        assert (await run.result()).output == "done"
        await place.check_rules()
        assert given_back(large.requests[-1]) == [large.items(1), large.items(2)]
        stored = [e.reply_state async for e in run.stream(detailed=True) if e.type == "reply_state"]
        assert all(len(msgspec.json.encode(each)) < 1_000 for each in stored)


async def test_a_session_keeps_thoughts_and_a_compaction_drops_them_with_their_messages() -> None:
    sim = Thinker()
    agent = Agent("thinker", model="sim:deep", tools=[look], memory={"scope": "session"})
    cut = Agent(
        "cut",
        model="sim:deep",
        tools=[look],
        context={"history_messages_max": 3, "overflow": "truncate"},
    )
    async with Runtime.open(
        "memory://", registry=Registry(agents=[agent, cut], providers={"sim": sim})
    ) as rt:
        await rt.run(agent, "Look!", session="talk")
        await rt.run(agent, "Again!", session="talk")
        assert given_back(sim.requests[3]) == [sim.items(1), sim.items(2), sim.items(3)]
        await rt.run(cut, "Look!")
    assert given_back(sim.requests[-1]) == [sim.items(2)]


def test_the_family_of_a_model_is_its_name_without_its_release() -> None:
    names = [
        "gpt-5-2025-08-07",
        "claude-sonnet-4-5-20250929",
        "claude-sonnet-4-5@20250929",
        "mistral-large-latest",
    ]
    assert [family_of(name) for name in names] == [
        "gpt-5",
        "claude-sonnet-4-5",
        "claude-sonnet-4-5",
        "mistral-large",
    ]
    assert family_of("gpt-5-mini") == "gpt-5-mini"
