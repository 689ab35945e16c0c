"""The protocol of a peer's program: JSON lines. Imports only the standard library: it runs in the peer's environment.

program DIRECTORY          it may write only there
-> {"setting": "...", "workers": [PID], "servers": [PID]}     once it is ready
<- {"runs": 20, "at_once": 1, "steps": 10, "within_s": 3}
-> {"runs": 20}        once they are done: how many there were, for none is begun after `within_s`
"""

import asyncio
import itertools
import json
import os
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

Perform = Callable[[str, int], Awaitable[str]]
"""Performs a run with this name and number of steps, and returns its answer."""


async def serve(
    perform: Perform, setting: str, *, workers: Sequence[int] = (), servers: Sequence[int] = ()
) -> None:
    """Perform the runs that are requested on standard input, until it ends."""
    _say({"setting": setting, "workers": list(workers) or [os.getpid()], "servers": list(servers)})
    names = itertools.count(1)
    while line := await asyncio.to_thread(sys.stdin.readline):
        order = json.loads(line)
        _say({"runs": await _done(perform, names, order)})


async def _done(perform: Perform, names: Iterator[int], order: dict[str, Any]) -> int:
    """Perform the runs of one order; return their number."""
    begun, late = 0, time.monotonic() + order["within_s"]

    async def lane() -> None:
        nonlocal begun
        while begun < order["runs"] and time.monotonic() < late:
            begun += 1
            answer = await perform(f"run-{os.getpid()}-{next(names)}", order["steps"])
            if not answer.startswith("zzz"):
                raise RuntimeError(f"that is not an answer: {answer[:80]!r}")

    await asyncio.gather(*(lane() for _ in range(order["at_once"])))
    return begun


def free_port() -> int:
    """Return a free port on loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _say(what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()
