"""Small runs that between them hold every event family there is, each played on a log in memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any
from unittest import mock

import msgspec
from foldlog.eventlog.clock import SystemClock
from foldlog.eventlog.commits import Chain, Commit, decode, encode
from foldlog.eventlog.errors import RunCancelled, RunFailed
from foldlog.eventlog.events import ApprovalRequested, Event, HookAdvanced, Text, TokenUsage
from foldlog.eventlog.memory import MemoryLog
from foldlog.eventlog.names import hook_subject
from foldlog.eventlog.ports import At, CommitWrite, Shard
from foldlog.replay import find_run
from foldlog.runtime import (
    Agent,
    Custom,
    EventHook,
    Evidence,
    File,
    OutputRefused,
    Registry,
    RunContext,
    RunHandle,
    Runtime,
    Schedule,
    Swarm,
    ToolContext,
    Worker,
    WorkflowRun,
    WorkflowTable,
    postcondition,
    tool,
    workflow,
)
from foldlog.runtime.agents.loop import RalphLoop
from foldlog.runtime.agents.loop_config import Stop
from foldlog.runtime.core.commands import Claim
from foldlog.runtime.core.decide import advance, take
from foldlog.runtime.core.turn import Turn
from foldlog.runtime.driving.host import Host
from foldlog.runtime.journal.journal import Journal
from foldlog.runtime.ports.knowledge import KnowledgeItem
from foldlog.runtime.ports.models import (
    AuthenticationFailed,
    CallDelta,
    ContextOverflow,
    Delta,
    FileDelta,
    Finished,
    ModelRequest,
    NativeTool,
    ProviderCall,
    RateLimited,
    ReasoningDelta,
    TextDelta,
    TransientModelError,
)
from foldlog.runtime.ports.tools import Retryable, ToolFailed
from foldlog.runtime.restored import hold_everything
from foldlog.runtime.triggers import event_hooks

WAIT_S = 120.0
PNG = b"\x89PNG\r\n\x1a\n"


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The model's reply at one step; the first `fails` attempts end with `error`.

    `breaks`: these have said the text by then. `hangs`: nothing comes after the text. `wanted`: what the provider wants
    back with it. `cached`: so many tokens it has put into its cache. `searched`: the queries of its own searches.
    """

    text: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, dict[str, Any] | str], ...] = ()
    files: tuple[str, ...] = ()
    fails: int = 0
    error: str = "transient"
    finish: str = "stop"
    breaks: bool = False
    hangs: bool = False
    wanted: tuple[Any, ...] = ()
    cached: int = 0
    searched: tuple[str, ...] = ()


def says(text: str, **fields: Any) -> Reply:
    return Reply(text=text, **fields)


def calls(*requests: tuple[str, dict[str, Any] | str], **fields: Any) -> Reply:
    return Reply(calls=requests, **fields)


FAILURES = {
    "auth": AuthenticationFailed,
    "transient": TransientModelError,
    "context_overflow": ContextOverflow,
}
SUMMARIES = frozenset({"summary", "compaction"})


class Model:
    """Answers the k-th request of a run with the k-th reply of its script."""

    def __init__(self) -> None:
        self.scripts: dict[str, tuple[Reply, ...]] = {}

    def check(self, model: str) -> None:
        pass

    def native_tool_problem(self, model: str, tool: NativeTool, *, tools: bool) -> str | None:
        return None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        step = request.round - 1
        reply = says("They ask.") if request.phase in SUMMARIES else self.scripts[request.model][step]
        if request.attempt <= reply.fails:
            if reply.breaks:
                yield TextDelta(reply.text)
            if reply.error == "rate_limit":
                raise RateLimited("slow down", retry_after_s=60.0)
            raise FAILURES[reply.error]("cut off")
        if reply.reasoning:
            yield ReasoningDelta(reply.reasoning)
        if reply.text:
            yield TextDelta(reply.text)
        for number, query in enumerate(reply.searched):
            yield ProviderCall(
                id=f"ws-{number}",
                name="web_search",
                arguments={"query": query},
                result=None if query == "nothing" else {"url": "https://example.com", "text": query},
                error="nothing was found" if query == "nothing" else None,
            )
        for name in reply.files:
            yield FileDelta(data=PNG + name.encode(), media_type="image/png", name=name)
        if reply.hangs:
            await asyncio.Event().wait()
        for index, (name, arguments) in enumerate(reply.calls):
            written = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
            yield CallDelta(index=index, id=f"call-{step}-{index}", name=name, arguments=written)
        usage = TokenUsage(
            input_tokens=30, output_tokens=12, total_tokens=42, cache_writes=reply.cached or msgspec.UNSET
        )
        yield Finished(reason=reply.finish, usage=usage, reply_items=list(reply.wanted))

    async def aclose(self) -> None:
        pass


class ShiftedClock(SystemClock):
    """The system's clock, which can be put forward."""

    ahead_s = 0.0

    def now(self) -> float:
        return super().now() + self.ahead_s


