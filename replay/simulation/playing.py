"""Play a schedule, and check the result."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ...eventlog.errors import ConfigError, FoldlogError
from ...eventlog.faults import Crash
from ...eventlog.ports import Wakeup
from ...runtime.shared.plans import StandingPlans
from ..canonical.canonical import Canonical, canonical
from ..ordering.comparison import compare, is_prefix
from ..traces.trace import trace_of
from .injected import Injected
from .loop import Picks, Stuck, TooLong, run_simulated, simulated_loop
from .process import LEASE_S, Process
from .properties import left_over, violations
from .scenarios import Scenario
from .schedule import CALM_AFTER_S, Act, Chaos, Schedule
from .telling import Line, tell
from .world import Job, World

QUIET_S = 12 * LEASE_S
"""Long enough for all outstanding redeliveries and expiries to be handled, in seconds."""
RELEASE_AFTER_S = 3.0
STEPS_MAX = 150_000
"""The limit of steps, twice as many as the longest schedules take; some of `chorus` take more than 60,000."""
INTERRUPTION = "by the way"

Forms = Mapping[str, Canonical]
"""The canonical form of each family, by `Job.key` of its root."""


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a schedule. Each of the `problems` begins with the property that is broken.

    `schedule` is written out: it plays the same again without its seed. `coverage` counts (event type, kind of fault).
    `trace` has the commits and faults as text.
    """

    schedule: Schedule
    problems: tuple[str, ...]
    coverage: Counter[tuple[str, str]]
    trace: tuple[Line, ...] = ()

    @property
    def broken(self) -> frozenset[str]:
        """The properties that are broken."""
        return frozenset(problem.partition(" ")[0] for problem in self.problems)

    @property
    def faults(self) -> tuple[Injected, ...]:
        """The faults that happened, in order."""
        return self.schedule.faults or ()


async def submit(process: Process, jobs: list[Job], executor: str) -> None:
    """Start all jobs in order; those with `at_once` concurrently with the one before."""
    starting: list[asyncio.Task[Any]] = []
    for job in jobs:
        if starting and not job.at_once:
            await asyncio.gather(*starting)
        start = process.start(job.agent, job.given, executor=executor, **job.options)
        starting.append(asyncio.get_running_loop().create_task(start))
    await asyncio.gather(*starting)


def forms(world: World) -> dict[str, Canonical]:
    """Return the canonical form of each family in the log."""
    found: dict[str, Canonical] = {}
    for root in world.roots():
        trace = trace_of(world.family(root))
        submitted: Any = world.events_of(root)[0]
        found[f"{trace.events[0].agent_path}: {submitted.input}"] = canonical(trace)
    return found


async def write_plans(world: World) -> None:
    """Write the standing plans of a scenario, before anything can fail."""
    for name, steps in world.plans.items():
        await StandingPlans(world.log).save(name, steps)


def undisturbed(scenario: Scenario, seed: int = 0) -> dict[str, Canonical]:
    """Return the canonical forms of the scenario, as it is drawn from a seed, on the local executor without faults.

    Raises `ConfigError` for a scenario that does not end, or breaks a property, even without faults.
    """

    async def play() -> dict[str, Canonical]:
        world = World(seed=seed)
        jobs = scenario.stage(world)
        await write_plans(world)
        world.process("answering").spawn(world.answer_approvals())
        await submit(world.process("local"), jobs, "local")
        await world.settle()
        found = violations(world)
        if found:
            raise ConfigError(f"{scenario.name} fails even without faults: {found[0]}")
        return forms(world)

    try:
        return run_simulated(play)
    except (Stuck, TooLong) as error:
        raise ConfigError(f"{scenario.name} does not end even without faults: {error}") from error


