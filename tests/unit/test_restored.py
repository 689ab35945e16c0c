"""A run that a restore holds does nothing until a person resumes it, wherever the backup has cut its history (W56)."""

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest
from foldlog.eventlog.commits import Chain, tombstone_in
from foldlog.projections.fold import fold_commit
from foldlog.projections.run_state import RunState
from foldlog.replay import read_archive
from foldlog.runtime.core import parking
from foldlog.runtime.core.commands import (
    BelowReady,
    Claim,
    Command,
    Resolve,
    Restore,
    Resume,
    SendSignal,
    TimerDue,
)
from foldlog.runtime.core.decide import decide, pending, take
from foldlog.runtime.core.rules import Rules, rules_of_run
from foldlog.runtime.core.timers import open_timers
from foldlog.runtime.core.turn import Turn

HISTORIES = sorted((Path(__file__).parents[1] / "histories" / "v1").glob("*.jsonl"))


def cuts(path: Path) -> Iterator[RunState]:
    """Every state that a backup could have of a run of this history, while the run was open."""
    states: dict[str, RunState] = {}
    chain = Chain(tombstones=True)
    for stored in read_archive(path.read_bytes()).stored:
        recorded = chain.verify(stored)
        if stored.subject.kind != "run" or tombstone_in(recorded.commit) is not None:
            continue
        run = stored.subject.id
        state = states.setdefault(run, RunState(run=run, root=stored.subject.root))
        fold_commit(state, recorded)
        if not state.closed:
            yield copy.deepcopy(state)


def rules_of(state: RunState) -> Rules:
    return rules_of_run(state.submitted) if state.submitted is not None else Rules()


def taken(state: RunState, command: Command) -> RunState:
    turn = Turn(state, rules_of(state), state.updated_at + 1.0)
    take(turn, command)
    return turn.state


def from_outside(state: RunState) -> Iterator[Command]:
    """All that others may say to a run that waits."""
    for approval in state.pending_approvals:
        yield Resolve(approval_id=approval.request.approval_id, decision="rejected", by="ada")
    for call in state.waiting_calls:
        if call.open_wait is not None:
            yield SendSignal(name=call.open_wait.name or "any", data={}, by="ada")
    yield from (TimerDue(timer_id) for timer_id, _ in open_timers(state))
    yield from (BelowReady(child) for child in state.open_children)


def goes_on(state: RunState) -> bool:
    """Return whether a worker that is woken would do anything but read."""
    if not state.runnable:
        return False
    claimed = taken(copy.deepcopy(state), Claim(worker="w", lease_s=10.0))
    return bool(pending(claimed, claimed.updated_at)) or claimed.runnable


def broken(path: Path) -> int:
    """Count how often a restored run goes on unasked, over all cuts of a history, and whatever is said to it."""
    found = 0
    for cut in cuts(path):
        state = taken(cut, Restore(at=1e9))
        found += goes_on(state)
        for command in list(from_outside(state)):
            state = taken(state, command)
            found += goes_on(state)
    return found


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_a_restored_run_does_nothing_before_it_is_resumed(path: Path) -> None:
    assert broken(path) == 0


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_a_resumed_run_goes_on_or_waits_as_it_did(path: Path) -> None:
    for cut in cuts(path):
        waits = bool(cut.pending_approvals or cut.waiting_calls)
        state = taken(taken(copy.deepcopy(cut), Restore(at=1e9)), Resume())
        assert state.held_at is None
        assert not state.pause_requested
        assert state.runnable or (waits and state.paused is not None)
        assert (state.calls.keys(), state.messages) == (cut.calls.keys(), cut.messages)


def test_a_restore_is_noted_once() -> None:
    for cut in cuts(HISTORIES[0]):
        state = taken(cut, Restore(at=1e9))
        assert decide(state, rules_of(state), Restore(at=1e9), state.updated_at) == ()


def test_a_restore_that_holds_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The defect restore-runs-on: the restore is noted, and the run goes on."""
    monkeypatch.setattr(parking, "hold", lambda _turn: None)
    assert sum(broken(path) for path in HISTORIES) > 0
