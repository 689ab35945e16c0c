"""`foldlog demo`: the whole of it as a process, and its verdict on traces that are not equal."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from foldlog.adapters.cli.output.terminal import Screen
from foldlog.adapters.cli.settings import Settings
from foldlog.adapters.demo.show import conclude
from foldlog.adapters.demo.traces import Proof, Takeover
from foldlog.eventlog import MemoryLog
from foldlog.replay import Trace, load_trace
from foldlog.runtime import Agent, Registry, Runtime, tool

from tests.cli.commands import Project, Running
from tests.cli.project import write_project

TAKEOVER = Takeover(killed="worker-1", by="worker-2", epoch=2, revision=9, after_ms=30.0)


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """A place for a demo, as it is installed, in which nothing is left behind when the test is over."""
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    project = Project(tmp_path, None)
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield project
    assert list(tmp_path.iterdir()) == []
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before
    demos = [
        p
        for p in psutil.process_iter(["environ"])
        if (p.info["environ"] or {}).get("TMPDIR") == str(tmp_path)
    ]
    assert demos == []


def test_the_demo_kills_a_worker_and_both_traces_are_equal(demo: Project) -> None:
    done = demo.run("demo")
    assert done.code == 0
    assert done.out.splitlines()[-1] == "parity: equal (13 of 13 boundaries)"
    table = done.out.splitlines()
    assert [line.split()[0] for line in table if line[:1].isdigit()] == [str(n) for n in range(1, 14)]
    (mark,) = [line.split() for line in table if "✂" in line]
    assert mark == ["✂", mark[1], "killed", "→", mark[4]]
    assert {mark[1], mark[4]} == {"worker-1", "worker-2"}
    assert f"{mark[1]} was killed in the middle of the tool call, {mark[4]} took over after" in done.out
    assert "SIGKILL to worker-" in done.err
    assert "this process" in done.err


@pytest.mark.parametrize(
    "moment", ["model  an HTTP server", pytest.param("claimed the run", marks=pytest.mark.nightly)]
)
def test_ctrl_c_ends_the_demo_and_everything_that_it_started(demo: Project, moment: str) -> None:
    running: Running = demo.start("demo")
    running.until(moment)
    running.interrupt(signal.SIGINT)
    ended = running.end()
    assert ended.code == 130
    assert "Traceback" not in ended.err


# --- the verdict ----------------------------------------------------------------------------------------


@tool(effect="pure")
def lookup(q: str) -> str:
    """Look something up."""
    return f"found {q}"


async def trace_of(script: str) -> Trace:
    agent = Agent("agent", model=f"scripted:{script}.json", tools=[lookup])
    log = MemoryLog()
    async with Runtime.open(registry=Registry(agents=[agent]), log=log) as runtime:
        result = await runtime.run(agent, "question")
        return await load_trace(log, result.run_id)


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_project(tmp_path)
    monkeypatch.setenv("FOLDLOG_SCRIPT_DIR", str(tmp_path))


@pytest.fixture
async def different(scripts: None) -> Proof:
    return Proof(await trace_of("helper"), await trace_of("clumsy"), TAKEOVER)


async def test_traces_that_differ_are_exit_code_1_and_the_difference_is_named(
    different: Proof, capsys: pytest.CaptureFixture[str]
) -> None:
    assert conclude(Screen(Settings()), different, json=False) == 1
    equal, total = different.comparison.boundaries
    told = capsys.readouterr().out
    assert f"parity: different ({equal} of {total} boundaries)" in told
    assert equal < total
    assert different.difference in told


async def test_the_document_of_equal_traces_has_both_of_them_and_is_exit_code_0(
    scripts: None, capsys: pytest.CaptureFixture[str]
) -> None:
    proof = Proof(await trace_of("helper"), await trace_of("helper"), TAKEOVER)
    assert conclude(Screen(Settings()), proof, json=True) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["local"]["canonical"] == told["durable"]["canonical"]
    assert told["local"]["digest"] == told["durable"]["digest"]
    assert told["takeover"]["killed"] == "worker-1"
    assert told["durable"]["trace"][-1]["status"] == "completed"
    count = len(told["local"]["canonical"])
    assert told["parity"] == {
        "equal": True,
        "boundaries_equal": count,
        "boundaries": count,
        "difference": None,
    }


async def test_the_document_of_traces_that_differ_says_where(
    different: Proof, capsys: pytest.CaptureFixture[str]
) -> None:
    assert conclude(Screen(Settings()), different, json=True) == 1
    parity = json.loads(capsys.readouterr().out)["parity"]
    assert parity["equal"] is False
    assert parity["difference"].startswith("level ")
