"""The agents of the tests of whole processes: tools that keep a diary, wait at a gate, or die on command.

The environment says where and how: `WORKSHOP` is a directory of the test, `WORKSHOP_KILL` a place at which the first
process that comes there kills itself, `WORKSHOP_STALL` has the first model call of all stop behind its first words.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from foldlog.adapters.models import ScriptedProvider
from foldlog.runtime import Agent, Evidence, Registry, ToolContext, WorkflowRun, postcondition, tool, workflow
from foldlog.runtime.agents.loop import RalphLoop
from foldlog.runtime.agents.loop_config import Stop
from foldlog.runtime.agents.swarm import Swarm
from foldlog.runtime.core.loop.config import Reflection, Scored
from foldlog.runtime.ports.models import Delta, ModelRequest, TextDelta

SCRIPTS = Path(__file__).parent / "scripts"
FAKES = Path(__file__).parents[1] / "fakes"


def directory() -> Path:
    return Path(os.environ["WORKSHOP"])


def first_to(deed: str) -> bool:
    """Return whether this is the first call in any process."""
    with suppress(FileExistsError):
        os.close(os.open(directory() / f"first-{deed.replace('/', '-')}", os.O_CREAT | os.O_EXCL))
        return True
    return False


def die_at(place: str) -> None:
    """Kill this process if the test wants that here, once."""
    if os.environ.get("WORKSHOP_KILL") == place and first_to(place):
        os.kill(os.getpid(), signal.SIGKILL)


def write_diary(line: str) -> None:
    """Note that something was done in the world; one write, so that a kill cannot cut it."""
    with (directory() / "diary").open("ab", buffering=0) as diary:
        diary.write(f"{line}\n".encode())


def count_up(what: str) -> int:
    """Return the number of calls for it, in all processes."""
    with (directory() / f"count-{what}").open("ab", buffering=0) as counter:
        counter.write(b".")
        return counter.tell()


def read_diary() -> list[str]:
    with suppress(FileNotFoundError):
        return (directory() / "diary").read_text().splitlines()
    return []


def open_gate(gate: str = "gate") -> None:
    """Open the gate, for all that wait at it now or later."""
    (directory() / gate).touch()


async def at_gate(gate: str = "gate") -> None:
    while not (directory() / gate).exists():  # noqa: ASYNC110  # other processes open it
        await asyncio.sleep(0.005)


async def at_work(place: str, ctx: ToolContext) -> None:
    """Say how far it is, and give that the time to be stored by itself."""
    ctx.progress(1, 2, "half")
    await asyncio.sleep(0.03)
    die_at(f"in {place}")
    ctx.progress(2, 2, "whole")


@tool(effect="pure", parallel=False)
async def look(thing: str, ctx: ToolContext) -> str:
    """Look where a thing is."""
    write_diary("look")
    await at_work("look", ctx)
    return f"{thing} is on the bench"


@tool(effect="idempotent", parallel=False)
async def put(thing: str, ctx: ToolContext) -> str:
    """Put a thing where it belongs."""
    write_diary("put")
    await at_work("put", ctx)
    return f"{thing} hangs on the wall"


@tool(effect="unsafe", parallel=False)
async def pay(euros: int) -> str:
    """Pay the bill."""
    write_diary("pay")
    die_at("in pay")
    return f"paid {euros}"


async def remitted(euros: int) -> Evidence:
    """Look into the diary whether the money went out; the only one that can be asked once the process is dead."""
    write_diary("looked")
    told = {"times": read_diary().count(f"remit {euros}")}
    return Evidence(data=told, result=f"remitted {euros}")


@postcondition({"json_path": {"path": "$.times", "equals": 1}}, probe=remitted)
@tool(effect="unsafe")
async def remit(euros: int) -> str:
    """Remit money."""
    die_at("before remit")
    write_diary(f"remit {euros}")
    die_at("in remit")
    return f"remitted {euros}"


async def refunded(euros: int) -> Evidence:
    """Look into the diary whether the money was given back."""
    return Evidence(data={"times": read_diary().count(f"refund {euros}")}, result=f"refunded {euros}")


@postcondition({"json_path": {"path": "$.times", "equals": 1}}, probe=refunded)
@tool(effect="unsafe")
async def refund(euros: int) -> str:
    """Give money back."""
    die_at("before refund")
    write_diary(f"refund {euros}")
    die_at("in refund")
    return f"refunded {euros}"


@tool(effect="unsafe", parallel=False, compensate=lambda args, _result: refund(**args))
async def sell(euros: int) -> str:
    """Sell something."""
    write_diary(f"sell {euros}")
    return f"sold for {euros}"


def bill(arguments: dict[str, Any]) -> str:
    """Return the key of a bill, which is settled once."""
    die_at("before the key")
    return f"bill {arguments['euros']}"


async def settled(euros: int) -> Evidence:
    """Look into the diary whether the bill was settled."""
    return Evidence(data={"times": read_diary().count(f"settle {euros}")}, result=f"settled {euros}")


@postcondition({"json_path": {"path": "$.times", "equals": 1}}, probe=settled)
@tool(effect="unsafe", once=bill, scope="bills")
async def settle(euros: int) -> str:
    """Settle a bill."""
    await at_gate()
    write_diary(f"settle {euros}")
    die_at("in settle")
    return f"settled {euros}"


@tool(effect="unsafe")
async def ship(to: str) -> str:
    """Ship a crate."""
    write_diary(f"ship to {to}")
    die_at(f"in ship to {to}")
    return shipped(to)


def shipped(to: str) -> str:
    return f"shipped to {to}"


@tool
async def hold_dearly(ctx: ToolContext) -> str:
    """Hold on, where a second time could do harm."""
    ctx.progress(1, 2, str(os.getpid()))
    await at_gate()
    return "first, much too late"


@tool(effect="pure")
async def hold(ctx: ToolContext) -> str:
    """Tell who holds on; the first one does so until the gate is open, also when told to let go."""
    if not first_to("hold"):
        return "second"
    ctx.progress(1, 2, str(os.getpid()))
    try:
        await at_gate()
    except asyncio.CancelledError:
        write_diary("told to let go")
        await at_gate()
        write_diary("let go")
        raise
    return "first, much too late"


@tool(effect="pure", timeout_s=None)
async def wait(ctx: ToolContext, gate: str = "gate") -> str:
    """Wait for the gate in any process."""
    ctx.progress(1, 1)
    await at_gate(gate)
    return "waited"


@tool(effect="pure")
async def spawn(ctx: ToolContext) -> str:
    """Wait for a child process with a child of its own, and end both if told to let go."""
    grandchild = (
        "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"
    )
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", grandchild, start_new_session=True, stdin=subprocess.DEVNULL
    )
    ctx.progress(1, 1, str(child.pid))
    try:
        await child.wait()
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        await child.wait()
    return "over"


@tool(effect="pure")
async def delegate(ctx: ToolContext) -> str:
    """Have somebody else do it."""
    return await ctx.run(teller, "tell me")


@tool(effect="pure")
async def manage(ctx: ToolContext) -> str:
    """Send the clerk."""
    return await ctx.run(clerk, "three errands")


@tool(effect="pure")
async def send(ctx: ToolContext) -> str:
    """Send the holder."""
    return await ctx.run(holder, "hold this")


class LethalProvider(ScriptedProvider):
    """The scripted provider, in whose streams a process may die."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Answer, or die behind the first piece; where another process stalled, say something else."""
        if os.environ.get("WORKSHOP_STALL") and (directory() / "first-stall").exists():
            request = msgspec.structs.replace(request, attempt=2)
        number = 1 + sum(message.role == "assistant" for message in request.messages[request.history :])
        called = f"{request.phase or 'model'} call {number}"
        async for delta in super().stream(request):
            yield delta
            await asyncio.sleep(0)
            die_at(f"in {called}")
            if isinstance(delta, TextDelta) and os.environ.get("WORKSHOP_STALL") and first_to("stall"):
                await asyncio.Event().wait()


