"""Restate: the agent is a service, models and tools are `run` steps, the pair runs in parallel; a server of one node.

program DIRECTORY               starts the server and a process that serves the agent, and calls it
program DIRECTORY serve PORT    is that process
"""

import asyncio
import contextlib
import json
import os
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import hypercorn
import hypercorn.asyncio
import restate

from benchmarks import script
from benchmarks.peers.killing import killed, notes_file, stall
from benchmarks.peers.protocol import free_port, serve

SETTING = "one node with its default configuration, the service in one process under hypercorn"
READY_S = 60.0
STARTED_S = 3.0
"""How long a second process may take to start. Nothing signals its start, because the first one answers, too."""
SERVER = "node_modules/@restatedev/restate-server-*/bin/restate-server"
"""The package's binary for this platform, without its wrapper script, which needs node."""

bench = restate.Service("Bench")


def model(step: int, steps: int) -> dict[str, Any]:
    """Return the next pair of calls, or the answer."""
    if step == steps:
        return {"content": script.answer(), "tool_calls": []}
    calls = [{"id": call, "arguments": script.arguments(call)} for call in script.call_ids(step)]
    return {"content": "", "tool_calls": calls}


async def ask(step: int, steps: int, question: str) -> dict[str, Any]:
    """Call the model as an `async` function, as a real model call would be."""
    await stall(step, question)
    return model(step, steps)


async def lookup(written: str) -> str:
    """Run one tool call."""
    return script.found(json.loads(written)["q"])


@bench.handler()
async def run(context: restate.Context, asked: dict[str, Any]) -> str:
    """Run the agent loop."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": asked["question"]}]
    for step in range(1, asked["steps"] + 1):
        said = await context.run_typed(
            "model", ask, step=step, steps=asked["steps"], question=asked["question"]
        )
        messages.append({"role": "assistant", **said})
        calls = [
            context.run_typed("lookup", lookup, written=call["arguments"]) for call in said["tool_calls"]
        ]
        if calls:
            await restate.gather(*calls)
        messages += [{"role": "tool", "content": await call} for call in calls]
    return messages[-1]["content"]


class Http:
    """A persistent connection for JSON requests."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: object) -> Any:
        """Send a request and return the JSON of the answer. Raises `RuntimeError` for a failure, `OSError` offline."""
        reader, writer = self._streams or await asyncio.open_connection("127.0.0.1", self._port)
        data = json.dumps(body).encode()
        writer.write(
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n\r\n".encode()
            + data
        )
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        size = next(
            (int(line[15:]) for line in head.split("\r\n") if line.startswith("content-length:")), None
        )
        answer = await (self._chunks(reader) if size is None else reader.readexactly(size))
        self._streams = reader, writer
        if not head.split(" ", 2)[1].startswith("2"):
            raise RuntimeError(f"{path}: {head.splitlines()[0]}: {answer.decode()}")
        return json.loads(answer) if answer else None

    async def _chunks(self, reader: asyncio.StreamReader) -> bytes:
        body = b""
        while size := int(await reader.readline(), 16):
            body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
        return body


async def main(rounds: int = 0) -> None:
    """Start the server and the service, register the service, and serve; or measure recovery for some rounds."""
    directory = Path(sys.argv[1])
    ingress, admin, node, service = (free_port() for _ in range(4))
    environment = {
        "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{ingress}",
        "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{admin}",
        "RESTATE_BIND_ADDRESS": f"127.0.0.1:{node}",
        "RESTATE_ADVERTISED_ADDRESS": f"http://127.0.0.1:{node}",
        "RESTATE_DISABLE_TELEMETRY": "true",
        "RESTATE_LOG_FILTER": "error",
        "DO_NOT_TRACK": "1",
    }
    home = Path(sys.executable).parents[1]
    async with contextlib.AsyncExitStack() as stack:
        server = await started(
            stack,
            *(str(next(home.glob(SERVER)).resolve()), "--base-dir", str(directory)),
            environment=environment,
            directory=directory,
        )
        listening = stack.enter_context(socket.create_server(("127.0.0.1", service), backlog=1000))
        listening.set_inheritable(True)

        async def start() -> asyncio.subprocess.Process:
            """Start a process that serves the agent. Several such processes share the port."""
            return await started(
                stack,
                *(sys.executable, "-m", __spec__.name, str(directory), "serve", str(listening.fileno())),
                environment={},
                directory=Path.cwd(),
                inherited=(listening.fileno(),),
            )

        worker = await start()
        await registered(admin, service)
        if rounds:
            await kill(rounds, worker, start, Http(ingress))
            return
        idle: list[Http] = []

        async def call(name: str, steps: int) -> str:
            connection = idle.pop() if idle else Http(ingress)
            answer = await connection.post(
                "/Bench/run", {"question": f"{script.QUESTION} {name}", "steps": steps}
            )
            idle.append(connection)
            return answer

        await serve(call, SETTING, workers=[worker.pid], servers=[server.pid])


async def started(
    stack: contextlib.AsyncExitStack,
    *command: str,
    environment: dict[str, str],
    directory: Path,
    inherited: tuple[int, ...] = (),
) -> asyncio.subprocess.Process:
    """Start a process that is ended with the stack."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**os.environ, **environment},
        cwd=directory,
        pass_fds=inherited,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )

    async def end() -> None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), 10)
        except TimeoutError:
            process.kill()
            await process.wait()

    stack.push_async_callback(end)
    return process


async def registered(admin: int, service: int) -> None:
    """Register the service with the server, once both respond."""
    async with asyncio.timeout(READY_S):
        while True:
            with contextlib.suppress(OSError, RuntimeError, asyncio.IncompleteReadError):
                await Http(admin).post("/deployments", {"uri": f"http://127.0.0.1:{service}"})
                return
            await asyncio.sleep(0.2)


async def kill(
    rounds: int,
    first: asyncio.subprocess.Process,
    start: Callable[[], Awaitable[asyncio.subprocess.Process]],
    ingress: Http,
) -> None:
    """Measure recovery with two processes that serve the agent on one port."""
    processes = [first]

    async def begin(question: str) -> None:
        while sum(process.returncode is None for process in processes) < 2:
            processes.append(await start())
            await asyncio.sleep(STARTED_S)
        await ingress.post("/Bench/run/send", {"question": question, "steps": script.STEPS})

    async def go_on(pid: int) -> None:
        """Do nothing: the other process takes over."""

    await killed(rounds, begin, go_on)


async def serve_agent(listening: int) -> None:
    """Serve the agent in this process."""
    config = hypercorn.Config()
    config.bind = [f"fd://{listening}"]
    config.h2_max_concurrent_streams = 2147483647
    config.keep_alive_max_requests = 2147483647
    config.keep_alive_timeout = 2147483647
    await hypercorn.asyncio.serve(restate.app([bench]), config)


if __name__ == "__main__":
    match sys.argv[2:]:
        case ["kill", rounds]:
            notes_file()
            asyncio.run(main(int(rounds)))
        case ["serve", listening]:
            asyncio.run(serve_agent(int(listening)))
        case _:
            asyncio.run(main())
