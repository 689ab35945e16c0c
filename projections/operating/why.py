"""Why a run waits: one sentence and one action, the same in lists, in the head of a run, in the queue and everywhere.

A pure function of the run and its surroundings. The order of the reasons is the order of the functions in `_REASONS`:
what only a person can end comes first, then what the run itself waits for, then what keeps it from being driven.
Sentences may hold text of models and strangers: code that shows one escapes it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, tzinfo
from typing import Literal

import msgspec

from ...eventlog.events import QUESTION
from .board import Before, Board, Waiter, first_holder, place_in

Kind = Literal[
    "approval",
    "question",
    "unverifiable",
    "budget",
    "shared_budget",
    "restored",
    "takeover",
    "manual",
    "policy",
    "cancel",
    "signal",
    "callback",
    "time",
    "child",
    "breaker",
    "retry",
    "call_slot",
    "lane",
    "slot",
    "left",
    "no_worker",
    "silent",
    "process_gone",
    "worker",
]
Deed = Literal["decide", "raise", "resume", "signal", "open", "start_worker", "drive"]

SILENT_LEASES = 0.5
"""The silence of a worker that is worth telling, in leases: heartbeats are a third of one apart."""
STARTING_S = 5.0
"""The time that a process has to claim the run that it has just submitted."""
REGISTRY = "MODULE:REGISTRY"


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """The one thing to do about a wait. `run_id` or `approval_id` is its object.

    `command` are the words of the same on the command line, after `foldlog`, and `names` its positional arguments.
    """

    kind: Deed
    run_id: str = ""
    approval_id: str = ""
    command: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """Why a run waits: `kind` for programs, `sentence` for people, and what can be done about it, if anything."""

    kind: Kind
    sentence: str
    action: Action | None = None


def why(run: Waiter, board: Board, tz: tzinfo | None = None) -> Why | None:
    """Return why a run waits; None if it is over, or goes on by itself. Times are told in `tz` (None: local time)."""
    if run.over:
        return None
    times = _Times(board.now, tz)
    return next((found for reason in _REASONS if (found := reason(run, board, times)) is not None), None)


class _Times:
    """Points in time and durations in words, as of `now`."""

    def __init__(self, now: float, tz: tzinfo | None) -> None:
        self.now, self._tz = now, tz

    def at(self, at: float, *, seconds: bool = False) -> str:
        """Return `14:02`, with the date if it is another day's."""
        moment, today = (datetime.fromtimestamp(each, self._tz) for each in (at, self.now))
        clock = f"{moment:%H:%M:%S}" if seconds else f"{moment:%H:%M}"
        return clock if moment.date() == today.date() else f"{moment:%Y-%m-%d} {clock}"

    def since(self, at: float) -> str:
        """Return the time that has passed, `12 s`."""
        return self.length(self.now - at)

    def length(self, length_s: float) -> str:
        """Return a duration in its largest unit, rounded down: `12 s`, `3 min`, `5 h`, `6 d`."""
        left = max(0, int(length_s))
        for unit, unit_s in (("d", 86_400), ("h", 3_600), ("min", 60)):
            if left >= unit_s:
                return f"{left // unit_s} {unit}"
        return f"{left} s"


def _open(run_id: str) -> Action:
    return Action(kind="open", run_id=run_id, command=("runs", "show"), names=(run_id,))


# --- people -----------------------------------------------------------------------------------------------------------


def _cancelling(run: Waiter, board: Board, _times: _Times) -> Why | None:
    if not run.cancelling:
        return None
    below = board.below.get(run.run_id, ())
    if not below:
        return Why(kind="cancel", sentence="Is being cancelled.")
    runs = "run" if len(below) == 1 else "runs"
    sentence = f"Is being cancelled: {len(below)} {runs} below it must end first."
    return Why(kind="cancel", sentence=sentence, action=_open(below[0].run_id))


def _asks(run: Waiter, _board: Board, times: _Times) -> Why | None:
    asks = sorted(run.waits.asks, key=lambda each: each.kind != "unverifiable")
    if not asks:
        return None
    first, *others = asks
    more = f"; {len(others)} more" if others else ""
    decide = Action(
        kind="decide",
        run_id=run.run_id,
        approval_id=first.approval_id,
        command=("approvals", "show"),
        names=(first.approval_id,),
    )
    if first.kind == "unverifiable":
        sentence = f"Nobody knows what became of `{first.what}`{more}."
        return Why(kind="unverifiable", sentence=sentence, action=decide)
    if first.kind == "budget":
        name, _, of = first.what.partition(" (")
        used_up = msgspec.structs.replace(decide, kind="raise")
        return Why(kind="budget", sentence=f"Budget of {name} is used up ({of}{more}.", action=used_up)
    expires = ""
    if first.expires_at is not None:
        left_s = first.expires_at - times.now
        expires = f"; expires in {times.length(left_s)}" if left_s > 0 else "; its time is over"
    kind: Kind = "question" if first.kind == QUESTION else "approval"
    return Why(kind=kind, sentence=f"Waits for people: {first.what}{expires}{more}.", action=decide)


