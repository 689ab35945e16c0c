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


def write_script(directory: Path) -> Path:
    """The model's turns as a script file."""
    turns = [_turn(step) for step in range(1, STEPS)]
    turns.append({"text": ["z" * ANSWER_CHARS], "usage": {"input_tokens": 100, "output_tokens": 20}})
    path = directory / "workload.json"
    path.write_text(json.dumps({"turns": turns}))
    return path


def registry(script: Path) -> tuple[Agent[str], Registry]:
    """The agent of the workload and a registry that serves it."""
    agent: Agent[str] = Agent("bench", model=f"scripted:{script}", tools=[lookup], max_steps=STEPS)
    return agent, Registry(agents=[agent])
