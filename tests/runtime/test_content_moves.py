"""Files stay with their run: in exports, imports, forks, sessions and at a takeover; and on the command line."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
from foldlog.adapters.cli.files import files_of_run, written
from foldlog.eventlog.memory import MemoryLog
from foldlog.replay import check_trace, export, import_archive, load_trace, read_archive, replay
from foldlog.runtime import Agent, File, Registry, Runtime, tool

from .conftest import call, calls, says

pytestmark = pytest.mark.anyio
Script = Callable[..., str]
PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)
PDF = b"%PDF-1.7\n" + b"x" * 50_000
GIVEN = ["What is this?", File.from_bytes(PNG, name="../cat.png")]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@tool(effect="pure")
def report() -> list[str | File]:
    """Write a report that is a large value, too."""
    return ["x" * 40_000, File.from_bytes(PDF, name="report.pdf")]


def agent_of(script: Script) -> Agent:
    names = ["../cat.png", "report.pdf"]
    model = script(
        {**calls(call("report")), "reads_files": names[:1]}, {**says("Done."), "reads_files": names}
    )
    return Agent("seer", model=model, tools=[report])


async def exported(log: MemoryLog) -> bytes:
    return b"".join([line async for line in export(log, artifacts=True)])


async def test_an_export_an_import_and_a_fork_keep_the_files(script: Script, tmp_path: Path) -> None:
    agent, log, other = agent_of(script), MemoryLog(), MemoryLog("other")
    registry = Registry(agents=[agent])
    async with Runtime.open(log=log, registry=registry) as rt:
        run = await rt.start(agent, GIVEN)
        assert (await run.result()).output == "Done."
        run_id = run.run_id
        trace = await load_trace(log, run_id)
        assert not check_trace(trace)
        assert replay(trace).divergence is None
    archive = read_archive(await exported(log))
    assert archive.artifacts[sha256(PNG)] == PNG
    assert archive.artifacts[sha256(PDF)] == PDF
    await import_archive(archive, other)
    async with Runtime.open(log=other, registry=registry) as rt:
        fork = await rt.fork(run_id, at=1, input="And this?", tools="run")
        assert (await fork.result()).output == "Done."
        submitted = (await fork.state()).submitted
        assert submitted is not None
        assert [str(part) for part in submitted.parts[1:]] == ["../cat.png (image/png, 48 bytes)"]
        assert (submitted.input, submitted.parts[0].text) == ("And this?", "And this?")
        found = await written(rt, fork.run_id, await files_of_run(rt, fork.run_id), tmp_path / "out")
    assert [(each.source, Path(each.path).name) for each in found] == [
        ("input", "_cat.png"),
        ("tool", "report.pdf"),
    ]
    assert (tmp_path / "out/_cat.png").read_bytes() == PNG
    assert (tmp_path / "out/report.pdf").read_bytes() == PDF


async def test_a_fork_of_an_archive_brings_its_files(script: Script) -> None:
    agent, log, other = agent_of(script), MemoryLog(), MemoryLog("other")
    registry = Registry(agents=[agent])
    async with Runtime.open(log=log, registry=registry) as rt:
        run = await rt.start(agent, GIVEN)
        await run.result()
    archive = read_archive(await exported(log))
    async with Runtime.open(log=other, registry=registry) as rt:
        fork = await rt.fork(run.run_id, at=1, tools="run", archive=archive)
        assert (await fork.result()).output == "Done."


async def test_the_next_turn_of_a_session_has_the_files_of_the_one_before(script: Script) -> None:
    model = script(
        {**says("A cat."), "reads_files": ["../cat.png"]},
    )
    agent = Agent("seer", model=model)
    async with Runtime.open("memory://", registry=Registry(agents=[agent])) as rt:
        await rt.run(agent, GIVEN, session="s")
        second = await rt.run(agent, "Which colour?", session="s")
    assert second.output == "A cat."
