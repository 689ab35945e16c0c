"""How long a token takes from its publication to a reader of the run's stream in another process."""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import msgspec
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.eventlog.jetstream import JetStreamLog
from foldlog.runtime import Agent, Registry, Runtime

RUNS = 40
TOKENS = 20
TOKEN_MS = 5


class Latencies(msgspec.Struct, frozen=True):
    """Milliseconds from publication to the reader: the first token of each run, and all of them."""

    first_ms: list[float]
    all_ms: list[float]

    @property
    def first_median_ms(self) -> float:
        """Median over the runs."""
        return statistics.median(self.first_ms)

    @property
    def all_p99_ms(self) -> float:
        """The 99th of a hundred tokens."""
        return statistics.quantiles(self.all_ms, n=100)[98]


async def measure() -> Latencies:
    """Runs in this process, read by another."""
    with tempfile.TemporaryDirectory() as directory:
        script = Path(directory) / "tokens.json"
        turn = {"text": [f"token {n} " for n in range(TOKENS)], "delay_ms": 150, "chunk_delay_ms": TOKEN_MS}
        script.write_text(json.dumps({"turns": [turn]}))
        agent: Agent[str] = Agent("talker", model=f"scripted:{script}")
        async with (
            EphemeralServer() as server,
            JetStreamLog.open(server.url) as log,
            Runtime.open(log=log, registry=Registry(agents=[agent])) as runtime,
        ):
            reader = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "benchmarks.draft_latency",
                server.url,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            first, every = list[float](), list[float]()
            await _answer(reader)
            for _ in range(RUNS):
                run = await runtime.start(agent, "question")
                latencies = await _read(reader, run.run_id)
                first.append(latencies[0])
                every += latencies
                await run.result()
            reader.terminate()
            await reader.wait()
            return Latencies(first, every)


async def _read(reader: asyncio.subprocess.Process, run_id: str) -> list[float]:
    if reader.stdin is not None:
        reader.stdin.write(f"{run_id}\n".encode())
    return [float(ms) for ms in json.loads(await _answer(reader))]


async def _answer(reader: asyncio.subprocess.Process) -> bytes:
    if reader.stdout is None:
        raise RuntimeError("the reader was started without pipes")
    return await reader.stdout.readline()


async def _serve(url: str) -> None:
    """The reader process: for each run id on standard input, the latencies of its tokens as a JSON line."""
    async with Runtime.open(url) as runtime:
        _say("ready")
        while line := await asyncio.to_thread(sys.stdin.readline):
            pieces = runtime.get_run(line.strip()).stream()
            _say(
                [(time.time() - e.at) * 1000 async for e in pieces if e.type == "text" and e.revision is None]
            )


def _say(what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
