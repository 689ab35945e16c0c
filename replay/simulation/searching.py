"""Search for a failing schedule on one or more processor cores; the first one found is shrunk and reported."""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import Any

import msgspec

from ...eventlog.errors import ConfigError
from .playing import Forms, Played, play, undisturbed
from .scenarios import SCENARIOS, Scenario
from .schedule import Schedule, draw_schedule
from .shrinking import Shrunk, shrink

CHUNK = 8
"""The number of schedules that a process plays before it reports."""

Load = Callable[[], Mapping[str, Scenario]]
"""Returns the scenarios, in each process; with several processes it must be picklable."""


def own_scenarios() -> Mapping[str, Scenario]:
    """Return foldlog's own scenarios."""
    return SCENARIOS


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A failing schedule. `shrunk` is None if shrinking was not requested."""

    scenario: str
    seed: int
    played: Played
    shrunk: Shrunk | None = None

    @property
    def smallest(self) -> Played:
        """The shrunk schedule, otherwise the one that was drawn."""
        return self.shrunk.played if self.shrunk is not None else self.played

    def render(self) -> str:
        """Return the broken properties and the smallest schedule as text."""
        shown, lines = self.smallest, [f"{self.scenario}, seed {self.seed}: {self.played.schedule.summary}"]
        lines += [f"  {problem}" for problem in self.played.problems]
        if self.shrunk is not None:
            lines.append(f"shrunk in {self.shrunk.attempts} attempts: {shown.schedule.summary}")
            lines += [f"  {problem}" for problem in shown.problems]
        lines += [f"  {act}" for act in shown.schedule.acts]
        return "\n".join([*lines, *map(str, shown.trace)])


class SimulationReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a search: the number of schedules, the seconds they took, the faults by kind, and the failures.

    `coverage` counts (event type, kind of fault): the types being appended, otherwise those of the newest commit.
    """

    schedules: int
    seconds: float
    faults: Mapping[str, int] = {}
    coverage: Mapping[tuple[str, str], int] = {}
    failures: tuple[Failure, ...] = ()

    @property
    def ok(self) -> bool:
        """True if no schedule failed."""
        return not self.failures

    @property
    def rate(self) -> float:
        """The number of schedules per second."""
        return self.schedules / self.seconds if self.seconds else 0.0

    def render(self) -> str:
        """Return the report as text without a final newline."""
        faults = ", ".join(f"{kind} {count}" for kind, count in sorted(self.faults.items()))
        head = f"simulation: {self.schedules} schedules, {'none' if self.ok else len(self.failures)} failed"
        return "\n".join([head, f"faults: {faults or 'none'}", *[each.render() for each in self.failures]])


class Simulation:
    """A set of scenarios, with their canonical forms in the absence of faults."""

    def __init__(self, scenarios: Mapping[str, Scenario]) -> None:
        _no_loop_is_running()
        self.scenarios = scenarios
        self._undisturbed: dict[str, tuple[int, Forms]] = {}
        """For each scenario the seed from which its agents were drawn, and its forms: the last one asked for."""

    def _expected(self, scenario: Scenario, seed: int) -> Forms:
        drawn = seed if scenario.drawn else 0
        kept = self._undisturbed.get(scenario.name)
        if kept is None or kept[0] != drawn:
            kept = self._undisturbed[scenario.name] = drawn, undisturbed(scenario, drawn)
        return kept[1]

    def play(self, schedule: Schedule, *, tells: bool = False) -> Played:
        """Play a schedule. Raises `ConfigError` for an unknown scenario."""
        if schedule.scenario not in self.scenarios:
            known = ", ".join(sorted(self.scenarios))
            raise ConfigError(f"there is no scenario {schedule.scenario!r}; known: {known}")
        scenario = self.scenarios[schedule.scenario]
        return play(scenario, schedule, self._expected(scenario, schedule.seed), tells=tells)

    def draw(self, scenario: str, seed: int) -> Played:
        """Play the schedule of a seed."""
        return self.play(draw_schedule(scenario, seed))

    def explain(self, scenario: str, seed: int, *, shrinks: bool = True) -> Failure:
        """Play a failing seed again, shrink it, and describe it."""
        played = self.play(draw_schedule(scenario, seed), tells=True)
        if not (shrinks and played.problems):
            return Failure(scenario=scenario, seed=seed, played=played)
        smaller = shrink(played, self.play)
        shrunk = self.play(smaller.played.schedule, tells=True)
        return Failure(scenario=scenario, seed=seed, played=played, shrunk=Shrunk(shrunk, smaller.attempts))


