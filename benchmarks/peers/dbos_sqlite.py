"""DBOS: the agent is a workflow, models and tools are steps, the pair runs in parallel; SQLite system database."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from dbos import DBOS, SetWorkflowID

from benchmarks import script
from benchmarks.peers.killing import end, killed, notes_file, stall
from benchmarks.peers.protocol import serve

SETTING = "system database in SQLite, as DBOS opens it (rollback journal, synchronous full)"


@DBOS.step()
async def model(step: int, steps: int, question: str) -> dict[str, Any]:
    """Return the next pair of calls, or the answer."""
    await stall(step, question)
    if step == steps:
        return {"content": script.answer(), "tool_calls": []}
    calls = [{"id": call, "arguments": script.arguments(call)} for call in script.call_ids(step)]
    return {"content": "", "tool_calls": calls}


@DBOS.step()
async def lookup(written: str) -> str:
    """Run one tool call."""
    return script.found(json.loads(written)["q"])


@DBOS.workflow()
async def agent(question: str, steps: int) -> str:
    """Run the agent loop."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": question}]
    for step in range(1, steps + 1):
        said = await model(step, steps, question)
        messages.append({"role": "assistant", **said})
        results = await asyncio.gather(*(lookup(call["arguments"]) for call in said["tool_calls"]))
        messages += [{"role": "tool", "content": result} for result in results]
    return messages[-1]["content"]


def launch() -> None:
    """Open the database, and recover the runs that another process left unfinished."""
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


async def main() -> None:
    """Serve."""
    launch()

    async def run(name: str, steps: int) -> str:
        with SetWorkflowID(name):
            return await agent(script.QUESTION, steps)

    await serve(run, SETTING)


async def kill(rounds: int) -> None:
    """Restart the killed process at once, since DBOS has no standby process without its paid service."""
    processes: list[asyncio.subprocess.Process] = []

    async def start(*question: str) -> None:
        command = (sys.executable, "-m", __spec__.name, sys.argv[1], "agent", *question)
        processes.append(await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL))

    async def begin(question: str) -> None:
        await end(processes)
        await start(question)

    await killed(rounds, begin, lambda _pid: start())
    await end(processes)


async def only(question: str) -> None:
    """Be the process that is killed, or that takes over: start one run, or recover what another left unfinished."""
    launch()
    if question:
        with SetWorkflowID(question):
            await agent(question, script.STEPS)
    await asyncio.Event().wait()


if __name__ == "__main__":
    match sys.argv[2:]:
        case ["kill", rounds]:
            notes_file()
            asyncio.run(kill(int(rounds)))
        case ["agent", *question]:
            asyncio.run(only("".join(question)))
        case _:
            asyncio.run(main())
