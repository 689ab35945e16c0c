"""Prompts as they were sent: rebuild a model request from the log, and verify it by the digest stored with it (R12)."""

from __future__ import annotations

from typing import Any

import msgspec

from ...eventlog.errors import ConfigError, RunNotFound
from ...eventlog.events import ModelRequested, ToolSchema
from ...projections.messages import Message
from ...runtime.core.model_request import deciding, model_request, request_digest
from ...runtime.core.rules import Rules, rules_of_run
from ..traces.trace import Trace
from .replaying import check_artifacts, state_at


class SentPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """The request of one model call attempt. `at` is in Unix seconds; `phase` as in `model_requested`.

    `parameters` are the settings that influence the reply, native tools included. `digest` is the stored one, `rebuilt`
    that of this request: if they are equal, the messages, tools, schema, parameters and model are proven to be those
    that were sent. Files are named by their artifacts.
    """

    run: str
    revision: int
    at: float
    step: int | None
    attempt: int
    phase: str
    model: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSchema, ...]
    output_schema: dict[str, Any] | None
    parameters: dict[str, Any]
    digest: str
    rebuilt: str

    @property
    def proven(self) -> bool:
        """True if the rebuilt request has the digest that was stored when it was sent."""
        return self.rebuilt == self.digest


def prompt_at(trace: Trace, revision: int | None = None, run: str | None = None) -> SentPrompt:
    """Return the prompt that a run (default: the root) sent at a `model_requested`; by default at its last one.

    Raises `RunNotFound`, and `ConfigError` for a revision without a model request, and for a trace without the
    artifacts that it refers to.
    """
    run = run or trace.root
    asked = requests_of(trace, run)
    if revision is None and asked:
        revision = asked[-1].revision
    event = next((each for each in asked if each.revision == revision), None)
    if event is None or revision is None:
        raise ConfigError(_no_request(trace, run, revision, asked))
    check_artifacts(trace)
    point = state_at(trace, revision, run)
    state = point.state
    rules = rules_of_run(state.submitted) if state.submitted is not None else Rules()
    request = model_request(state, rules, event.model.partition(":")[2] or event.model, event.phase)
    return SentPrompt(
        run=run,
        revision=revision,
        at=point.at,
        step=event.step,
        attempt=event.attempt,
        phase=event.phase,
        model=event.model,
        messages=tuple(request.messages),
        tools=tuple(request.tools),
        output_schema=request.output_schema,
        parameters=deciding(request.settings, request.native_tools),
        digest=event.digest,
        rebuilt=request_digest(state, rules, event.model, event.phase),
    )


def requests_of(trace: Trace, run: str) -> list[ModelRequested]:
    """Return the model requests of a run, in order. Raises `RunNotFound`."""
    own = [event for event in trace.events if event.run_id == run]
    if not own:
        raise RunNotFound(f"the trace of {trace.root!r} has no run {run!r}")
    path = own[0].agent_path
    return [event for event in own if isinstance(event, ModelRequested) and event.agent_path == path]


def _no_request(trace: Trace, run: str, revision: int | None, asked: list[ModelRequested]) -> str:
    if not asked:
        return f"run {run} has called no model"
    places = ", ".join(str(event.revision) for event in asked[-20:])
    last = next(event.revision for event in reversed(trace.events) if event.run_id == run) or 0
    found = next((e.type for e in trace.events if e.run_id == run and e.revision == revision), None)
    what = f"is {found}" if found is not None else f"does not exist (it has 1 to {last})"
    return f"revision {revision} of run {run} {what}; its model requests are at {places}"
