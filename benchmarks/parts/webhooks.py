"""Measure the time from a signed request to the first model call of its run, on a worker."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.runtime import Runtime

from .. import notes
from ..contestants import ended, worker_process
from ..models import noting, registry_of
from ..settings import Collected, Measured, Settings

ROUNDS = 5
DELIVERIES, WARM_UP = 100, 20
PAUSE_S = 0.01
"""The pause between two deliveries, in which worker and server finish all work on the previous one."""
MIDDLE = "from the request to the first model call, median"
TAIL = "from the request to the first model call, 99th percentile"
WEBHOOK, BY_HAND = "a webhook", "start() in Python"
REGISTRY = "benchmarks.models:registry"
SECRET = "not-so-secret"
CONFIG = """
[hooks.noted]
agent = "noting"
verify = "github"
secret = "secret://BENCH_HOOK"
input = "${body.text}"
"""


async def measure(settings: Settings) -> Measured:
    """Measure, on one server with a webhook process and a worker, rounds of deliveries and of runs started directly."""
    found, rounds, count = Collected(), settings.rounds_of(ROUNDS), settings.count(DELIVERIES, 5)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "notes"
        (Path(directory) / "foldlog.toml").write_text(CONFIG)
        async with (
            EphemeralServer() as server,
            Runtime.open(server.url, registry=registry_of()) as runtime,
            worker_process(server.url, REGISTRY, **{notes.VARIABLE: str(path)}),
            _door(server.url, Path(directory)) as address,
            httpx.AsyncClient(base_url=address) as client,
        ):
            for number in range(rounds + 1):
                settings.say(f"round {number} of {rounds}")
                hooked, by_hand = dict[str, int](), dict[str, int]()
                for turn in range(count if number else WARM_UP):
                    await _delivered(client, runtime, f"hook-{number}-{turn}", hooked)
                    await _started(runtime, f"hand-{number}-{turn}", by_hand)
                if number:
                    _add(found, WEBHOOK, hooked, path)
                    _add(found, BY_HAND, by_hand, path)
    return found.measured()


@contextlib.asynccontextmanager
async def _door(url: str, directory: Path) -> AsyncIterator[str]:
    """Run `foldlog serve --hooks` as a process while open; yield its address."""
    root = Path(__file__).parents[2]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "foldlog.adapters.cli", "--server", url),
        *("serve", REGISTRY, "--hooks", "--port", "0"),
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(root), "BENCH_HOOK": SECRET},
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        while line := (await process.stderr.readline()).decode():
            if told := re.search(r"http://127\.0\.0\.1:\d+", line):
                yield told[0]
                return
        raise RuntimeError("foldlog serve ended before it served")
    finally:
        await ended(process)


async def _delivered(client: httpx.AsyncClient, runtime: Runtime, name: str, sent: dict[str, int]) -> None:
    body = json.dumps({"text": name}).encode()
    signature = hmac.digest(SECRET.encode(), body, hashlib.sha256).hex()
    headers = {
        "Content-Type": "application/json",
        "X-GitHub-Delivery": name,
        "X-Hub-Signature-256": f"sha256={signature}",
    }
    sent[name] = time.time_ns()
    answer = await client.post("/hooks/noted", content=body, headers=headers)
    answer.raise_for_status()
    await runtime.get_run(answer.json()["run_id"]).result()
    await asyncio.sleep(PAUSE_S)


async def _started(runtime: Runtime, name: str, sent: dict[str, int]) -> None:
    sent[name] = time.time_ns()
    await (await runtime.start(noting, name, executor="durable")).result()
    await asyncio.sleep(PAUSE_S)


def _add(found: Collected, who: str, sent: dict[str, int], path: Path) -> None:
    asked = notes.notes_of(path)
    taken_ms = [(asked[f"asked {name}"] - at_ns) / 1e6 for name, at_ns in sent.items()]
    found.add(MIDDLE, who, "ms", statistics.median(taken_ms))
    found.add(TAIL, who, "ms", statistics.quantiles(taken_ms, n=100)[98])
