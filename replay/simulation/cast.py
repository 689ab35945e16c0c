"""The models and tools of the scenarios: a scripted model, and tools of every effect."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import msgspec

from ...eventlog.events import ApprovalRequested, TokenUsage
from ...runtime import (
    Agent,
    Custom,
    Evidence,
    File,
    OutputRefused,
    Retryable,
    RunContext,
    ToolContext,
    tool,
)
from ...runtime.ports.models import (
    CallDelta,
    ContextOverflow,
    Delta,
    FileDelta,
    Finished,
    InvalidRequest,
    ModelRequest,
    ModelSettings,
    NativeTool,
    ProviderCall,
    RateLimited,
    ReasoningDelta,
    TextDelta,
    TransientModelError,
)
from ...runtime.ports.runnable import Runnable
from ...runtime.ports.tools import Tool
from .world import WORLD, Decision, World

PROVIDER = "sim"
Call = tuple[str, dict[str, Any]]


def picture(name: str) -> bytes:
    """Return bytes that begin like a picture."""
    return b"\x89PNG\r\n\x1a\n" + name.encode()


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A reply of the model. Its first `fails` attempts fail, with `retry_after_s` if given.

    `overflows`: they fail because the request is too long.
    """

    text: tuple[str, ...] = ()
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    files: tuple[str, ...] = ()
    searched: tuple[str, ...] = ()
    """The queries of searches that the provider made itself."""
    fails: int = 0
    retry_after_s: float | None = None
    overflows: bool = False


def says(*pieces: str, **fields: Any) -> Reply:
    """Return a final answer, in the pieces in which it is streamed."""
    return Reply(text=pieces, **fields)


def calls(*requests: Call, **fields: Any) -> Reply:
    """Return a reply with tool calls."""
    return Reply(calls=requests, **fields)


class Model:
    """Answers the k-th call of a run with the k-th reply of its script, on every worker.

    `scenes` are scripts for runs with a given input: they are needed for copies of an agent, which have the same model.
    """

    def __init__(self) -> None:
        self.scripts: dict[str, tuple[Reply, ...]] = {}
        self.scenes: dict[tuple[str, str], tuple[Reply, ...]] = {}

    def check(self, model: str) -> None:
        """Accept any model."""

    def unknown_settings(self, model: str, settings: ModelSettings) -> dict[str, str]:
        """Accept any setting."""
        return {}

    def native_tool_problem(self, model: str, tool: NativeTool, *, tools: bool) -> str | None:
        """Return None: a script may contain calls of any native tool."""
        return None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Stream the reply, a tenth of a second later."""
        summing = request.phase in {"summary", "compaction"}
        own = "".join(message.content for message in request.messages[request.history :][:1])
        script = self.scenes.get((request.model, own)) or self.scripts[request.model]
        step = request.round - 1
        reply = says("They ask.") if summing else script[step]
        await asyncio.sleep(0.1)
        for artifact, data in (await request.file_bytes()).items():
            if hashlib.sha256(data).hexdigest() != artifact:
                raise InvalidRequest(f"the bytes of {artifact} are others")
        if request.attempt <= reply.fails:
            if reply.retry_after_s is not None:
                raise RateLimited("slow down", retry_after_s=reply.retry_after_s)
            raise ContextOverflow("too long") if reply.overflows else TransientModelError("cut off")
        if reply.reasoning:
            yield ReasoningDelta(reply.reasoning)
        for number, query in enumerate(reply.searched):
            yield ProviderCall(
                id=f"search-{step}-{number}",
                name="web_search",
                arguments={"query": query},
                result=f"of {query}",
            )
        for piece in reply.text:
            yield TextDelta(piece)
        for name in reply.files:
            yield FileDelta(data=picture(name), media_type="image/png", name=name)
        for index, (name, arguments) in enumerate(reply.calls):
            written = msgspec.json.encode(arguments).decode()
            yield CallDelta(index=index, id=f"call-{step}-{index}", name=name, arguments=written)
        yield Finished(reason="stop", usage=TokenUsage(input_tokens=3, output_tokens=2, total_tokens=5))

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""


def a_model(world: World, name: str, *replies: Reply) -> str:
    """Define a model with this script, and return its name."""
    _model(world).scripts[name] = replies
    return f"{PROVIDER}:{name}"


def a_scene(world: World, name: str, text: str, *replies: Reply) -> None:
    """Define the model's script for runs with this input."""
    a_model(world, name, *_model(world).scripts.get(name, ()))
    _model(world).scenes[name, text] = replies


