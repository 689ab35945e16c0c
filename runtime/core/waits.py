"""Waits of tool calls: for a time, and for signals.

A wait ends the attempt that begins it, as a question does (ADR 0021): the run parks, no worker waits, and the call is
run again from its beginning, with what its waits came to at hand. A signal is stored whether or not a wait is open, so
that one which comes a moment before its wait is not lost; a wait takes the oldest unread signal of its name as it
starts, and a signal ends the oldest open wait of its name as it comes (W28). Signal and due time race by their places
in the log: the second finds the wait over. `tests/model/waits.py` is a model of this.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from ...eventlog.errors import SignalError, TooManySignals
from ...eventlog.events import SignalDropped, SignalReceived, Status, WaitEnded, WaitKind, WaitStarted
from ...eventlog.names import digest_of
from ...projections.run_state import CallState, RunState
from ..ports.schema_problems import value_problem
from ..ports.tools import SIGNAL_NAME, Signal
from .commands import SendSignal, ToolWaits
from .turn import Turn

Outcome = Literal["elapsed", "received", "timed_out"]

WAIT_TIMER = "wait-"
PAUSED = ("approval", "unverifiable", "budget", "wait")
"""The pauses that are over once nothing is left to answer and to wait for."""


def signals_of(call: CallState) -> dict[str, Signal | None]:
    """Return what each wait of a call that is over came to, by its id; null for a time that is over."""
    found: dict[str, Signal | None] = {}
    for wait_id, wait in call.waits.items():
        if wait.ended is None:
            continue
        received = wait.ended.outcome == "received"
        found[wait_id] = (
            Signal(data=wait.ended.data, key=wait.ended.key, by=wait.ended.by, at=wait.sent_at or 0.0)
            if received
            else None
        )
    return found


def start(turn: Turn, call: CallState, wait: ToolWaits) -> None:
    """Begin a wait, and end it if an unread signal fits it."""
    turn.add(
        WaitStarted(
            step=turn.state.step,
            tool_call_id=call.id,
            wait_id=wait.wait_id,
            kind=wait.kind,
            name=wait.name,
            until=wait.until,
            schema=wait.form,
        )
    )
    if wait.kind == "signal" and _take_unread(turn, call):
        return
    if wait.until is not None and wait.until <= turn.now:
        _end(turn, call, _timed_out(wait.kind))
    elif turn.state.paused is None:
        turn.add(Status(status="paused", reason="wait"))


def _take_unread(turn: Turn, call: CallState) -> bool:
    """Give the wait the oldest unread signal that fits it; those before it are dropped."""
    wait = call.open_wait
    while wait is not None and (signal := unread(turn.state, wait.name)) is not None:
        problem = misfit(wait, signal.data)
        if problem is None:
            _end(turn, call, "received", signal)
            return True
        turn.add(SignalDropped(name=signal.name, problem=problem, key=signal.key))
    return False


def unread(state: RunState, name: str) -> SignalReceived | None:
    """Return the oldest signal of this name that no wait has taken."""
    return next((signal.event for signal in state.signals if signal.event.name == name), None)


def waiting_for(state: RunState, name: str) -> CallState | None:
    """Return the call whose wait for a signal of this name is the oldest."""
    for call in state.waiting_calls:
        wait = call.open_wait
        if wait is not None and wait.kind == "signal" and wait.name == name:
            return call
    return None


def misfit(wait: WaitStarted, data: object) -> str | None:
    """Return why the data does not fit the schema of the wait; null if it does."""
    return None if wait.schema is None else value_problem(data, wait.schema, formats=True)


def receive(turn: Turn, signal: SendSignal) -> None:
    """Store a signal, and end the wait that is open for it. A key that is known is not stored again."""
    state = turn.state
    if state.signal_number(signal.name, signal.key) is not None:
        return
    turn.add(SignalReceived(name=signal.name, data=signal.data, key=signal.key, by=signal.by))
    call = waiting_for(state, signal.name)
    if call is not None:
        _take_unread(turn, call)


SIGNAL_BYTES_MAX = 256 * 1024
"""The largest size of a signal's data, encoded."""
UNREAD_MAX = 1_000
"""The largest number of signals that a run keeps until waits take them."""


def check_signal(state: RunState, signal: SendSignal) -> None:
    """Raise `SignalError` unless the signal can be sent like this, or was sent before."""
    if not SIGNAL_NAME.fullmatch(signal.name):
        raise SignalError(f"a signal is named by letters, digits, '.', '_' and '-', not {signal.name!r:.60}")
    size = len(msgspec.json.encode(signal.data))
    if size > SIGNAL_BYTES_MAX:
        raise SignalError(
            f"the data of signal {signal.name!r} has {size:,} bytes, more than {SIGNAL_BYTES_MAX:,}: "
            "store it elsewhere, and send where it is"
        )
    if state.kind != "agent":
        raise SignalError(
            f"run {state.run} is a {state.kind}: it never waits; signal the run of an agent in it"
        )
    if state.signal_number(signal.name, signal.key) is not None:
        return
    if len(state.signals) >= UNREAD_MAX:
        raise TooManySignals(
            f"run {state.run} has {UNREAD_MAX:,} signals that no wait has taken: it takes no more"
        )
    call = waiting_for(state, signal.name)
    wait = call.open_wait if call is not None else None
    problem = misfit(wait, signal.data) if wait is not None else None
    if problem is not None:
        raise SignalError(f"the data does not fit the schema of the wait for {signal.name!r}: {problem}")


def timers_of(state: RunState) -> list[tuple[str, float]]:
    """Return the timers of the open waits: the id and the time of each, in Unix seconds."""
    waits = [(call, call.open_wait) for call in state.calls.values() if call.result is None]
    return [
        (timer_of(state, call, wait), wait.until)
        for call, wait in waits
        if wait is not None and wait.until is not None
    ]


def timer_of(state: RunState, call: CallState, wait: WaitStarted) -> str:
    """Return the id of the timer of a wait."""
    return f"{WAIT_TIMER}{digest_of(str(state.step), call.id, wait.wait_id)[:16]}"


def timer_due(turn: Turn, timer_id: str) -> None:
    """End the wait whose time is over."""
    for call in turn.state.waiting_calls:
        wait = call.open_wait
        if wait is not None and timer_of(turn.state, call, wait) == timer_id:
            _end(turn, call, _timed_out(wait.kind))


def _timed_out(kind: WaitKind) -> Outcome:
    return "elapsed" if kind == "sleep" else "timed_out"


def _end(
    turn: Turn,
    call: CallState,
    outcome: Outcome,
    signal: SignalReceived | None = None,
) -> None:
    wait = call.open_wait
    if wait is None:
        return
    turn.add(
        WaitEnded(
            step=turn.state.step,
            tool_call_id=call.id,
            wait_id=wait.wait_id,
            outcome=outcome,
            data=signal.data if signal is not None else None,
            key=signal.key if signal is not None else "",
            by=signal.by if signal is not None else "",
        )
    )
    resume(turn)


def resume(turn: Turn) -> None:
    """End the pause once the run waits neither for an answer nor for a signal or a time."""
    state, reason = turn.state, turn.state.paused
    if reason in PAUSED and not state.pending_approvals and not state.waiting_calls:
        turn.add(Status(status="resumed", reason=reason))
