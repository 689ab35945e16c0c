"""A worker that is profiled between two lines on its standard input.

    python -m benchmarks.profiled URL cpu|allocations

Says `ready`; at the first line it begins to look, at the second it says what it saw and ends:
[[function, calls, seconds of its own], ...] or [[function, allocations, bytes], ...]
"""

from __future__ import annotations

import asyncio
import contextlib
import cProfile
import pstats
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import uvloop
from foldlog.runtime import Worker
from foldlog.runtime.drive import Host
from foldlog.runtime.opening import open_log

from .workload import registry_of

ROOT = Path(__file__).resolve().parents[1]
Row = tuple[str, int, float]


async def _serve(url: str, look: Callable[[list[Row]], contextlib.AbstractContextManager[None]]) -> None:
    async with open_log(url, "default", name="profiled") as log:
        worker = Worker(Host(log=log, registry=registry_of(), worker="profiled"))
        serving = asyncio.create_task(worker.serve())
        rows = list[Row]()
        _say(b'"ready"')
        await asyncio.to_thread(sys.stdin.readline)
        with look(rows):
            await asyncio.to_thread(sys.stdin.readline)
        _say(msgspec.json.encode(rows))
        worker.stop()
        await serving


@contextlib.contextmanager
def cpu(rows: list[Row]) -> Iterator[None]:
    """Functions by their own time. What is looked at is this thread, which is the loop's."""
    profile = cProfile.Profile()
    profile.enable()
    yield
    profile.disable()
    stats = pstats.Stats(profile)
    for (file, _, function), (_, calls, own_s, _, _) in stats.stats.items():  # type: ignore[attr-defined]
        rows.append((_named(file, function), calls, own_s))


@contextlib.contextmanager
def allocations(rows: list[Row]) -> Iterator[None]:
    """Functions by what is allocated in them and what they call of C. Raises `ImportError` without memray."""
    import memray

    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "allocations"
        with memray.Tracker(file, trace_python_allocators=True):
            yield
        frees = {kind.value for kind in memray.AllocatorType if kind.name.endswith(("FREE", "MUNMAP"))}
        counts, sizes = Counter[str](), Counter[str]()
        for record in memray.FileReader(file).get_allocation_records():
            stack = record.stack_trace(max_stacks=1) if record.allocator not in frees else []
            if stack:
                function, path, _ = stack[0]
                counts[_named(path, function)] += record.n_allocations
                sizes[_named(path, function)] += record.size
        rows += [(function, count, float(sizes[function])) for function, count in counts.items()]


def _named(file: str, function: str) -> str:
    """`folder/module.py function`, whether it was installed or is the tree's; built-ins by their name."""
    if file == "~":
        return re.sub(r"[<>{}]", "", function).replace("built-in method ", "").replace("method ", "")
    path = Path(file)
    for start in (ROOT, *map(Path, sys.path)):
        if start.parts and path.is_relative_to(start):
            return f"{path.relative_to(start).as_posix().removeprefix('foldlog/')} {function}"
    return f"{path.name} {function}"


def _say(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    uvloop.run(_serve(sys.argv[1], {"cpu": cpu, "allocations": allocations}[sys.argv[2]]))
