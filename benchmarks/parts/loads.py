"""Measure folding a run's state from its commits, each decoded and verified against the chain, without a network."""

from __future__ import annotations

import time

import msgspec
from foldlog.eventlog.commits import Commit
from foldlog.eventlog.memory import MemoryLog
from foldlog.runtime import Runtime
from foldlog.runtime.journal.journal import Journal

from ..bounds import FOLDLOG
from ..settings import Collected, Measured, Settings
from ..workload import agent_of, registry_of

ROUNDS = 7
EVENTS_A_SECOND = "events a second, decoded, checked and folded"
LENGTHS, LENGTHS_MOST = (10, 100, 1000), (10_000,)
DECODED = "msgspec, which only decodes them"
ENOUGH_EVENTS = 50_000
"""A round loads a short run repeatedly, until it has folded this many events."""


async def measure(settings: Settings) -> Measured:
    """Measure runs of workload A with ten to a thousand steps."""
    return await _measured(settings, LENGTHS[: settings.count(len(LENGTHS), 1)])


async def measure_longest(settings: Settings) -> Measured:
    """Measure a run of ten thousand steps, whose prompt contains all of its messages."""
    return await _measured(settings, LENGTHS_MOST if not settings.quick else LENGTHS[:1])


async def _measured(settings: Settings, lengths: tuple[int, ...]) -> Measured:
    found, log, decoder = Collected(), MemoryLog("default"), msgspec.json.Decoder(Commit)
    async with Runtime.open(log=log, registry=registry_of(lengths)) as runtime:
        for steps in lengths:
            settings.say(f"a run of {steps:,} steps")
            run = await runtime.start(agent_of(steps), "question")
            await run.result()
            subject = await runtime.locate(run.run_id)
            events = (await Journal(log, subject).load(short=True)).head.rev
            stored = [commit.data async for commit in log.events.read(subject)]
            times = max(1, settings.count(ENOUGH_EVENTS, 1) // events)
            for _ in range(settings.rounds_of(ROUNDS)):
                begun = time.process_time()
                for _ in range(times):
                    await Journal(log, subject).load(short=True)
                loaded = time.process_time()
                for _ in range(times):
                    for data in stored:
                        decoder.decode(data)
                decoded = time.process_time()
                found.add(EVENTS_A_SECOND, FOLDLOG, "/s", events * times / (loaded - begun), x=steps)
                found.add(EVENTS_A_SECOND, DECODED, "/s", events * times / (decoded - loaded), x=steps)
            found.remarks.append(f"the run of {steps:,} steps has {events:,} events")
    return found.measured()
