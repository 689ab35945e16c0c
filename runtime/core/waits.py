"""Waits of tool calls: for a time, and for signals.

A wait ends the attempt that begins it, as a question does (ADR 0021): the run parks, no worker waits, and the call is
run again from its beginning, with what its waits came to at hand. A signal is stored whether or not a wait is open, so
that one which comes a moment before its wait is not lost; a wait takes the oldest unread signal of its name as it
starts, and a signal ends the oldest open wait of its name as it comes (W28). Signal and due time race by their places
in the log: the second finds the wait over. `tests/model/waits.py` is a model of this.

A callback is a wait with an address of its own (W30): a token, stored as its SHA-256 before the call may tell it. What
answers it is a signal to this wait, kept like any other if it comes first. Each attempt makes a further token, since
nothing says whether the last one was told; all are valid until one is used. `tests/model/callbacks.py` is a model.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ...eventlog.errors import SignalError, SignalMisfit, TooManySignals
from ...eventlog.events import (
    SignalDropped,
    SignalReceived,
    Status,
    TokenIssued,
    WaitEnded,
    WaitKind,
    WaitStarted,
)
from ...eventlog.names import digest_of
from ...projections.fold.waits import channel
from ...projections.run_state import CallState, RunState
from ..ports.json_values import NotJson, as_json
from ..ports.schema_problems import value_problem
from ..ports.tools import SIGNAL_NAME, Signal
from . import parking
from .commands import AnswerCallback, CallbackIssued, SendSignal, ToolWaits
from .turn import Turn

Outcome = Literal["elapsed", "received", "timed_out", "cancelled"]

WAIT_TIMER = "wait-"
PAUSED = ("approval", "unverifiable", "budget", "wait")
"""The pauses that are over once nothing is left to answer and to wait for."""


def signals_of(call: CallState) -> dict[str, Signal | None]:
    """Return the results of a call's waits that are over, by wait id; null for a sleep or a wait that timed out."""
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


def start(turn: Turn, call: CallState, wait: ToolWaits, *, asked: str = "") -> None:
    """Begin a wait, and end it if an unread signal fits it. `asked` is for a wait of a workflow itself."""
    callback = call.callbacks.get(wait.wait_id)
    until = wait.until if callback is None else callback.until
    turn.add(
        WaitStarted(
            **_where(turn, call),
            wait_id=wait.wait_id,
            kind=wait.kind,
            name=wait.name,
            until=until,
            schema=wait.form,
            asked=asked,
        )
    )
    call = turn.state.calls[call.id]
    if wait.kind != "sleep" and _take_unread(turn, call):
        return
    if until is not None and until <= turn.now:
        _end(turn, call, _timed_out(wait.kind))
    elif turn.state.paused is None:
        turn.add(Status(status="paused", reason="wait"))


def _take_unread(turn: Turn, call: CallState) -> bool:
    """Give the wait the oldest unread signal that fits it; those before it are dropped."""
    wait = call.open_wait
    while wait is not None and (signal := unread(turn.state, wait)) is not None:
        problem = misfit(wait, signal.data)
        if problem is None:
            _end(turn, call, "received", signal)
            return True
        turn.add(SignalDropped(name=signal.name, problem=problem, key=signal.key))
    return False


def unread(state: RunState, wait: WaitStarted) -> SignalReceived | None:
    """Return the oldest signal for this wait that none has taken."""
    signals = (signal.event for signal in state.signals)
    return next((each for each in signals if (each.name, each.tool_call_id) == channel(wait)), None)


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


def issue(turn: Turn, call: CallState, issued: CallbackIssued) -> None:
    """Record a token of a callback, unless it is answered or over; its first time limit holds.

    A call waits once it has told the token; a workflow tells it once it waits.
    """
    made = call.callbacks.get(issued.wait_id)
    waits_for_it = issued.wait_id in call.waits and call.kind == "tool"
    if waits_for_it or (made is not None and (made.used or issued.sha256 in made.tokens)):
        return
    turn.add(
        TokenIssued(
            step=turn.state.call_step,
            tool_call_id=call.id,
            approval_id="",
            wait_id=issued.wait_id,
            sha256=issued.sha256,
            expires_at=made.until if made is not None else issued.until,
        )
    )


def callback_with(state: RunState, sha256: str) -> tuple[CallState, str] | None:
    """Return the open call whose callback has this token, and the callback's `wait_id`."""
    for call in state.calls.values():
        for wait_id, callback in call.callbacks.items():
            if sha256 in callback.tokens and call.result is None:
                return call, wait_id
    return None


def answer(turn: Turn, given: AnswerCallback) -> None:
    """Store the answer to a callback, once, and end the wait if it is open."""
    found = callback_with(turn.state, given.sha256)
    if found is None or found[0].callbacks[found[1]].used:
        return
    call, wait_id = found
    turn.add(
        SignalReceived(
            step=turn.state.call_step,
            tool_call_id=call.id,
            name=wait_id,
            data=given.data,
            key=given.sha256,
            by=given.by,
        )
    )
    if call.open_wait is not None and call.open_wait.wait_id == wait_id:
        _take_unread(turn, call)


