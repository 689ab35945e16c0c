"""Code of a user that takes over agents of other frameworks: right, and wrong in the lines that say so."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, assert_type

import agents
import pydantic_ai
from foldlog import Agent, Registry, RunResult, Runtime, Swarm
from foldlog.adapters.frameworks import from_openai_agents, from_pydantic_ai


@dataclass
class Shop:
    name: str


class Bank: ...


@asynccontextmanager
async def open_shop() -> AsyncGenerator[Shop]:
    yield Shop("x")


@asynccontextmanager
async def open_bank() -> AsyncGenerator[Bank]:
    yield Bank()


theirs = pydantic_ai.Agent("openai:gpt-5", deps_type=Shop, output_type=int)
ours = from_pydantic_ai(theirs)
assert_type(ours, Agent[int, Shop])
plain = from_pydantic_ai(pydantic_ai.Agent("openai:gpt-5"))
assert_type(plain, Agent[str, object])
lists = from_pydantic_ai(pydantic_ai.Agent("openai:gpt-5", output_type=list[int]))
assert_type(lists, Agent[list[int], object])
shops = Registry(agents=[ours, plain], deps=open_shop)
banks = Registry(agents=[ours], deps=open_bank)  # wrong

handing = agents.Agent[Shop](name="x")
taken = from_openai_agents(handing)
assert_type(taken, Agent[Any, Shop] | Swarm[Shop])
reg = Registry(agents=[taken], deps=open_shop)
bad = Registry(agents=[taken], deps=open_bank)  # wrong
free = from_openai_agents(agents.Agent(name="x"))
anyreg = Registry(agents=[free], deps=open_bank)


async def go() -> None:
    async with Runtime.open("memory://", registry=shops) as rt:
        assert_type(await rt.run(ours, "x"), RunResult[int])
        assert_type((await rt.run(plain, "x")).output, str)
        text: str = (await rt.run(ours, "x")).output  # wrong
        print(text)
