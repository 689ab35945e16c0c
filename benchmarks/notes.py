"""Timed notes that processes leave for each other: one line per note, in a file that all of them append to.

Imports only the standard library, because the programs of the peers use it, too.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

VARIABLE = "FOLDLOG_BENCH_NOTES"
LOOK_S = 0.001


class Note(NamedTuple):
    """A note: its time (nanoseconds since the epoch), the process that wrote it, and its text."""

    at_ns: int
    pid: int
    what: str


def note(what: str) -> None:
    """Append a note to the file that the environment variable names."""
    line = json.dumps(Note(time.time_ns(), os.getpid(), what)).encode() + b"\n"
    with Path(os.environ[VARIABLE]).open("ab", buffering=0) as file:
        file.write(line)


def first_to(what: str) -> bool:
    """Return true for the first caller with this text among all processes that share the file, false for others."""
    try:
        Path(f"{os.environ[VARIABLE]}.{what}").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


async def noted(path: Path, wanted: Callable[[Note], bool], timeout_s: float = 60.0) -> Note:
    """Wait for the first note for which `wanted` is true, and return it. Raises `TimeoutError`."""
    async with asyncio.timeout(timeout_s):
        while True:
            lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
            for line in lines:
                if line.endswith(b"\n") and wanted(found := Note(*json.loads(line))):
                    return found
            await asyncio.sleep(LOOK_S)


def notes_of(path: Path) -> dict[str, int]:
    """Return the time of the first note of each text, in nanoseconds since the epoch. Call it when all are written."""
    found: dict[str, int] = {}
    for line in path.read_bytes().splitlines():
        each = Note(*json.loads(line))
        found.setdefault(each.what, each.at_ns)
    return found
