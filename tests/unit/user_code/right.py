"""Code of a user that is right: every type checker accepts it."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol, Unpack, assert_never, assert_type, cast

from foldlog import (
    Agent,
    RalphLoop,
    Registry,
    RunContext,
    RunHandle,
    RunOptions,
    RunResult,
    Runtime,
    Swarm,
    ToolContext,
    postcondition,
    tool,
)
from foldlog.eventlog import DetailedEvent, StreamEvent
from foldlog.runtime import File, ModelSettings
from foldlog.runtime.ports.tools import Tool
from foldlog.types import VerifiedTool


class Shop:
    name: str = "corner"


@asynccontextmanager
async def open_shop() -> AsyncGenerator[Shop]:
    yield Shop()


@asynccontextmanager
async def open_for(run: RunContext) -> AsyncGenerator[Shop]:
    assert_type(run.user, str | None)
    yield Shop()


@tool(effect="pure")
async def buy(thing: str, context: ToolContext[Shop]) -> str:
    """Buy a thing."""
    assert_type(context.deps, Shop)
    return f"{thing} at {context.deps.name} for {context.user}"


@tool
def look(context: ToolContext[Shop]) -> dict[str, Any]:
    """Look around."""
    return {"at": context.deps.name}


@tool(effect="idempotent", slot="lift")
def ride(people: int, fast: bool, up: bool, floor: float, context: ToolContext["Mall"], bags: int = 0) -> int:
    """Take the lift."""
    return people * context.deps.floors + bags


@tool
def count(things: list[str], aloud: bool = False) -> int:
    """Count things."""
    return len(things)


@tool
def note(text: str, context: ToolContext) -> None:
    """Note a text."""
    context.progress(1, message=text)


def weigh(thing: str) -> float:
    return len(thing) / 2


def greet(run: RunContext[Shop]) -> str:
    return f"Speak to {run.user} at {run.deps.name}."


async def greet_later(run: RunContext[Shop]) -> str:
    return greet(run)


class HasName(Protocol):
    name: str


class Mall(Shop):
    floors: int = 3


@asynccontextmanager
async def open_mall() -> AsyncGenerator[Mall]:
    yield Mall()


def named(run: RunContext[HasName]) -> str:
    return run.deps.name


agent = Agent("buyer", tools=[buy], output_type=list[int], instructions=greet_later, max_steps=3)
careful = Agent(
    "careful",
    settings={"temperature": 0.2, "reasoning": "low"},
    budgets={"max_tokens": 1000, "max_cost_usd": "0.10", "step": {"max_seconds": 5}},
    memory={"scope": "user"},
    context={"mode": "pilot", "window_tokens": 8000},
    policy={"rules": [{"tool": "buy", "action": "require_approval"}], "default": "allow"},
    retry={"attempts": 3, "quota": {"transient": 2}},
    breaker={"failures": 3},
    concurrency={"runs_max": 2},
    files={"file_bytes_max": 1000},
)
loop = RalphLoop(careful, stop={"max_iterations": 2})
settled = Agent("settled", settings=ModelSettings(temperature=0.2))
registry = Registry(agents=[agent, Agent("plain", instructions=greet)], deps=open_shop)
per_run = Registry(agents=[agent], deps=open_for)


counted = Agent("counted", output_type=int)

seller = Agent("seller", tools=[buy], deps_type=Shop)
counting_seller = Agent("counting", tools=[buy], deps_type=Shop, output_type=int)
hostess = Agent("hostess", instructions=named)
plain = Agent("plain")
assert_type(seller, Agent[Any, Shop])
assert_type(agent, Agent[list[int], Shop])
assert_type(hostess, Agent[Any, HasName])
repeated = RalphLoop(seller, stop={"max_iterations": 2})
group = Swarm([plain, seller, hostess, repeated, agent])
malls = Registry(agents=[seller, plain, repeated, group, counting_seller], deps=open_mall)
submitting = Registry(agents=[seller, plain])
assert_type(malls, Registry[Mall])


@seller.output_validator
def polite(run: RunContext[HasName], output: str) -> str:
    return f"{output} {run.deps.name}"


async def open_runtimes(url: str) -> None:
    async with Runtime.open(url, registry=malls) as mall, Runtime.open(url) as any_deps:
        assert_type(mall, Runtime[Mall])
        await mall.run(seller, "question")
        await mall.start(plain, "question")
        await mall.run(repeated, "question")
        await mall.start(group, "question")
        run = await mall.start(counting_seller, "question")
        assert_type(run, RunHandle[int])
        assert_type(mall.get_run(run.run_id, counting_seller), RunHandle[int])
        mall.stream(hostess, "question")
        await any_deps.start(seller, "question", executor="durable")
        await settled_output(mall)


listed: list[Tool] = [buy, ride, count]
functions: list[Callable[..., Any]] = [weigh]
bought = postcondition({"exit_code": {"equals": 0}})(buy)
assert_type(bought, VerifiedTool[Shop])
assert_type(ride(people=2, fast=True, up=False, floor=1, context=cast("ToolContext[Mall]", None)), int)
assert_type(count(["a"], aloud=True), int)
shopper = Agent("shopper", tools=[buy, look, count, note, weigh, "registered", bought], deps_type=Shop)
strolling = Agent("strolling", tools=(buy, ride, look, seller.as_tool()), deps_type=Mall)
inferred = Agent("inferred", tools=[buy, count])
counters = Agent("counters", tools=[count, note, weigh], deps_type=Shop)
given = Agent("given", tools=listed, deps_type=Shop)
more = Agent("more", tools=[*functions, buy], deps_type=Shop)
assert_type(shopper, Agent[Any, Shop])
assert_type(strolling, Agent[Any, Mall])
all_tools = Registry(agents=[shopper, strolling], tools=[buy, ride, weigh, count], deps=open_mall)


@agent.output_validator
def not_empty(output: list[int]) -> None:
    assert output


def shown(event: StreamEvent) -> str:
    if event.type == "text":
        return event.text
    match event.type:
        case "tool_call":
            return event.tool_name
        case "status":
            return event.status
        case _:
            return ""


def detail(event: DetailedEvent) -> int:
    return event.usage.input_tokens if event.type == "usage" else 0


def closed(event: DetailedEvent) -> str:
    match event.type:
        case "step" | "reasoning" | "usage" | "tool_call_delta" | "tool_result":
            return "detail"
        case "child_started" | "child_finished":
            return event.child_run
        case "custom" | "text" | "text_reset" | "status" | "file" | "tool_call" | "mcp_progress" | "error":
            return "plain"
        case "approval_requested" | "approval_resolved" | "context" | "message_injected" | "budget":
            return "plain"
        case "tool_partial":
            return str(event.value)
        case "wait_started" | "wait_ended":
            return event.wait_id
        case "ralph_iteration" | "ralph_stop":
            return "loop"
        case _:
            assert_never(event)


async def wrapper(runtime: Runtime, **options: Unpack[RunOptions]) -> list[int]:
    return (await runtime.run(agent, "question", **options)).output


async def use(runtime: Runtime) -> None:
    result = await runtime.run(agent, "question", session="talk", user="ada", metadata={"tenant": 7})
    assert_type(result, RunResult[list[int]])
    run = await runtime.start(agent, "question", executor="durable")
    assert_type(run, RunHandle[list[int]])
    assert_type(runtime.get_run(run.run_id, agent), RunHandle[list[int]])
    assert_type(runtime.get_run(run.run_id), RunHandle[str])
    async for event in runtime.stream(agent, "question", user="ada"):
        print(shown(event))
    async for each in run.stream(detailed=True):
        print(detail(each), closed(each))
    await wrapper(runtime, idempotency_key="k")
    await runtime.run(loop, ["Look.", File.from_path("cat.png")], settings={"seed": 1})
    await run.inject(["And this?", File.from_url("https://example.com/cat.png")])
    async for event in runtime.stream(
        careful, ["Look.", File.from_path("cat.png")], budgets={"max_tokens": 1}
    ):
        print(event.type)
    assert_type(await settled_output(runtime), str)


async def settled_output(runtime: Runtime) -> str:
    count: int = (await runtime.run(counted, "How many?")).output
    return f"{count}"
