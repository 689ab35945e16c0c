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
