"""The input of `decide`: requests of executors and callers, and the outcomes of effects."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ...eventlog.events import (
    Actor,
    ChildReturned,
    Event,
    FinishReason,
    MemoryHydrated,
    TokenUsage,
    ToolSpec,
    ToolStatus,
    WaitKind,
)
from ...eventlog.parts import FilePart, Part
from ...projections.messages import CallRequest
from ...projections.tokens import UsageSource
from ..ports.models import ProviderCall
from .effects import Scope
from .workflow.facts import Ending, Fact


class Claim(msgspec.Struct, frozen=True):
    """Claim the run for a worker, of this build if it has one."""

    worker: str
    lease_s: float
    build: str = ""


class Release(msgspec.Struct, frozen=True):
    """Release the run from its owner."""

    reason: str = ""


class Leave(msgspec.Struct, frozen=True):
    """Record what a worker lacks for the run, so that the run waits for another worker."""

    worker: str
    reason: str


class Restore(msgspec.Struct, frozen=True):
    """The log was restored from a backup, at `at` (Unix seconds): hold the run until a person lets it go on."""

    at: float


class ToolsResolved(msgspec.Struct, frozen=True):
    """The tools that the preparation found."""

    tools: tuple[ToolSpec, ...]
    model: str
    refresh: int = 0
    hydrated: MemoryHydrated | None = None
    window_tokens: int | None = None
    instructions: str = ""
    standing_plan: str = ""


class KnowledgeRead(msgspec.Struct, frozen=True):
    """Stored knowledge that matches the run's input, as in `KnowledgeFound`."""

    items: Any


class PreparationFailed(msgspec.Struct, frozen=True):
    """The preparation failed, so the run cannot start."""

    error_type: str
    message: str
    refresh: int = 0


class ModelReplied(msgspec.Struct, frozen=True, kw_only=True):
    """A complete reply to a model call attempt."""

    step: int
    attempt: int
    text: str
    reasoning: str = ""
    files: tuple[FilePart, ...] = ()
    calls: tuple[CallRequest, ...] = ()
    usage: TokenUsage | None = None
    usage_source: UsageSource = "provider"
    model: str = ""
    cost_usd: str | None = None
    phase: str = ""
    finish_reason: FinishReason = ""
    provider_calls: tuple[ProviderCall, ...] = ()
    """The native tools that the provider ran, in order."""
    reply_items: tuple[Any, ...] = ()
    """State that the provider wants back with this reply in later requests, in its own form and order."""


class ModelCallFailed(msgspec.Struct, frozen=True, kw_only=True):
    """A model call attempt failed."""

    step: int
    attempt: int
    error_type: str
    message: str
    retry_after_s: float | None = None
    phase: str = ""
    window_tokens: int | None = None
    """Of an overflow: the model's window, as the server reports it."""
    request_tokens: int | None = None
    """Of an overflow: the size of the request, as the server reports it."""
    usage: TokenUsage | None = None
    cost_usd: str | None = None
    budget: str = ""
    """The budget of the namespace that is used up, so that the call was not made."""


class ToolEmitted(msgspec.Struct, frozen=True, kw_only=True):
    """A running call emitted its `ordinal`-th event (0, 1, ... within the call, over all its attempts)."""

    step: int
    call_id: str
    ordinal: int
    event: Event


