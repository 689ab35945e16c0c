"""A schedule: one possible execution of a scenario, as data; drawn from a seed, or written out to be played again.

A seed decides three things. The workers and the acts of callers are drawn before the schedule is played, because they
do not depend on what happens. Whether an operation fails is decided when it is called, from its place alone (process,
operation, count): a hash of the place and the seed is compared with a rate. So a change of the code that adds an
operation in one process leaves the faults of all others in place, and a seed keeps most of its meaning. Which callback
runs next is drawn step by step (`Picks`). All that was drawn is recorded: `written` returns a schedule that plays the
same again without its seed, and that the shrinker can make smaller by leaving parts out.

Faults stop after `CALM_AFTER_S`. From then on everything must come to its end; a run that does not is lost.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from .injected import Injected, Kind
from .process import LEASE_S

WORKERS_MAX = 3
FAULTS_MAX = 8
CRASHES_MAX = 2
RELEASE_S_MAX = 4.0
"""The longest staleness of a read, in seconds: after 5 s the runtime considers the log damaged."""
CALM_AFTER_S = 90.0
"""The time, in seconds, after which there are no more faults."""
PERSON = 4.0
"""The factor for faults of callers, which send one command each; their faults are not counted."""
START = 3.0
"""The factor for faults of an append with a `tool_started`."""
TWICE, SILENT, CUT_OFF, CRASH, STANDSTILL, OF_ITS_KIND = 0.3, 0.5, 0.4, 0.4, 0.3, 0.8
"""Probabilities: that approvals are answered twice; that a death is not announced; that a freeze looks like a death;
that a fault is a crash, while there are crashes left; that another fault is a freeze or stall; that one of the rest is
specific to its operation."""

Does = Literal["cancel", "interrupt", "pause", "wake", "freeze", "leave"]
ACTS: tuple[Does, ...] = ("cancel", "interrupt", "pause", "wake", "freeze", "leave")
_OFTEN: dict[Does, int] = {"cancel": 4, "interrupt": 3, "pause": 1, "wake": 2, "freeze": 4, "leave": 3}


class Act(msgspec.Struct, frozen=True, omit_defaults=True):
    """An act of a caller or operator at a time (s), on a run or worker chosen by `which` (0 to 1) of those that exist.

    `for_s` is the length of a pause or freeze.
    """

    does: Does
    at_s: float
    which: float
    for_s: float = 0.0

    def __str__(self) -> str:
        lasts = f" for {self.for_s:.2f} s" if self.for_s else ""
        return f"at {self.at_s:.3f} s: {self.does}{lasts}"


class Staff(msgspec.Struct, frozen=True, omit_defaults=True):
    """A worker. `silent`: its death is not announced. The times are those of its replacement and its late appends."""

    silent: bool = False
    replaced_after_s: float = 1.0
    released_every_s: float = 3.0


class Schedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One possible execution of a scenario. `faults` and `picks` that are None are drawn from the seed."""

    scenario: str
    seed: int
    executor: Literal["durable", "local"] = "durable"
    outcome: Literal["retry", "succeeded"] = "retry"
    staff: tuple[Staff, ...] = (Staff(),)
    acts: tuple[Act, ...] = ()
    twice: bool = False
    """True if approvals are answered by two operators at once."""
    faults: tuple[Injected, ...] | None = None
    picks: tuple[int, ...] | None = None
    rate: float = 0.0
    """The probability of a fault at an operation, while there are faults left."""
    faults_max: int = 0
    crashes_max: int = 0

    def written(self, faults: Sequence[Injected], picks: Sequence[int]) -> Schedule:
        """Return the same schedule with its faults and choices written out."""
        return msgspec.structs.replace(self, faults=tuple(faults), picks=tuple(picks))

    @property
    def summary(self) -> str:
        """The parts of the schedule, in a line."""
        faults = "" if self.faults is None else f", {_counted(len(self.faults), 'fault')}"
        picks = (
            ""
            if self.picks is None
            else f", {_counted(sum(map(bool, self.picks)), 'choice')} of what runs next"
        )
        workers = _counted(len(self.staff), "worker")
        return (
            f"{self.scenario} on {self.executor}, {workers}, {_counted(len(self.acts), 'act')}{faults}{picks}"
        )


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def draw_schedule(scenario: str, seed: int) -> Schedule:
    """Draw the schedule of a seed."""
    rng = random.Random(f"{scenario}/{seed}")  # noqa: S311 - not for secrets
    acts = [_act(rng) for _ in range(rng.choice((0, 0, 0, 1, 1, 1, 2, 3)))]
    staff = [
        Staff(
            silent=rng.random() < SILENT,
            replaced_after_s=rng.uniform(0.0, 2 * LEASE_S),
            released_every_s=rng.uniform(0.3, RELEASE_S_MAX),
        )
        for _ in range(rng.randint(1, WORKERS_MAX))
    ]
    return Schedule(
        scenario=scenario,
        seed=seed,
        executor=rng.choice(("durable", "durable", "local")),
        outcome=rng.choice(("retry", "succeeded")),
        staff=tuple(staff),
        acts=tuple(sorted(acts, key=lambda act: act.at_s)),
        twice=rng.random() < TWICE,
        rate=rng.choice((0.02, 0.05, 0.15)),
        faults_max=rng.randint(0, FAULTS_MAX),
        crashes_max=rng.randint(0, CRASHES_MAX),
    )