def _model(world: World) -> Model:
    model = world.providers.setdefault(PROVIDER, Model())
    assert isinstance(model, Model)  # noqa: S101 - nothing else is put there by a scenario
    return model


def an_agent(
    world: World, name: str, *replies: Reply, extra: Sequence[Tool] = (), **fields: Any
) -> Agent[Any]:
    """Add an agent whose model has this script, with all common tools and `extra` ones."""
    a_model(world, name, *replies)
    agent: Agent[Any] = Agent(name, model=f"{PROVIDER}:{name}", tools=[*TOOLS, *extra], **fields)
    world.agents.append(agent)
    return agent


async def addressed(run: RunContext) -> str:
    """Return instructions that name the run's user and agent."""
    await asyncio.sleep(0.2)
    return f"Speak to {run.user} as {run.agent}."


async def is_final(run: RunContext, output: str) -> None:
    """Refuse an answer that is not final, after some time."""
    await asyncio.sleep(0.2)
    if "final" not in output:
        raise OutputRefused(f"{run.agent}: {output!r} is not final")


def is_short(output: str) -> None:
    """Refuse a long answer."""
    if "long" in output:
        raise OutputRefused("too long")


def outdate(world: World, agent: Agent[Any], *, without: Tool) -> None:
    """Give the workers of an earlier deployment the agent without a tool that was added later."""
    tools = [tool for tool in agent.tools.values() if tool is not without]
    world.outdated[agent.name] = Agent(agent.name, model=agent.config.model, tools=tools)


def decide_on(_run: str, asked: ApprovalRequested) -> Decision:
    """Decide as the operators: approve `deploy`, edit `to="wrong"`, reject "nowhere", answer, and raise budgets."""
    match asked.arguments:
        case {"message": "nowhere?"}:
            return Decision(decision="rejected", note="not there")
        case {"message": message, "schema": {"type": _}}:
            return Decision(arguments={"word": f"answer to {message}"})
        case {"budget": _}:
            return Decision(arguments={"raise": 1000})
        case {"to": "nowhere"}:
            return Decision(decision="rejected", note="not there")
        case {"to": "always"}:
            return Decision(always=True)
        case {"to": "wrong"}:
            return Decision(arguments={"to": "right"})
        case _:
            return Decision()


# --- tools ------------------------------------------------------------------------------------------------------------


@tool(effect="pure")
async def look(at: str, ctx: ToolContext) -> str:
    """Look."""
    ctx.progress(1, 2)
    await asyncio.sleep(0.2)
    ctx.progress(2, 2)
    return f"saw {at}"


@tool(effect="pure")
async def draw(what: str) -> list[str | File]:
    """Draw a picture."""
    await asyncio.sleep(0.2)
    return [f"drew {what}", File.from_bytes(picture(what), name=f"{what}.png")]


@tool(effect="pure")
async def watch(for_s: float, ctx: ToolContext) -> str:
    """Look for a while, and report repeatedly."""
    for number in range(4):
        ctx.emit(Custom("seen", {"number": number}))
        await asyncio.sleep(for_s / 4)
    return "watched"


@tool(effect="idempotent")
async def save(what: str, ctx: ToolContext) -> str:
    """Save."""
    WORLD.get().effects.append(("save", ctx.idempotency_key))
    await asyncio.sleep(0.1)
    return f"saved {what}"


@tool(effect="idempotent")
async def flaky(times: int, ctx: ToolContext) -> str:
    """Request a retry, so many times."""
    key = f"flaky {ctx.idempotency_key}"
    tried = WORLD.get().state[key] = WORLD.get().state.get(key, 0) + 1
    await asyncio.sleep(0.1)
    if tried <= times:
        raise Retryable("not yet", after_s=0.5)
    return "now"


@tool(effect="unsafe", slot="press")
async def press(what: str, ctx: ToolContext) -> str:  # noqa: ARG001 - for the model to fill in
    """Press, on the only press."""
    await asyncio.sleep(0.3)
    WORLD.get().effects.append(("press", ctx.idempotency_key))
    return "sent"


@tool(effect="idempotent", slot="press")
async def ink(what: str) -> str:
    """Ink the only press."""
    await asyncio.sleep(0.1)
    return f"inked {what}"


@tool(effect="idempotent", slot="press", timeout_s=None)
async def engrave(to: str, ctx: ToolContext) -> str:
    """Keep the press while another agent draws."""
    return await ctx.run(_agent(to), "sub question")


