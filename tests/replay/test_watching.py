"""Watching a log judges every commit, and remembers only what may still go on."""

from __future__ import annotations

import msgspec
import pytest
from foldlog.eventlog.commits import Commit, decode, encode
from foldlog.eventlog.events import LateOutcome, Status
from foldlog.eventlog.ports import Stored
from foldlog.replay import Monitor, Violation, Watch, check_trace, trace_of

from tests.replay.conftest import played
from tests.replay.scenarios import SCENARIOS
from tests.unit.traces import Family


def watched(stored: list[Stored], watch: Watch | None = None) -> list[Violation]:
    watch = watch or Watch()
    return [violation for each in stored for violation in watch.feed(each)]


def finished(salt: str) -> Family:
    family = Family(salt)
    family.begin()
    family.commit(Status(status="completed"))
    return family


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_runs_that_the_code_makes_break_no_rule(name: str) -> None:
    assert watched(list(played(name)[1].stored)) == []


def test_a_violation_is_told_as_soon_as_its_commit_is_there() -> None:
    family = finished("a")
    family.commit(Status(status="completed"))
    watch = Watch()
    assert watched(family.stored[:-1], watch) == []
    (violation,) = watch.feed(family.stored[-1])
    assert (violation.rule, violation.revisions) == ("R6", (3, 4))
    assert [violation] == check_trace(trace_of(family.stored))


def test_finished_families_are_forgotten_and_open_ones_are_not() -> None:
    watch = Watch(finished_max=10)
    still_open = Family("open")
    still_open.begin()
    assert watched(still_open.stored, watch) == []
    for number in range(200):
        assert watched(finished(f"f{number}").stored, watch) == []
    assert watch.families == 11
    still_open.commit(Status(status="starting"))
    assert [violation.rule for violation in watch.feed(still_open.stored[-1])] == ["R1"]


def test_a_monitor_with_a_bound_keeps_as_many_facts_as_it_says() -> None:
    monitor = Monitor(finished_max=3)
    for number in range(50):
        for event in finished(f"f{number}").events:
            assert monitor.feed(event) == []
    assert len(monitor._runs) == 3
    monitor.forget("root-f49")
    assert len(monitor._runs) == 2


def test_a_family_is_remembered_as_long_as_one_of_its_runs_is_open() -> None:
    stored = list(played("child")[1].stored)
    watch = Watch(finished_max=0)
    watched(stored[:-1], watch)
    assert watch.families == 1
    watched(stored[-1:], watch)
    assert watch.families == 0


def test_what_comes_late_of_a_forgotten_family_is_let_pass() -> None:
    watch = Watch(finished_max=1)
    late = finished("late")
    watched(late.stored, watch)
    watched(finished("next").stored, watch)
    late.commit(LateOutcome(kind="tool", outcome="cancelled"))
    assert watch.feed(late.stored[-1]) == []


def test_a_broken_chain_is_told_once() -> None:
    family = finished("a")
    damaged = msgspec.structs.replace(
        family.stored[1], data=family.stored[1].data.replace(b"completed", b"kompleted")
    )
    family.commit(Status(status="completed"))
    (violation,) = watched([family.stored[0], damaged, family.stored[2]])
    assert violation.rule == "R11"
    assert "checksum" in violation.message


def test_a_hole_is_a_broken_chain() -> None:
    family = finished("a")
    family.commit(Status(status="completed"))
    commit: Commit = decode(family.stored[2].data)
    assert encode(commit) == family.stored[2].data
    (violation,) = watched([family.stored[0], family.stored[2]])
    assert "commits are missing" in violation.message
