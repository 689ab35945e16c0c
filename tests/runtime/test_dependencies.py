"""Dependencies of tools: opened by the registry's factory, once per process or once per run, and closed again."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import pytest
from foldlog.eventlog import ConfigError, MemoryLog, RunCancelled, RunFailed, ToolResult
from foldlog.runtime import Agent, Registry, RunContext, Runtime, Swarm, ToolContext, postcondition, tool

from tests.runtime.conftest import Place, call, calls, says

Script = Callable[..., str]


class Shop:
    """A thing that has to be opened, and tells who uses it."""

    def __init__(self, name: str = "") -> None:
        self.name, self.is_open = name, True


@tool(effect="pure")
async def buy(context: ToolContext[Shop]) -> str:
    """Buy something."""
    assert context.deps.is_open
    return f"bought at {context.deps.name}"


@tool(effect="pure")
def look(context: ToolContext[Shop] | None) -> str:
    """Look, in a thread."""
    assert context is not None
    thread = "the main" if threading.current_thread() is threading.main_thread() else "another"
    return f"looked at {context.deps.name} from {thread} thread"


class Street:
    """Factories of shops, and what became of them."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.tasks: set[bool] = set()
        self.fails = 0
        self.all_closed = asyncio.Event()

    @contextlib.asynccontextmanager
    async def shop(self) -> AsyncIterator[Shop]:
        if self.fails:
            self.fails -= 1
            self.told.append("failed")
            raise OSError("no road leads there")
        async with self._shop("the corner") as shop:
            yield shop

    @contextlib.asynccontextmanager
    async def stall(self, run: RunContext[None]) -> AsyncIterator[Shop]:
        if self.fails:
            raise OSError("no room")
        async with self._shop(f"{run.user}'s {run.agent} {run.metadata['place']}") as shop:
            yield shop

    @contextlib.asynccontextmanager
    async def _shop(self, name: str) -> AsyncIterator[Shop]:
        task, shop = asyncio.current_task(), Shop(name)
        self.told.append(f"open {name}")
        try:
            yield shop
        finally:
            shop.is_open = False
            self.tasks.add(asyncio.current_task() is task)
            self.told.append(f"closed {name}")
            opened, closed = (sum(each.startswith(word) for each in self.told) for word in ("open", "closed"))
            if opened == closed == 2:
                self.all_closed.set()


TENANT: dict[str, Any] = {"user": "ada", "metadata": {"place": "stall"}}


async def results(run: Any) -> list[Any]:
    return [
        event.result
        async for event in run.stream(detailed=True, family=True)
        if isinstance(event, ToolResult)
    ]


async def test_what_a_process_depends_on_is_opened_once_and_closed_with_it(script: Script) -> None:
    street = Street()
    agent = Agent(
        "buyer", model=script(calls(call("buy"), call("look", "c2")), says("done")), tools=[buy, look]
    )
    registry = Registry(agents=[agent], deps=street.shop)
    async with Runtime.open("memory://", registry=registry) as runtime:
        assert street.told == []
        first, second = await runtime.start(agent, "one"), await runtime.start(agent, "two")
        await asyncio.gather(first.result(), second.result())
        bought = ["bought at the corner", "looked at the corner from another thread"]
        assert [await results(first), await results(second)] == [bought, bought]
        assert street.told == ["open the corner"]
    assert street.told == ["open the corner", "closed the corner"]
    assert street.tasks == {True}  # left by the task that entered it


async def test_what_a_run_depends_on_is_opened_for_each_run_and_closed_with_it(
    place: Place, script: Script
) -> None:
    street = Street()
    helper = Agent("helper", model=script(calls(call("buy")), says("h")), tools=[buy])
    tools = [buy, helper.as_tool()]
    agent = Agent(
        "buyer", model=script(calls(call("buy")), calls(call("helper", input="x")), says("done")), tools=tools
    )
    await place.open(agent, deps=street.stall)
    run = await place.start(agent, **TENANT)
    await run.result()
    assert (await results(run))[:2] == ["bought at ada's buyer stall", "bought at ada's helper stall"]
    await place.runtime.aclose()
    await asyncio.wait_for(street.all_closed.wait(), 120)  # the result is there before the driver has left
    assert sorted(street.told) == [
        "closed ada's buyer stall",
        "closed ada's helper stall",
        "open ada's buyer stall",
        "open ada's helper stall",
    ]
    assert street.tasks == {True}