@tool(effect="pure", parallel=False)
async def alone(n: int) -> int:
    """Run alone, not in parallel with other calls."""
    await asyncio.sleep(0.1)
    return n


@tool(effect="unsafe")
async def send(to: str, ctx: ToolContext) -> str:  # noqa: ARG001 - for the model to fill in
    """Send, once."""
    await asyncio.sleep(0.3)
    WORLD.get().effects.append(("send", ctx.idempotency_key))
    return "sent"


async def wired(to: str, ctx: ToolContext) -> Evidence | None:
    """Look whether it was wired; a transfer to "nowhere" is not visible at the first look."""
    world, key = WORLD.get(), ctx.idempotency_key
    looks = world.state[f"looks {key}"] = world.state.get(f"looks {key}", 0) + 1
    await asyncio.sleep(0.1)
    if to == "nowhere" and looks == 1:
        return None
    return Evidence(data={"wired": ("wire", key) in world.effects}, result="sent")


@tool(effect="unsafe")
async def wire(to: str, ctx: ToolContext) -> str:  # noqa: ARG001 - for the probe, too
    """Send once, in a way that can be verified."""
    await asyncio.sleep(0.2)
    WORLD.get().effects.append(("wire", ctx.idempotency_key))
    await asyncio.sleep(0.2)
    return "sent"


@tool(effect="unsafe", once=lambda arguments: arguments["invoice"], scope="charges")
async def charge(invoice: str) -> str:
    """Charge an invoice, which is done once, for any number of callers."""
    await asyncio.sleep(0.3)
    WORLD.get().effects.append(("charge", invoice))
    return f"charged {invoice}"


@tool(effect="unsafe")
async def pay(to: str, ctx: ToolContext) -> str:
    """Pay, over a connection that breaks right after the first payment."""
    world, key = WORLD.get(), ctx.idempotency_key
    await asyncio.sleep(0.2)
    broken = ("pay", key) not in world.effects
    world.effects.append(("pay", key))
    await asyncio.sleep(0.1)
    if broken:
        raise ConnectionError(f"the line to {to} broke")
    return "sent"


async def remitted(ctx: ToolContext) -> Evidence:
    """Look whether it was remitted."""
    await asyncio.sleep(0.1)
    return Evidence(data={"remitted": ("remit", ctx.idempotency_key) in WORLD.get().effects}, result="sent")


@tool(effect="unsafe", timeout_s=1.0)
async def remit(to: str, ctx: ToolContext) -> str:  # noqa: ARG001 - as above
    """Remit, but time out; the result can be verified."""
    await asyncio.sleep(0.2)
    WORLD.get().effects.append(("remit", ctx.idempotency_key))
    await asyncio.sleep(60.0)
    return "sent"


@tool(effect="unsafe")
async def deploy(to: str, ctx: ToolContext) -> str:  # noqa: ARG001 - as above
    """Deploy after an approval."""
    await asyncio.sleep(0.1)
    WORLD.get().effects.append(("deploy", ctx.idempotency_key))
    return "sent"


@tool(effect="idempotent")
async def inquire(about: str, ctx: ToolContext) -> str:
    """Ask two questions, then act on the answers."""
    ctx.progress(1, 2)
    await asyncio.sleep(0.1)
    form = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
    answers = [await ctx.ask(question, form) for question in (f"{about}?", f"really {about}?")]
    WORLD.get().effects.append(("inquire", ctx.idempotency_key))
    await asyncio.sleep(0.1)
    return ", ".join(f"{answer.action} {answer.content}" for answer in answers)


@tool(effect="unsafe")
async def order(what: str, ctx: ToolContext) -> str:
    """Ask a question, then act on the answer, once."""
    answer = await ctx.ask(f"{what}?")
    await asyncio.sleep(0.1)
    WORLD.get().effects.append(("order", ctx.idempotency_key))
    return answer.action


@tool(effect="pure", timeout_s=None)
async def announce(name: str, ctx: ToolContext) -> str:
    """Have a caller send a signal while this runs, before any call waits for it; twice, as it does not trust itself."""
    world, run = WORLD.get(), ctx.run_id
    await asyncio.wait({world.say_once(f"{run} {name}", lambda: world.signal(run, name, "early"))})
    await asyncio.wait({world.say_once(f"{run} {name} again", lambda: world.signal(run, name, "early"))})
    return "announced"