class ToolAsked(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt ended with a question for a person; the next attempt finds the answer under `name`.

    `form` is the JSON Schema of the answer's content; null for an answer without content.
    """

    step: int
    call_id: str
    attempt: int
    name: str
    message: str
    form: dict[str, Any] | None = None


class ToolWaits(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt ended with a wait; the next attempt finds under `wait_id` what it came to.

    `until` is in Unix seconds, null for no limit; `form` is the JSON Schema of a signal's data, null for any.
    """

    step: int
    call_id: str
    attempt: int
    wait_id: str
    kind: WaitKind
    name: str = ""
    until: float | None = None
    form: dict[str, Any] | None = None


class SendSignal(msgspec.Struct, frozen=True, kw_only=True):
    """Send a signal to the run."""

    name: str
    data: Any = None
    key: str = ""
    by: str = ""


class CallbackIssued(msgspec.Struct, frozen=True, kw_only=True):
    """A running call made a token, by its SHA-256 (hex), for the callback that it waits for under `wait_id`."""

    step: int
    call_id: str
    wait_id: str
    sha256: str
    until: float | None = None


class AnswerCallback(msgspec.Struct, frozen=True, kw_only=True):
    """Answer the callback that has the token with this SHA-256 (hex)."""

    sha256: str
    data: Any = None
    by: str = ""


class MemoMade(msgspec.Struct, frozen=True, kw_only=True):
    """A running call computed the value of a memoized part; a workflow computed a value, or told a callback."""

    step: int
    call_id: str
    name: str
    value: Any = None
    evidence: tuple[dict[str, Any], ...] = ()
    error: str = ""
    """Of a workflow, whose own values are stored even if they could not be computed: why not."""


class CodeAdvanced(msgspec.Struct, frozen=True, kw_only=True):
    """The code or the table of a workflow went on as far as it could.

    `facts` are what it asks for now, in its order. `end`: it has ended. `idle`: it waits for nothing that the log does
    not have.
    """

    facts: tuple[Fact, ...] = ()
    end: Ending | None = None
    idle: bool = False


class CodeDiverged(msgspec.Struct, frozen=True, kw_only=True):
    """The code of a workflow does not fit its log at this place; fields as in `Diverged`."""

    place: str
    recorded: str
    asked: str


class ToolReturned(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt (1, 2, ...) at a call ended. Times are Unix seconds."""

    step: int
    call_id: str
    attempt: int
    status: ToolStatus
    result: Any = None
    in_parts: bool = False
    """The result is a list of content parts."""
    error: str | None = None
    retryable: bool = False
    retry_after_s: float | None = None
    started_at: float
    completed_at: float
    evidence: tuple[dict[str, Any], ...] = ()
    """The artifacts that the attempt stored: `id`, `media_type`, `size_bytes`."""
    breaker: str = ""
    """The open circuit breaker that rejected the call; empty if the call was made."""
    slot_cycle: str = ""
    """The slot that the call was refused because of a deadlock; empty if the call was made."""
    once: str = ""
    """The call that owns the key, as run/call, because of which this one was not made; empty if it was made."""
    deduplicated: bool = False
    """The outcome is that of the call that owns the key."""
    misused: bool = False
    """The arguments were at fault, not the tool."""
    in_doubt: bool = False
    """The call of an unsafe tool started and its effect is unknown: `error` says why."""
    postcondition: tuple[dict[str, Any], ...] = ()
    """Findings about the tool's postcondition, as in `postconditions`."""
    settles: bool = False
    """This outcome was verified afterwards, because the attempt's own outcome was lost."""


class ChildSpawned(msgspec.Struct, frozen=True, kw_only=True):
    """A running call starts its `ordinal`-th child run; without a call, the `ordinal`-th child of this name."""

    call_id: str | None
    ordinal: int
    child_run: str
    name: str
    kind: str
    place: str = ""
    """The place in a workflow, which has no other order of its children."""
    asked: str = ""


class ChildEnded(msgspec.Struct, frozen=True, kw_only=True):
    """A child run is over."""

    child_run: str
    status: Literal["completed", "error", "cancelled"]
    output_digest: str = ""
    returned: ChildReturned | None = None
    """The child's output and usage; null in logs written before it was stored."""


class ParkForChildren(msgspec.Struct, frozen=True):
    """Park the run: everything open in it waits for children that are themselves parked."""


class BelowReady(msgspec.Struct, frozen=True):
    """The reason that the run is parked for is gone, at or below this child."""

    child_run: str


class EvaluationReturned(msgspec.Struct, frozen=True, kw_only=True):
    """A function that the configuration names returned a value, or failed."""

    name: str
    ordinal: int
    value: Any = None
    error: str | None = None


class TimerDue(msgspec.Struct, frozen=True):
    """A timer fired that the run may be waiting for."""

    timer_id: str


class Tick(msgspec.Struct, frozen=True):
    """Time has passed: a retry may be due."""


class Expired(msgspec.Struct, frozen=True, kw_only=True):
    """The timeout of the run, or of this step, has passed."""

    scope: Scope
    step: int


class Cancel(Actor, frozen=True):
    """Cancel the run at once."""

    reason: str = ""


class Fence(Actor, frozen=True):
    """Stop all activity in the run; it is cancelled once all runs below it are."""

    reason: str = ""


class Inject(Actor, frozen=True):
    """Queue a message for the next step, a `request_key` once; `parts` is its content if it is not a single text."""

    content: str
    parts: tuple[Part, ...] = ()
    request_key: str = ""


class RefreshTools(msgspec.Struct, frozen=True):
    """List the tools again before the next step, with those of further MCP servers, and without those to remove."""

    mcp_servers: dict[str, Any] = {}
    remove: tuple[str, ...] = ()
    by: str = ""


class Pause(Actor, frozen=True):
    """Pause at the next step boundary."""


class Resume(Actor, frozen=True):
    """Continue after a manual pause, or a pause that the configuration requested."""


class Resolve(Actor, frozen=True, kw_only=True):
    """Answer an approval."""

    approval_id: str
    decision: Literal["approved", "rejected"]
    note: str = ""
    arguments: dict[str, Any] | None = None
    outcome: Literal["retry", "succeeded", "failed"] | None = None
    result: Any = None
    token: str = ""
    """The SHA-256 (hex) of the resume token that authorizes the answer; empty for a caller who needs none."""
    always: bool = False


class IssueToken(msgspec.Struct, frozen=True, kw_only=True):
    """Issue a resume token, whose holder may answer an approval."""

    approval_id: str
    sha256: str
    expires_at: float
    by: str = ""


class RevokeTokens(msgspec.Struct, frozen=True, kw_only=True):
    """Revoke all resume tokens of an approval."""

    approval_id: str
    by: str = ""


Command = (
    Claim
    | Release
    | Leave
    | Restore
    | ToolsResolved
    | KnowledgeRead
    | PreparationFailed
    | ModelReplied
    | ModelCallFailed
    | ToolEmitted
    | MemoMade
    | ToolReturned
    | ToolAsked
    | ToolWaits
    | SendSignal
    | CallbackIssued
    | AnswerCallback
    | ChildSpawned
    | ChildEnded
    | ParkForChildren
    | BelowReady
    | EvaluationReturned
    | CodeAdvanced
    | CodeDiverged
    | TimerDue
    | Tick
    | Expired
    | Cancel
    | Fence
    | Inject
    | RefreshTools
    | Pause
    | Resume
    | Resolve
    | IssueToken
    | RevokeTokens
)