async def test_the_children_of_children_and_their_validators_have_dependencies_too(
    place: Place, script: Script
) -> None:
    street, seen = Street(), list[str]()
    inner = Agent("inner", model=script(calls(call("buy")), says("i")), tools=[buy], deps_type=Shop)
    middle = Agent(
        "middle", model=script(calls(call("inner", input="x")), says("m")), tools=[inner.as_tool()]
    )
    outer = Agent(
        "outer", model=script(calls(call("middle", input="x")), says("o")), tools=[middle.as_tool()]
    )

    @inner.output_validator
    def look_around(run: RunContext[Shop], output: str) -> None:
        assert run.deps.is_open
        seen.append(run.deps.name)

    await place.open(outer, middle, inner, deps=street.stall)
    run = await place.start(outer, **TENANT)
    assert (await run.result()).output == "o"
    assert [each for each in await results(run) if each.startswith("bought")] == [
        "bought at ada's inner stall"
    ]
    assert seen == ["ada's inner stall"]


async def test_who_takes_a_run_over_opens_its_dependencies_again(place: Place, script: Script) -> None:
    street, entered = Street(), asyncio.Event()

    @tool(effect="pure")
    async def haggle(context: ToolContext[Shop]) -> str:
        if not entered.is_set():
            entered.set()
            await asyncio.Event().wait()
        return context.deps.name

    agent = Agent("buyer", model=script(calls(call("haggle")), says("done")), tools=[haggle])
    await place.open(agent, deps=street.stall)
    run = await place.start(agent, **TENANT)
    await entered.wait()
    await place.hand_over(run)
    assert (await run.result()).output == "done"
    assert await results(run) == ["ada's buyer stall"]
    assert [each for each in street.told if each.startswith("open")] == ["open ada's buyer stall"] * 2


async def test_a_cancelled_run_closes_its_dependencies(place: Place, script: Script) -> None:
    street, entered, closed = Street(), asyncio.Event(), asyncio.Event()

    @contextlib.asynccontextmanager
    async def stall(run: RunContext[None]) -> AsyncIterator[Shop]:
        async with street.stall(run) as shop:
            yield shop
        closed.set()

    @tool(effect="pure")
    async def haggle(context: ToolContext[Shop]) -> str:
        entered.set()
        await asyncio.Event().wait()
        return context.deps.name

    agent = Agent("buyer", model=script(calls(call("haggle")), says("done")), tools=[haggle])
    await place.open(agent, deps=stall)
    run = await place.start(agent, **TENANT)
    await entered.wait()
    await run.cancel()
    with pytest.raises(RunCancelled):
        await run.result()
    await asyncio.wait_for(closed.wait(), 120)
    assert street.told == ["open ada's buyer stall", "closed ada's buyer stall"]


async def test_a_process_that_cannot_open_its_dependencies_starts_no_run(script: Script) -> None:
    street, log = Street(), MemoryLog()
    street.fails = 1
    agent = Agent("buyer", model=script(calls(call("buy")), says("done")), tools=[buy])
    async with Runtime.open(log=log, registry=Registry(agents=[agent], deps=street.shop)) as runtime:
        with pytest.raises(
            ConfigError, match="of this process cannot be opened: OSError: no road leads there"
        ):
            await runtime.start(agent, "one")
        assert await runtime.list_runs() == []
        assert (await runtime.run(agent, "again")).output == "done"


async def test_a_run_waits_for_a_worker_that_can_open_its_dependencies(log: Any, script: Script) -> None:
    street = Street()
    street.fails = 4
    agent = Agent("buyer", model=script(calls(call("buy")), says("done")), tools=[buy])
    async with contextlib.AsyncExitStack() as stack:
        place = Place(log, "durable", stack)
        await place.open(agent, deps=street.shop)
        run = await place.start(agent)
        assert (await run.result()).output == "done"
        assert street.told == ["failed"] * 4 + ["open the corner"]
        await place.check_rules()


async def test_a_run_whose_own_dependencies_cannot_be_opened_fails_and_says_why(
    place: Place, script: Script
) -> None:
    street = Street()
    street.fails = 1
    agent = Agent("buyer", model=script(calls(call("buy")), says("done")), tools=[buy])
    await place.open(agent, deps=street.stall)
    run = await place.start(agent, **TENANT)
    with pytest.raises(
        RunFailed, match=f"the dependencies of run {run.run_id} cannot be opened: OSError: no room"
    ) as failed:
        await run.result()
    assert failed.value.error_type == "config_error"