@tool(effect="idempotent")
async def expect(name: str, times: int, ctx: ToolContext) -> list[Any]:
    """Wait for signals, one after the other, then act on them."""
    ctx.progress(1, 2)
    signals = [await ctx.wait_for(name) for _ in range(times)]
    WORLD.get().effects.append(("expect", ctx.idempotency_key))
    return [signal.data if signal is not None else None for signal in signals]


@tool(effect="idempotent")
async def ring(name: str, for_s: float, ctx: ToolContext) -> Any:
    """Tell two strangers a token, and wait for the answer after a while, in which it may come."""
    world, (run, call) = WORLD.get(), (ctx.run_id, ctx.tool_call_id)
    callback = await ctx.callback(name)
    for stranger in ("one", "two"):
        world.say_once(
            f"{stranger} {callback.token}", lambda: world.answer_callback(run, call, callback.token)
        )
    await asyncio.sleep(for_s)
    answer = await callback.outcome()
    return answer and answer.data


@tool(effect="idempotent")
async def hope(name: str, for_s: float, ctx: ToolContext) -> bool:
    """Wait for a signal, but not for ever."""
    return await ctx.wait_for(name, timeout_s=for_s) is not None


@tool(effect="unsafe")
async def dispatch(name: str, ctx: ToolContext) -> str:
    """Wait for a time and for a signal, then act, once."""
    await ctx.sleep(minutes=1)
    await ctx.wait_for(name)
    await asyncio.sleep(0.1)
    WORLD.get().effects.append(("dispatch", ctx.idempotency_key))
    return "sent"


@tool(effect="pure")
async def nap(for_s: float, ctx: ToolContext) -> str:
    """Sleep twice: here, and without a worker."""
    await ctx.sleep(1)
    ctx.progress(1, 2)
    await ctx.sleep(for_s)
    return "rested"


@tool(effect="pure")
async def wait(for_: str) -> str:
    """Wait for the gate."""
    arrival(WORLD.get(), for_).set()
    await gate(WORLD.get(), for_).wait()
    return "waited"


@tool(effect="pure", timeout_s=None)
async def delegate(to: str, ctx: ToolContext) -> str:
    """Ask another agent."""
    return await ctx.run(_agent(to), "sub question")


@tool(effect="pure", timeout_s=None)
async def consult(to: str, ctx: ToolContext) -> str:
    """Ask a loop."""
    return await ctx.run(_agent(to), "question")


@tool(effect="pure", timeout_s=2.0)
async def hurry(to: str, ctx: ToolContext) -> str:
    """Ask another agent, with a short timeout."""
    return await ctx.run(_agent(to), "be quick")


@tool(effect="pure")
async def poke(text: str, ctx: ToolContext) -> str:
    """Have a caller send a message while this runs, once for all attempts."""
    world, run = WORLD.get(), ctx.run_id
    await asyncio.wait({world.say_once(f"{run} {text}", lambda: world.inject(run, text))})
    return "poked"


@tool(effect="pure")
async def crowd(text: str, ctx: ToolContext) -> str:
    """Have several callers send messages while this runs, once for all attempts; each may meet faults."""
    world, run = WORLD.get(), ctx.run_id

    def said(number: int) -> asyncio.Task[Any]:
        words = f"{text} {number}"
        return world.say_once(f"{run} {words}", lambda: world.inject(run, words, world.person()))

    await asyncio.wait({said(number) for number in range(4)})
    return "heard"


@tool(effect="pure")
async def halt(ctx: ToolContext) -> str:
    """Have a caller pause the run while this runs."""
    world, run = WORLD.get(), ctx.run_id
    await asyncio.wait({world.say_once(f"{run} halt", lambda: world.pause(run))})
    return "halted"


TOOLS: list[Tool] = [
    look,
    watch,
    save,
    flaky,
    alone,
    send,
    deploy,
    wait,
    delegate,
    consult,
    hurry,
    poke,
    halt,
]


def gate(world: World, name: str) -> asyncio.Event:
    """Return the event that a `wait` of this name waits for."""
    return _event(world, f"gate {name}")


def arrival(world: World, name: str) -> asyncio.Event:
    """Return the event that is set as soon as a `wait` of this name has begun."""
    return _event(world, f"arrival {name}")


def _event(world: World, name: str) -> asyncio.Event:
    found: asyncio.Event = world.state.setdefault(name, asyncio.Event())
    return found


def _agent(name: str) -> Runnable[Any]:
    return next(agent for agent in WORLD.get().agents if agent.name == name)