def given_signal(name: object, data: object, key: object, by: object) -> SendSignal:
    """Return the signal that a caller gives. Raises `SignalError`."""
    if not isinstance(name, str) or not SIGNAL_NAME.fullmatch(name):
        raise SignalError(f"a signal is named by letters, digits, '.', '_' and '-', not {name!r:.60}")
    return SendSignal(
        name=name,
        data=given_data(f"signal {name!r}", data),
        key=_given_text("the key of a signal", key),
        by=_given_text("the sender of a signal (by)", by),
    )


def given_answer(sha256: str, data: object, by: object) -> AnswerCallback:
    """Return the answer to the callback whose token has this digest. Raises `SignalError`."""
    sender = _given_text("the sender of an answer (by)", by)
    return AnswerCallback(sha256=sha256, data=given_data("a callback", data), by=sender)


def given_data(what: str, data: object) -> Any:
    """Return data as JSON builtins. Raises `SignalError`."""
    try:
        return as_json(data)
    except NotJson as error:
        raise SignalMisfit(f"the data of {what} cannot be stored as JSON: {error}") from None


def _given_text(what: str, text: object) -> str:
    try:
        size = len(text.encode()) if isinstance(text, str) else -1
    except UnicodeEncodeError:
        size = -1
    if not isinstance(text, str) or size < 0:
        raise SignalError(f"{what} must be text, not {text!r:.60}")
    if size > TEXT_BYTES_MAX:
        raise SignalError(f"{what} has {size:,} bytes, and must have at most {TEXT_BYTES_MAX:,}")
    return text


def check_callback(state: RunState, given: AnswerCallback, now: float) -> None:
    """Raise `SignalError` unless the callback can be answered like this, or was with this token.

    `SignalMisfit` leaves the token valid, for an answer that fits.
    """
    if state.signal_number("", given.sha256) is not None:
        return
    _check_size("a callback", given.data)
    found = callback_with(state, given.sha256)
    if found is None:
        raise SignalError("the callback's token is not valid: it was never issued, or its call is over")
    call, wait_id = found
    callback = call.callbacks[wait_id]
    if callback.used:
        raise SignalError("the callback was answered before, with another of its tokens")
    ended = wait_id in call.waits and call.waits[wait_id].ended is not None
    if ended or (callback.until is not None and callback.until <= now):
        raise SignalError("the callback's time is over")
    wait = call.open_wait
    if wait is None or wait.wait_id != wait_id:
        return
    problem = misfit(wait, given.data)
    if problem is not None:
        raise SignalMisfit(f"the data does not fit the schema of callback {wait.name!r}: {problem}")


def _check_size(what: str, data: object) -> None:
    size = len(msgspec.json.encode(data))
    if size > SIGNAL_BYTES_MAX:
        raise SignalMisfit(
            f"the data of {what} has {size:,} bytes, more than {SIGNAL_BYTES_MAX:,}: "
            "store it elsewhere, and send where it is"
        )


SIGNAL_BYTES_MAX = 256 * 1024
"""The largest size of a signal's data, encoded."""
TEXT_BYTES_MAX = 1024
"""The largest size of a signal's key, and of its sender's name."""
UNREAD_MAX = 1_000
"""The largest number of signals that a run keeps until waits take them."""


def check_signal(state: RunState, signal: SendSignal) -> None:
    """Raise `SignalError` unless the signal can be sent like this, or was sent before."""
    _check_size(f"signal {signal.name!r}", signal.data)
    if state.kind not in {"agent", "workflow"}:
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
        raise SignalMisfit(f"the data does not fit the schema of the wait for {signal.name!r}: {problem}")


def timers_of(state: RunState) -> list[tuple[str, float]]:
    """Return the timers of the open waits: the id and the time of each, in Unix seconds."""
    return [
        (timer_of(state, call, wait), wait.until)
        for call in state.calls.values()
        if call.result is None and (wait := call.open_wait) is not None and wait.until is not None
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


def cancel(turn: Turn, call: CallState) -> None:
    """End the wait of a workflow whose branch lost a race; the run may go on waiting for others."""
    _end(turn, call, "cancelled")


def _where(turn: Turn, call: CallState) -> dict[str, Any]:
    """Return the fields that say where a wait belongs: in a call, or in a workflow."""
    if call.kind != "tool":
        return {"place": call.id}
    return {"step": turn.state.call_step, "tool_call_id": call.id}


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
            **_where(turn, call),
            wait_id=wait.wait_id,
            outcome=outcome,
            data=signal.data if signal is not None else None,
            key=signal.key if signal is not None and signal.tool_call_id is None else "",
            by=signal.by if signal is not None else "",
        )
    )
    resume(turn)


def resume(turn: Turn) -> None:
    """End the pause once the run waits neither for an answer nor for a signal or a time; a restored run is held."""
    state, reason = turn.state, turn.state.paused
    if reason in PAUSED and not state.pending_approvals and not state.waiting_calls:
        turn.add(Status(status="resumed", reason=reason))
    parking.hold(turn)
