"""Try a policy of the namespace on stored runs: find the tool calls that it would have decided differently."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

from ...eventlog.events import PolicyAction, Submitted, ToolCall
from ...projections.fold import apply
from ...projections.run_state import CallState, RunState
from ...runtime.core.approvals import policy_call
from ...runtime.core.policy import joined, ruling_on
from ...runtime.core.rules import Rules, rules_of_run
from ...runtime.core.tool_calls import action_on, call_problem, ruling_of
from ..traces.trace import Trace
from .replaying import as_decided


class TriedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A stored tool call: the action that was taken (`was`), the one that would be (`now`), and the rule behind it."""

    run: str
    agent_path: str
    step: int
    call: str
    tool: str
    arguments: dict[str, Any]
    at: float
    was: PolicyAction
    now: PolicyAction
    why: str


def try_policy(
    trace: Trace, policy: Mapping[str, Any], runs: Collection[str] | None = None
) -> Iterator[TriedCall]:
    """Yield the calls of a family, or of some of its runs, as `policy` would have decided them, in log order.

    It replaces the namespace's policy; the agents' policies, and calls that were approved for good, still apply. The
    shared history of a fork is left out, because its calls belong to another run. Raises `ConfigError` for a policy
    with conditions if the extra `cel` is missing.
    """
    states: dict[str, RunState] = {}
    rules: dict[str, tuple[Rules, Rules]] = {}
    events = iter(trace.events)
    for recorded in trace.commits:
        commit = recorded.commit
        state = states.setdefault(
            commit.run, RunState(run=commit.run, root=commit.root, path=commit.path, submitted_at=commit.at)
        )
        for number, stored in enumerate(commit.events):
            event = as_decided(stored, next(events))
            apply(state, event, commit.at)  # type: ignore[arg-type] # a stored event
            if isinstance(event, Submitted):
                rules[commit.run] = (rules_of_run(event), _with(event, policy))
            shared = _shared(state) >= commit.rev + number
            if isinstance(event, ToolCall) and not event.agent_path and not shared:
                call = state.calls[event.tool_call_id or ""]
                if call_problem(state, call) is None and (runs is None or commit.run in runs):
                    yield _tried(state, call, commit.at, *rules[commit.run])


def _shared(state: RunState) -> int:
    fork = state.submitted.fork if state.submitted is not None else None
    return fork.shared if fork is not None else 0


def _with(submitted: Submitted, policy: Mapping[str, Any]) -> Rules:
    shared = {**policy, "always": submitted.policy.get("always", [])}
    own = submitted.config.get("policy") or {}
    return msgspec.structs.replace(rules_of_run(submitted), policy=joined(own, shared))


def _tried(state: RunState, call: CallState, at: float, was: Rules, now: Rules) -> TriedCall:
    ruling = ruling_on(now.policy, policy_call(state, call.name, call.arguments, call.count))
    return TriedCall(
        run=state.run,
        agent_path=state.path,
        step=state.step,
        call=call.id,
        tool=call.name,
        arguments=call.arguments,
        at=at,
        was=action_on(state, was, call, ruling_of(state, was, call)),
        now=action_on(state, now, call, ruling),
        why=ruling.why,
    )
