"""Waits of the calls of the open step, and the signals that end them."""

from __future__ import annotations

from ...eventlog.events import SignalDropped, SignalReceived, WaitEnded, WaitStarted
from ..call_texts import wait_mark
from ..run_state import RunState, UnreadSignal, WaitState, signal_key
from . import operations
from .calls import in_call, unpark


def start_wait(state: RunState, event: WaitStarted) -> None:
    """End the attempt: the call is run again after the wait, and an unsafe one has not begun then."""
    operations.open_wait(state, event)
    call = in_call(state, event.tool_call_id or event.place)
    begun = sum(len(each.waits) for each in state.calls.values())
    call.waits[event.wait_id] = WaitState(started=event, order=begun)
    call.started, call.retry_at = 0, None
    call.marks[wait_mark(event.wait_id)] = call.emitted, len(call.children)


def end_wait(state: RunState, event: WaitEnded) -> None:
    """Let the call run again, after those that may run already; a received signal is read."""
    call = in_call(state, event.tool_call_id or event.place)
    wait = call.waits.get(event.wait_id)
    if wait is None or wait.ended is not None:
        return
    wait.ended = event
    if event.outcome == "received":
        wait.sent_at = _take(state, *channel(wait.started))
    call.turn = max(each.turn for each in state.calls.values()) + 1
    if event.place:
        operations.close_wait(state, event, wait.sent_at)
    unpark(state)


def receive_signal(state: RunState, event: SignalReceived) -> None:
    """Keep the signal until a wait takes it."""
    state.signals.append(UnreadSignal(event, state.updated_at))
    state.signal_count += 1
    if event.tool_call_id is not None:
        callback = in_call(state, event.tool_call_id).callbacks.get(event.name)
        if callback is not None:
            callback.used = True
    if event.key:
        name = event.name if event.tool_call_id is None else ""
        state.signal_keys.setdefault(signal_key(name, event.key), state.signal_count)


def drop_signal(state: RunState, event: SignalDropped) -> None:
    """Forget the oldest unread signal of the name: no wait takes it."""
    _take(state, event.name, None)


def channel(wait: WaitStarted) -> tuple[str, str | None]:
    """Return the name of the signals that the wait takes, and the call to which they are sent; null for the run."""
    return (wait.wait_id, wait.tool_call_id or wait.place) if wait.kind == "callback" else (wait.name, None)


def _take(state: RunState, name: str, call_id: str | None) -> float | None:
    """Take the oldest unread signal of the name, and return when it was stored."""
    for index, signal in enumerate(state.signals):
        if (signal.event.name, signal.event.tool_call_id) == (name, call_id):
            del state.signals[index]
            return signal.at
    return None
