"""DBOS: an agent as a workflow, model and tools as steps, the pair in parallel, in DBOS' SQLite system database."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from dbos import DBOS, SetWorkflowID

from benchmarks import script
from benchmarks.peers.protocol import serve

SETTING = "system database in SQLite, as DBOS opens it (rollback journal, synchronous full)"


@DBOS.step()
async def model(step: int, steps: int) -> dict[str, Any]:
    """The next pair of calls, or the answer."""
    if step == steps:
        return {"content": script.answer(), "tool_calls": []}
    calls = [{"id": call, "arguments": script.arguments(call)} for call in script.call_ids(step)]
    return {"content": "", "tool_calls": calls}


@DBOS.step()
async def lookup(written: str) -> str:
    """One call."""
    return script.found(json.loads(written)["q"])


@DBOS.workflow()
async def agent(question: str, steps: int) -> str:
    """The loop."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": question}]
    for step in range(1, steps + 1):
        said = await model(step, steps)
        messages.append({"role": "assistant", **said})
        results = await asyncio.gather(*(lookup(call["arguments"]) for call in said["tool_calls"]))
        messages += [{"role": "tool", "content": result} for result in results]
    return messages[-1]["content"]


async def main() -> None:
    """Serve."""
    database = Path(sys.argv[1]) / "dbos.sqlite"
    DBOS(
        config={
            "name": "bench",
            "system_database_url": f"sqlite:///{database}",
            "log_level": "ERROR",
            "run_admin_server": False,
        }
    )
    DBOS.launch()

    async def run(name: str, steps: int) -> str:
        with SetWorkflowID(name):
            return await agent(script.QUESTION, steps)

    await serve(run, SETTING)


asyncio.run(main())
