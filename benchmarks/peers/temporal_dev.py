"""Temporal: the agent is a workflow, models and tools are activities, the pair runs in parallel; development server."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from benchmarks import script
    from benchmarks.peers.killing import STALL, end, killed, notes_file, stall
    from benchmarks.peers.protocol import free_port, serve

SETTING = (
    "start-dev with its database in a file, one worker process, activities with the default retry policy"
)
QUEUE = "bench"
HEARTBEAT = timedelta(seconds=1)
AT_MOST = timedelta(seconds=60)
READY_S = 30.0


@activity.defn
async def model(step: int, steps: int, question: str) -> dict[str, Any]:
    """Return the next pair of calls, or the answer."""
    async with asyncio.TaskGroup() as tasks:
        beating = tasks.create_task(beat()) if question.startswith(STALL) else None
        await stall(step, question)
        if beating is not None:
            beating.cancel()
    if step == steps:
        return {"content": script.answer(), "tool_calls": []}
    calls = [{"id": call, "arguments": script.arguments(call)} for call in script.call_ids(step)]
    return {"content": "", "tool_calls": calls}


async def beat() -> None:
    """Send heartbeats of the activity until cancelled."""
    while True:
        activity.heartbeat()
        await asyncio.sleep(HEARTBEAT.total_seconds() / 4)


@activity.defn
async def lookup(written: str) -> str:
    """Run one tool call."""
    return script.found(json.loads(written)["q"])


@workflow.defn
class Agent:
    """The agent loop as a workflow."""

    @workflow.run
    async def run(self, question: str, steps: int) -> str:
        """Run the agent loop."""
        messages: list[dict[str, Any]] = [{"role": "user", "content": question}]
        for step in range(1, steps + 1):
            said = await workflow.execute_activity(
                model,
                args=[step, steps, question],
                start_to_close_timeout=AT_MOST,
                heartbeat_timeout=HEARTBEAT if question.startswith(STALL) else None,
            )
            messages.append({"role": "assistant", **said})
            results = await asyncio.gather(
                *(
                    workflow.execute_activity(lookup, call["arguments"], start_to_close_timeout=AT_MOST)
                    for call in said["tool_calls"]
                )
            )
            messages += [{"role": "tool", "content": result} for result in results]
        return messages[-1]["content"]


@contextlib.asynccontextmanager
async def started() -> AsyncIterator[tuple[Client, str, int]]:
    """Run the server while open; yield a client, its address and its process id."""
    directory, port = Path(sys.argv[1]), free_port()
    server = await asyncio.create_subprocess_exec(
        *(str(Path(sys.executable).with_name("temporal")), "server", "start-dev", "--headless"),
        *("--ip", "127.0.0.1", "--port", str(port), "--log-level", "error"),
        *("--db-filename", str(directory / "temporal.sqlite")),
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        yield await connected(f"127.0.0.1:{port}"), f"127.0.0.1:{port}", server.pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            server.terminate()
        await server.wait()


def worker_on(client: Client) -> Worker:
    """Return a worker for the workflow and its activities."""
    return Worker(client, task_queue=QUEUE, workflows=[Agent], activities=[model, lookup])


async def main() -> None:
    """Start the server and a worker, and serve."""
    async with started() as (client, _, server):

        async def run(name: str, steps: int) -> str:
            return await client.execute_workflow(
                Agent.run, args=[script.QUESTION, steps], id=name, task_queue=QUEUE
            )

        async with worker_on(client):
            await serve(run, SETTING, servers=[server])


async def kill(rounds: int) -> None:
    """Measure recovery with two workers. Activities send heartbeats, and are retried after a second without one."""
    workers: list[asyncio.subprocess.Process] = []
    async with started() as (client, address, _):

        async def start() -> None:
            command = (sys.executable, "-m", __spec__.name, sys.argv[1], "work", address)
            workers.append(await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE))
            if (pipe := workers[-1].stdout) is not None:
                await pipe.readline()

        async def begin(question: str) -> None:
            while sum(worker.returncode is None for worker in workers) < 2:
                await start()
            await client.start_workflow(
                Agent.run, args=[question, script.STEPS], id=question, task_queue=QUEUE
            )

        async def go_on(pid: int) -> None:
            """Do nothing: the other worker takes over."""

        await killed(rounds, begin, go_on)
        await end(workers)


async def work(address: str) -> None:
    """Serve as a worker in this process."""
    async with worker_on(await Client.connect(address)):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


async def connected(address: str) -> Client:
    """Return a client, once the server responds and has its namespace."""
    async with asyncio.timeout(READY_S):
        while True:
            with contextlib.suppress(RuntimeError, RPCError):
                client = await Client.connect(address)
                await client.count_workflows()
                return client
            await asyncio.sleep(0.1)


if __name__ == "__main__":
    match sys.argv[2:]:
        case ["kill", rounds]:
            notes_file()
            asyncio.run(kill(int(rounds)))
        case ["work", address]:
            asyncio.run(work(address))
        case _:
            asyncio.run(main())
