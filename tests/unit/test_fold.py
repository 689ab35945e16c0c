"""The fold's table: each stored event has one function, and the function is written for it."""

from __future__ import annotations

import inspect
from typing import Any, get_args, get_type_hints

import pytest
from foldlog.eventlog.events import ENGINE, OBSERVABLE, Event, Parked, Unknown, WaitEnded, WaitStarted
from foldlog.projections.fold import FOLDS, apply
from foldlog.projections.run_state import CallState, RunState


def test_each_event_is_folded_by_exactly_one_function() -> None:
    stored = [*OBSERVABLE, *ENGINE, Unknown]
    assert sorted(each.__name__ for each in FOLDS) == sorted({each.__name__ for each in stored})


@pytest.mark.parametrize("event", FOLDS, ids=lambda event: event.__name__)
def test_the_function_is_written_for_the_event(event: type[Event]) -> None:
    fold: Any = FOLDS[event]
    _, parameter, *_ = inspect.signature(fold).parameters
    written_for = get_type_hints(fold)[parameter]
    assert written_for is Any or event in (get_args(written_for) or (written_for,))


@pytest.mark.parametrize("reason", ["approval", "unverifiable", "budget", "wait", "child"])
def test_the_end_of_a_wait_lets_a_run_go_on_whatever_else_it_is_parked_for(reason: Any) -> None:
    state = RunState(calls={"c": CallState(id="c", index=0, name="chase", arguments={})})
    wait = WaitStarted(tool_call_id="c", wait_id="signal-paid-0", kind="signal", name="paid")
    ended = WaitEnded(tool_call_id="c", wait_id="signal-paid-0", outcome="timed_out")
    for event in (wait, Parked(reason=reason), ended):
        apply(state, event, 1.0)
    assert state.parked is None