def agent(name: str, script: str, *tools: Any, **more: Any) -> Agent[str]:
    return Agent(name, model=f"scripted:{SCRIPTS / script}", tools=tools, **more)


clerk = agent("clerk", "errand.json", look, put, pay)
walker = agent("walker", "rounds.json", look, put)
holder = agent("holder", "hold.json", hold)
keeper = agent("keeper", "hold_dearly.json", hold_dearly)
waiter = agent("waiter", "wait.json", wait)
brief = agent("brief", "brief.json", wait)
spawner = agent("spawner", "spawn.json", spawn)
caller = agent(
    "caller",
    "call.json",
    mcp_servers={
        "srv": {
            "command": sys.executable,
            "args": [str(FAKES / "mcp_server.py"), "stdio"],
            "effects": {"pid": "pure", "spawn": "pure", "slow": "pure"},
        }
    },
)
talker = agent("talker", "talk.json")
teller = agent("teller", "retold.json")
chief = agent("chief", "delegate.json", delegate)
boss = agent("boss", "manage.json", manage)
sender = agent("sender", "send.json", send)
quick = agent("quick", "short.json")
reader = agent("reader", "short.json")
banker = agent("banker", "remit.json", remit)
settler = agent("settler", "settle.json", settle)
seller = agent("seller", "sell.json", sell)
claude = Agent("claude", model="anthropic:claude-sonnet-5", tools=[wait])
gpt = Agent("gpt", model="openai-responses:gpt-5", tools=[wait])
gemini = Agent("gemini", model="google:gemini-3-pro-preview", tools=[wait])
gpt_searches = Agent("gpt_searches", model=gpt.config.model, native_tools=["web_search"])
claude_searches = Agent("claude_searches", model=claude.config.model, native_tools=["web_search"])
gemini_searches = Agent("gemini_searches", model=gemini.config.model, native_tools=["web_search"])