def _act(rng: random.Random) -> Act:
    does = rng.choices(ACTS, weights=[_OFTEN[each] for each in ACTS])[0]
    at_s = rng.uniform(0.0, rng.choice((0.5, 1.0, 2.0, 4.0, 20.0)))
    lasts = does in {"pause", "freeze"}
    for_s = rng.uniform(0.2, rng.choice((2.0, 3 * LEASE_S))) if lasts else 0.0
    return Act(does, at_s, rng.random(), for_s)


# --- faults -----------------------------------------------------------------------------------------------------------


class Chaos:
    """The faults of a schedule, drawn at each operation or as written. `fired` lists those that happened."""

    def __init__(
        self,
        schedule: Schedule,
        now_s: Callable[[], float],
        newest: Callable[[], int],
        at_hand: Callable[[str], Sequence[str]],
    ) -> None:
        self.fired: list[Injected] = []
        self._schedule, self._now_s, self._newest, self._at_hand = schedule, now_s, newest, at_hand
        self._left, self._crashes = schedule.faults_max, schedule.crashes_max
        written = schedule.faults or ()
        self._written = {(it.process, it.operation, it.call): it for it in written}

    def of(self, process: str, *, may_crash: bool = True) -> Callable[[str, int, int], Injected | None]:
        """Return the function that draws the faults of one process."""

        def draw(operation: str, call: int, _number: int) -> Injected | None:
            if self._schedule.faults is not None:
                found = self._written.get((process, operation, call))
            else:
                found = self._drawn(process, operation, call, may_crash=may_crash)
            if found is not None:
                self.fired.append(found)
            return found

        return draw

    def _drawn(self, process: str, operation: str, call: int, *, may_crash: bool) -> Injected | None:
        a_person = process.startswith("person")
        if not (self._left or a_person) or self._now_s() > CALM_AFTER_S:
            return None
        place = f"{self._schedule.scenario}/{self._schedule.seed}/{process}/{operation}/{call}"
        mixed = (zlib.crc32(place.encode()) * 0x9E3779B1) & 0xFFFFFFFF
        starts = operation == "events.append" and "tool_started" in self._at_hand(process)
        weight = _WEIGHTS.get(operation, 1.0) * (PERSON if a_person else 1.0) * (START if starts else 1.0)
        if mixed > self._schedule.rate * weight * 0xFFFFFFFF:
            return None
        self._left -= not a_person
        rng = random.Random(place)  # noqa: S311 - not for secrets
        kind = self._kind(rng, operation, may_crash=may_crash, starts=starts)
        if kind in {"crash", "crash-after"}:
            self._crashes -= 1
        cut_off = kind in {"freeze", "freeze-after"} and rng.random() < CUT_OFF
        return Injected(process, operation, call, kind, self._amount(rng, kind), cut_off)

    def _kind(self, rng: random.Random, operation: str, *, may_crash: bool, starts: bool) -> Kind:
        if starts and rng.random() < STANDSTILL:
            return "freeze-after"
        if may_crash and self._crashes > 0 and rng.random() < CRASH:
            return rng.choice(_DEATHS)
        if rng.random() < STANDSTILL:
            behind = operation in {"events.append", "events.read"}
            return rng.choice(_STANDSTILLS if behind else _STANDSTILLS[:2])
        own = _OF_OPERATION.get(operation)
        return rng.choice(own if own is not None and rng.random() < OF_ITS_KIND else _OF_ANY)

    def _amount(self, rng: random.Random, kind: Kind) -> float:
        match kind:
            case "stall" | "freeze" | "freeze-after":
                return rng.uniform(1.0, 2.5 * LEASE_S)
            case "outage":
                return rng.uniform(0.2, 1.5 * LEASE_S)
            case "delay" | "delay-after":
                return rng.uniform(0.0, 4.0)
            case "lost-ack" | "late-append" | "refused":
                return rng.choice((0.0, rng.uniform(0.0, 4.0)))
            case "stale-read":
                return float(rng.randint(0, self._newest()))
            case _:
                return 0.0


_WEIGHTS = {"drafts.publish": 0.3, "events.append": 2.5, "events.follow": 0.5, "leases.deaths": 0.5}
"""Operations with fewer or more faults than others, so that faults fall where they reveal most."""
_DEATHS: tuple[Kind, ...] = ("crash", "crash-after")
_STANDSTILLS: tuple[Kind, ...] = ("stall", "freeze", "freeze-after")
_OF_ANY: tuple[Kind, ...] = ("outage", "delay", "delay-after")
_OF_OPERATION: dict[str, tuple[Kind, ...]] = {
    "events.append": ("lost-ack", "late-append", "refused", "conflict"),
    "events.read": ("stale-read", "stale-read", "delay"),
    "events.head": ("stale-read",),
    "wakeups.pull": ("duplicate",),
    "snapshots.put": ("late-append", "refused"),
    "snapshots.get": ("refused",),
}


def to_json(schedule: Schedule) -> Any:
    """Return the schedule as JSON values."""
    return msgspec.to_builtins(schedule)
