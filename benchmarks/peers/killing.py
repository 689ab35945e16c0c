"""Measure the recovery of a peer's program that is killed in model call 5 of 10. Imports only the standard library.

program DIRECTORY kill ROUNDS
-> [0.41, 0.37]     for each round the seconds from SIGKILL to that call being made again
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks.notes import VARIABLE, Note, first_to, note, noted

STALLS_AT = 5
STALL = "stall"
"""The beginning of a question whose run stalls."""


def asked_to_kill() -> bool:
    """Return whether the program is asked to measure recovery instead of speed."""
    return sys.argv[2:3] == ["kill"]


def notes_file() -> Path:
    """Return the path of the notes, and pass it to child processes in the environment."""
    path = Path(os.environ.setdefault(VARIABLE, str(Path(sys.argv[1]) / "notes")))
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


async def stall(step: int, question: str) -> None:
    """Block for ever in the first process that makes call 5 of a run that stalls; called by the model."""
    if question.startswith(STALL) and step == STALLS_AT:
        note(question)
        if first_to(question):
            await asyncio.Event().wait()


async def end(processes: list[asyncio.subprocess.Process]) -> None:
    """Kill the processes that are still alive, and wait for all."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    processes.clear()


async def killed(
    rounds: int, begin: Callable[[str], Awaitable[object]], go_on: Callable[[int], Awaitable[object]]
) -> None:
    """Print the seconds of each round. `begin` starts a run of a question; `go_on` is told the killed process id."""
    path, took_s = notes_file(), list[float]()
    for number in range(rounds):
        question = f"{STALL}-{os.getpid()}-{number}"
        await begin(question)
        first = await noted(path, _calls(question))
        at_ns = time.time_ns()
        os.kill(first.pid, signal.SIGKILL)
        await go_on(first.pid)
        again = await noted(path, _calls(question, but_of=first.pid))
        took_s.append((again.at_ns - at_ns) / 1e9)
    sys.stdout.write(json.dumps(took_s) + "\n")
    sys.stdout.flush()


def _calls(question: str, but_of: int = 0) -> Callable[[Note], bool]:
    """Return a condition on notes: the stalled call of this run, by any process other than `but_of`."""
    return lambda found: found.what == question and found.pid != but_of
