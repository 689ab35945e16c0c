"""The workload: a run of ten steps with eighteen tool calls in pairs, an instant model and instant pure tools."""

from __future__ import annotations

import json
from pathlib import Path

from foldlog.runtime import Agent, Registry, tool

STEPS = 10
CALLS_PER_STEP = 2
ARGUMENT_CHARS = 190
RESULT_CHARS = 300
ANSWER_CHARS = 500


@tool(effect="pure")
async def lookup(q: str) -> str:
    """Look something up."""
    return f"{q[:5]} " + "r" * RESULT_CHARS


def _turn(step: int) -> dict[str, object]:
    calls = [
        {"id": f"c{step}-{n}", "name": "lookup", "arguments": {"q": f"{step}-{n} " + "q" * ARGUMENT_CHARS}}
        for n in range(CALLS_PER_STEP)
    ]
    return {"tool_calls": calls, "usage": {"input_tokens": 100, "output_tokens": 20}}


agent: Agent[str] = Agent("bench", model="scripted:workload.json", tools=[lookup], max_steps=STEPS)
registry = Registry(agents=[agent])
"""What a worker serves: `foldlog worker benchmarks.workload:registry`, with `FOLDLOG_SCRIPT_DIR` set."""


def write_script(directory: Path) -> None:
    """The model's turns as the script file that the agent names."""
    turns = [_turn(step) for step in range(1, STEPS)]
    turns.append({"text": ["z" * ANSWER_CHARS], "usage": {"input_tokens": 100, "output_tokens": 20}})
    (directory / "workload.json").write_text(json.dumps({"turns": turns}))