def _paused(run: Waiter, _board: Board, times: _Times) -> Why | None:
    waits = run.waits
    resume = Action(kind="resume", run_id=run.run_id, command=("runs", "resume"), names=(run.run_id,))
    if waits.paused == "policy":
        error = f" ({waits.model_error})" if waits.model_error else ""
        return Why(kind="policy", sentence=f"All models have failed{error}.", action=resume)
    if waits.paused == "takeover":
        sentence = "The code no longer fits what the log has: deploy code that fits, and resume, or cancel."
        return Why(kind="takeover", sentence=sentence, action=resume)
    if waits.held and (waits.paused == "manual" or waits.parked == "manual"):
        return Why(kind="restored", sentence="Restored from a backup, and held until resumed.", action=resume)
    if waits.paused != "manual":
        return None
    by = f" by {waits.paused_by}" if waits.paused_by else ""
    at = f" at {times.at(waits.paused_at)}" if waits.paused_at is not None else ""
    return Why(kind="manual", sentence=f"Paused{by}{at}.", action=resume)


# --- what the run itself waits for ------------------------------------------------------------------------------------


def _open_waits(run: Waiter, _board: Board, times: _Times) -> Why | None:
    waits = sorted(run.waits.waits, key=lambda each: each.kind == "sleep")
    if not waits:
        return None
    first, *others = waits
    more = f"; {len(others)} more" if others else ""
    until = f" until {times.at(first.until)}" if first.until is not None else ""
    if first.kind == "sleep":
        return Why(kind="time", sentence=f"Sleeps{until}{more}.")
    if first.kind == "callback":
        return Why(kind="callback", sentence=f"Waits for a callback{until}{more}.")
    names = (run.run_id, first.name)
    return Why(
        kind="signal",
        sentence=f"Waits for signal `{first.name}`{until}{more}.",
        action=Action(kind="signal", run_id=run.run_id, command=("runs", "signal"), names=names),
    )


def _model(run: Waiter, board: Board, times: _Times) -> Why | None:
    retry = run.waits.retry
    if retry is None or (retry.at <= times.now and run.waits.parked != "timer"):
        return None
    if retry.budget:
        sentence = f"Budget of {retry.budget} is used up until {times.at(retry.at)}."
        resume = Action(kind="resume", run_id=run.run_id, command=("runs", "resume"), names=(run.run_id,))
        return Why(kind="shared_budget", sentence=sentence, action=resume)
    provider = retry.model.partition(":")[0]
    breaker = board.breakers.get(f"model:{provider}")
    if retry.error_type == "circuit_open" or (breaker is not None and _is_open(breaker, retry.at, times)):
        until = breaker.until if breaker is not None and breaker.until > times.now else retry.at
        return Why(kind="breaker", sentence=f"Breaker `{provider}` is open until {times.at(until)}.")
    at = times.at(retry.at, seconds=True)
    told = f"`{retry.model}` is asked again at {at} (attempt {retry.attempt}, {retry.error_type})."
    return Why(kind="retry", sentence=told)


def _is_open(breaker: object, retry_at: float, times: _Times) -> bool:
    return getattr(breaker, "state", "") == "open" and times.now < getattr(breaker, "until", 0.0) >= retry_at


def _timer(run: Waiter, _board: Board, times: _Times) -> Why | None:
    if run.waits.parked != "timer" or run.waits.due_at is None:
        return None
    word = "Starts" if run.waits.claimed_at is None else "Goes on"
    return Why(kind="time", sentence=f"{word} at {times.at(run.waits.due_at)}.")


def _call_slot(run: Waiter, board: Board, times: _Times) -> Why | None:
    for name, slots in board.slots.items():
        kind, _, slot = name.partition(":")
        found = place_in(slots, run.run_id, calls=True)
        if kind == "agent" or found is None:
            continue
        tool, holder = found[1].tool, first_holder(slots)
        quoted = f"`{tool}`" if tool else "Its model call" if slot.startswith("provider:") else "A call"
        if holder is None:
            return Why(kind="call_slot", sentence=f"{quoted} waits for `{slot}`, which is free.")
        since = f" since {times.at(holder.since)}" if holder.since else ""
        more = f" and {len(slots.holders) - 1} more" if len(slots.holders) > 1 else ""
        sentence = f"{quoted} waits for `{slot}`, held by run {holder.run}{since}{more}."
        return Why(kind="call_slot", sentence=sentence, action=_open(holder.run))
    return None


