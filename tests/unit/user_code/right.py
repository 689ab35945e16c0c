"""Code of a user that is right: every type checker accepts it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Unpack, assert_never, assert_type

from foldlog import (
    Agent,
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
registry = Registry(agents=[agent, Agent("plain", instructions=greet)], deps=open_shop)
per_run = Registry(agents=[agent], deps=open_for)


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