async def test_a_tool_whose_dependencies_nothing_opens_is_refused_before_the_first_event(
    script: Script,
) -> None:
    agent = Agent("buyer", model=script(says("done")), tools=[buy])
    async with Runtime.open("memory://", registry=Registry(agents=[agent])) as runtime:
        with pytest.raises(
            ConfigError, match=r"the tool 'buy' takes a context with dependencies: give Registry\(deps="
        ):
            await runtime.start(agent, "one")
        assert await runtime.list_runs() == []


class Bank:
    """Another thing to depend on."""


class Kiosk(Shop):
    """A shop, too."""


@contextlib.asynccontextmanager
async def open_bank() -> AsyncIterator[Bank]:
    yield Bank()


@contextlib.asynccontextmanager
async def open_kiosk(run: RunContext[None]) -> AsyncGenerator[Kiosk]:
    yield Kiosk(run.run_id)


@contextlib.asynccontextmanager
async def open_anything() -> AsyncGenerator[Any]:
    yield 3


def test_a_registry_whose_dependencies_are_not_those_of_a_tool_is_refused_when_it_is_made() -> None:
    agent = Agent("buyer", tools=[buy])
    told = r"the tool 'buy' takes a ToolContext\[Shop\], but Registry\(deps=...\) opens Bank"
    verified = postcondition({"exit_code": {"equals": 0}})(buy)
    for given in (
        {"agents": [agent]},
        {"tools": [buy]},
        {"tools": [verified]},
        {"agents": [Swarm([agent], "buyer")]},
    ):
        with pytest.raises(ConfigError, match=told):
            Registry(**given, deps=open_bank)  # type: ignore[arg-type]
        Registry(**given, deps=open_kiosk)  # type: ignore[arg-type]
        Registry(**given, deps=open_anything)  # type: ignore[arg-type]


def of_two(run: RunContext, other: RunContext) -> None:
    """No factory."""


@pytest.mark.parametrize("factory", [Shop("x"), of_two], ids=["no function", "of two"])
def test_a_factory_takes_nothing_or_a_run(factory: Any) -> None:
    with pytest.raises(ConfigError, match="deps must be a function"):
        Registry(deps=factory)


async def test_an_agent_with_a_type_of_dependencies_refuses_others_before_its_first_event(
    script: Script,
) -> None:
    banker = Agent("banker", model=script(says("done")), deps_type=Bank)
    with pytest.raises(ConfigError, match=r"takes dependencies of type Bank, but Registry.* opens Shop"):
        Registry(agents=[banker], deps=Street().shop)
    async with Runtime.open("memory://", registry=Registry(deps=Street().shop)) as runtime:
        with pytest.raises(ConfigError, match="'banker' takes dependencies of type Bank"):
            await runtime.start(banker, "money")  # type: ignore[arg-type] # which is what is tested
    async with Runtime.open("memory://") as runtime:
        with pytest.raises(ConfigError, match=r"type Bank: give Registry\(deps=\.\.\.\)"):
            await runtime.start(banker, "money")
    with pytest.raises(
        ConfigError, match=r"deps_type is Bank, but the tool 'buy' takes a ToolContext\[Shop\]"
    ):
        Agent("buyer", tools=[buy], deps_type=Bank)  # type: ignore[list-item] # which is what is tested


async def test_opened_dependencies_of_another_type_than_the_agent_takes_fail_the_run(script: Script) -> None:
    @contextlib.asynccontextmanager
    async def unannotated() -> Any:
        yield Shop()

    banker = Agent("banker", model=script(calls(call("greet")), says("done")), tools=[greet], deps_type=Bank)
    async with Runtime.open("memory://", registry=Registry(agents=[banker], deps=unannotated)) as runtime:
        with pytest.raises(RunFailed, match=r"takes dependencies of type Bank, but .* opened Shop") as failed:
            await runtime.run(banker, "money")
    assert failed.value.error_type == "config_error"


@tool(effect="pure")
def greet(context: ToolContext) -> str:
    """Greet."""
    return f"hello {context.user}"