def _no_loop_is_running() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigError("a simulation has its own event loop: call it where no loop is running")


# --- the search -------------------------------------------------------------------------------------------------------

Place = tuple[str, int]
"""A scenario and a seed."""


class _Tally(msgspec.Struct):
    """The counts of some schedules."""

    schedules: int = 0
    faults: Counter[str] = msgspec.field(default_factory=Counter)
    coverage: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    failed: list[Place] = []

    def add(self, other: _Tally) -> None:
        self.schedules += other.schedules
        self.faults += other.faults
        self.coverage += other.coverage
        self.failed += other.failed


def seeds_of(names: Iterable[str], first: int, schedules: int | None) -> Iterator[Place]:
    """Yield each scenario with one seed, then with the next seed, and so on; endless if `schedules` is None."""
    every = ((name, seed) for seed in itertools.count(first) for name in names)
    return every if schedules is None else itertools.islice(every, schedules)


def search(
    load: Load = own_scenarios,
    *,
    first: int = 0,
    schedules: int | None = None,
    for_s: float | None = None,
    processes: int = 1,
    shrinks: bool = True,
    scenario: str | None = None,
) -> SimulationReport:
    """Play schedules from seed `first` on until one fails, up to `schedules` of them or for `for_s` seconds.

    Each seed is played in every scenario, or only in `scenario`. Raises `ConfigError`.
    """
    began = time.monotonic()
    simulation = Simulation(load())
    if scenario is not None and scenario not in simulation.scenarios:
        known = ", ".join(sorted(simulation.scenarios))
        raise ConfigError(f"there is no scenario {scenario!r}; known: {known}")
    names = [scenario] if scenario is not None else sorted(simulation.scenarios)
    places = seeds_of(names, first, schedules)
    until = None if for_s is None else began + for_s
    run = _inline(simulation, places, until) if processes == 1 else _spread(load, places, until, processes)
    tally = _Tally()
    for part in run:
        tally.add(part)
    seconds = time.monotonic() - began
    return SimulationReport(
        schedules=tally.schedules,
        seconds=seconds,
        faults=dict(tally.faults),
        coverage=dict(tally.coverage),
        failures=tuple(simulation.explain(*place, shrinks=shrinks) for place in sorted(tally.failed)[:1]),
    )


def _tried(simulation: Simulation, chunk: Iterable[Place]) -> _Tally:
    tally = _Tally()
    for name, seed in chunk:
        played = simulation.draw(name, seed)
        tally.schedules += 1
        tally.faults.update(fault.kind for fault in played.faults)
        tally.coverage += played.coverage
        if played.problems:
            tally.failed.append((name, seed))
            break
    return tally


def _chunks(places: Iterator[Place], until: float | None) -> Iterator[list[Place]]:
    while (until is None or time.monotonic() < until) and (chunk := list(itertools.islice(places, CHUNK))):
        yield chunk


def _inline(simulation: Simulation, places: Iterator[Place], until: float | None) -> Iterator[_Tally]:
    for chunk in _chunks(places, until):
        tally = _tried(simulation, chunk)
        yield tally
        if tally.failed:
            return


_LOADED: list[Simulation] = []
"""The simulation of a process of the pool."""


def _begin(load: Load) -> None:
    _LOADED[:] = [Simulation(load())]


def _chunk(chunk: list[Place]) -> _Tally:
    return _tried(_LOADED[0], chunk)


def _spread(load: Load, places: Iterator[Place], until: float | None, processes: int) -> Iterator[_Tally]:
    """Play chunks in several processes, with two chunks queued for each."""
    context: Any = multiprocessing.get_context("spawn")
    chunks, failed = _chunks(places, until), False
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_begin, initargs=(load,)) as pool:
        at_work: set[Future[_Tally]] = {
            pool.submit(_chunk, chunk) for chunk in itertools.islice(chunks, 2 * processes)
        }
        while at_work:
            done, at_work = wait(at_work, return_when=FIRST_COMPLETED)
            for future in done:
                tally = future.result()
                failed = failed or bool(tally.failed)
                yield tally
                following = None if failed else next(chunks, None)
                if following is not None:
                    at_work.add(pool.submit(_chunk, following))
