"""Agents and models for measuring streams and recovery.

stamped:MODE    streams pieces of text, each the time at which it was yielded
faltering:HOW   says three words and fails; the next attempt repeats them and goes on (`same`), or differs (`other`)
stalling:STEP   workload A, but the first process to make this model call never finishes it
noting:ANY      notes the message that it is sent, and answers at once
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import ClassVar

import msgspec
from foldlog.runtime import Agent, Registry
from foldlog.runtime.ports.models import (
    Delta,
    Finished,
    ModelProvider,
    ModelRequest,
    TextDelta,
    TransientModelError,
)

from . import script
from .notes import first_to, note
from .workload import USAGE, Instant, agent_of, lookup

STALLS_AT = 5
BEFORE_S = 0.3
"""How long a model is silent, so that the reader is connected when the text begins."""
LONG, CROWD = "long", "crowd"
"""The modes for a worker that will be killed, and for a thousand readers."""


class Pace:
    """The pace of a stream: `pieces` in total, `together` at once, `a_second` per second, after `before_s` seconds."""

    def __init__(self, pieces: int, together: int, a_second: int, before_s: float = BEFORE_S) -> None:
        self.pieces, self.together, self.interval_s = pieces, together, together / a_second
        self.before_s = before_s

    async def beats(self) -> AsyncIterator[int]:
        """Yield the number of pieces due at each beat. Beats keep to their times, however long a consumer takes."""
        begun = time.monotonic()
        for beat in range(self.pieces // self.together):
            await asyncio.sleep(max(0.0, begun + beat * self.interval_s - time.monotonic()))
            yield self.together


PACES = {
    "steady": Pace(200, 1, 100),
    "fast": Pace(4000, 4, 2000),
    "bursts": Pace(4000, 200, 2000),
    "try": Pace(20, 2, 200),
    LONG: Pace(100_000, 1, 200, 0),
    CROWD: Pace(30, 1, 10, 6),
    "try-crowd": Pace(5, 1, 10, 1),
}


def stamp() -> str:
    """Return the current time (nanoseconds since the epoch) as a piece of text."""
    return f"{time.time_ns()} "


class Stamped:
    """The model `stamped:MODE`."""

    def check(self, model: str) -> None:
        """Accept any mode."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Stream pieces at the pace of the mode."""
        note("call")
        await asyncio.sleep(PACES[request.model].before_s)
        async for together in PACES[request.model].beats():
            for _ in range(together):
                yield TextDelta(stamp())
        yield Finished(reason="stop", usage=USAGE)

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""


class Faltering:
    """The model `faltering:HOW`."""

    first = ("one ", "two ", "three ")
    again: ClassVar = {"same": (*first, "four"), "other": ("one ", "too ", "many")}

    def check(self, model: str) -> None:
        """Accept both values of HOW."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Stream three words and raise an error; from the second attempt on, stream the whole answer."""
        await asyncio.sleep(BEFORE_S)
        for word in self.first if request.attempt == 1 else self.again[request.model]:
            yield TextDelta(word)
        if request.attempt == 1:
            raise TransientModelError("the provider went away in mid-text")
        yield Finished(reason="stop", usage=USAGE)

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""


class Stalling(Instant):
    """The model `stalling:STEP` for runs of ten steps; it notes each of its calls."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Stream the reply, unless this is the call during which the worker will be killed."""
        note(f"call {request.round}")
        if request.round == int(request.model) and first_to("stall"):
            await asyncio.Event().wait()
        async for delta in super().stream(msgspec.structs.replace(request, model=str(script.STEPS))):
            yield delta


class Noting:
    """The model `noting:ANY`."""

    def check(self, model: str) -> None:
        """Accept any name."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Note the last message, and stream an answer."""
        note(f"asked {request.messages[-1].content}")
        yield TextDelta("done")
        yield Finished(reason="stop", usage=USAGE)

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""


def talker(mode: str) -> Agent[str]:
    """Return the agent whose model streams in this mode."""
    return Agent(f"talker-{mode}", model=f"stamped:{mode}")


def faltering(how: str) -> Agent[str]:
    """Return the agent whose model is `faltering:HOW`."""
    return Agent(f"faltering-{how}", model=f"faltering:{how}")


stalling: Agent[str] = Agent(
    "stalling", model=f"stalling:{STALLS_AT}", tools=[lookup], max_steps=script.STEPS
)


asking: Agent[str] = Agent("asking", model="instant:2", tools=[lookup], hitl_tools=["lookup"])
"""An agent whose first call waits for a person."""

noting: Agent[str] = Agent("noting", model="noting:1")
"""An agent whose model notes the messages that it is sent."""


def registry_of() -> Registry:
    """Return a registry of these agents."""
    agents = [
        *map(talker, PACES),
        *map(faltering, Faltering.again),
        stalling,
        asking,
        noting,
        agent_of(script.STEPS),
    ]
    providers: dict[str, ModelProvider] = {
        "stamped": Stamped(),
        "faltering": Faltering(),
        "stalling": Stalling(),
        "noting": Noting(),
        "instant": Instant(),
    }
    return Registry(agents=agents, providers=providers)


registry = registry_of()
