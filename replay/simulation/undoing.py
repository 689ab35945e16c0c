"""Rollbacks in the simulation: a table that rolls itself back, and an agent that others roll back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from ...eventlog.errors import ConfigError, FoldlogError
from ...eventlog.events import Status, Submitted, ToolCall, ToolResult
from ...runtime import Registry, ToolContext, WorkflowTable, tool
from ...runtime.ports.runnable import Runnable
from ...runtime.ports.tools import Tool
from .cast import an_agent, calls, says
from .flows import refuse
from .world import ANSWER_S, WORLD, World


@tool(effect="unsafe")
async def unbook(what: str) -> str:
    """Take a booking back, once."""
    await asyncio.sleep(0.3)
    WORLD.get().effects.append(("unbook", what))
    return "sent"


@tool(effect="unsafe", compensate=lambda args, _result: unbook(what=args["what"]))
async def book(what: str, ctx: ToolContext) -> str:  # noqa: ARG001 - to be told apart
    """Book, once."""
    await asyncio.sleep(0.3)
    WORLD.get().effects.append(("book", ctx.idempotency_key))
    return "sent"


@tool(effect="unsafe", rollback_hint="Ask for it.")
async def post(what: str, ctx: ToolContext) -> str:  # noqa: ARG001 - as above
    """Post something that can only be taken back by hand."""
    await asyncio.sleep(0.1)
    WORLD.get().effects.append(("post", ctx.idempotency_key))
    return "sent"


@tool(effect="pure", timeout_s=None)
async def undo(of: str, ctx: ToolContext) -> str:
    """Have two callers roll back the run of an agent, as soon as it is over."""
    world = WORLD.get()
    run = next((run for run in world.roots() if _agent_of(world, run) == of), None)
    if run is None:  # its submission was refused
        return "undone"
    await world.until(lambda: world.is_over(run))
    asked = {world.say_once(f"{ctx.run_id} {caller}", lambda: _rolled_back(world, run)) for caller in "ab"}
    await asyncio.wait(asked)
    return "undone"


def _agent_of(world: World, run: str) -> str:
    return next(commit.path for _, commit in world.commits() if commit.run == run)


async def _rolled_back(world: World, run: str) -> None:
    """Ask for the rollback of a run, from one process after another, until one is answered."""
    while True:
        caller = world.person()
        try:
            await caller.does(caller.runtime().rollback(run, by="people"))
            if not caller.dead.is_set():
                return
        except ConfigError as error:
            if "is open" not in str(error):  # which a stale read may show
                return
        except FoldlogError:
            pass  # the log was unavailable
        await world.clock.sleep(ANSWER_S)


def undoable(world: World) -> list[Runnable[Any]]:
    """Return a table whose last step fails, an agent with bookings, and an agent that has the latter rolled back."""
    tools: list[Tool] = [book, unbook, post, refuse, undo]
    world.make_registry = lambda: Registry(agents=world.agents, providers=world.providers, tools=tools)
    steps = [
        {"id": "room", "tool": "book", "arguments": {"what": "room"}},
        {"id": "seats", "tool": "book", "arguments": {"what": "seats"}, "needs": ["room"]},
        {
            "id": "refused",
            "tool": "refuse",
            "arguments": {"what": "way"},
            "needs": ["seats"],
            "on_error": "rollback",
        },
    ]
    table = WorkflowTable.from_config(
        {"kind": "workflow", "name": "undone", "steps": steps}, Registry(tools=tools)
    )
    world.agents.append(table)
    booked = [calls((name, {"what": what})) for name, what in (("book", "a"), ("post", "b"), ("book", "c"))]
    clerk = an_agent(world, "clerk", *booked, says("done"), extra=[book, post])
    undoer = an_agent(world, "undoer", calls(("undo", {"of": "clerk"})), says("done"), extra=[undo])
    return [table, clerk, undoer]


def rolled_back(world: World, *, ended: bool) -> Iterator[str]:
    """Check W42: each booking of a run is undone at most once, the last first, by one rollback at a time."""
    rollbacks: dict[str, list[str]] = {}
    for run in world.roots():
        first = world.events_of(run)[0]
        if isinstance(first, Submitted) and first.trigger is not None and first.trigger.kind == "rollback":
            rollbacks.setdefault(first.trigger.key, []).append(run)
    for run, undoing in rollbacks.items():
        done = _results(world, run, "book")
        taken = [what for each in undoing for what in _results(world, each, "unbook")]
        for what in sorted(set(taken)):
            if taken.count(what) > 1:
                yield f"W42 {what} of {run} is taken back {taken.count(what)} times"
        for each in undoing:
            order = [done.index(what) for what in _results(world, each, "unbook") if what in done]
            if order != sorted(order, reverse=True):
                yield f"W42 {each} takes back what {run} has booked in another order: {order}"
        if len([each for each in undoing if not world.is_over(each)]) > 1:
            yield f"W42 run {run} has several rollbacks at a time: {', '.join(undoing)}"
        missing = sorted(set(done) - set(taken))
        if ended and missing and _has_completed(world, undoing[-1]):
            yield f"W42 {', '.join(missing)} of {run} is not taken back by {undoing[-1]}"


def _has_completed(world: World, run: str) -> bool:
    return any(isinstance(event, Status) and event.status == "completed" for event in world.events_of(run))


def _results(world: World, run: str, name: str) -> list[str]:
    """Return the argument `what` of a tool's successful calls, in the order of their results."""
    about: dict[str, str] = {}
    found: list[str] = []
    for event in world.events_of(run):
        if isinstance(event, ToolCall) and event.tool_name == name:
            about[event.tool_call_id or ""] = event.arguments.get("what", "")
        elif isinstance(event, ToolResult) and event.success and event.tool_call_id in about:
            found.append(about[event.tool_call_id])
    return found
