"""Timed notes of processes, for which others can wait: one line per note, in a file that all append to.

Nothing but the standard library is imported: the programs of the peers use it, too.
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
    """When (nanoseconds since the epoch), which process, what."""

    at_ns: int
    pid: int
    what: str


def note(what: str) -> None:
    """Note it in the file that the environment names."""
    line = json.dumps(Note(time.time_ns(), os.getpid(), what)).encode() + b"\n"
    with Path(os.environ[VARIABLE]).open("ab", buffering=0) as file:
        file.write(line)


def first_to(what: str) -> bool:
    """Return whether this is the first process to ask: true once among all processes of this file."""
    try:
        Path(f"{os.environ[VARIABLE]}.{what}").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


async def noted(path: Path, wanted: Callable[[Note], bool], timeout_s: float = 60.0) -> Note:
    """The first note like that, waited for if need be. Raises `TimeoutError`."""
    async with asyncio.timeout(timeout_s):
        while True:
            lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
            for line in lines:
                if line.endswith(b"\n") and wanted(found := Note(*json.loads(line))):
                    return found
            await asyncio.sleep(LOOK_S)


def notes_of(path: Path) -> dict[str, int]:
    """When each thing was noted first, in nanoseconds since the epoch. To be asked once all are there."""
    found: dict[str, int] = {}
    for line in path.read_bytes().splitlines():
        each = Note(*json.loads(line))
        found.setdefault(each.what, each.at_ns)
    return found
