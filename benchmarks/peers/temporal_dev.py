"""Temporal: an agent as a workflow, model and tools as activities, the pair in parallel, on the development server."""

import asyncio
import contextlib
import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from benchmarks import script
    from benchmarks.peers.protocol import free_port, serve

SETTING = (
    "start-dev with its database in a file, one worker process, activities with the default retry policy"
)
QUEUE = "bench"
AT_MOST = timedelta(seconds=60)
READY_S = 30.0


@activity.defn
async def model(step: int, steps: int) -> dict[str, Any]:
    """The next pair of calls, or the answer."""
    if step == steps:
        return {"content": script.answer(), "tool_calls": []}
    calls = [{"id": call, "arguments": script.arguments(call)} for call in script.call_ids(step)]
    return {"content": "", "tool_calls": calls}


@activity.defn
async def lookup(written: str) -> str:
    """One call."""
    return script.found(json.loads(written)["q"])


@workflow.defn
class Agent:
    """The loop."""

    @workflow.run
    async def run(self, question: str, steps: int) -> str:
        """One run."""
        messages: list[dict[str, Any]] = [{"role": "user", "content": question}]
        for step in range(1, steps + 1):
            said = await workflow.execute_activity(model, args=[step, steps], start_to_close_timeout=AT_MOST)
            messages.append({"role": "assistant", **said})
            results = await asyncio.gather(
                *(
                    workflow.execute_activity(lookup, call["arguments"], start_to_close_timeout=AT_MOST)
                    for call in said["tool_calls"]
                )
            )
            messages += [{"role": "tool", "content": result} for result in results]
        return messages[-1]["content"]


async def main() -> None:
    """Start the server and a worker, and serve."""
    directory, port = Path(sys.argv[1]), free_port()
    server = await asyncio.create_subprocess_exec(
        *(str(Path(sys.executable).with_name("temporal")), "server", "start-dev", "--headless"),
        *("--ip", "127.0.0.1", "--port", str(port), "--log-level", "error"),
        *("--db-filename", str(directory / "temporal.sqlite")),
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        client = await connected(f"127.0.0.1:{port}")

        async def run(name: str, steps: int) -> str:
            return await client.execute_workflow(
                Agent.run, args=[script.QUESTION, steps], id=name, task_queue=QUEUE
            )

        async with Worker(client, task_queue=QUEUE, workflows=[Agent], activities=[model, lookup]):
            await serve(run, SETTING, servers=[server.pid])
    finally:
        with contextlib.suppress(ProcessLookupError):
            server.terminate()
        await server.wait()


async def connected(address: str) -> Client:
    """A client, once the server answers and has its namespace."""
    async with asyncio.timeout(READY_S):
        while True:
            with contextlib.suppress(RuntimeError, RPCError):
                client = await Client.connect(address)
                await client.count_workflows()
                return client
            await asyncio.sleep(0.1)


if __name__ == "__main__":
    asyncio.run(main())