class World:
    """A log, a model, tools, and as many processes as a scenario opens."""

    def __init__(self) -> None:
        self.clock = ShiftedClock()
        self.log = MemoryLog(clock=self.clock)
        self.model = Model()
        self.agents: list[Agent[Any]] = []
        self.entered, self.go = asyncio.Event(), asyncio.Event()
        self.tries = 0

    def agent(self, name: str, *replies: Reply, more: tuple[Any, ...] = (), **fields: Any) -> Agent[Any]:
        """An agent whose model says this, with these tools besides."""
        self.model.scripts[name] = replies
        fields.setdefault("instructions", f"You are {name}.")
        fields.setdefault("retry", {"base_s": 0.02})
        agent: Agent[Any] = Agent(name, model=f"sim:{name}", tools=[*self.tools(), *more], **fields)
        self.agents.append(agent)
        return agent

    def registry(self) -> Registry:
        return Registry(agents=self.agents, providers={"sim": self.model}, knowledge=Shelf())

    def runtime(self, lease_s: float = 5.0) -> Any:
        """One process."""
        return Runtime.open(log=self.log, registry=self.registry(), lease_s=lease_s)

    def tools(self) -> list[Any]:  # noqa: C901 - a list
        world = self

        @tool(effect="pure")
        async def search(query: str, ctx: ToolContext) -> str:
            """Search for something."""
            ctx.progress(1, 2, "half way")
            ctx.progress(2, 2)
            return f"found {query}"

        @tool(effect="pure", parallel=False)
        async def alone(n: int) -> dict[str, Any]:
            """Run alone."""
            await asyncio.sleep(0)
            return {"n": n, "list": [1, "two", None, True]}

        @tool
        async def deploy(service: str) -> str:
            """Deploy a service."""
            return f"deployed {service}"

        @tool
        async def send(to: str) -> str:
            """Send, once."""
            world.entered.set()
            await world.go.wait()
            return f"sent to {to}"

        @tool(effect="pure")
        async def wait() -> str:
            """Wait."""
            world.entered.set()
            await world.go.wait()
            return "waited"

        @tool(effect="idempotent")
        async def flaky() -> str:
            """Fail at first."""
            world.tries += 1
            if world.tries < 3:
                raise Retryable("not yet", after_s=0.01)
            return "now"

        @tool(effect="pure", timeout_s=0.05)
        async def slow() -> str:
            """Never end."""
            await asyncio.Event().wait()
            return ""

        @tool(effect="pure")
        async def broken() -> str:
            """Fail, with what was done."""
            raise ToolFailed("half done", result={"done": 1})

        @tool(effect="pure")
        async def large() -> str:
            """Return more than an event holds."""
            return "0123456789abcdef" * 2500

        @tool(effect="pure")
        async def report(ctx: ToolContext) -> str:
            """Emit events."""
            ctx.emit(Custom("note", {"n": 1, "tag": "<b>&amp;"}))
            ctx.emit(Text(text="from within", agent="helper"))
            return "reported"

        @tool(effect="pure", timeout_s=None)
        async def delegate(to: str, ctx: ToolContext) -> str:
            """Ask another agent."""
            return await ctx.run(next(a for a in world.agents if a.name == to), "sub question")

        return [search, alone, deploy, send, wait, flaky, slow, broken, large, report, delegate]


async def until(run: RunHandle[Any], wanted: Callable[[Event], bool]) -> Event:
    """The first event of a run like this."""
    async with asyncio.timeout(WAIT_S):
        async for event in run.stream(detailed=True):
            if event.revision is not None and wanted(event):
                return event
    raise AssertionError("the run ended before")


async def end(run: RunHandle[Any]) -> None:
    """Wait for the end, however it ends."""
    with contextlib.suppress(RunFailed, RunCancelled):
        await run.result(timeout_s=WAIT_S)


async def played(world: World, agent: Agent[Any], text: str = "question", **options: Any) -> str:
    """Run an agent to its end, locally."""
    async with world.runtime() as rt:
        run = await rt.start(agent, text, **options)
        await end(run)
        return str(run.run_id)


# --- the scenarios ----------------------------------------------------------------------------------------------------


async def tools_and_progress(world: World) -> None:
    turn = calls(("search", {"query": "x"}), ("alone", {"n": 1}), ("alone", {"n": 2}), text="Let me see.")
    agent = world.agent("helper", turn, says("Final answer", reasoning="That is all."))
    await played(world, agent, "What is x? ü €")


async def bad_calls(world: World) -> None:
    turn = calls(
        ("search", "{not json"), ("missing", {"a": 1}), ("broken", {}), ("slow", {}), ("search", {"q": 1})
    )
    await played(world, world.agent("clumsy", turn, says("sorry")))


async def retries(world: World) -> None:
    agent = world.agent(
        "patient", calls(("flaky", {}), fails=2), says("done", fails=1), retry={"attempts": 4, "base_s": 0.05}
    )
    await played(world, agent)


async def failures(world: World) -> None:
    await played(world, world.agent("refused", says("x", fails=9, error="auth")))
    await played(world, world.agent("hopeless", says("x", fails=9), retry={"attempts": 2, "base_s": 0.01}))
    same = [calls(("alone", {"n": 1})) for _ in range(4)]
    await played(world, world.agent("looping", *same))
    others = [calls(("alone", {"n": n})) for n in range(4)]
    await played(world, world.agent("endless", *others, max_steps=2))


async def broken_off(world: World) -> None:
    agent = world.agent("torn", says("half an answer", fails=1, breaks=True), retry={"base_s": 0.01})
    await played(world, agent)
    hanging = world.agent("hanging", says("half an answer", hangs=True))
    async with world.runtime() as rt:
        run = await rt.start(hanging, "question")
        async with contextlib.aclosing(run.stream()) as events:
            async for event in events:
                if isinstance(event, Text):
                    break
        await run.cancel("enough")
        await end(run)
        await stored(world, run, "late_outcome")


async def output_schema(world: World) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    await played(world, world.agent("good", says("no json"), says('{"n": 1}'), output_schema=schema))
    await played(world, world.agent("bad", says("no"), says("{}"), output_schema=schema))


async def validated(world: World) -> None:
    """Instructions come from a function; an answer is refused by a validator, and one run has no accepted answer."""

    def addressed(run: RunContext) -> str:
        return f"Speak to {run.user}."

    def agrees(output: str) -> None:
        if output != "yes":
            raise OutputRefused(f"{output!r} is not yes")

    for name, *answers in (("polite", "no", "yes"), ("rude", "no", "never", "no")):
        agent = world.agent(name, *map(says, answers), instructions=addressed)
        agent.output_validator(agrees)
        await played(world, agent, user="ada")


async def cut_answers(world: World) -> None:
    """Answers that the provider cut: one ends the run, one is accepted, one goes on, one is cut within a call."""
    half = says("The answer is fort", finish="length")
    await played(world, world.agent("strict", half))
    await played(world, world.agent("content", half, on_length="accept"))
    await played(world, world.agent("eager", half, says("y-two."), on_length="continue"))
    await played(world, world.agent("stubborn", half, half, on_length="continue"))
    cut = calls(("search", {"query": "x"}), ("search", '{"query": "y'), finish="length")
    await played(world, world.agent("caller", cut, says("I wo", finish="content_filter")))


