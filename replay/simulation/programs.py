"""Random programs of workflows: data that a function interprets, another one for each seed.

A program is a sequence of operations, gathers and races, in each other up to a depth. Whatever is drawn, its trace does
not depend on time: all branches of a gather end, and the first branch of a race wins, since the others wait for longer
than that takes.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec

from ...eventlog.errors import OperationFailed
from ...runtime import WorkflowRun, workflow
from ...runtime.ports.runnable import Runnable
from ...runtime.ports.tools import Tool
from .cast import an_agent, deploy, look, save, says, send
from .flows import LATE_S, add, refuse
from .world import World

DEPTH_MAX = 2
STATEMENTS_MAX, BRANCHES_MAX = 4, 3
SLEEPS_S = (0.0, 5.0, 20.0)
"""The durations of sleeps: 0 s sleeps in place, the others are long enough to park the run."""
CALLS: dict[str, tuple[Tool, str]] = {
    "look": (look, "at"),
    "save": (save, "what"),
    "send": (send, "to"),
    "deploy": (deploy, "to"),
    "refuse": (refuse, "what"),
}
"""The tools that are called, each with the name of its argument; `deploy` needs an approval, and `refuse` fails."""
QUICK = ("look", "save", "send", "memo", "random", "flow")
"""Operations that take no longer than their workers do."""
ANY = (*QUICK, "send", "deploy", "ask", "sleep", "wait", "agent")


class Do(msgspec.Struct, frozen=True, kw_only=True):
    """One operation. `word` is its argument, no other one's of the program; `for_s` how long it sleeps."""

    what: str
    word: str
    for_s: float = 0.0


class Together(msgspec.Struct, frozen=True, kw_only=True):
    """A gather, after whose failure the code goes on, or a race."""

    branches: tuple[Program, ...]
    is_race: bool = False


Program = tuple[Do | Together, ...]


class _Drawing:
    """Draws a program; each of its operations has a word of its own."""

    def __init__(self, rng: random.Random) -> None:
        self._rng, self._numbers = rng, itertools.count(1)

    def program(self, depth: int = DEPTH_MAX) -> Program:
        """Return a program of at most so many levels."""
        statements = range(self._rng.randint(1, STATEMENTS_MAX))
        return tuple(self._together(depth) if self._nests(depth) else self._do(ANY) for _ in statements)

    def _nests(self, depth: int) -> bool:
        return depth > 0 and self._rng.random() < 0.4  # noqa: PLR2004 - so that most programs have both

    def _together(self, depth: int) -> Together:
        kind = self._rng.choice(("gather", "failing", "race"))
        if kind == "race":
            winner = tuple(self._do(QUICK) for _ in range(self._rng.randint(1, 2)))
            losers = ((self._do(("endless",)),) for _ in range(self._rng.randint(1, 2)))
            return Together(branches=(winner, *losers), is_race=True)
        branches = [self.program(depth - 1) for _ in range(self._rng.randint(1, BRANCHES_MAX))]
        if kind == "failing":
            branches.append((self._do(ANY), self._do(("refuse",)), self._do(("send",))))
        return Together(branches=tuple(branches))

    def _do(self, kinds: tuple[str, ...]) -> Do:
        return Do(
            what=self._rng.choice(kinds),
            word=f"w{next(self._numbers)}",
            for_s=self._rng.choice(SLEEPS_S),
        )


def at_random(world: World) -> Runnable[Any]:
    """A workflow that does what the program of the world's seed says, and returns what came of it."""
    program = _Drawing(world.rng).program()
    writer = an_agent(world, "writer", says("written"))

    @workflow(name="inner", tools=[look])
    async def inner(run: WorkflowRun, text: str) -> Any:
        return await run.call(look, at=text), await run.memo("length", lambda: len(text))

    world.agents.append(inner)

    async def drawn(run: WorkflowRun, text: str) -> list[Any]:
        return [text, *await _run(run, program, {"agent": writer, "flow": inner})]

    return add(world, "drawn", drawn, hitl_tools=["deploy"])


async def _run(run: WorkflowRun, program: Program, children: dict[str, Runnable[Any]]) -> list[Any]:
    seen: list[Any] = []
    for statement in program:
        if isinstance(statement, Do):
            seen.append(await _do(run, statement, children))
            continue
        branches = list(_branches(statement, children))
        try:
            seen.append(await (run.first if statement.is_race else run.gather)(*branches))
        except OperationFailed as error:
            seen.append(error.place)
    return seen


def _branches(
    together: Together, children: dict[str, Runnable[Any]]
) -> Iterator[Callable[[WorkflowRun], Awaitable[Any]]]:
    for program in together.branches:
        yield lambda run, program=program: _run(run, program, children)  # type: ignore[misc] # of this round


async def _do(run: WorkflowRun, do: Do, children: dict[str, Runnable[Any]]) -> Any:
    match do.what:
        case "memo":
            return await run.memo(do.word, lambda: do.word)
        case "random":
            return run.random.randint(0, 9)
        case "sleep":
            return await run.sleep(do.for_s)
        case "endless":
            return await run.sleep(LATE_S)
        case "wait":
            signal = await run.wait_for(do.word, timeout_s=LATE_S)
            return signal and signal.data
        case "ask":
            return (await run.ask(do.word)).accepted
        case "agent" | "flow":
            return await run.agent(children[do.what], do.word)
        case _:
            called, argument = CALLS[do.what]
            return await run.call(called, **{argument: do.word})