def _child(run: Waiter, board: Board, _times: _Times) -> Why | None:
    below = board.below.get(run.run_id, ())
    waiting = [each for each in below if each.status == "paused"]
    waiting = waiting or list(below if run.waits.parked == "child" else ())
    if not waiting:
        return None
    first, *others = waiting
    status = f"{first.status}: {first.reason}" if first.reason else first.status
    more = f"; {len(others)} more" if others else ""
    sentence = f"Waits for child `{first.agent}` ({status}){more}."
    return Why(kind="child", sentence=sentence, action=_open(first.run_id))


# --- what keeps it from being driven ----------------------------------------------------------------------------------


def _owner(run: Waiter, board: Board, times: _Times) -> Why | None:
    """Tell of a driven run whose worker or process has not been heard of for a while."""
    if not run.driven or run.run_id != run.root_id:
        return None
    sign, lease_s = board.signs.get(run.root_id), run.waits.lease_s
    heard = sign.at if sign is not None and sign.worker == run.worker else 0.0
    is_present, is_served = run.worker in board.present, run.served_as in board.served
    if times.now - heard < lease_s * SILENT_LEASES and (is_present or is_served):
        return None
    if run.executor in board.in_process:
        return None if is_present else _gone(run)
    if not is_present and not is_served:
        return _unserved(run)
    silent = f"has been silent for {times.since(heard)}" if heard else "is gone"
    then = f"another takes it over after {times.length(lease_s)}"
    return Why(kind="silent", sentence=f"Its worker {run.worker} {silent}; {then}.")


def _gone(run: Waiter) -> Why:
    names = (run.root_id, REGISTRY)
    drive = Action(kind="drive", run_id=run.root_id, command=("runs", "drive"), names=names)
    return Why(kind="process_gone", sentence="The process that drove it is gone.", action=drive)


def _unserved(run: Waiter) -> Why:
    sentence = f"No worker serves agent `{run.served_as}`."
    return Why(kind="no_worker", sentence=sentence, action=_start_worker())


def _start_worker() -> Action:
    return Action(kind="start_worker", command=("worker",), names=(REGISTRY,))


def _lane(run: Waiter, board: Board, times: _Times) -> Why | None:
    before = board.before.get(run.run_id, ())
    if not before or run.driven:
        return None
    first, *others = before
    more = f"; {len(others)} more {'is' if len(others) == 1 else 'are'} before it" if others else ""
    sentence = f"Waits for run {first.run_id} ({_standing(first, times)}){more}."
    return Why(kind="lane", sentence=sentence, action=_open(first.run_id))


def _standing(run: Before, times: _Times) -> str:
    return f"{run.status} {times.since(run.since)}"


def _slot(run: Waiter, board: Board, _times: _Times) -> Why | None:
    if run.driven:
        return None
    for name, slots in board.slots.items():
        found = place_in(slots, run.run_id, calls=False)
        if found is None:
            continue
        place, waiter = found
        kind, _, limit = name.partition(":")
        of = f"a slot of `{run.agent}`" if kind == "agent" else f"the limit `{limit}`"
        holder = first_holder(slots)
        taken = f"all {waiter.runs_max} taken" if len(slots.holders) >= waiter.runs_max else "one is free"
        sentence = f"Waits for {of}: place {place}, {taken}."
        return Why(kind="slot", sentence=sentence, action=_open(holder.run) if holder is not None else None)
    return None


def _undriven(run: Waiter, board: Board, times: _Times) -> Why | None:
    if run.driven or run.waits.parked or run.waits.paused or run.run_id != run.root_id:
        return None
    if run.executor in board.in_process:
        starting = run.epoch == 0 and times.now - run.submitted_at < STARTING_S
        return None if starting else _gone(run)
    if run.executor not in board.on_workers:
        return None
    if run.left:
        return Why(
            kind="left",
            sentence=f"No worker of `{run.served_as}` can drive it: {run.left}.",
            action=_start_worker(),
        )
    if run.served_as not in board.served:
        return _unserved(run)
    return Why(kind="worker", sentence=f"Waits for a worker of `{run.served_as}`.")


_REASONS: tuple[Callable[[Waiter, Board, _Times], Why | None], ...] = (
    _cancelling,
    _asks,
    _paused,
    _open_waits,
    _owner,
    _call_slot,
    _model,
    _child,
    _timer,
    _lane,
    _slot,
    _undriven,
)