async def approvals(world: World) -> None:
    turn = calls(("deploy", {"service": "web"}), ("deploy", {"service": "db"}), ("search", {"query": "x"}))
    agent = world.agent("ops", turn, says("done"), hitl_tools=["deploy"])
    async with world.runtime() as rt:
        run = await rt.start(agent, "deploy")
        await until(run, lambda event: event.type == "tool_result")
        first, second = list((await run.state()).approvals)
        await run.resolve(first, "approved", arguments={"service": "web-2"}, by="ann")
        await run.resolve(second, "rejected", note="not today")
        await end(run)


async def conditional(world: World) -> None:
    """A policy with conditions: a call that it allows, one that it denies, and one that is approved for good."""
    rules = [
        {"tool": "deploy", "unless": {"service": "test"}, "action": "require_approval"},
        {"tool": "deploy", "when": "call.count == 1 && args.service.size() > 2", "action": "deny"},
        {"tool": "search", "when": "args.nothing == 1", "action": "allow"},
    ]
    turn = calls(
        ("deploy", {"service": "test"}), ("deploy", {"service": "web"}), ("deploy", {"service": "db"})
    )
    agent = world.agent("ops", turn, calls(("search", {"query": "x"})), says("done"), policy={"rules": rules})
    async with world.runtime() as rt:
        run = await rt.start(agent, "deploy")
        await parked(world, run)
        (asked,) = (await run.state()).approvals
        await run.resolve(asked, "approved", by="ann", always=True)
        await end(run)


async def waiting(world: World) -> None:
    """Runs that are still going: they wait for an answer, for a second answer, and for their turn to try again."""
    ops = world.agent("ops", calls(("deploy", {"service": "web"})), hitl_tools=["deploy"])
    twice = world.agent("twice", calls(*[("deploy", {"service": s}) for s in "ab"]), hitl_tools=["deploy"])
    limited = world.agent("limited", says("x", fails=1, error="rate_limit"))
    half = ""
    async with world.runtime() as rt:
        for agent in (ops, twice, limited):
            run = await rt.start(agent, "question")
            await parked(world, run)
            if agent is ops:
                await run.inject("hurry up")
            if agent is twice:
                half = run.run_id
    async with world.runtime() as rt:  # which drives nothing by itself
        run = rt.get_run(half)
        await run.resolve(next(iter((await run.state()).approvals)), "approved", by="ann")


async def parked(world: World, run: RunHandle[Any]) -> None:
    await stored(world, run, "parked")


async def stored(world: World, run: RunHandle[Any], kind: str) -> None:
    """Wait until the run's log has an event of this kind."""
    async with asyncio.timeout(WAIT_S):
        async for each in world.log.events.follow(await find_run(world.log, run.run_id)):
            if any(event.type == kind for event in decode(each.data).events):
                return


async def timers(world: World) -> None:
    """Nobody drives two runs until they are due: one tries again, the approval of the other has expired."""
    limited = world.agent("limited", says("done", fails=1, error="rate_limit"))
    ops = world.agent(
        "ops", calls(("deploy", {"service": "web"})), says("not deployed"), hitl_tools=["deploy"]
    )
    runs: list[str] = []
    async with world.runtime() as rt:
        for agent in (limited, ops):
            run = await rt.start(agent, "question")
            await parked(world, run)
            runs.append(run.run_id)
    for run_id, later_s in zip(runs, (61.0, 8 * 24 * 3600.0), strict=True):
        world.clock.ahead_s = later_s
        async with world.runtime() as rt:
            await rt.drive(run_id)
            await end(rt.get_run(run_id))


async def revoked(world: World) -> None:
    """A run is cancelled while an approval is pending; what its other call turned out to be is kept."""
    turn = calls(("deploy", {"service": "web"}), ("wait", {}))
    agent = world.agent("ops", turn, hitl_tools=["deploy"])
    async with world.runtime() as rt:
        run = await rt.start(agent, "question")
        await world.entered.wait()
        await run.cancel("enough", by="ann")
        await end(run)
        await stored(world, run, "late_outcome")


async def cancelled(world: World) -> None:
    inner = world.agent("inner", calls(("wait", {})), says("x"))
    outer = world.agent("outer", calls(("delegate", {"to": inner.name})), says("done"))
    early = world.agent("early", says("never"))
    async with world.runtime() as rt:
        unclaimed = await rt.start(early, "question", executor="durable")
        await unclaimed.cancel("changed my mind")
        run = await rt.start(outer, "question")
        await world.entered.wait()
        await run.cancel("all of it", by="ann")
        await end(run)


async def child(world: World) -> None:
    inner = world.agent("inner", calls(("search", {"query": "deep"})), says("inner answer"))
    failing = world.agent("failing", says("x", fails=9, error="auth"))
    turn = calls(("delegate", {"to": inner.name}), ("delegate", {"to": failing.name}))
    await played(world, world.agent("outer", turn, says("done")))


async def lanes(world: World) -> None:
    agent = world.agent("talker", calls(("alone", {"n": 1})), says("done"))
    async with world.runtime() as rt:
        history = [{"role": "user", "content": "before"}, {"role": "assistant", "content": "yes"}]
        runs = [
            await rt.start(agent, f"question {n}", session="talk", messages=history, metadata={"n": n})
            for n in range(2)
        ]
        for run in runs:
            await end(run)


async def injected(world: World) -> None:
    agent = world.agent("helper", calls(("wait", {})), says("one"), says("two"))
    async with world.runtime() as rt:
        run = await rt.start(agent, "question", idempotency_key="only once")
        await world.entered.wait()
        await run.inject("hurry up")
        await run.inject("please")
        await run.pause(by="ann")
        world.go.set()
        await until(run, lambda event: getattr(event, "status", "") == "paused")
        await run.resume()
        await end(run)


