"""A worker that counts its allocations between two lines on its standard input; needs memray.

    python -m benchmarks.profiled URL

It prints `ready`, begins to count at the first line of input, and at the second prints the result and ends:
[[function, allocations, bytes], ...]
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import memray
import msgspec
import uvloop
from foldlog.runtime import Worker
from foldlog.runtime.driving.host import Host
from foldlog.runtime.opening import open_log

from .workload import registry_of

ROOT = Path(__file__).resolve().parents[1]
Row = tuple[str, int, int]


async def _serve(url: str) -> None:
    async with open_log(url, "default", name="profiled") as log:
        worker = Worker(Host(log=log, registry=registry_of(), worker="profiled"))
        serving = asyncio.create_task(worker.serve())
        _say(b'"ready"')
        await asyncio.to_thread(sys.stdin.readline)
        with _allocations() as rows:
            await asyncio.to_thread(sys.stdin.readline)
        _say(msgspec.json.encode(rows))
        worker.stop()
        await serving


@contextlib.contextmanager
def _allocations() -> Iterator[list[Row]]:
    """Return allocations per function, including those of C code that it calls and those that were freed again."""
    rows, counts, sizes = list[Row](), Counter[str](), Counter[str]()
    frees = {kind.value for kind in memray.AllocatorType if kind.name.endswith(("FREE", "MUNMAP"))}
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "allocations"
        with memray.Tracker(file, trace_python_allocators=True):
            yield rows
        for record in memray.FileReader(file).get_allocation_records():
            stack = record.stack_trace(max_stacks=1) if record.allocator not in frees else []
            if stack:
                function, path, _ = stack[0]
                counts[named(path, function)] += record.n_allocations
                sizes[named(path, function)] += record.size
    rows += [(function, count, sizes[function]) for function, count in counts.items()]


def named(file: str, function: str) -> str:
    """Return `folder/module.py function`, the same for an installed package and for the source tree."""
    path = Path(file)
    for start in (ROOT, *map(Path, sys.path)):
        if start.parts and path.is_relative_to(start):
            return f"{path.relative_to(start).as_posix().removeprefix('foldlog/')} {function}"
    return f"{path.name} {function}"


def _say(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    uvloop.run(_serve(sys.argv[1]))
