"""What whoever watches a run is shown of its pauses."""

import json
from pathlib import Path

import pytest
from foldlog.adapters.cli.exits import PAUSED
from foldlog.adapters.cli.loops import Interruption
from foldlog.adapters.cli.settings import Settings
from foldlog.adapters.cli.terminal import Screen
from foldlog.adapters.cli.watching import Watch, Watcher
from foldlog.runtime import Agent, Registry, RunHandle, Runtime, tool


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@tool(effect="pure")
def dig(metres: int) -> str:
    """Dig."""
    return f"{metres} m"


async def question(run: RunHandle[None], number: int) -> str:
    """The id of the run's n-th approval, once the run is paused for it."""
    async for event in run.stream():
        if event.type == "status" and event.status == "paused":
            approvals = [each.request.approval_id for each in (await run.state()).pending_approvals]
            if len((await run.state()).approvals) == number:
                return approvals[0]
    raise AssertionError("the run is over")


@pytest.mark.anyio
async def test_a_pause_that_is_over_is_not_taken_for_the_one_that_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    turns = [{"tool_calls": [{"id": f"c{n}", "name": "dig", "arguments": {"metres": n}}]} for n in (1, 2)]
    (tmp_path / "digger.json").write_text(json.dumps({"turns": turns}))
    agent = Agent("digger", model=f"scripted:{tmp_path / 'digger.json'}", tools=[dig], hitl_tools=["dig"])
    async with Runtime.open("memory://", registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "Dig")
        await run.resolve(await question(run, 1), "approved")
        second = await question(run, 2)
        settings = Settings(color=False)
        watcher = Watcher(runtime, run, Screen(settings), settings, Watch(wait=False))
        assert await watcher.watch(Interruption()) == PAUSED
    assert f"approvals approve {second}" in capsys.readouterr().err


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("settings", "told", "way_back"),
    [
        (Settings(), """--arguments '{"raise": 2}'""", "come back with: foldlog runs stream"),
        (Settings(server="memory://"), "nobody can give it", "ends with it"),
    ],
)
async def test_whoever_watches_a_run_without_budget_is_told_what_lets_it_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: Settings, told: str, way_back: str
) -> None:
    usage = {"input_tokens": 3, "output_tokens": 0}
    turn = {"tool_calls": [{"id": "c", "name": "dig", "arguments": {"metres": 1}}], "usage": usage}
    (tmp_path / "spender.json").write_text(json.dumps({"turns": [turn]}))
    agent = Agent(
        "spender", model=f"scripted:{tmp_path / 'spender.json'}", tools=[dig], budgets={"max_tokens": 2}
    )
    async with Runtime.open("memory://", registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "Dig")
        watcher = Watcher(runtime, run, Screen(settings), settings, Watch(wait=False))
        assert await watcher.watch(Interruption()) == PAUSED
    lines = capsys.readouterr().err
    assert told in lines
    assert lines.splitlines()[-1].startswith(way_back) or lines.splitlines()[-1].endswith(way_back)
    assert "runs resume" not in lines