async def removed(world: World) -> None:
    """A tool is removed from a running conversation, whose model calls it again; a message brings a file."""
    script = calls(("wait", {}), ("search", {"query": "x"})), calls(("search", {"query": "y"})), says("done")
    agent = world.agent("helper", *script)
    async with world.runtime() as rt:
        run = await rt.start(agent, "question")
        await world.entered.wait()
        await run.refresh_tools(remove=["search"], by="ann")
        await run.inject(["Look.", File.from_bytes(b"a note", name="note.txt")])
        world.go.set()
        await end(run)


async def partial(world: World) -> None:
    """A call reports twice what it has, and times out: the second report is its result."""

    @tool(effect="pure", timeout_s=0.05, on_timeout="partial")
    async def gather(ctx: ToolContext) -> str:
        """Gather."""
        ctx.partial(["a"])
        ctx.partial(["a", "b"])
        await asyncio.Event().wait()
        return "all"

    agent = world.agent("helper", calls(("gather", {})), says("done"), more=(gather,))
    async with world.runtime() as rt:
        await end(await rt.start(agent, "question"))


async def takeover(world: World) -> None:
    """Another executor claims the run in the middle of an unsafe call, and asks what became of it."""
    agent = world.agent("careful", calls(("send", {"to": "bob"}), ("search", {"query": "x"})), says("done"))
    async with world.runtime() as first:
        run = await first.start(agent, "question")
        await world.entered.wait()
        await until(run, lambda event: event.type == "tool_result")
        journal = Journal(world.log, await find_run(world.log, run.run_id))
        await journal.load()
        turn = Turn(journal.state, journal.rules, world.log.clock.now())
        take(turn, Claim("worker-2", 5.0))
        advance(turn)
        assert await journal.store(turn.events, epoch=journal.state.epoch)
    async with world.runtime() as second:
        run = second.get_run(run.run_id)
        (approval,) = (await run.state()).pending_approvals
        answer = {"outcome": "succeeded", "result": "sent", "by": "ann"}
        await run.resolve(approval.request.approval_id, "approved", **answer)
        await second.drive(run.run_id)
        await end(run)


async def verified(world: World) -> None:
    """Somebody looks at calls: one is done, one is not, one cannot be seen, and one is looked at after a takeover."""

    async def wired(to: str) -> Evidence | None:
        return None if to == "nobody" else Evidence(data={"wired to": to.removesuffix("?")}, result="wired")

    @postcondition({"text_contains": {"text": '"${to}"'}}, probe=wired)
    @tool
    async def wire(to: str) -> str:
        """Wire, once."""
        if to == "dora":
            world.entered.set()
            await world.go.wait()
        return f"wired to {to}"

    first = calls(("wire", {"to": "ada"}), ("wire", {"to": "bob?"}), ("wire", {"to": "nobody"}))
    agent = world.agent("banker", first, calls(("wire", {"to": "dora"})), says("done"), more=(wire,))
    async with world.runtime() as rt:
        run = await rt.start(agent, "question")
        await parked(world, run)
        (approval,) = (await run.state()).pending_approvals
        await run.resolve(approval.request.approval_id, "approved", outcome="succeeded", by="ann")
        await world.entered.wait()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(rt.aclose(), 0.01)  # a process that leaves does not wait for the call
    async with world.runtime() as second:
        await second.drive(run.run_id)
        await end(second.get_run(run.run_id))


async def started_again(world: World) -> None:
    """An unsafe call asks twice, ends in doubt, and is started again because somebody says so."""
    failures = iter(["the line went dead"])

    @tool
    async def ship(ctx: ToolContext) -> str:
        """Ship what people say."""
        what = await ctx.ask("What?", name="what")
        where = await ctx.ask("Where to?", name="where")
        for failure in failures:
            raise RuntimeError(failure)
        return f"{what.action} and {where.action}"

    agent = world.agent("shipper", calls(("ship", {})), says("done"), more=(ship,))
    async with world.runtime() as rt:
        run = await rt.start(agent, "question")
        async for event in run.stream(detailed=True):
            if isinstance(event, ApprovalRequested):
                outcome = "retry" if event.kind == "unverifiable" else None
                await run.resolve(event.approval_id, "approved", outcome=outcome, by="ann")
        await end(run)


async def released(world: World) -> None:
    """A process leaves in the middle of a pure call; the next one runs it again."""
    agent = world.agent("helper", calls(("wait", {})), says("done"))
    async with world.runtime() as first:
        run_id = (await first.start(agent, "question")).run_id
        await world.entered.wait()
    world.go.set()
    async with world.runtime() as second:
        await second.drive(run_id)
        await end(second.get_run(run_id))


async def restored(world: World) -> None:
    """A restore holds a run that waits for an answer; the answer comes, and then a person lets the run go on."""
    agent = world.agent("ops", calls(("deploy", {"service": "web"})), says("done"), hitl_tools=["deploy"])
    async with world.runtime() as rt:
        run = await rt.start(agent, "deploy")
        await parked(world, run)
    await hold_everything(world.log, at=world.log.clock.now())
    async with world.runtime() as rt:
        again = rt.get_run(run.run_id)
        (asked,) = (await again.state()).approvals
        await again.resolve(asked, "approved", by="ann")
        await again.resume()
        await rt.drive(run.run_id)
        await end(again)


async def emitted(world: World) -> None:
    await played(world, world.agent("teller", calls(("report", {}), ("large", {})), says("done")))


async def planned(world: World) -> None:
    """A planner looks first: it may look, and may not deploy; another finds that there is nothing to plan."""
    looks = calls(("search", {"query": "x"}), ("deploy", {"service": "web"}), ("missing", {}), fails=1)
    world.model.scripts["planner"] = (looks, says("1. Search.\n2. Say it."))
    world.model.scripts["idle"] = (says(" "),)
    turn = calls(("search", {"query": "y"}))
    for name, model in (("builder", "planner"), ("greeter", "idle")):
        agent = world.agent(name, turn, says("done"), planning_enabled=True, planning_model=f"sim:{model}")
        await played(world, agent)