def play(scenario: Scenario, schedule: Schedule, expected: Forms, *, tells: bool = False) -> Played:
    """Play a schedule. `expected` are the scenario's forms without faults; with `tells` the trace is included."""
    game = _Game(scenario, schedule, expected)
    drawn = schedule.picks is None
    seed = f"{schedule.scenario}/{schedule.seed}/picks" if drawn else None
    picks = Picks(seed, () if schedule.picks is None else schedule.picks)
    with overhearing() as bugs:
        try:
            problems = run_simulated(game.play, picks=picks, steps_max=STEPS_MAX)
        except (Stuck, TooLong) as error:
            problems = [f"P3 lost run: {error}"]
    problems += [f"BUG {bug}" for bug in bugs]
    return Played(
        schedule=schedule.written(game.chaos.fired, picks.taken),
        problems=tuple(problems),
        coverage=game.world.coverage,
        trace=tell(game.world) if tells else (),
    )


class _Overhearing(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.bugs: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self.bugs.append(f"{record.getMessage()}: {error!r}" if error is not None else record.getMessage())


@contextlib.contextmanager
def overhearing() -> Iterator[list[str]]:
    """Collect the errors that the runtime logs meanwhile; none of its log records is shown."""
    logger, handler = logging.getLogger("foldlog"), _Overhearing()
    before = logger.handlers, logger.propagate
    logger.handlers, logger.propagate = [handler], False
    try:
        yield handler.bugs
    finally:
        logger.handlers, logger.propagate = before


class _Game:
    """One schedule being played."""

    def __init__(self, scenario: Scenario, schedule: Schedule, expected: Forms) -> None:
        self._scenario, self._schedule, self._expected = scenario, schedule, expected
        self._disturbed = not scenario.compared
        self._cancelled = False
        self._talks = False
        """True if runs share a session: then a cancelled run also changes what later ones read."""
        self.world: World
        self.chaos: Chaos

    async def play(self) -> list[str]:
        """Play the schedule, and return its problems."""
        schedule = self._schedule
        self.world = world = World(seed=schedule.seed)
        self.chaos = Chaos(schedule, world.clock.monotonic, self._newest, self._at_hand)
        world.outcome = schedule.outcome if self._scenario.told_apart else "retry"
        world.people_twice = schedule.twice
        world.person_faults = self.chaos.of
        world.attend = lambda person: self._attend(person, schedule.staff[0].released_every_s)
        jobs = self._scenario.stage(world)
        self._talks = any("session" in job.options for job in jobs)
        await write_plans(world)
        world.process("answering").spawn(world.answer_approvals())
        for number in range(len(schedule.staff)):
            self._worker(f"w{number}", number)
        caller = world.process("caller", self.chaos.of("caller", may_crash=schedule.executor == "local"))
        world.outside(self._release(caller, RELEASE_AFTER_S))
        for number, act in enumerate(schedule.acts):
            world.outside(self._act(number, act))
        await submit(caller, jobs, schedule.executor)
        await world.settle(world.settled_after_s)
        await asyncio.sleep(CALM_AFTER_S + QUIET_S)
        return self._judge(caller, jobs)

    def _newest(self) -> int:
        stored = self.world.log.events.stored
        return stored[-1].position if stored else 0

    def _at_hand(self, process: str) -> tuple[str, ...]:
        return self.world.processes[process].handle.at_hand

    # --- processes ----------------------------------------------------------------------------------------------------

    def _worker(self, name: str, number: int) -> None:
        staff = self._schedule.staff[number]
        process = self.world.process(name, self.chaos.of(name))
        process.silent = staff.silent
        process.serve()
        self.world.outside(self._release(process, staff.released_every_s))
        self.world.outside(self._replace(process, number))

    async def _replace(self, process: Process, number: int) -> None:
        """Start a new worker after this one has died."""
        await process.dead.wait()
        await asyncio.sleep(self._schedule.staff[number].replaced_after_s)
        self._worker(process.name + "+", number)

    def _attend(self, person: Process, every_s: float) -> None:
        self.world.outside(self._release(person, every_s))

    async def _release(self, process: Process, every_s: float) -> None:
        """Deliver late appends and end stale reads at intervals, until there are no more faults."""
        while self.world.clock.monotonic() < CALM_AFTER_S + every_s:
            await asyncio.sleep(every_s)
            await process.handle.release()

    # --- acts of callers ------------------------------------------------------------------------------------------

    async def _act(self, number: int, act: Act) -> None:
        await asyncio.sleep(act.at_s)
        if act.does in {"freeze", "leave"}:
            self._to_worker(act)
            return
        runs = self.world.runs()
        if runs:
            await self._to_run(number, act, runs[int(act.which * len(runs))])

    def _to_worker(self, act: Act) -> None:
        there = [each for each in self.world.processes.values() if each.worker and not each.dead.is_set()]
        if not there:
            return
        process = there[int(act.which * len(there))]
        if act.does == "freeze":
            process.freeze(act.for_s, cut_off=act.which > 0.5)  # noqa: PLR2004 - every other time
        elif process.worker is not None:
            process.worker.stop()
            self._worker(process.name + "-", int(process.name[1]))

    async def _to_run(self, number: int, act: Act, run: str) -> None:
        world = self.world
        match act.does:
            case "cancel":
                self._cancelled = True
                self._disturbed = self._disturbed or self._talks or run not in world.roots()
                reason = "family" if run in world.roots() else f"one of them, {number}"
                await world.cancel(run, reason, world.person())
            case "interrupt":
                self._disturbed = True
                await world.inject(run, f"{INTERRUPTION}, {number}", world.person())
            case "pause":
                self._disturbed = True
                await world.pause(run, act.for_s)
            case _:
                await self._wake(run)

    async def _wake(self, run: str) -> None:
        """Repeat the first wake-up of a run, as a server may."""
        stored, commit = next((s, c) for s, c in self.world.commits() if c.run == run)
        wakeup = Wakeup(
            shard=0, agent=commit.path.partition("/")[0], root=stored.subject.root, run=run, cause=1
        )
        await self.world.log.wakeups.send(wakeup)

    # --- checks -------------------------------------------------------------------------------------------------------

    def _judge(self, caller: Process, jobs: list[Job]) -> list[str]:
        raised = [context.get("exception") or context["message"] for context in simulated_loop().unhandled]
        uncaught = [f"UNCAUGHT {error!r}" for error in raised if not isinstance(error, (Crash, FoldlogError))]
        found = violations(self.world) + left_over(self.world) + uncaught
        return found or self._compare(caller, jobs)

    def _compare(self, caller: Process, jobs: list[Job]) -> list[str]:
        """Check parity if no caller raced with the run; after a cancel, check that the trace is only cut off."""
        got, expected = forms(self.world), self._expected
        lost = caller.dead.is_set()
        missing = [] if lost else sorted({job.key for job in jobs} - got.keys() - set(self.world.told_no))
        found = [f"P3 {key} was submitted and is missing" for key in missing]
        if self._disturbed:
            return found
        for key, form in got.items():
            if key in self.world.told_no and self.world.open_runs():  # its submitter does not know of it
                continue
            if (
                self._cancelled and key not in expected
            ):  # the rollback of a run that was cut off has other steps
                continue
            found += _cut(key, form, expected[key]) if self._cancelled else _equal(key, form, expected[key])
        return found


def _equal(key: str, form: Canonical, whole: Canonical) -> list[str]:
    if form.digest == whole.digest:
        return []
    difference = compare(whole, form).first_difference
    return [f"PARITY {key} differs: {difference.rule}, {difference.why}"] if difference else []


def _cut(key: str, form: Canonical, whole: Canonical) -> list[str]:
    """Return the problems of a trace that should equal the complete one, up to a cancel."""
    root = form.boundaries[0].run
    if not any(b.run == root and b.type == "status" and "cancelled" in b.label for b in form.boundaries):
        return _equal(key, form, whole)
    difference = is_prefix(form, whole).first_difference
    return [f"PARITY {key} is not a prefix: {difference.rule}, {difference.why}"] if difference else []
