"""The waits of a run by its own log, folded from its events or taken from its state: the facts behind `why`."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from ...eventlog.events import (
    QUESTION,
    TERMINAL_STATUSES,
    ApprovalRequested,
    ApprovalResolved,
    ApprovalRevoked,
    CancelRequested,
    Claimed,
    Event,
    ModelFailed,
    ModelRequested,
    Parked,
    PauseRequested,
    Released,
    Restored,
    Status,
    TimerFired,
    WaitEnded,
    WaitKind,
    WaitStarted,
)
from ..run_state import RunState

TEXT_MAX = 160
"""The longest text about an approval, in characters."""


class Ask(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pending approval. `what` is the call or the question, cut to `TEXT_MAX` characters."""

    approval_id: str
    kind: str
    what: str = ""
    expires_at: float | None = None


class OpenWait(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A wait for a time, a signal or a callback. `until` is in Unix seconds, null for no limit."""

    key: str
    kind: WaitKind
    name: str = ""
    until: float | None = None


class ModelRetry(msgspec.Struct, frozen=True, kw_only=True):
    """A failed model call: attempt number `attempt` follows at `at` (Unix seconds)."""

    model: str
    attempt: int
    error_type: str
    at: float
    budget: str = ""
    """The budget of the namespace whose next period it waits for."""


class RunWaits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The waits of a run. Times are Unix seconds.

    - `asks`: its pending approvals; `waits`: its open waits; both oldest first.
    - `paused`, `paused_by` and `paused_at` are those of the open pause.
    - `parked` and `due_at` are those of the wait without a worker.
    - `retry`: the next attempt of its model call; `model_error` is the type of the last failure.
    - `claimed_at` is the time of its first claim; `lease_s` the length of the lease of the last one.
    """

    asks: tuple[Ask, ...] = ()
    waits: tuple[OpenWait, ...] = ()
    paused: str = ""
    paused_by: str = ""
    paused_at: float | None = None
    parked: str = ""
    due_at: float | None = None
    retry: ModelRetry | None = None
    model: str = ""
    model_error: str = ""
    held: bool = False
    claimed_at: float | None = None
    lease_s: float = 0.0


def fold_waits(found: RunWaits, event: Event, at: float) -> RunWaits:  # noqa: C901, PLR0912 - one case each
    """Fold an event of the run itself, which was stored at `at`."""
    replace = msgspec.structs.replace
    match event:
        case Claimed():
            return replace(found, claimed_at=found.claimed_at or at, lease_s=event.lease_s)
        case Released() if found.lease_s:
            return replace(found, lease_s=0.0)
        case ApprovalRequested():
            return replace(found, asks=(*found.asks, ask_of(event)))
        case ApprovalResolved() | ApprovalRevoked():
            return replace(found, asks=tuple(a for a in found.asks if a.approval_id != event.approval_id))
        case WaitStarted():
            return replace(found, waits=(*found.waits, wait_of(event)))
        case WaitEnded():
            key = _key(event)
            return replace(found, waits=tuple(each for each in found.waits if each.key != key))
        case PauseRequested():
            return replace(found, paused_by=event.by)
        case Restored():
            return replace(found, held=True)
        case Status(status="paused"):
            return replace(found, paused=event.reason, paused_at=found.paused_at or at)
        case Status(status="resumed"):
            retry = None if found.retry is not None and found.retry.budget else found.retry
            return replace(
                found,
                paused="",
                paused_by="",
                paused_at=None,
                parked="",
                due_at=None,
                retry=retry,
                held=False,
            )
        case Status() if event.status in TERMINAL_STATUSES:
            return RunWaits(claimed_at=found.claimed_at)
        case CancelRequested():
            return RunWaits(claimed_at=found.claimed_at, lease_s=found.lease_s)
        case Parked():
            return replace(found, parked=event.reason, due_at=event.due_at)
        case TimerFired():
            return replace(found, parked="", due_at=None, retry=None)
        case ModelRequested():
            return replace(found, model=event.model, retry=None)
        case ModelFailed():
            return _failed(found, event)
        case _:
            if event.type == "child_ready":
                return replace(found, parked="", due_at=None)
            return found


def _failed(found: RunWaits, event: ModelFailed) -> RunWaits:
    retry = None
    if event.retry_at is not None:
        retry = ModelRetry(
            model=event.next_model or found.model,
            attempt=event.attempt + 1,
            error_type=event.error_type,
            at=event.retry_at,
            budget=event.budget,
        )
    return msgspec.structs.replace(found, retry=retry, model_error=event.error_type)


def waits_of(state: RunState) -> RunWaits:
    """Return what a run waits for, from its state."""
    if state.over or state.cancelling:
        return RunWaits(claimed_at=state.elapsed.claimed_at or None)
    model, parked = state.model, state.parked
    retry = None
    if model.retry_at:
        retry = ModelRetry(
            model=model.next_model or model.model,
            attempt=model.attempt + 1,
            error_type=model.error_type,
            at=model.retry_at,
            budget=model.budget,
        )
    return RunWaits(
        asks=tuple(ask_of(approval.request) for approval in state.pending_approvals),
        waits=tuple(wait_of(wait) for call in state.waiting_calls if (wait := call.open_wait) is not None),
        paused=state.paused or "",
        paused_by=state.pause_by if state.paused is not None else "",
        paused_at=state.elapsed.paused_at,
        parked=parked.reason if parked is not None else "",
        due_at=parked.due_at if parked is not None else None,
        retry=retry,
        model=model.model,
        model_error=model.error_type,
        held=state.held_at is not None,
        claimed_at=state.elapsed.claimed_at or None,
        lease_s=state.owner_lease_s if state.owner is not None else 0.0,
    )


def ask_of(event: ApprovalRequested) -> Ask:
    """Return the approval in short."""
    return Ask(
        approval_id=event.approval_id, kind=event.kind, what=_cut(_what(event)), expires_at=event.expires_at
    )


def _what(event: ApprovalRequested) -> str:
    if event.kind == QUESTION:
        return str(event.arguments.get("message", ""))
    if event.kind == "budget":
        used, limit = event.arguments.get("used"), event.arguments.get("limit")
        of = f"{_number(used)} of {_number(limit)}" if used is not None else f"of {_number(limit)}"
        return f"{_budget(str(event.arguments.get('budget', '')))} ({of})"
    if event.kind == "unverifiable" or not event.arguments:
        return event.tool_name
    return f"{event.tool_name} {json.dumps(event.arguments, ensure_ascii=False, default=str)}".lstrip()


def _budget(name: str) -> str:
    """Return the name of a ceiling in words: `step.max_tokens` is `tokens of a step`."""
    scope, _, ceiling = name.rpartition(".")
    words = ceiling.removeprefix("max_").replace("cost_usd", "dollars")
    return f"{words} of a {scope}" if scope else words


def _number(value: Any) -> str:
    """Return a decimal with its thousands apart, anything else as it is."""
    text = str(value)
    whole, point, rest = text.partition(".")
    return f"{int(whole):,}{point}{rest}" if whole.isascii() and whole.isdigit() else text


def wait_of(event: WaitStarted) -> OpenWait:
    """Return the wait in short."""
    return OpenWait(key=_key(event), kind=event.kind, name=event.name, until=event.until)


def _key(event: WaitStarted | WaitEnded) -> str:
    return f"{event.tool_call_id or event.place}/{event.wait_id}"


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= TEXT_MAX else line[: TEXT_MAX - 1] + "…"
