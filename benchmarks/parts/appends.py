"""Measure what writing a shard's seals costs the process that appends, since each seal is read back from its stream."""

from __future__ import annotations

import asyncio
import time

from foldlog.eventlog import names
from foldlog.eventlog.commits import decode
from foldlog.eventlog.embedded import EphemeralServer, Sync
from foldlog.eventlog.jetstream import JetStreamLog
from foldlog.eventlog.jetstream.seals import SEAL_EVERY
from foldlog.eventlog.ports import NEW, At, CommitWrite

from ..bounds import SETTINGS, commits_of_a_run
from ..filling import renamed
from ..settings import Collected, Measured, Settings

ROUNDS = 7
AT_ONCE = 50
POSITIONS: dict[Sync, int] = {"always": 2 * SEAL_EVERY, "default": 4 * SEAL_EVERY}
SEALED, UNSEALED = "with seals", "without"
SYNCS: tuple[Sync, ...] = ("always", "default")
APPENDS_A_SECOND: dict[Sync, str] = {
    "always": "appends a second, 50 runs at once",
    "default": "appends a second, 50 runs at once, sync default",
}
CPU: dict[Sync, str] = {
    "always": "CPU of the process that appends, 1,000 appends",
    "default": "CPU of the process that appends, 1,000 appends, sync default",
}
BASES = dict.fromkeys((*APPENDS_A_SECOND.values(), *CPU.values()), UNSEALED)


class _NoSeals:
    """Replaces the sealer of a log."""

    def appended(self, shard: int, position: int) -> None:
        """Write no seal."""

    async def close(self) -> None:
        """Write no seal."""


async def measure(settings: Settings) -> Measured:
    """Measure appends with and without seals in turns on one server, in a new namespace each time."""
    found, template = Collected(), await commits_of_a_run()
    for sync in SYNCS:
        async with EphemeralServer(sync=sync) as server:
            for number in range(settings.rounds_of(ROUNDS)):
                order = (SEALED, UNSEALED) if number % 2 else (UNSEALED, SEALED)
                for who in order:
                    settings.say(f"round {number + 1}, sync {sync}: {who}")
                    positions = settings.count(POSITIONS[sync], 500)
                    namespace = f"{'sealed' if who == SEALED else 'plain'}-{number}"
                    async with JetStreamLog.open(server.url, namespace=namespace, shards=1) as log:
                        if who == UNSEALED:
                            log.events.sealer = _NoSeals()  # type: ignore[assignment] # as much of one as is used
                        await _appends(found, who, sync, log, template, positions)
    return found.measured()


async def _appends(
    found: Collected, who: str, sync: Sync, log: JetStreamLog, template: list[bytes], positions: int
) -> None:
    commits = [decode(data) for data in template]
    runs = iter(range(positions // len(commits)))
    stored = 0

    async def one_after_the_other() -> None:
        nonlocal stored
        for number in runs:
            subject, expected = names.run_subject(0, f"run-{number}", f"run-{number}"), NEW
            for data in renamed(commits, subject.id):
                (position,) = await log.events.append(CommitWrite(subject, expected, data))
                expected, stored = At(position), stored + 1

    begun, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(one_after_the_other() for _ in range(AT_ONCE)))
    await log.events.sealer.close()
    took_s, cpu_s = time.perf_counter() - begun, time.process_time() - cpu
    found.add(APPENDS_A_SECOND[sync], who, "/s", stored / took_s, setting=SETTINGS[sync])
    found.add(CPU[sync], who, "ms", cpu_s * 1e6 / stored, setting=SETTINGS[sync])
