"""Files in reruns, parity checks and forks: the same content reaches the model as in the run itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from foldlog.eventlog import ConfigError, MemoryLog, MessageInjected, RunConflict, Submitted
from foldlog.eventlog.parts import files_of
from foldlog.replay import check_parity, compare, load_trace, rerun
from foldlog.replay.parity.stage import ForkOf
from foldlog.runtime import Agent, File, Registry, Runtime, ToolContext, tool

from tests.runtime.conftest import call, calls, says

pytestmark = pytest.mark.anyio
Script = Callable[..., str]
PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)
PDF = b"%PDF-1.7\n" + b"x" * 500
CAT, PAPER = File.from_bytes(PNG, name="cat.png"), File.from_bytes(PDF, name="paper.pdf")
GIVEN = ["paper.pdf", "cat.png"]
SEEN = {"reads_files": ["cat.png"]}


@pytest.fixture
def script(tmp_path: Path) -> Script:
    def write(*turns: Any, name: str = "turns") -> str:
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({"turns": turns}))
        return f"scripted:{path}"

    return write


@tool(effect="pure")
def draw() -> list[str | File]:
    """Draw something."""
    return ["a drawing", File.from_bytes(PNG + b"!", name="drawn.png")]


def family(script: Script) -> Agent:
    """An agent that hands its files to a child and gets one from a tool."""
    reader = Agent("reader", model=script({**says("A cat."), "reads_files": GIVEN}, name="reader"))

    @tool(effect="pure")
    async def ask_reader(context: ToolContext) -> str:
        """Ask the reader."""
        return await context.run(reader, ["What is it?", *context.files])

    turns = [
        {**calls(call("draw"), call("ask_reader", "c2")), "reads_files": GIVEN},
        {**says("Done."), "reads_files": [*GIVEN, "drawn.png"]},
    ]
    return Agent("seer", model=script(*turns), tools=[draw, ask_reader])


@pytest.mark.parametrize("executor", ["local", "durable"])
async def test_a_rerun_keeps_the_files_of_inputs_results_messages_and_children(
    script: Script, executor: str
) -> None:
    agent, log = family(script), MemoryLog()
    async with Runtime.open(log=log, registry=Registry(agents=[agent])) as rt:
        before = [{"role": "user", "content": ["Before.", PAPER]}, {"role": "assistant", "content": "Yes."}]
        run = await rt.start(agent, ["Look.", CAT], messages=before)
        assert (await run.result()).output == "Done."
        trace = await load_trace(log, run.run_id)
    again = await rerun(trace, executor=executor)
    found = compare(trace, again)
    assert found.equal, found.render()
    inputs = [event.parts for event in again.events if isinstance(event, Submitted)]
    names = [[file.name for file in files_of(parts)] for parts in inputs]
    assert names == [["cat.png"], GIVEN]


async def test_a_rerun_keeps_the_files_of_messages_sent_meanwhile(script: Script) -> None:
    log = MemoryLog()

    @tool(effect="pure")
    async def wait(context: ToolContext) -> str:
        """Wait for a message."""
        await rt.get_run(context.run_id).inject(["And this?", CAT])
        return "waited"

    agent = Agent("seer", model=script(calls(call("wait")), {**says("Done."), **SEEN}), tools=[wait])
    async with Runtime.open(log=log, registry=Registry(agents=[agent])) as rt:
        run = await rt.start(agent, "Look.")
        await run.result()
        trace = await load_trace(log, run.run_id)
    again = await rerun(trace)
    assert compare(trace, again).equal
    (told,) = [event for event in again.events if isinstance(event, MessageInjected)]
    assert str(told.parts[1]) == "cat.png (image/png, 48 bytes)"


async def test_parity_is_checked_with_files(script: Script) -> None:
    agent = Agent("seer", model="scripted:any")
    turns = [{**says("A cat."), **SEEN}]
    report = await check_parity(agent, ["What is it?", CAT], script=turns)
    assert report.equal, report.render()
    for trace in report.traces.values():
        (submitted,) = [event for event in trace.events if isinstance(event, Submitted)]
        assert [str(part) for part in submitted.parts[1:]] == ["cat.png (image/png, 48 bytes)"]


async def test_forks_are_compared_with_a_file_as_their_message(script: Script) -> None:
    agent, log = Agent("seer", model=script(calls(call("draw")), says("A pier.")), tools=[draw]), MemoryLog()
    async with Runtime.open(log=log, registry=Registry(agents=[agent])) as rt:
        run = await rt.start(agent, "Draw.")
        await run.result()
        head = (await run.state()).head.rev
    fork = ForkOf(run=run.run_id, at=head - 1, tools="replay", input=["And this?", CAT])
    reply = {**says("A cat."), "reads_files": ["drawn.png", "cat.png"]}
    report = await check_parity(agent, "Draw.", script=[says("")] * 2 + [reply], fork=fork, log=log)
    assert report.equal, report.render()
    for trace in report.traces.values():
        (told,) = [event for event in trace.events if isinstance(event, MessageInjected)]
        assert str(told.parts[1]) == "cat.png (image/png, 48 bytes)"


async def test_a_fork_gets_files_as_a_message_or_instead_of_the_input(script: Script) -> None:
    seen = ["paper.pdf", "drawn.png"]
    turns = [
        calls(call("draw")),
        {**says("A pier."), "reads_files": seen},
        {**says("Two cats."), "reads_files": [*seen, "cat.png"]},
    ]
    agent, log = Agent("seer", model=script(*turns), tools=[draw]), MemoryLog()
    registry = Registry(agents=[agent])
    async with Runtime.open(log=log, registry=registry) as rt:
        run = await rt.start(agent, ["Draw.", PAPER])
        await run.result()
        head = (await run.state()).head.rev
        plan = await rt.plan_fork(run.run_id, at=head - 1, input=["And this?", CAT])
        assert (plan.input, [file.name for file in plan.files], plan.replaces_input) == (
            "And this?",
            ["cat.png"],
            False,
        )
        late = await rt.fork(run.run_id, at=head - 1, input=["And this?", CAT])
        await late.result()
        queued = [message.parts for message in await late.history() if files_of(message.parts)]
        assert [[file.name for file in files_of(parts)] for parts in queued] == [
            ["paper.pdf"],
            ["drawn.png"],
            ["cat.png"],
        ]
        early = await rt.fork(run.run_id, at=1, input=CAT, tools="run", fork_id="early")
        submitted = (await early.state()).submitted
        assert submitted is not None
        assert (submitted.input, [file.name for file in files_of(submitted.parts)]) == ("", ["cat.png"])
        again = await rt.fork(run.run_id, at=1, input=CAT, tools="run", fork_id="early")
        assert (again.run_id, again.is_new) == (early.run_id, False)
        with pytest.raises(RunConflict, match="is not this fork"):
            await rt.fork(run.run_id, at=1, input=PAPER, tools="run", fork_id="early")
        assert await log.artifacts.of(early.run_id).get(str(files_of(submitted.parts)[0].artifact)) == PNG
        with pytest.raises(ConfigError, match="not empty"):
            await rt.fork(run.run_id, at=1, input=[])
