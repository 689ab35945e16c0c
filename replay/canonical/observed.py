"""The observable state of a run as plain JSON, with its digest: the expected result of a subscriber in any language.

It is the smallest state that a console or a caller needs, and uses only integers, booleans and text, so that its
canonical JSON (sorted keys, no white space, UTF-8) has the same bytes in every language. `examples/consumer` folds it
from the stored commits without any code of this project; the golden histories contain the expected states.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import msgspec

from ...eventlog.commits import Recorded
from ...eventlog.events import Unknown
from ...eventlog.offload import in_place_of
from ...projections.fold import fold_commit
from ...projections.messages import Message, canonical_json, sha256_hex
from ...projections.projection import fold
from ...projections.run_list import RunList, RunRow
from ...projections.run_state import ApprovalState, CallState, RunState
from ..traces.archive import Archive, check
from ..traces.trace import Trace
from .canonical import canonical

FORMAT = 1

JsonObject = dict[str, Any]


def expectation(archive: Archive) -> JsonObject:
    """Return what a reader of this archive must compute, in the form of the file beside a golden history.

    `checked` has the counts of a verification, `families` the digest and boundaries of each canonical form, and `runs`
    the observable state of each run, its digest, and its row in the run list.
    """
    traces = archive.traces
    families: JsonObject = {}
    runs: JsonObject = {}
    for root, trace in traces.items():
        form = canonical(trace)
        families[root] = {
            "canonical_digest": form.digest,
            "boundaries": [boundary.label for boundary in form.boundaries],
        }
        runs |= _runs(trace)
    counts = msgspec.to_builtins(check(archive))
    return {"format": FORMAT, "checked": counts, "families": families, "runs": runs}


def _runs(trace: Trace) -> JsonObject:
    rows = fold(RunList(), trace.commits)
    return {
        run: {"state": state, "state_digest": digest_of_state(state), "row": _row(rows[run])}
        for run, state in observed(trace).items()
    }


def observed(trace: Trace) -> dict[str, JsonObject]:
    """Return the observable state of each run of a family by its id, with offloaded values if they are there."""
    states: dict[str, RunState] = {}
    newer: dict[str, int] = {}
    for recorded in _whole(trace):
        run = recorded.commit.run
        fold_commit(states.setdefault(run, RunState(run=run)), recorded)
        newer[run] = newer.get(run, 0) + sum(isinstance(e, Unknown) for e in recorded.commit.events)
    return {run: _observed(state, newer[run]) for run, state in states.items()}


def _whole(trace: Trace) -> Iterator[Recorded]:
    """Yield the commits with the events of the trace, which are restored from the artifacts."""
    restored = iter(trace.events)
    for recorded in trace.commits:
        stored = recorded.commit.events
        events = tuple(map(in_place_of, stored, itertools.islice(restored, len(stored))))
        commit = msgspec.structs.replace(recorded.commit, events=events)
        yield msgspec.structs.replace(recorded, commit=commit)


def digest_of_state(state: JsonObject) -> str:
    """Return the SHA-256 (hex) of the state's canonical JSON."""
    return sha256_hex(canonical_json(state))


def _observed(state: RunState, newer: int) -> JsonObject:
    submitted, terminal, error = state.submitted, state.terminal, state.error
    return {
        "run": state.run,
        "root": state.root,
        "agent_path": state.path,
        "kind": submitted.kind if submitted is not None else "",
        "session": submitted.session if submitted is not None else None,
        "input": submitted.input if submitted is not None else "",
        "status": state.status,
        "reason": state.paused or (terminal.reason if terminal is not None else ""),
        "revision": state.head.rev,
        "epoch": state.epoch,
        "step": state.step,
        "step_open": state.step_open,
        "steps_completed": state.steps_completed,
        "usage": msgspec.to_builtins(state.usage),
        "output": state.output,
        "error": None if error is None else {"error_type": error.error_type, "error": error.error},
        "cancel_reason": state.cancel_reason,
        "calls": [_call(call) for call in state.calls.values()],
        "approvals": [_approval(name, approval) for name, approval in state.approvals.items()],
        "open_children": sorted(state.open_children),
        "queue": [message.content for message in state.queue],
        "messages": [_message(message) for message in state.messages],
        "newer_events": newer,
    }


def _call(call: CallState) -> JsonObject:
    status = "open" if call.result is None else str(call.result.metadata.get("status", ""))
    return {"id": call.id, "name": call.name, "status": status}


def _approval(name: str, approval: ApprovalState) -> JsonObject:
    request, resolution = approval.request, approval.resolution
    decided = resolution.decision if resolution is not None else "revoked" if approval.revoked else "pending"
    return {"id": name, "kind": request.kind, "call": request.tool_call_id, "state": decided}


def _message(message: Message) -> JsonObject:
    """Return a message as JSON; that of a tool has only its call id, because results may be any JSON."""
    if message.role == "tool":
        return {"role": "tool", "call": message.tool_call_id}
    shown: JsonObject = {"role": message.role, "content": message.content}
    return shown | {"calls": [call.id for call in message.tool_calls]} if message.tool_calls else shown


def _row(row: RunRow) -> dict[str, Any]:
    """Return the fields of a row that docs/how-to/prove-your-subscriber.md defines; lists may show more."""
    whole: dict[str, Any] = msgspec.to_builtins(row)
    return {name: whole[name] for name in ROW}


ROW = (
    *("agent", "agent_path", "cost_usd", "digest", "epoch", "error"),
    *("error_type", "executor", "forked_at", "forked_from", "kind", "metadata"),
    *("parent", "position", "reason", "revision", "root_id", "run_id"),
    *("session", "shard", "status", "steps", "submitted_at", "updated_at"),
    *("usage", "user", "waiting_for", "worker"),
)
"""The fields of the row that readers in other languages fold, too."""
