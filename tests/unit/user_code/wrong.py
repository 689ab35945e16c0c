"""Code of a user that is wrong: in each line that says so, every type checker finds an error, and in no other."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from foldlog import Agent, Registry, RunContext, Runtime, ToolContext, tool
from foldlog.eventlog import DetailedEvent, StreamEvent, ToolCall


class Shop:
    name: str = "corner"


@asynccontextmanager
async def open_shop() -> AsyncGenerator[Shop]:
    yield Shop()


def plain_shop() -> Shop:
    return Shop()


@tool(effect="pure")
async def buy(context: ToolContext[Shop]) -> int:
    """Buy a thing."""
    print(context.deps.adress)  # wrong
    count: int = context.deps.name  # wrong
    return count


def greet(run: RunContext[Shop]) -> int:
    return len(run.deps.name)


agent = Agent("buyer", tools=[buy], output_type=list[int])
misspelt = Agent("buyer", max_stepps=3)  # wrong
numbered = Agent("buyer", instructions=greet)  # wrong
limited = Agent("buyer", max_steps="three")  # wrong
closed = Registry(deps=plain_shop)  # wrong


@tool(effect="harmless")  # wrong
def harmless() -> str:
    return ""


def shown(event: StreamEvent) -> str:
    if event.type == "text":
        return event.tool_name  # wrong
    if event.type == "tool_call":
        return event.text  # wrong
    return event.text  # wrong


def matched(event: DetailedEvent) -> str:
    match event:
        case ToolCall():
            return event.result  # wrong
        case _:
            return ""


async def use(runtime: Runtime) -> None:
    await runtime.start(agent, "question", sesion="talk")  # wrong
    await runtime.run(agent, "question", user=7)  # wrong
    runtime.stream(agent, "question", metdata={})  # wrong
    result = await runtime.run(agent, "question")
    text: str = result.output  # wrong
    print(text, result.outputs)  # wrong
    run = runtime.get_run("r", agent)
    numbers: list[str] = (await run.result()).output  # wrong
    print(numbers)
    await run.resolve("a", "aproved")  # wrong
    async for event in run.stream():
        if event.type == "text":
            print(event.offset.upper())  # wrong
