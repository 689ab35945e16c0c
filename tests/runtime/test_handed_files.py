"""Files on their way into a run: by messages to it, from a tool or a model to a child, through swarms and loops."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from foldlog.eventlog import ConfigError, RunFinished
from foldlog.eventlog.memory import MemoryLog
from foldlog.replay import check_trace, export, import_archive, load_trace, read_archive, replay
from foldlog.runtime import (
    Agent,
    File,
    RalphLoop,
    Registry,
    RunHandle,
    Runtime,
    Scored,
    Swarm,
    ToolContext,
    tool,
)

from .conftest import HeldTool, Place, call, calls, says, when

pytestmark = pytest.mark.anyio
Script = Callable[..., str]
PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)
CAT = File.from_bytes(PNG, name="cat.png")
SEES = {"reads_files": ["cat.png"]}
BLIND: dict[str, Any] = {"reads_files": []}
DIGEST = hashlib.sha256(PNG).hexdigest()


def asker(script: Script, *tools: Any) -> Agent:
    return Agent(
        "asker",
        model=script(
            {**calls(call("ask", input="What is this?", files=["cat.png"])), **SEES}, says("Asked.")
        ),
        tools=list(tools),
    )


# --- messages to a run ------------------------------------------------------------------------------------------------


async def inject_cat(place: Place, script: Script) -> RunHandle[Any]:
    held = HeldTool()
    model = script({**calls(call("wait")), **BLIND}, {**says("A cat."), **SEES})
    agent = Agent("seer", model=model, tools=[held.wait])
    await place.open(agent)
    run = await place.start(agent)
    await held.entered.wait()
    await run.inject(["Look at this.", CAT])
    assert (await run.pending()).messages == ("Look at this. [cat.png (image/png, 48 bytes)]",)
    held.let_go.set()
    assert (await run.result()).output == "A cat."
    return run


async def test_an_injected_message_carries_files_to_the_next_step(place: Place, script: Script) -> None:
    run = await inject_cat(place, script)
    (injected,) = [event for event in await place.events(run) if event.type == "message_injected"]
    assert injected.content == "Look at this."
    assert [str(part) for part in injected.parts[1:]] == ["cat.png (image/png, 48 bytes)"]
    assert await place.log.artifacts.of(run.run_id).get(DIGEST) == PNG


async def test_the_session_an_export_and_a_fork_keep_the_files_of_an_injected_message(
    script: Script,
) -> None:
    held, other = HeldTool(), MemoryLog("other")
    held.let_go.set()
    model = script({**calls(call("wait")), **BLIND}, {**says("A cat."), **SEES})
    agent = Agent("seer", model=model, tools=[held.wait])
    registry = Registry(agents=[agent])
    async with Runtime.open("memory://", registry=registry) as rt:
        held.let_go.clear()
        run = await rt.start(agent, "Wait.", session="s")
        await held.entered.wait()
        await run.inject([CAT])
        held.let_go.set()
        assert (await run.result()).output == "A cat."
        after = Agent("after", model=script({**says("Grey."), **SEES}))
        assert (await rt.run(after, "Which colour?", session="s")).output == "Grey."
        trace = await load_trace(rt.log, run.run_id)
        assert not check_trace(trace)
        assert replay(trace).divergence is None
        archive = read_archive(b"".join([line async for line in export(rt.log, artifacts=True)]))
        at = next(e.revision for e in trace.events if e.type == "message_injected")
    assert archive.artifacts[DIGEST] == PNG
    await import_archive(archive, other)
    async with Runtime.open(log=other, registry=registry) as rt:
        fork = await rt.fork(run.run_id, at=at or 0, tools="run")
        assert (await fork.result()).output == "A cat."


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ([File.from_bytes(b"ID3\x04" + bytes(9), name="a.mp3")], "does not take audio/mpeg"),
        (["x", File.from_bytes(b"y" * 101, name="a.txt")], "more than the 100 of one file"),
        ([], "needs a text that is not empty, or a file"),
        (["x", 3], "must be a text or a File, not 3"),
        (3, "content must be a text, a File, or a list"),
        ("", "must be a non-empty text"),
    ],
    ids=str,
)
async def test_a_message_that_the_run_cannot_take_is_refused_and_stores_nothing(
    tmp_path: Path, content: Any, problem: str
) -> None:
    held = HeldTool()
    turns = [calls(call("wait")), says("Done.")]
    (tmp_path / "deaf.json").write_text(json.dumps({"turns": turns, "refuses": ["audio/mpeg"]}))
    agent = Agent(
        "seer", model=f"scripted:{tmp_path / 'deaf.json'}", files={"file_bytes_max": 100}, tools=[held.wait]
    )
    async with Runtime.open("memory://", registry=Registry(agents=[agent])) as rt:
        run = await rt.start(agent, "Wait.")
        await held.entered.wait()
        before = (await run.state()).head.rev
        with pytest.raises(ConfigError, match=problem):
            await run.inject(content)
        assert (await run.state()).head.rev == before
        held.let_go.set()
        await run.result()
        with pytest.raises(RunFinished):
            await run.inject(CAT)


async def test_a_process_that_lacks_the_provider_can_still_send_files(script: Script) -> None:
    held = HeldTool()
    model = script(calls(call("wait")), {**says("A cat."), **SEES})
    agent = Agent("seer", model=model, tools=[held.wait])
    log = MemoryLog()
    async with (
        Runtime.open(log=log, registry=Registry(agents=[agent])) as rt,
        Runtime.open(log=log, registry=Registry(providers={})) as elsewhere,
    ):
        run = await rt.start(agent, "Wait.")
        await held.entered.wait()
        await elsewhere.get_run(run.run_id).inject(CAT)
        held.let_go.set()
        assert (await run.result()).output == "A cat."


# --- children ---------------------------------------------------------------------------------------------------------


async def test_a_tool_hands_the_files_of_its_run_and_files_of_its_own_to_a_child(
    place: Place, script: Script
) -> None:
    child = Agent("child", model=script({**says("Two."), "reads_files": ["cat.png", "note.txt"]}))

    @tool(effect="idempotent")
    async def ask(context: ToolContext) -> str:
        """Ask."""
        note = File.from_bytes(b"a note", name="note.txt")
        return await context.run(child, ["What are these?", *context.files, note])

    agent = Agent("asker", model=script({**calls(call("ask")), **SEES}, says("Asked.")), tools=[ask])
    await place.open(agent, child)
    run = await place.runtime.start(agent, ["Look.", CAT], executor=place.executor)
    assert (await run.result()).output == "Asked."
    (result,) = [event for event in await place.events(run) if event.type == "tool_result"]
    assert result.result == "Two."


async def test_a_model_hands_files_to_an_agent_that_is_its_tool(place: Place, script: Script) -> None:
    child = Agent("child", model=script({**says("A cat."), **SEES}))
    agent = asker(script, child.as_tool("ask", files=True))
    await place.open(agent, child)
    run = await place.runtime.start(agent, ["Look.", CAT], executor=place.executor)
    await run.result()
    (result,) = [event for event in await place.events(run) if event.type == "tool_result"]
    assert result.result == "A cat."


async def test_a_file_that_the_conversation_does_not_have_cannot_be_handed_on(
    cheap: Place, script: Script
) -> None:
    child = Agent("child", model=script(says("A cat.")))
    model = script(calls(call("ask", input="?", files=["dog.png"])), says("Sorry."))
    agent = Agent("asker", model=model, tools=[child.as_tool("ask", files=True)])
    await cheap.open(agent, child)
    run = await cheap.runtime.start(agent, ["Look.", CAT], executor=cheap.executor)
    await run.result()
    (result,) = [event for event in await cheap.events(run) if event.type == "tool_result"]
    assert result.error == "this conversation has no file 'dog.png'; it has: cat.png"
    assert "child_started" not in [event.type for event in await cheap.events(run)]


@pytest.mark.parametrize("how", ["spawn_self", "parallel_subagents"])
async def test_a_model_hands_files_to_copies_of_itself(cheap: Place, script: Script, how: str) -> None:
    job = {"task": "describe it", "files": ["*"]}
    arguments = job if how == "spawn_self" else {"jobs": [job, {"task": "be blind"}]}
    model = script(
        {**calls(call(how, **arguments)), **SEES},
        says("Done."),
        scenes=[
            when("describe it", {**says("A cat."), **SEES}),
            when("be blind", {**says("Nothing."), **BLIND}),
        ],
    )
    agent = Agent("seer", model=model, allow_self_spawn=True, allow_parallel_subagents=True)
    await cheap.open(agent)
    run = await cheap.runtime.start(agent, ["Look.", CAT], executor=cheap.executor)
    await run.result()
    (result,) = [event for event in await cheap.events(run) if event.type == "tool_result"]
    said = [each["output"] for each in result.result] if how != "spawn_self" else result.result
    assert said == (["A cat.", "Nothing."] if how != "spawn_self" else "A cat.")


# --- swarms and loops -------------------------------------------------------------------------------------------------


async def test_the_first_agents_of_a_flow_get_the_files_of_the_input(place: Place, script: Script) -> None:
    left = Agent("left", model=script({**says("L"), **SEES}))
    right = Agent("right", model=script({**says("R"), **SEES}))
    last = Agent("last", model=script({**says("both"), **BLIND}))
    swarm = Swarm([left, right, last], flow="(left | right) >> last")
    await place.open(swarm)
    run = await place.runtime.start(swarm, ["Look.", CAT], executor=place.executor)
    assert (await run.result()).output == "both"


async def test_files_stay_with_the_work_when_agents_hand_it_over(cheap: Place, script: Script) -> None:
    over = json.dumps({"handoff_to": "second", "message": "look at it"})
    done = json.dumps({"handoff_to": None, "message": "A cat."})
    first = Agent("first", model=script({**says(over), **SEES}))
    second = Agent("second", model=script({**says(done), **SEES}))
    swarm = Swarm([first, second], mode="handoff")
    await cheap.open(swarm)
    run = await cheap.runtime.start(swarm, ["Look.", CAT], executor=cheap.executor)
    assert (await run.result()).output == "A cat."


async def test_each_iteration_of_a_loop_gets_the_files_of_its_input(place: Place, script: Script) -> None:
    model = script(scenes=[when("do better", {**says("two"), **SEES}), when("Look", {**says("one"), **SEES})])

    def score(scored: Scored) -> float:
        return 1.0 if scored.output == "two" else 0.0

    loop = RalphLoop(Agent("seer", model=model), scorers={"score": score}, stop={"score_threshold": 0.5})
    await place.open(loop)
    run = await place.runtime.start(loop, ["Look.", CAT], executor=place.executor)
    assert (await run.result()).output == "two"


async def test_only_agents_that_get_the_files_have_to_take_them(tmp_path: Path) -> None:
    def agent(name: str, *refuses: str) -> Agent:
        turns = [says(name)]
        (tmp_path / f"{name}.json").write_text(json.dumps({"turns": turns, "refuses": list(refuses)}))
        return Agent(name, model=f"scripted:{tmp_path / name}.json")

    blind, seeing = agent("blind", "image/png"), agent("seeing")
    async with Runtime.open("memory://") as rt:
        swarm = Swarm([seeing, blind], flow="seeing >> blind")
        assert (await rt.run(swarm, ["Look.", CAT])).output == "blind"
        with pytest.raises(ConfigError, match="does not take image/png"):
            await rt.start(Swarm([seeing, blind], flow='{"x": seeing, else: blind}'), ["Look.", CAT])
        with pytest.raises(ConfigError, match="does not take image/png"):
            await rt.start(RalphLoop(blind), ["Look.", CAT])


# --- files that left the prompt ---------------------------------------------------------------------------------------


async def test_a_picture_that_left_the_prompt_is_given_back_as_a_file(cheap: Place, script: Script) -> None:
    model = script(
        {**calls(call("retrieve_artifact", id=DIGEST)), **BLIND}, {**says("A cat."), "reads_files": [""]}
    )
    agent = Agent("seer", model=model, context={"mode": "pilot", "window_tokens": 1000})
    await cheap.open(agent)
    await cheap.log.artifacts.of("seen").put(PNG)
    run = await cheap.runtime.start(agent, "Look again.", run_id="seen", executor=cheap.executor)
    assert (await run.result()).output == "A cat."
    (result,) = [event for event in await cheap.events(run) if event.type == "tool_result"]
    assert [part["media_type"] for part in result.result] == ["image/png"]
