"""Code of a user that is wrong: in each line that says so, every type checker finds an error, and in no other."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import foldlog.runtime
from foldlog import (
    Agent,
    RalphLoop,
    Registry,
    RunContext,
    Runtime,
    ToolContext,
    postcondition,
    tool,
)
from foldlog.eventlog import DetailedEvent, StreamEvent, ToolCall
from foldlog.runtime import ModelSettings


class Shop:
    name: str = "corner"


@asynccontextmanager
async def open_shop() -> AsyncGenerator[Shop]:
    yield Shop()


class Bank:
    vault: int = 7


@asynccontextmanager
async def open_bank() -> AsyncGenerator[Bank]:
    yield Bank()


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
spent = Agent("buyer", budgets={"max_token": 3})  # wrong
stepped = Agent("buyer", budgets={"step": {"max_second": 3}})  # wrong
forgetful = Agent("buyer", memory={"scopes": "user"})  # wrong
everyone = Agent("buyer", memory={"scope": "everyone"})  # wrong
ruled = Agent("buyer", policy={"rules": [{"tool": "buy", "action": "allowed"}]})  # wrong
wide = Agent("buyer", context={"window_token": 8000})  # wrong
tried = Agent("buyer", retry={"attempt": 3})  # wrong
broken = Agent("buyer", breaker={"failure": 3})  # wrong
crowd = Agent("buyer", concurrency={"run_max": 3})  # wrong
large = Agent("buyer", files={"file_bytes": 3})  # wrong
warm = Agent("buyer", settings={"temprature": 0.2})  # wrong
hot = Agent("buyer", settings=ModelSettings(temprature=0.2))  # wrong
unknown = foldlog.Agnet("buyer")  # wrong
unknown_too = foldlog.runtime.Fille.from_path("cat.png")  # wrong
loop = RalphLoop(agent, stop={"max_iteration": 3})  # wrong


def rob(run: RunContext[Bank]) -> str:
    return f"{run.deps.vault}"


robber = Agent("robber", instructions=rob)
teller = Agent("teller", deps_type=Bank, output_type=int)
seller = Agent("seller", deps_type=Shop)
torn = Agent("torn", deps_type=Shop, instructions=rob)  # wrong
looped = RalphLoop(teller, stop={"max_iterations": 2})
shops = Registry(agents=[seller], deps=open_shop)
banks = Registry(agents=[seller], deps=open_bank)  # wrong
loops = Registry(agents=[looped], deps=open_shop)  # wrong


@seller.output_validator  # wrong
def counted(run: RunContext[Bank], output: str) -> None:
    print(run.deps.vault, output)


async def in_shops(url: str) -> None:
    async with Runtime.open(url, registry=shops) as runtime:
        await runtime.start(robber, "question")  # wrong
        await runtime.start(teller, "question")  # wrong
        await runtime.run(teller, "question", user="ada")  # wrong
        await runtime.start(looped, "question")  # wrong
        runtime.stream(robber, "question")  # wrong
        await runtime.retry("r", agent=teller)  # wrong
        with_banks: Runtime[Bank] = runtime  # wrong
        print(with_banks)


@tool(effect="idempotent")
async def pay(amount: int, context: ToolContext[Bank], to: str = "") -> int:
    """Pay."""
    return amount + context.deps.vault + len(to)


@tool
def open_vault(context: ToolContext[Bank]) -> int:
    """Open the vault."""
    return context.deps.vault


@tool
def deep(a: int, b: int, c: int, d: int, context: ToolContext[Bank]) -> int:
    """Take five arguments."""
    return a + b + c + d + context.deps.vault


class Mall(Shop):
    floors: int = 3


@tool
def ride(context: ToolContext[Mall]) -> int:
    """Take the lift."""
    return context.deps.floors


async def free(shop: Shop) -> None:
    open_vault(shop)  # wrong
    await pay(amounts=3, context=None)  # wrong


paid = postcondition({"exit_code": {"equals": 0}})(open_vault)
first = Agent("first", tools=[open_vault], deps_type=Shop)  # wrong
second = Agent("second", tools=["registered", pay], deps_type=Shop, output_type=int)  # wrong
fifth = Agent("fifth", tools=(deep,), deps_type=Shop)  # wrong
base = Agent("base", tools=[ride], deps_type=Shop)  # wrong
verified = Agent("verified", tools=[paid], deps_type=Shop)  # wrong
instructed = Agent("instructed", tools=[pay], instructions=rob, deps_type=Shop)  # wrong
both = Agent("both", tools=[pay, ride], deps_type=Bank)  # wrong
of_bank = Agent("of_bank", tools=(pay, open_vault, deep, paid))
in_shop = Registry(agents=[of_bank], deps=open_shop)  # wrong
at_shop = Registry(tools=[pay], deps=open_shop)  # wrong


@tool(effect="harmless")  # wrong
def harmless() -> str:
    return ""


@agent.output_validator  # wrong
def texts(output: list[str]) -> None:
    print(output)


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
    await runtime.run(agent, "question", budgets={"max_token": 3})  # wrong
    await runtime.run(agent, "question", settings={"sed": 3})  # wrong
    await runtime.run(agent, ["question", b"cat"])  # wrong
    runtime.stream(agent, "question", metdata={})  # wrong
    result = await runtime.run(agent, "question")
    text: str = result.output  # wrong
    print(text, result.outputs)  # wrong
    run = runtime.get_run("r", agent)
    numbers: list[str] = (await run.result()).output  # wrong
    print(numbers)
    await run.inject(b"cat")  # wrong
    await run.resolve("a", "aproved")  # wrong
    async for event in run.stream():
        if event.type == "text":
            print(event.offset.upper())  # wrong
