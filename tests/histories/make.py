"""Golden histories: plays each scenario that has no file yet, and writes it down with what must be read from it.

    python -m tests.histories.make

It only adds. A file that exists is never touched: it holds what a release wrote, and every later release has to read,
replay and fold it as this one did. A scenario that changes gets a new name.
"""

from __future__ import annotations

import asyncio
import json
from hashlib import sha256
from pathlib import Path

from foldlog.eventlog.sealing import HeldKeys, SealedLog
from foldlog.eventlog.sealing.keyring import exported
from foldlog.replay import export, read_archive
from foldlog.replay.canonical.observed import expectation

from tests.histories import registers
from tests.replay.scenarios import SCENARIOS, World

V1 = Path(__file__).parent / "v1"
SEALED = V1 / "sealed" / "tools_and_progress.jsonl"
SEAL_KEY = b"k" * 32


async def history(name: str) -> tuple[bytes, bytes]:
    """The runs in the log of a scenario, and its schedules and hooks."""
    world = World()
    await SCENARIOS[name](world)
    runs = b"".join([line async for line in export(world.log, artifacts=True)])
    return runs, registers.registers(world.log)


async def sealed_history() -> tuple[bytes, bytes]:
    """A sealed history, and the keys that open it by `SEAL_KEY`."""
    world = World()
    world.log = log = SealedLog(world.log, HeldKeys((SEAL_KEY,), "the histories"))  # type: ignore[assignment]
    await SCENARIOS["tools_and_progress"](world)
    history = b"".join([line async for line in export(log, artifacts=True)])
    return history, b"".join([exported(record) async for record in log.ring.records()])


def _note(*paths: Path) -> None:
    """Add the sums by which a test sees that no file was edited."""
    with (V1 / "SHA256SUMS").open("a") as sums:
        for path in paths:
            sums.write(f"{sha256(path.read_bytes()).hexdigest()}  {path.relative_to(V1).as_posix()}\n")


def main() -> None:
    """Write the histories that are missing."""
    V1.mkdir(exist_ok=True)
    for name in SCENARIOS:
        path = V1 / f"{name}.jsonl"
        if path.exists():
            continue
        runs, others = asyncio.run(history(name))
        _write(path, runs, expectation(read_archive(runs)))
        if others:
            _write(path.with_suffix(".registers"), others, registers.expectation(others))
    if not SEALED.exists():
        SEALED.parent.mkdir(exist_ok=True)
        data, keys = asyncio.run(sealed_history())
        SEALED.write_bytes(data)
        SEALED.with_suffix(".keys.jsonl").write_bytes(keys)
        _note(SEALED, SEALED.with_suffix(".keys.jsonl"))


def _write(path: Path, data: bytes, expected: object) -> None:
    told = path.with_suffix(".expected.json" if path.suffix == ".jsonl" else ".registers.json")
    told.write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n")
    path.write_bytes(data)
    _note(path, told)
    print(f"added {path.name}")  # noqa: T201 - a script


if __name__ == "__main__":
    main()
