"""A schedule: one way in which a scenario may go, as data. Drawn from a seed, or written out to be played again.

What does not depend on how it goes is drawn first: who is there, who says what when. Faults are drawn as they come,
each from its place alone, so that a change at one place leaves the others as they were; which callback runs next is
drawn as it goes. A schedule that was played can be written out with its faults and choices (`written`).
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
"""How long a read is stale at most: after 5 s the runtime takes the log for damaged."""
CALM_AFTER_S = 90.0
"""When nothing goes wrong any more."""
PERSON = 4.0
"""How much more often those meet trouble who say one thing only; theirs is not counted."""
START = 3.0
"""How much more often trouble comes where it may be told that an unsafe tool starts."""
TWICE, SILENT, CUT_OFF, CRASH, STANDSTILL, OF_ITS_KIND = 0.3, 0.5, 0.4, 0.4, 0.3, 0.8
"""How often, of one: approvals answered twice; deaths that are no news; standstills that look like deaths; faults that
are crashes, while there are crashes left; others that are standstills; others that only their operation has."""

Does = Literal["cancel", "interrupt", "pause", "wake", "freeze", "leave"]
ACTS: tuple[Does, ...] = ("cancel", "interrupt", "pause", "wake", "freeze", "leave")
_OFTEN: dict[Does, int] = {"cancel": 4, "interrupt": 3, "pause": 1, "wake": 2, "freeze": 4, "leave": 3}


class Act(msgspec.Struct, frozen=True, omit_defaults=True):
    """Somebody does something at a time (s): to a run or a worker, chosen by `which` (0 to 1) of those that there are.

    `for_s`: how long a pause or a worker's standing still lasts.
    """

    does: Does
    at_s: float
    which: float
    for_s: float = 0.0

    def __str__(self) -> str:
        lasts = f" for {self.for_s:.2f} s" if self.for_s else ""
        return f"at {self.at_s:.3f} s: {self.does}{lasts}"


class Staff(msgspec.Struct, frozen=True, omit_defaults=True):
    """A worker. `silent`: its death is no news; another replaces it so much later. Late appends land every so often."""

    silent: bool = False
    replaced_after_s: float = 1.0
    released_every_s: float = 3.0


class Schedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One way in which a scenario may go.

    With `faults` and `picks` None they are drawn from the seed.
    """

    scenario: str
    seed: int
    executor: Literal["durable", "local"] = "durable"
    outcome: Literal["retry", "succeeded"] = "retry"
    staff: tuple[Staff, ...] = (Staff(),)
    acts: tuple[Act, ...] = ()
    twice: bool = False
    """Whether approvals are answered by two people at once."""
    faults: tuple[Injected, ...] | None = None
    picks: tuple[int, ...] | None = None
    rate: float = 0.0
    """How often something goes wrong at an operation, while there are faults left."""
    faults_max: int = 0
    crashes_max: int = 0

    def written(self, faults: Sequence[Injected], picks: Sequence[int]) -> Schedule:
        """The same with its faults and choices written out."""
        return msgspec.structs.replace(self, faults=tuple(faults), picks=tuple(picks))

    @property
    def summary(self) -> str:
        """What there is to it, in a line."""
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
    """The schedule of a seed."""
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
    """The faults of a schedule, drawn as they come or as they are written. `fired` lists those that happened."""

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
        """The faults of one process."""

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
"""Where trouble is rarer or more frequent than elsewhere: it is spent where it tells most."""
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
    """The schedule as JSON values."""
    return msgspec.to_builtins(schedule)
