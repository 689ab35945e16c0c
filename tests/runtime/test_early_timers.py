"""Timers of real event loops may ring a moment early; a wait for a point in time must not take that for the time."""

import json
from pathlib import Path

import pytest
from foldlog.eventlog import MemoryLog, SystemClock
from foldlog.runtime import Agent, Registry, Runtime

EARLY_S = 0.01


class EarlyClock(SystemClock):
    """Every sleep ends early."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(max(0.0, seconds - EARLY_S))


async def test_a_retry_whose_timer_rings_early_is_still_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = [{"text": "done", "error": {"type": "transient", "times": 1}}]
    (tmp_path / "script.json").write_text(json.dumps({"turns": turns}))
    monkeypatch.setenv("FOLDLOG_SCRIPT_DIR", str(tmp_path))
    agent = Agent("agent", model="scripted:script.json")
    async with Runtime.open(registry=Registry(agents=[agent]), log=MemoryLog(clock=EarlyClock())) as runtime:
        result = await runtime.run(agent, "question")
    assert result.output == "done"