async def forked(world: World) -> None:
    """A run, and forks of it: within its round of tools, behind it, and a fork of a fork."""
    turn = calls(("search", {"query": "x"}), ("deploy", {"service": "web"}), ("deploy", {"service": "db"}))
    agent = world.agent(
        "ops", turn, calls(("deploy", {"service": "web"})), says("done"), hitl_tools=["deploy"]
    )
    other = world.agent("other", turn, says("done otherwise"), says("and more"))
    async with world.runtime() as rt:
        run = await rt.start(agent, "deploy")
        await answered(run, "approved", "approved", "rejected")
        results = [e.revision async for e in run.stream(detailed=True) if e.type == "tool_result"]
        again = await rt.fork(run.run_id, at=results[1], tools="replay")
        await answered(again, "approved")
        within = await rt.fork(run.run_id, at=results[0], tools="ask", model=other.config.model)
        await answered(within, "rejected", "approved")
        last = (await within.state()).head.rev
        await end(await rt.fork(within.run_id, at=last, tools="run", input="and then?"))


async def coordinated(world: World) -> None:
    """A swarm with a group, a loop and a predicate, and forks of it: within, with another model, and a failed one's."""
    turn = calls(("search", {"query": "x"}), ("deploy", {"service": "web"}))
    first, other = (
        world.agent("first", turn, says("looked")),
        world.agent("other", says("x"), says("otherwise")),
    )
    writer, last = (
        world.agent("writer", says("draft")),
        world.agent("last", turn, says("done", fails=9, error="auth")),
    )
    polish = RalphLoop(
        writer,
        name="polish",
        scorers={"quality": lambda scored: scored.iteration / 2},
        reflect=lambda reflection: f"do better than {reflection.output}",
        stop=Stop(score_threshold=1.0),
    )
    flow = "(first | polish) >> {fine: last, else: pass}"
    swarm = Swarm([first, polish, last], flow, name="company", predicates={"fine": lambda _: True})
    registry = Registry(agents=[swarm], providers={"sim": world.model})
    async with Runtime.open(log=world.log, registry=registry, lease_s=5.0) as rt:
        run = await rt.start(swarm, "go", executor="local")
        with contextlib.suppress(RunFailed):
            await run.result(timeout_s=WAIT_S)
        rev = (await run.state()).head.rev
        begun = [
            e.revision async for e in run.stream(detailed=True, family=False) if e.type == "child_started"
        ]
        for at, tools, model in ((begun[1], "replay", None), (rev, "run", other.config.model)):
            fork = await rt.fork(run.run_id, at=at, tools=tools, model=model)
            with contextlib.suppress(RunFailed):
                await fork.result(timeout_s=WAIT_S)


async def answered(run: RunHandle[Any], *decisions: Any) -> None:
    """Answer the approvals that are pending as they come, to the end of the run."""
    left = list(decisions)
    async with asyncio.timeout(WAIT_S):
        async for event in run.stream():
            pending = [approval.request.approval_id for approval in (await run.state()).pending_approvals]
            if isinstance(event, ApprovalRequested) and event.approval_id in pending:
                await run.resolve(event.approval_id, left.pop(0))
    await end(run)
    assert not left


async def kept_in_bounds(world: World) -> None:
    """Histories that are cut and summarised, windows that are told of and end a run, ceilings that are raised."""
    looks = [calls(("alone", {"n": n})) for n in range(4)]
    short = {"history_messages_max": 6, "summary_at_messages": 2}
    context = {**short, "window_tokens": 100_000}
    cut = world.agent("cut", *looks, says("done"), context=context)
    await played(world, cut)
    plain = world.agent("plain", *looks, says("done"), context={**short, "overflow": "truncate"})
    history = [{"role": "user" if n % 2 else "assistant", "content": f"said {n}"} for n in range(8)]
    await played(world, plain, messages=history)
    full = world.agent("full", looks[0], says("done", fails=1, error="context_overflow"))
    await played(world, full)
    stopped = world.agent("stopped", *looks, context={"window_tokens": 80}, budget_awareness="limit:50")
    await played(world, stopped)
    dear = world.agent("dear", *looks[:2], says("done"), budgets={"max_tokens": 50})
    async with world.runtime() as rt:
        run = await rt.start(dear, "question")
        await parked(world, run)
        (approval,) = (await run.state()).pending_approvals
        await run.resolve(approval.request.approval_id, "approved", arguments={"raise": 1000}, by="ann")
        await end(run)


async def fallen_back(world: World) -> None:
    """Fallbacks that answer, retries that are used up, a pause for want of a model, a breaker, times that are over."""
    looks, down = calls(("alone", {"n": 1})), says("never", fails=9)
    twice = {"attempts": 2, "base_s": 0.02}
    spare = {"fallback_models": ["sim:spare"], "retry": twice}
    world.model.scripts["spare"] = (looks, says("done by the spare one"))
    await played(world, world.agent("busy", down, says("done"), **spare))
    stingy = {"retry": {**twice, "attempts": 9, "quota": {"transient": 1}}}
    await played(world, world.agent("stingy", down, **stingy))
    patient = world.agent("patient", says("done", fails=2), retry={**twice, "exhausted": "pause"})
    async with world.runtime() as rt:
        run = await rt.start(patient, "question")
        await parked(world, run)
        await run.resume()
        await end(run)
    await played(world, world.agent("slow", calls(("wait", {})), step_timeout_s=0.2))
    await played(world, world.agent("limited", says("never", fails=1, error="rate_limit"), run_timeout_s=0.2))
    breaker = {"failures": 2, "open_s": 0.2}
    await played(world, world.agent("guarded", says("done", fails=2), breaker=breaker))


@tool(effect="pure")
def draw(what: str) -> list[str | File]:
    """Draw a picture."""
    return [f"drew {what}", File.from_bytes(PNG + what.encode(), name=f"{what}.png")]


async def with_files(world: World) -> None:
    """Files in the input and in the messages before it, of tools, of a planner's tools and of the model."""
    world.model.scripts["plan"] = (calls(("draw", {"what": "sketch"})), says("1. Draw."))
    artist = world.agent(
        "artist",
        calls(("draw", {"what": "a"}), ("draw", {"what": "x" * 40_000}), files=("m.png",)),
        says("done", files=("n.png",)),
        more=(draw,),
        planning_enabled=True,
        planning_model="sim:plan",
    )
    picture = File.from_bytes(PNG, name="in.png", detail="low")
    link = File.from_url("https://example.com/out.png")
    before = [
        {"role": "user", "content": ["Look at this.", picture]},
        {"role": "assistant", "content": "Yes."},
    ]
    async with world.runtime() as rt:
        await end(await rt.start(artist, ["Draw it.", picture, link], messages=before))
        for given in (["Draw it.", picture], "And again."):
            await end(await rt.start(artist, given, session="art"))


