"""Agents whose models stream, stall and are killed: what the measurements of streams and of recovery run.

stamped:MODE    streams pieces of text, each the time at which it was handed over
faltering:HOW   says three words and fails; the next attempt says the `same` and goes on, or something `other`
stalling:STEP   workload A, but the first process that comes to this model call never ends it
noting:ANY      notes what it is asked when it is called, and answers at once
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
"""A model is silent for so long, so that the reader is there when it begins."""
LONG, CROWD = "long", "crowd"
"""The modes for a worker that is to be killed, and for a thousand readers."""


class Pace:
    """The rate of pieces: `together` at once, `pieces` in total, so many per second, after a silence."""

    def __init__(self, pieces: int, together: int, a_second: int, before_s: float = BEFORE_S) -> None:
        self.pieces, self.together, self.interval_s = pieces, together, together / a_second
        self.before_s = before_s

    async def beats(self) -> AsyncIterator[int]:
        """Yield how many pieces are due, on time whatever the last ones took."""
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
    """The time, as a piece of text."""
    return f"{time.time_ns()} "


class Stamped:
    """The model `stamped:MODE`."""

    def check(self, model: str) -> None:
        """Any mode."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Pieces at the mode's pace."""
        note("call")
        await asyncio.sleep(PACES[request.model].before_s)
        async for together in PACES[request.model].beats():
            for _ in range(together):
                yield TextDelta(stamp())
        yield Finished(reason="stop", usage=USAGE)

    async def aclose(self) -> None:
        """Nothing is held open."""


class Faltering:
    """The model `faltering:HOW`."""

    first = ("one ", "two ", "three ")
    again: ClassVar = {"same": (*first, "four"), "other": ("one ", "too ", "many")}

    def check(self, model: str) -> None:
        """Both."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Three words and an error, or the answer."""
        await asyncio.sleep(BEFORE_S)
        for word in self.first if request.attempt == 1 else self.again[request.model]:
            yield TextDelta(word)
        if request.attempt == 1:
            raise TransientModelError("the provider went away in mid-text")
        yield Finished(reason="stop", usage=USAGE)

    async def aclose(self) -> None:
        """Nothing is held open."""


class Stalling(Instant):
    """The model `stalling:STEP` of a run of ten steps; each of its calls is noted."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """The answer, unless this is the call that is to be killed."""
        note(f"call {request.round}")
        if request.round == int(request.model) and first_to("stall"):
            await asyncio.Event().wait()
        async for delta in super().stream(msgspec.structs.replace(request, model=str(script.STEPS))):
            yield delta


class Noting:
    """The model `noting:ANY`."""

    def check(self, model: str) -> None:
        """Any name will do."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """The answer."""
        note(f"asked {request.messages[-1].content}")
        yield TextDelta("done")
        yield Finished(reason="stop", usage=USAGE)

    async def aclose(self) -> None:
        """Nothing is held open."""


def talker(mode: str) -> Agent[str]:
    """The agent that streams in this mode."""
    return Agent(f"talker-{mode}", model=f"stamped:{mode}")


def faltering(how: str) -> Agent[str]:
    """The agent whose model falters like that."""
    return Agent(f"faltering-{how}", model=f"faltering:{how}")


stalling: Agent[str] = Agent(
    "stalling", model=f"stalling:{STALLS_AT}", tools=[lookup], max_steps=script.STEPS
)


asking: Agent[str] = Agent("asking", model="instant:2", tools=[lookup], hitl_tools=["lookup"])
"""An agent whose first call waits for a person."""

noting: Agent[str] = Agent("noting", model="noting:1")
"""An agent that notes what it is asked."""


def registry_of() -> Registry:
    """A registry of these agents."""
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
