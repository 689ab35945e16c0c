"""The workflows of the scenarios."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from ...eventlog.errors import OperationFailed, RunFinished
from ...eventlog.events import Diverged
from ...runtime import Callback, Registry, ToolFailed, WorkflowRun, WorkflowTable, tool, workflow
from ...runtime.ports.runnable import Runnable
from .cast import an_agent, deploy, look, save, says, send
from .world import ANSWER_S, WORLD, World

LATE_S = 20 * 86_400.0
"""A time after the last signal, in seconds."""
UNNOTICED = "code that does not fit"
"""The key in `World.state` of the effects of code that does not fit the log of its run."""


@tool(effect="pure")
async def refuse(what: str) -> str:
    """Refuse."""
    await asyncio.sleep(0.1)
    raise ToolFailed(f"no {what}")


def add(world: World, name: str, function: Callable[..., Awaitable[Any]], **options: Any) -> Runnable[Any]:
    """Add a workflow that may call the tools of the cast."""
    made: Runnable[Any] = workflow(name=name, tools=[look, save, send, deploy, refuse], **options)(function)
    world.agents.append(made)
    return made


def in_sequence(world: World) -> Runnable[Any]:
    """A workflow that uses every operation, one after the other."""
    inner = an_agent(world, "inner", says("inner answer"))

    async def sequence(run: WorkflowRun, text: str) -> list[Any]:
        seen = [await run.call(look, at=text), await run.call(send, to="a"), await run.call(deploy, to="b")]
        seen.append((await run.ask("really?")).accepted)
        seen.append(await run.memo("value", lambda: len(seen)))
        await run.sleep(minutes=1)
        signal = await run.wait_for("paid", timeout_s=LATE_S)
        seen += [signal and signal.data, await run.agent(inner, "sub question"), run.random.random()]
        return [*seen, await run.call(send, to="c")]

    return add(world, "sequence", sequence, hitl_tools=["deploy"])


def in_branches(world: World) -> Runnable[Any]:
    """A workflow with branches in branches, one of which fails while others are at work."""
    inner = an_agent(world, "inner", says("inner answer"))

    async def twice(run: WorkflowRun, to: str) -> list[Any]:
        return [await run.call(send, to=to), await run.call(send, to=f"{to} again")]

    async def failing(run: WorkflowRun) -> Any:
        await run.call(refuse, what="way")
        return await run.call(send, to="nobody")

    async def waiting(run: WorkflowRun) -> Any:
        signal = await run.wait_for("paid")
        return await run.gather(
            lambda r: r.call(save, what=str(signal and signal.data)), lambda r: r.agent(inner, "sub question")
        )

    async def gathered(run: WorkflowRun, text: str) -> list[Any]:
        first, second = run.call(look, at=text), run.call(look, at="b")
        seen: list[Any] = list(await run.gather(second, first))
        seen += await run.gather(lambda r: twice(r, "x"), lambda r: twice(r, "y"), waiting)
        try:
            await run.gather(failing, lambda r: twice(r, "z"))
        except OperationFailed as error:
            seen.append(error.place)
        return [*seen, await run.call(send, to="end")]

    return add(world, "gathered", gathered)


def in_races(world: World) -> Runnable[Any]:
    """A workflow with races, whose losers wait for a time, a person and a callback, within branches and without."""
    inner = an_agent(world, "inner", says("inner answer"))

    async def approved(run: WorkflowRun) -> Any:
        await run.sleep(seconds=LATE_S)
        return await run.call(send, to="nobody")

    async def raced(run: WorkflowRun, text: str) -> list[Any]:
        which, signal = await run.first(lambda r: r.wait_for("paid"), lambda r: r.sleep(days=20))
        seen: list[Any] = [text, which, signal.data]
        seen.append(await run.first(run.sleep(minutes=1), run.callback("never", lambda _: None)))
        seen.append((await run.first(approved, lambda r: r.agent(inner, "sub question")))[0])
        return [*seen, await run.call(send, to="c")]

    return add(world, "raced", raced)


def at_once(world: World) -> Runnable[Any]:
    """A workflow with races that any branch may win, some of which run when another has won."""
    inner = an_agent(world, "inner", says("inner answer"))

    async def told(run: WorkflowRun) -> Any:
        def tell(callback: Callback) -> None:
            world, token, own = WORLD.get(), callback.token, run.run_id
            world.say_once(token, lambda: world.answer_callback(own, "callback#0", token))

        return await run.callback("callback", tell)

    async def sent(run: WorkflowRun, to: str) -> Any:
        return await run.call(save, what=to), await run.call(send, to=to)

    async def raced_at_once(run: WorkflowRun, text: str) -> list[Any]:
        seen: list[Any] = [text]
        seen.append(
            await run.first(lambda r: sent(r, "a"), lambda r: sent(r, "b"), lambda r: r.call(send, to="c"))
        )
        seen.append((await run.first(lambda r: r.wait_for("paid"), lambda r: r.sleep(ANSWER_S)))[0])
        seen.append(
            (await run.first(lambda r: r.agent(inner, "sub question"), lambda r: r.call(look, at="d")))[0]
        )
        seen.append((await run.first(lambda r: r.call(deploy, to="x"), lambda r: r.sleep(ANSWER_S)))[0])
        return [*seen, await told(run) is not None, await run.call(send, to="e")]

    return add(world, "raced_at_once", raced_at_once, hitl_tools=["deploy"])


def in_a_table(world: World) -> Runnable[Any]:
    """A table whose steps run side by side, wait, ask, fail, and go on."""
    an_agent(world, "inner", says("inner answer"))
    steps: list[dict[str, Any]] = [
        {"id": "look", "tool": "look", "arguments": {"at": "${input}"}},
        {"id": "first", "tool": "send", "arguments": {"to": "a"}, "needs": ["look"]},
        {"id": "second", "tool": "send", "arguments": {"to": "b"}, "needs": ["look"], "approval": "required"},
        {"id": "asked", "ask": "really ${look.result}?"},
        {"id": "paid", "wait": "paid", "timeout_s": LATE_S, "needs": ["first"]},
        {"id": "refused", "tool": "refuse", "arguments": {"what": "way"}, "on_error": "continue"},
        {"id": "inner", "agent": "inner", "input": "sub question", "needs": ["refused"]},
        {"id": "lost", "tool": "send", "arguments": {"to": "${first.result.no}"}, "on_error": "continue"},
        {"id": "slept", "sleep": {"minutes": 1}, "needs": ["lost"]},
        {
            "id": "saved",
            "tool": "save",
            "arguments": {"what": "${inner.result} ${paid.result}"},
            "needs": ["second", "asked", "slept"],
        },
        {"id": "end", "tool": "send", "arguments": {"to": "c"}, "needs": ["saved"]},
    ]
    table = {"kind": "workflow", "name": "tabled", "steps": steps, "output": "${saved.result} ${end.result}"}
    known = Registry(agents=world.agents, tools=[look, save, send, refuse])
    made = WorkflowTable.from_config(table, known)
    world.agents.append(made)
    return made


def under_way(world: World) -> Runnable[Any]:
    """A workflow whose code is changed while it waits: first it no longer fits, then it fits and does more."""
    world.state["code"] = "old"

    async def changed(run: WorkflowRun, text: str) -> list[Any]:
        code = WORLD.get().state["code"]
        seen = [await run.call(look, at=text)]
        if code != "wrong":
            seen.append(await run.call(send, to="a"))
        await run.wait_for("paid")
        if code == "wrong":
            await run.call(save, what="what follows a step that was removed")
            WORLD.get().state[UNNOTICED] = run.run_id
        if code == "new" and await run.changed("more"):
            seen.append(await run.call(save, what="more"))
        return [*seen, await run.call(send, to="b")]

    world.outside(_deploy(world))
    return add(world, "changed", changed)


async def _deploy(world: World) -> None:
    """Deploy code that does not fit as the run waits, and code that fits as that is noticed; let the run go on."""
    await world.until_stored("wait_started")
    world.state["code"] = "wrong"
    await world.until(lambda: _has_diverged(world) or not world.open_runs())
    world.state["code"] = "new"
    while world.open_runs() and UNNOTICED not in world.state:
        for run in world.open_runs():
            try:
                await world.people().get_run(run).resume()
            except RunFinished:
                continue
        await asyncio.sleep(ANSWER_S)


def _has_diverged(world: World) -> bool:
    return any(isinstance(event, Diverged) for _, commit in world.commits() for event in commit.events)