async def thoughtful(world: World) -> None:
    """Replies of which the provider wants something back: of a planner, a large one, and one that a fallback leaves."""
    thoughts = tuple(
        {"type": "reasoning", "id": f"rs_{n}", "encrypted_content": "ü" * n} for n in (1, 17_000)
    )
    looks = calls(("search", {"query": "x"}), wanted=(thoughts[0], {"call": 0}), cached=20)
    world.model.scripts["plan"] = (looks, says("1. Search.", wanted=thoughts[:1]))
    deep = world.agent(
        "deep",
        looks,
        calls(("alone", {"n": 1}), text="so far", wanted=(*thoughts, {"text": 6}, {"call": 0})),
        says("done", wanted=thoughts[:1]),
        memory={"scope": "session"},
        planning_enabled=True,
        planning_model="sim:plan",
    )
    async with world.runtime() as rt:
        for text in ("Hello", "And then?"):
            await end(await rt.start(deep, text, session="deep"))
    world.model.scripts["other"] = (says("never"), calls(("alone", {"n": 2}), wanted=thoughts[:1]))
    lost = calls(("alone", {"n": 3}), fails=9)
    once = {"attempts": 1}
    wavering = world.agent("wavering", looks, lost, says("done"), fallback_models=["sim:other"], retry=once)
    await played(world, wavering)


async def searching(world: World) -> None:
    """Searches that the provider made itself: beside calls of the run, before a final answer, large and failed ones."""
    opaque = ({"type": "web_search_call", "id": "ws-0"}, {"call": 0})
    finder = world.agent(
        "finder",
        calls(("search", {"query": "x"}), text="so", searched=("a", "nothing"), wanted=opaque),
        calls(("alone", {"n": 1}), searched=("b", "ü" * 40_000)),
        says("done", searched=("c",)),
        native_tools=["web_search"],
        memory={"scope": "session"},
    )
    async with world.runtime() as rt:
        for text in ("Hello", "And then?"):
            await end(await rt.start(finder, text, session="web"))


async def put_aside(world: World) -> None:
    """A text that is too large for its commit lies beside the log, and so does a result that is shown in part."""
    small = {"COMMIT_BYTES_MAX": 5120, "EVENTS_BYTES_MAX": 4096}  # so that the history is small
    with mock.patch.multiple("foldlog.runtime.journal.journal", **small):
        asks = calls(("search", {"query": "word " * 50}), text="many words " * 400)
        context = {"artifact_bytes_min": 200}
        await played(world, world.agent("wordy", asks, says("done"), context=context))


async def left(world: World) -> None:
    """A worker of a newer version leaves a run to others; a process that has the tools goes on with it."""
    agent = world.agent("helper", calls(("deploy", {"service": "web"})), says("done"), hitl_tools=["deploy"])
    newer = Registry(agents=[Agent("helper", model="sim:helper")], providers={"sim": world.model})
    async with world.runtime() as rt:
        run = await rt.start(agent, "question")
        await parked(world, run)
        await rt.aclose()
        (approval,) = (await run.state()).pending_approvals
        await run.resolve(approval.request.approval_id, "approved", by="ann")
        worker = Worker(Host(log=world.log, registry=newer, worker="newer"))
        serving = asyncio.create_task(worker.serve())
        journal = await run._journal()
        async with asyncio.timeout(WAIT_S):
            await journal.follow_until(lambda state: bool(state.left))
        worker.stop()
        await serving
    async with world.runtime() as rt:
        await rt.drive(run.run_id)
        await end(rt.get_run(run.run_id))


class Shelf:
    """Stored knowledge of one thing."""

    async def search(self, query: str, limit: int) -> list[KnowledgeItem]:
        return [KnowledgeItem(id="k1", text="Otto is a fish.", source="notes", score=1.5)] * ("Otto" in query)

    async def add(self, text: str, source: str = "") -> list[KnowledgeItem]:
        return []


async def remembering(world: World) -> None:
    """Runs of a session that are told of those before, and of what is known."""
    looks = calls(("search", {"query": "x"}))
    agent = world.agent("keen", looks, says("done"), memory={"scope": "session"})
    async with world.runtime() as rt:
        for text in ("Hello", "Who is Otto?", "And then?"):
            await end(await rt.start(agent, text, session="talk"))


async def beside_the_log(world: World) -> None:
    """Values above the limit, one of a user that looks like a reference, and replies too large for a commit."""

    @tool(effect="pure")
    async def tag() -> dict[str, str]:
        """Return what looks like a reference."""
        return {"$artifact": "mine"}

    small = {"COMMIT_BYTES_MAX": 9216, "EVENTS_BYTES_MAX": 8192}
    with (
        mock.patch("foldlog.eventlog.offload.FIELD_BYTES_MAX", 24),
        mock.patch.multiple("foldlog.runtime.journal.journal", **small),
    ):
        asks = calls(("search", {"query": "Otto " * 1000}), text="what is there " * 400)
        agent = world.agent("bulky", asks, says("done " * 1000), says("again"), memory={"scope": "session"})
        async with world.runtime() as rt:
            for text in ("Hello", "Who is Otto?"):
                await end(await rt.start(agent, text, session="bulk"))
        await played(world, world.agent("tagger", calls(("tag", {})), says("done"), more=(tag,)))


