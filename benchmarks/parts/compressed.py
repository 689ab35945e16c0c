"""Measure runs with and without NATS' compression: disk space, the server's CPU time, and the time to load them."""

from __future__ import annotations

import contextlib
import json
import os
import pydoc_data.topics
import random
import string
import tempfile
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import psutil
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.eventlog.jetstream import JetStreamLog
from foldlog.eventlog.ports import Subject
from foldlog.runtime import Agent, Registry, Runtime, tool
from foldlog.runtime.ports.models import CallDelta, Delta, Finished, ModelRequest, TextDelta

from .. import script
from ..contestants import Wanted, many, stored_bytes, worker_process
from ..settings import Collected, Measured, Settings
from ..workload import USAGE
from .long_run import loading, timed_ms
from .workload_a import AT_ONCE, PAYLOAD

RUNS = 1500
READ = 15
"""The number of runs that are loaded, spread over the stream."""
PLAIN, S2 = "foldlog", "foldlog, compression s2"
TEXT = "FOLDLOG_BENCHMARK_TEXT"
"""The environment variable, also of the worker, that selects the text: words or letters."""
STORED = "bytes on disk of a run of ordinary text"
STORED_RANDOM = "bytes on disk of a run of random letters"
SERVER_CPU = "CPU of the server for a run of ordinary text"
SERVER_CPU_RANDOM = "CPU of the server for a run of random letters"
LOAD = "load of a run that nobody read since the server started"
LOAD_AGAIN = "load of that run again"


async def measure(settings: Settings) -> Measured:
    """Fill a stream of each kind with the same number of runs."""
    found = Collected()
    for who, compression in ((PLAIN, "none"), (S2, "s2")):
        for text in ("words", "letters"):
            with (
                tempfile.TemporaryDirectory() as directory,
                _setting("FOLDLOG_COMPRESSION", compression),
                _setting(TEXT, text),
            ):
                await _measured(found, who, Path(directory) / "server", settings)
    for stored in (STORED, STORED_RANDOM):
        found.add(stored, PAYLOAD, "B", script.payload_bytes())
    return found.measured()


async def _measured(found: Collected, who: str, store: Path, settings: Settings) -> None:
    ordinary = os.environ[TEXT] == "words"
    async with EphemeralServer(store, sync="default") as server:
        settings.say(f"{who}: runs of {os.environ[TEXT]}")
        process = psutil.Process(server.pid)
        before = process.cpu_times()
        subjects = await _filled(server.url, settings.count(RUNS, 20))
        after = process.cpu_times()
    cpu_ms = (after.user + after.system - before.user - before.system) * 1000 / len(subjects)
    found.add(SERVER_CPU if ordinary else SERVER_CPU_RANDOM, who, "ms", cpu_ms)
    stored = stored_bytes(server.store) / len(subjects)
    found.add(STORED if ordinary else STORED_RANDOM, who, "B", stored)
    if not ordinary:
        return
    async with EphemeralServer(store) as again, JetStreamLog.open(again.url) as log:
        settings.say(f"{who}: loads")
        for subject in _spread(subjects, settings.rounds_of(READ)):
            found.add(LOAD, who, "ms", await timed_ms(loading(log, subject, whole=True)))
            found.add(LOAD_AGAIN, who, "ms", await timed_ms(loading(log, subject, whole=True)))


async def _filled(url: str, runs: int) -> list[Subject]:
    """Perform runs in one shard; return their subjects in the order in which they ended."""
    subjects: list[Subject] = []
    async with (
        JetStreamLog.open(url, shards=1) as log,
        Runtime.open(log=log, registry=registry_of()) as runtime,
        worker_process(url, f"{__name__}:registry"),
    ):

        async def run(_steps: int) -> None:
            handle = await runtime.start(agent, script.QUESTION, executor="durable")
            await handle.result()
            subjects.append(await runtime.locate(handle.run_id))

        await many(run)(Wanted(runs=runs, at_once=AT_ONCE))
    return subjects


def _spread(subjects: list[Subject], count: int) -> list[Subject]:
    return [subjects[(2 * place + 1) * len(subjects) // (2 * count)] for place in range(count)]


@contextlib.contextmanager
def _setting(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before


# ---- workload A in words


WORDS = [
    word for word in " ".join(pydoc_data.topics.topics.values()).split() if word.isalpha() and word.isascii()
]
"""The words of Python's manual, with repetitions. They are drawn at random, so that no sentence occurs twice."""


def words(chars: int) -> str:
    """Return random text of this length: words, or letters and digits, which hardly compress."""
    if os.environ.get(TEXT) == "letters":
        return "".join(random.choices(string.ascii_letters + string.digits, k=chars))
    return " ".join(random.choices(WORDS, k=chars // 2))[:chars]


@tool(effect="pure")
async def lookup(q: str) -> str:
    """Look something up."""
    return words(len(script.found(q)))


class Worded:
    """Replies like the instant model, with as many characters, but with random text."""

    def check(self, model: str) -> None:
        """Accept any name."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Stream the next pair of calls, or the answer."""
        if request.round < script.STEPS:
            for index, call in enumerate(script.call_ids(request.round)):
                arguments = json.dumps({"q": words(len(script.query(call)))})
                yield CallDelta(index=index, id=call, name=script.TOOL, arguments=arguments)
            yield Finished(reason="tool_calls", usage=USAGE)
        else:
            yield TextDelta(words(script.ANSWER_CHARS))
            yield Finished(reason="stop", usage=USAGE)

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""


agent: Agent[str] = Agent("worded", model="worded:all", tools=[lookup], max_steps=script.STEPS)


def registry_of() -> Registry:
    """A registry of the agent; a runtime closes the one it is given."""
    return Registry(agents=[agent], providers={"worded": Worded()})


registry = registry_of()
"""The registry of the worker."""
