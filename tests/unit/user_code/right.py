"""Code of a user that is right: every type checker accepts it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Unpack, assert_never, assert_type

from foldlog import (
    Agent,
    RalphLoop,
    Registry,
    RunContext,
    RunHandle,
    RunOptions,
    RunResult,
    Runtime,
    ToolContext,
    tool,
)
from foldlog.eventlog import DetailedEvent, StreamEvent
from foldlog.runtime import File, ModelSettings


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


def greet(run: RunContext[Shop]) -> str:
    return f"Speak to {run.user} at {run.deps.name}."


async def greet_later(run: RunContext[Shop]) -> str:
    return greet(run)


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