async def from_a_newer_writer(world: World) -> None:
    """A run whose last commits hold an event and a field that this release does not know."""
    run = await played(world, world.agent("helper", says("done")))
    subject = await find_run(world.log, run)
    chain = Chain()
    *_, last = [chain.verify(s) async for s in world.log.events.read(Shard(0)) if s.subject == subject]
    commit = Commit(
        v=last.commit.v,
        run=run,
        root=run,
        rev=last.last_rev + 1,
        append="newer-append",
        prev=last.digest,
        epoch=0,
        at=last.commit.at + 1,
        path=last.commit.path,
        events=(),
    )
    newer = {"type": "rated", "stars": 5, "notes": ["ü", {"deep": [1, 2]}]}
    body = msgspec.json.decode(encode(commit))
    body.pop("sum")
    data = _sealed({**body, "events": [newer]})
    await world.log.events.append(CommitWrite(subject, At(last.position), data))


def _sealed(body: dict[str, Any]) -> bytes:
    """A commit's bytes with their sum, of events that the codec has no class for."""
    from hashlib import sha256

    data = msgspec.json.encode(body)
    return data[:-1] + b',"sum":"' + sha256(data).hexdigest()[:16].encode() + b'"}'


async def buried(world: World) -> None:
    """Of two runs with keys, and a run below each, the first is erased."""
    inner = world.agent("inner", says("inner answer"))
    agent = world.agent("outer", calls(("inner", {"input": "a"})), says("done"), more=(inner.as_tool(),))
    async with world.runtime() as rt:
        first = await rt.start(agent, "erased", session="s", user="u", idempotency_key="1")
        await first.result()
        second = await rt.start(agent, "kept", session="s", user="u", idempotency_key="2")
        await second.result()
        await rt.delete(first.run_id, by="ann", reason="request 7")


async def operated(world: World) -> None:
    """A workflow gathers calls, races a signal against a time, and meets code that does not fit its log."""
    named = {"memo": "value"}

    @tool(effect="pure")
    async def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    @workflow(version="1")
    async def settle(run: WorkflowRun, order: str) -> str:
        new = await run.changed("two-calls")
        both = await run.gather(lambda r: r.call(double, number=1), lambda r: r.call(double, number=int(new)))
        value = await run.memo(named["memo"], lambda: 7)
        which, signal = await run.first(lambda r: r.wait_for("paid"), lambda r: r.sleep(days=14))
        return f"{order} {both} {value} {which} {signal.data}"

    async with Runtime.open(log=world.log, registry=Registry(workflows=[settle])) as rt:
        run = await rt.start(settle, "17")
        await parked(world, run)
        named["memo"] = "other"
        await run.signal("paid", {"eur": 3}, by="bank")
        await until(run, lambda event: getattr(event, "reason", "") == "takeover")
        named["memo"] = "value"
        await parked(world, run)
        await run.resume()
        await end(run)


async def tabled(world: World) -> None:
    """A table calls tools side by side, skips a step, goes on after one that fails, and asks before it sends."""

    @tool(effect="pure")
    async def find(order: str) -> dict[str, Any]:
        """Find an order."""
        return {"order": order, "days": 15}

    @tool(effect="idempotent")
    async def send_to(name: str, text: str) -> str:
        """Send a text."""
        return f"{name}: {text}"

    steps = [
        {"id": "find", "tool": "find", "arguments": {"order": "${input.order}"}},
        {"id": "rest", "sleep": 0.001},
        {"id": "early", "ask": "Wait for ${find.result.order}?", "when": "find.result.days < 14"},
        {"id": "later", "wait": "later", "needs": ["early"]},
        {
            "id": "lost",
            "tool": "send_to",
            "arguments": {"name": "a", "text": "${find.result.no_such}"},
            "on_error": "continue",
        },
        {
            "id": "send",
            "tool": "send_to",
            "needs": ["lost", "rest"],
            "arguments": {"name": "bank", "text": "${find.result.days} days"},
            "approval": "required",
            "retry": {"attempts": 2},
        },
    ]
    table = {"kind": "workflow", "name": "chase", "steps": steps, "output": "${send.result}"}
    chase = WorkflowTable.from_config(table, Registry(tools=[find, send_to]))
    async with Runtime.open(log=world.log, registry=Registry(workflows=[chase])) as rt:
        run = await rt.start(chase, "17")
        await answered(run, "approved")


async def rolled_back(world: World) -> None:
    """A table rolls itself back: one compensation is approved, what has none is done by hand."""

    @tool(effect="unsafe")
    def refund(order: str, eur: int) -> str:
        """Give money back."""
        return f"refunded {eur}"

    @tool(effect="unsafe", compensate=lambda args, result: refund(order=args["order"], eur=result["eur"]))
    def charge(order: str) -> dict[str, Any]:
        """Charge a card."""
        return {"eur": 30}

    @tool(effect="unsafe", rollback_hint="Call the warehouse.")
    def ship_it(order: str) -> str:
        """Ship an order."""
        return "shipped"

    @tool(effect="pure")
    def check(order: str) -> str:
        """Refuse."""
        raise ToolFailed("sold out")

    order = {"order": "${input.order}"}
    steps = [
        {"id": "charge", "tool": "charge", "arguments": order},
        {"id": "ship", "tool": "ship_it", "arguments": order, "needs": ["charge"]},
        {"id": "check", "tool": "check", "arguments": order, "needs": ["ship"], "on_error": "rollback"},
    ]
    tools = [charge, ship_it, check, refund]
    table = WorkflowTable.from_config(
        {"kind": "workflow", "name": "sale", "steps": steps}, Registry(tools=tools)
    )
    async with Runtime.open(log=world.log, registry=Registry(workflows=[table], tools=tools)) as rt:
        run = await rt.start(table, '{"order": "17"}')
        with contextlib.suppress(RunFailed):
            await run.result()
        undone = (await rt.plan_rollback(run.run_id)).rollback
        assert undone is not None
        await answered(rt.get_run(undone), "approved", "approved")


