"""What an executor or a caller wants of a run, and what an effect turned out to be: the input of `decide`."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ...eventlog.events import (
    ChildReturned,
    Event,
    FinishReason,
    MemoryHydrated,
    TokenUsage,
    ToolSpec,
    ToolStatus,
)
from ...eventlog.parts import FilePart
from ...projections.messages import CallRequest
from ...projections.tokens import UsageSource
from .effects import Scope


class Claim(msgspec.Struct, frozen=True):
    """An executor takes the run."""

    worker: str
    lease_s: float


class Release(msgspec.Struct, frozen=True):
    """The owner gives the run back."""

    reason: str = ""


class Leave(msgspec.Struct, frozen=True):
    """A worker says what it lacks for the run, which waits for another one."""

    worker: str
    reason: str


class ToolsResolved(msgspec.Struct, frozen=True):
    """The preparation found these tools."""

    tools: tuple[ToolSpec, ...]
    model: str
    refresh: int = 0
    hydrated: MemoryHydrated | None = None
    window_tokens: int | None = None


class KnowledgeRead(msgspec.Struct, frozen=True):
    """The stored knowledge that fits the run's input, as in `KnowledgeFound`."""

    items: Any


class PreparationFailed(msgspec.Struct, frozen=True):
    """The run cannot start."""

    error_type: str
    message: str
    refresh: int = 0


class ModelReplied(msgspec.Struct, frozen=True, kw_only=True):
    """A model call attempt gave its whole answer."""

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


class ModelCallFailed(msgspec.Struct, frozen=True, kw_only=True):
    """A model call attempt failed."""

    step: int
    attempt: int
    error_type: str
    message: str
    retry_after_s: float | None = None
    phase: str = ""
    window_tokens: int | None = None
    """Of an overflow: what the server says that the model reads at most."""
    request_tokens: int | None = None
    """And what it says that the request takes."""
    usage: TokenUsage | None = None
    cost_usd: str | None = None


class ToolEmitted(msgspec.Struct, frozen=True, kw_only=True):
    """A running call emitted its `ordinal`-th event (0, 1, ... within the call, whichever attempt)."""

    step: int
    call_id: str
    ordinal: int
    event: Event


class ToolAsked(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt ended with a question to people, whose answer the next attempt finds under `name`.

    `form` is the JSON Schema of the answer's content; null for one that has none.
    """

    step: int
    call_id: str
    attempt: int
    name: str
    message: str
    form: dict[str, Any] | None = None


class MemoMade(msgspec.Struct, frozen=True, kw_only=True):
    """A running call has the value of a named part."""

    step: int
    call_id: str
    name: str
    value: Any = None
    evidence: tuple[dict[str, Any], ...] = ()


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
    """The circuit breaker that did not let the call through; empty if it was made."""
    slot_cycle: str = ""
    """The slot that the call was not given since it waited, in the end, for itself; empty if it was made."""
    misused: bool = False
    """The arguments were at fault, and not the tool."""
    in_doubt: bool = False
    """It had started, and nobody knows what it did: `error` is why. Of an unsafe tool."""
    postcondition: tuple[dict[str, Any], ...] = ()
    """What was found of the tool's postcondition: findings as in `postconditions`."""
    settles: bool = False
    """It is what was seen of the world after an attempt whose own outcome is lost."""


class ChildSpawned(msgspec.Struct, frozen=True, kw_only=True):
    """A running call starts its `ordinal`-th child run; or, without a call, the `ordinal`-th of this name."""

    call_id: str | None
    ordinal: int
    child_run: str
    name: str
    kind: str


class ChildEnded(msgspec.Struct, frozen=True, kw_only=True):
    """A child run is over."""

    child_run: str
    status: Literal["completed", "error", "cancelled"]
    output_digest: str = ""
    returned: ChildReturned | None = None
    """What it came to; null in logs of before that was stored."""


class ParkForChildren(msgspec.Struct, frozen=True):
    """Everything that is going on in the run waits for children that wait themselves."""


class BelowReady(msgspec.Struct, frozen=True):
    """What the run is parked on, at or below this child, can go on."""

    child_run: str


class EvaluationReturned(msgspec.Struct, frozen=True, kw_only=True):
    """A function that the configuration names gave a value, or failed."""

    name: str
    ordinal: int
    value: Any = None
    error: str | None = None


class TimerDue(msgspec.Struct, frozen=True):
    """A timer that the run may have waited for fired."""

    timer_id: str


class Tick(msgspec.Struct, frozen=True):
    """Time has passed: a retry may be due."""


class Expired(msgspec.Struct, frozen=True, kw_only=True):
    """The time that the run, or this step, may take is over."""

    scope: Scope
    step: int


class Cancel(msgspec.Struct, frozen=True):
    """End the run at once."""

    reason: str = ""
    by: str = ""


class Fence(msgspec.Struct, frozen=True):
    """Let nothing more happen in the run: it is cancelled once all below it are."""

    reason: str = ""
    by: str = ""


class Inject(msgspec.Struct, frozen=True):
    """Queue a message for the next step."""

    content: str


class RefreshTools(msgspec.Struct, frozen=True):
    """List the tools again before the next step, with those of further MCP servers."""

    mcp_servers: dict[str, Any] = {}
    by: str = ""


class Pause(msgspec.Struct, frozen=True):
    """Pause at the next step boundary."""

    by: str = ""


class Resume(msgspec.Struct, frozen=True):
    """Go on after a manual pause, or one that the configuration asks for."""


class Resolve(msgspec.Struct, frozen=True, kw_only=True):
    """Answer an approval."""

    approval_id: str
    decision: Literal["approved", "rejected"]
    note: str = ""
    arguments: dict[str, Any] | None = None
    outcome: Literal["retry", "succeeded", "failed"] | None = None
    result: Any = None
    by: str = ""
    token: str = ""
    """The SHA-256 (hex) of the resume token that gives the right to answer; empty for who needs none."""


class IssueToken(msgspec.Struct, frozen=True, kw_only=True):
    """Let the holder of a resume token answer an approval."""

    approval_id: str
    sha256: str
    expires_at: float
    by: str = ""


class RevokeTokens(msgspec.Struct, frozen=True, kw_only=True):
    """Take back all resume tokens of an approval."""

    approval_id: str
    by: str = ""


Command = (
    Claim
    | Release
    | Leave
    | ToolsResolved
    | KnowledgeRead
    | PreparationFailed
    | ModelReplied
    | ModelCallFailed
    | ToolEmitted
    | MemoMade
    | ToolReturned
    | ToolAsked
    | ChildSpawned
    | ChildEnded
    | ParkForChildren
    | BelowReady
    | EvaluationReturned
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
