"""Every operation of every scripted run is a place where its owner dies, or hears nothing, or is told nonsense.

Whatever happens, somebody goes on, the run ends as if nothing had happened (R21), and no unsafe tool runs twice unasked
(P4).
The small scenarios are tried whole by day, a share of the large ones too; all of each is the nightly set's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import islice

import pytest
from foldlog.eventlog.faults import (
    CrashAt,
    Delay,
    DuplicateDelivery,
    Fault,
    LateAppend,
    LostAck,
    Outage,
    Refused,
    SpuriousConflict,
    StaleRead,
)
from foldlog.replay.simulation import World, run_simulated
from foldlog.replay.simulation.playing import submit
from foldlog.replay.simulation.properties import left_over, violations
from foldlog.replay.simulation.scenarios import child, pure

from tests.protocol.play import COMPARED, QUIET_S, Played, differences, play, problems

EXECUTORS = ("durable", "local")
EVERY_TIME = {"unsafe"}
"""It has all that `pure` does, too."""
IN_PART = (
    "pure",
    "approval",
    "injection",
    "unsafe_child",
    "planned",
    "retry",
    "child",
    "waiting_child",
    "swarm",
    "lane",
)
PART, PART_OF_COMPANY = 29, 13
"""One in so many; it divides neither the faults of an append nor those of a read, so that each kind is in it."""
LARGE = {
    "company",
    "limited",
    "one_press",
    "prioritized",
    "questions",
    "random_programs",
    "slots",
    "slots_below",
    "undone",
}
"""They take a core minutes, so each is tried in shards; each of those ends within half a minute."""
SHARDS = 13
"""Each has every kind of fault, as above."""
CASES = [
    *(pytest.param(name, PART, 0, id=f"{name}-in-part") for name in IN_PART),
    *(
        pytest.param(
            name,
            shards,
            shard,
            marks=[] if name in EVERY_TIME else pytest.mark.nightly,
            id=name if shards == 1 else f"{name}-{shard + 1}-of-{shards}",
        )
        for name in COMPARED
        for shards in [SHARDS if name in LARGE else 1]
        for shard in range(shards)
    ),
]
EARLY = 12
"""An operation that the owner of each scenario comes to."""
UNSAFE = ("unsafe", "unsafe_child", "approval")


def operations(name: str, executor: str) -> dict[str, int]:
    """Return the number of calls of each operation without faults."""
    return dict(play(name, executor=executor).victim.handle.operations)


def check(name: str, executor: str, faults: list[Fault], played: Played) -> list[str]:
    """Return the problems, with the data to reproduce them."""
    found = problems(played) + differences(name, played)
    return [f"play({name!r}, {faults}, executor={executor!r}): {problem}" for problem in found]


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(("name", "part", "first"), CASES)
def test_a_run_whose_owner_dies_at_any_operation_ends_as_if_nothing_had_happened(
    name: str, part: int, first: int, executor: str
) -> None:
    found: list[str] = []
    deaths = 0
    for number in range(first, 2 * operations(name, executor)["*"], part):
        call, after = number // 2 + 1, number % 2 == 1
        faults: list[Fault] = [CrashAt(call, after=after)]
        played = play(name, faults, executor=executor, silent=call % 2 == 0)
        deaths += played.victim.dead.is_set()
        found += check(name, executor, faults, played)
    assert not found
    assert deaths * part > 30


@pytest.mark.parametrize("name", [name for name in COMPARED if name not in {*EVERY_TIME, *IN_PART}])
def test_a_run_whose_owner_dies_once_ends_as_if_nothing_had_happened(name: str) -> None:
    """One death by day, in each scenario of which none is tried above."""
    faults: list[Fault] = [CrashAt(EARLY)]
    played = play(name, faults)
    assert played.victim.dead.is_set()
    assert check(name, "durable", faults, played) == []


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_family_of_everything_ends_as_if_its_owner_had_not_died(executor: str) -> None:
    """A share of the operations; all of them are tried in the nightly set."""
    found: list[str] = []
    deaths = 0
    for call in range(1, operations("company", executor)["*"] + 1, PART_OF_COMPANY):
        faults: list[Fault] = [CrashAt(call, after=call % 4 == 1)]
        played = play("company", faults, executor=executor, silent=call % 2 == 0)
        deaths += played.victim.dead.is_set()
        found += check("company", executor, faults, played)
    assert not found
    assert deaths > 10


@pytest.mark.parametrize("name", UNSAFE)
def test_a_call_of_unknown_outcome_that_somebody_marks_as_succeeded_is_not_run_again(name: str) -> None:
    found: list[str] = []
    settled = 0
    for call in range(1, operations(name, "durable")["*"] + 1):
        played = play(name, [CrashAt(call, after=True)], outcome="succeeded")
        found += check(name, "durable", [CrashAt(call, after=True)], played)
        settled += bool(played.world.answers)
        starts = [(start.run, start.call) for start in played.world.starts]
        assert len(starts) == len(set(starts))
    assert not found
    assert settled > 1


@pytest.mark.parametrize("name", UNSAFE)
def test_a_call_of_unknown_outcome_waits_for_a_decision_and_is_never_lost(name: str) -> None:
    asked = 0
    for call in range(1, operations(name, "durable")["*"] + 1):
        played = play(name, [CrashAt(call, after=True)])
        starts = [(start.run, start.call) for start in played.world.starts]
        asked += len(played.world.answers)
        assert len(starts) - len(set(starts)) <= len(played.world.answers)
        done = [effect for effect in played.world.effects if effect[0] in {"send", "deploy"}]
        assert set(starts)
        assert len(set(done)) == len(set(starts)), "a call was lost"
    assert asked > 1


def misfortunes(counts: dict[str, int]) -> Iterator[Fault]:
    """One fault at each operation at which it can happen."""
    for call in range(1, counts.get("events.append", 0) + 1):
        yield from (LostAck(call), LateAppend(call), Refused(call), SpuriousConflict(call))
        yield Delay(call, delay_s=0.3)
        yield Delay(call, delay_s=0.3, after=True)
    for call in range(1, counts.get("wakeups.pull", 0) + 1):
        yield DuplicateDelivery(call)
    for operation in ("events.read", "events.head"):
        for call in range(1, counts.get(operation, 0) + 1):
            yield from (StaleRead(call, operation, position) for position in range(0, 12, 2))
    for call in range(1, counts["*"] + 1, 3):
        yield Outage(call, duration_s=2.0)
        yield Outage(call, duration_s=25.0)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(("name", "part", "first"), CASES)
def test_a_run_survives_every_misfortune_at_every_operation(
    name: str, part: int, first: int, executor: str
) -> None:
    found: list[str] = []
    fired = 0
    for fault in islice(misfortunes(operations(name, executor)), first, None, part):
        played = play(name, [fault], executor=executor, standby=True)
        fired += len(played.victim.handle.fired)
        found += check(name, executor, [fault], played)
    assert not found
    assert fired * part > 30


def twins(call: int, *, after: bool) -> list[str]:
    """One caller dies at an operation of its submission under a key, then another submits the same."""

    async def main() -> list[str]:
        world = World()
        (job,) = pure(world)
        world.worker("w0")
        dying = world.process("dying", [CrashAt(call, after=after)])
        await dying.start(job.agent, job.text, executor="durable", idempotency_key="k")
        handle = await world.process("twin").start(
            job.agent, job.text, executor="durable", idempotency_key="k"
        )
        await world.settle()
        assert handle is not None
        same = world.roots() == [handle.run_id]
        return violations(world) + ([] if same else [f"{world.roots()} instead of {handle.run_id}"])

    return run_simulated(main)


def test_a_submission_under_a_key_that_dies_anywhere_is_completed_by_its_twin() -> None:
    assert [
        problem for call in range(1, 8) for after in (False, True) for problem in twins(call, after=after)
    ] == []


def hasty_cancel(call: int, *, after: bool) -> tuple[list[str], str]:
    """A canceller that meets conflict after conflict, claims the family first, and dies at an operation of it."""

    async def main() -> tuple[list[str], str]:
        world = World()
        (job,) = child(world)
        world.worker("w0")
        await submit(world.process("caller"), [job], "durable")
        await world.until_stored("child_started")
        busy: list[Fault] = [SpuriousConflict(number) for number in range(1, 4)]
        canceller = world.process("canceller", [*busy, CrashAt(call, after=after)])
        await canceller.does(canceller.runtime().get_run(world.runs()[0]).cancel("family"))
        await world.settle()
        await asyncio.sleep(QUIET_S)
        status = (await world.people().get_run(world.runs()[0]).state()).status
        return violations(world) + [f"left over: {wakeup}" for wakeup in left_over(world)], status

    return run_simulated(main)


def test_a_canceller_that_claims_a_family_and_dies_leaves_it_whole() -> None:
    found: list[str] = []
    ends: set[str] = set()
    for call in range(1, 16):
        for after in (False, True):
            problems_found, status = hasty_cancel(call, after=after)
            found += [f"hasty_cancel({call}, after={after}): {problem}" for problem in problems_found]
            ends.add(status)
    assert found == []
    assert ends == {"cancelled", "completed"}