async def waited(world: World) -> None:
    """A call sleeps, and waits for signals: one was there before, one is refused, one does not come in time."""

    @tool(effect="idempotent")
    async def chase(ctx: ToolContext) -> list[Any]:
        """Chase a payment."""
        await ctx.sleep(until=datetime(2026, 1, 1, tzinfo=UTC))
        await ctx.sleep(days=3)
        schema = {"type": "object", "required": ["eur"]}
        signals = [await ctx.wait_for("paid", schema=schema, timeout_s=3600) for _ in range(3)]
        return [signal and signal.data for signal in signals]

    agent = world.agent("chaser", calls(("wait", {}), ("chase", {})), says("done"), more=(chase,))
    async with world.runtime() as rt:
        run = await rt.start(agent, "question")
        await world.entered.wait()
        await run.signal("paid", {"usd": 1}, key="a", by="bank")
        await run.signal("paid", {"eur": 1}, key="b", by="bank")
        world.go.set()
        await parked(world, run)
    world.clock.ahead_s = 4 * 86_400.0
    async with world.runtime() as rt:
        await rt.drive(run.run_id)
        again = rt.get_run(run.run_id)
        await until(again, lambda event: getattr(event, "wait_id", "") == "signal-paid-1")
        await again.signal("paid", {"eur": 2}, by="bank")
        await until(again, lambda event: getattr(event, "wait_id", "") == "signal-paid-2")
    world.clock.ahead_s = 5 * 86_400.0
    async with world.runtime() as rt:
        await rt.drive(run.run_id)
        await end(rt.get_run(run.run_id))


async def called_back(world: World) -> None:
    """A call makes two callbacks: one is answered before it waits for it, one while it waits."""
    tokens: list[str] = []

    @tool(effect="idempotent")
    async def scan(ctx: ToolContext) -> list[Any]:
        """Scan."""
        callbacks = [await ctx.callback("scan", timeout_s=3600), await ctx.callback("print")]
        tokens.extend(each.token for each in callbacks)
        answers = [await each.outcome() for each in callbacks]
        return [answer and answer.data for answer in answers]

    agent = world.agent("clerk", calls(("scan", {})), says("done"), more=(scan,))
    async with world.runtime() as rt:
        run = await rt.start(agent, "question")
        await until(run, lambda event: getattr(event, "wait_id", "") == "callback-scan-0")
        await rt.answer_callback(tokens[1], {"copies": 1}, by="printer")
        await rt.answer_callback(tokens[0], {"page": 1}, by="scanner")
        await end(run)


@contextlib.asynccontextmanager
async def at_work(world: World, *hooks: EventHook) -> AsyncGenerator[Any, None]:
    """A runtime, and a worker meanwhile."""
    async with world.runtime() as rt:
        worker = Worker(Host(log=world.log, registry=world.registry(), worker="worker-1"), hooks=hooks)
        serving = asyncio.create_task(worker.serve())
        yield rt
        worker.stop()
        await serving


async def ends(rt: Any, count: int) -> None:
    """Wait until so many runs have ended."""
    async with asyncio.timeout(WAIT_S), contextlib.aclosing(rt.follow()) as events:
        async for event in events:
            count -= event.is_end
            if not count:
                return


async def started_later(world: World) -> None:
    """A run starts an hour after it was submitted; another one is cancelled before its time."""
    agent = world.agent("late", says("done"))
    async with world.runtime() as rt:
        at = datetime.fromtimestamp(world.clock.now() + 3600.0, UTC)
        run, other = [await rt.start(agent, text, at=at) for text in ("question", "another")]
        await other.cancel("not needed")
    world.clock.ahead_s = 3601.0
    async with world.runtime() as rt:
        await rt.drive(run.run_id)
        await end(rt.get_run(run.run_id))


async def scheduled(world: World) -> None:
    """A schedule is put on, triggered, paused, resumed, edited, late, and taken off."""
    world.agent("watcher", says("seen"))
    given = Schedule("look", "watcher", "look at ${due_at}", cron="0 0 1 1 *", tz="Europe/Oslo", jitter_s=30)
    async with at_work(world) as rt:
        await rt.schedules.apply(given, by="ada")
        await rt.schedules.trigger("look", by="bo")
        await ends(rt, 1)
        await rt.schedules.pause("look", by="ada")
    world.clock.ahead_s = 400 * 86400.0
    async with world.runtime() as rt:
        await rt.schedules.resume("look", by="ada")
        hourly = Schedule(
            "look", "watcher", {"after": "${last_run}"}, every="1h", overlap="queue", missed="all"
        )
        await rt.schedules.apply(hourly, by="bo")
    world.clock.ahead_s += 5 * 3600.0
    async with at_work(world) as rt:
        await rt.schedules.trigger("look", by="bo")
        await ends(rt, 3)
        await rt.schedules.delete("look", by="ada")


async def hooked(world: World) -> None:
    """The end of a run starts another one."""
    writer = world.agent("writer", says("written"))
    world.agent("reader", says("read"))
    with mock.patch.object(event_hooks, "ADVANCE_S", 0.05):
        after = EventHook(name="after", on="run.completed", of=("writer",), agent="reader")
        async with at_work(world, after) as rt:
            await rt.start(writer, "question", executor="durable")
            await ends(rt, 2)
            await moved_on(world, "after")


async def moved_on(world: World, hook: str) -> None:
    """Wait until a hook has moved its place on."""
    commits = world.log.events.follow(hook_subject(0, hook))
    async with asyncio.timeout(WAIT_S), contextlib.aclosing(commits):
        async for stored in commits:
            if any(
                isinstance(event, HookAdvanced) and event.position for event in decode(stored.data).events
            ):
                return


SCENARIOS: dict[str, Callable[[World], Awaitable[None]]] = {
    scenario.__name__: scenario
    for scenario in (
        tools_and_progress,
        bad_calls,
        retries,
        failures,
        broken_off,
        output_schema,
        validated,
        approvals,
        conditional,
        waiting,
        timers,
        revoked,
        cancelled,
        child,
        lanes,
        injected,
        removed,
        partial,
        takeover,
        verified,
        started_again,
        released,
        restored,
        emitted,
        planned,
        forked,
        coordinated,
        kept_in_bounds,
        fallen_back,
        remembering,
        from_a_newer_writer,
        put_aside,
        left,
        cut_answers,
        beside_the_log,
        searching,
        thoughtful,
        with_files,
        waited,
        operated,
        tabled,
        rolled_back,
        buried,
        called_back,
        started_later,
        scheduled,
        hooked,
    )
}