@workflow(name="errand", tools=[look, remit])
async def errand(run: WorkflowRun, text: str) -> list[Any]:
    """Look, remit beside a run of an agent, race a signal against a time, and remit once more."""
    seen: list[Any] = [text, await run.call(look, thing="hammer")]
    seen += await run.gather(lambda r: r.agent(quick, text), lambda r: r.call(remit, euros=12))
    which, signal = await run.first(lambda r: r.wait_for("go"), lambda r: r.sleep(days=14))
    return [*seen, which, signal.data, await run.memo("value", lambda: 7), await run.call(remit, euros=13)]


def size(scored: Scored) -> float:
    """Return the number of words that it claims to have."""
    die_at(f"in score {scored.iteration}")
    return float(scored.output.split()[0])


def lesson(seen: Reflection) -> str:
    """Return the feedback."""
    die_at(f"in lesson {seen.iteration}")
    return f"lesson {seen.iteration}"


def member(name: str, instructions: str, *tools: Any) -> Agent[str]:
    """One of the company, which all have one script."""
    return agent(name, "company.json", *tools, instructions=instructions)


team = Swarm(
    [
        member("taker", "You take orders."),
        member("packer", "You pack.", put),
        member("shipper", "You ship.", ship),
        member("closer", "You close orders."),
    ],
    "taker >> (packer | shipper) >> closer",
    name="team",
)
polish = RalphLoop(
    member("writer", "You write.", look),
    name="polish",
    scorers={"size": size},
    reflect=lesson,
    stop=Stop(score_threshold=2.0),
)
company = agent(
    "company",
    "company.json",
    *(look, put, ship, team.as_tool(), polish.as_tool()),
    hitl_tools=["ship"],
    planning_enabled=True,
    allow_parallel_subagents=True,
)
"""All of it in one family: a planner, an approval, copies that work at once, a swarm and a loop."""
AGENTS = (
    clerk,
    walker,
    holder,
    keeper,
    waiter,
    brief,
    spawner,
    caller,
    claude,
    claude_searches,
    gemini,
    gemini_searches,
    gpt,
    gpt_searches,
    talker,
    teller,
    chief,
    boss,
    sender,
    quick,
    reader,
    banker,
    settler,
    seller,
    company,
    errand,
)


def serving(names: Sequence[str]) -> Registry:
    """A registry of these agents; of all, if none are named."""
    agents = [agent for agent in AGENTS if not names or agent.name in names]
    return Registry(agents=agents, tools=[refund], providers={"scripted": LethalProvider()})


registry = serving(())
