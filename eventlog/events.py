"""Events: everything that a foldlog log can contain, as one tagged union.

Events are facts: frozen, named in the past or as a state, tagged by `type`. A field is never renamed or reused; unknown
fields are ignored on read; a changed meaning is a new commit version with an upcaster (`upcasters.py`).

An event as stored has only the fields that its commit does not have already. An event as read (`commits.as_read`) also
has `run_id`, `root_id`, `agent`, `agent_path`, `revision` (of its run), `cursor` (opaque, ordered within the family)
and `at`. Times are float Unix seconds UTC, durations float milliseconds, money a decimal string.

`OBSERVABLE` events are the contract with callers; `ENGINE` events are bookkeeping of the executors; `DRAFTS` exist only
in streams and are never stored. The docstrings are the descriptions in the JSON Schema.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec

from .parts import Part
from .priorities import Priority

Json = Any
"""Any JSON value as Python builtins. (msgspec has no recursive JSON type that is also fast.)"""


class TokenUsage(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    gc=False,
    rename={"cache_writes": "cache_write_tokens", "cache_writes_1h": "cache_write_1h_tokens"},
):
    """Tokens of one or more model calls. `cached` and `cache_write` are part of input, `reasoning` part of output."""

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    cached_input_tokens: int = 0
    reasoning_tokens: int = 0
    cache_writes: int | msgspec.UnsetType = msgspec.UNSET
    """`cache_write_tokens` as stored: omitted if a provider wrote none, as most never do."""
    cache_writes_1h: int | msgspec.UnsetType = msgspec.UNSET
    """`cache_write_1h_tokens` as stored: those of `cache_write_tokens` that are kept for an hour; omitted if none."""

    @property
    def cache_read_tokens(self) -> int:
        """The input tokens that came from the provider's cache: `cached_input_tokens`."""
        return self.cached_input_tokens

    @property
    def cache_write_tokens(self) -> int:
        """The input tokens that the provider put into its cache, perhaps at a higher price."""
        return self.cache_writes or 0

    @property
    def cache_write_1h_tokens(self) -> int:
        """The tokens of `cache_write_tokens` that the provider keeps for an hour, which costs more."""
        return self.cache_writes_1h or 0

    def __add__(self, other: TokenUsage) -> TokenUsage:
        """Return the sum, field by field."""
        return TokenUsage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            total_tokens=self.total_tokens + other.total_tokens,
            cached_input_tokens=self.cached_input_tokens + other.cached_input_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cache_writes=((self.cache_writes or 0) + (other.cache_writes or 0)) or msgspec.UNSET,
            cache_writes_1h=((self.cache_writes_1h or 0) + (other.cache_writes_1h or 0)) or msgspec.UNSET,
        )


ToolEffect = Literal["pure", "idempotent", "unsafe"]
"""The effect of repeating a tool call: none, none beyond the first, or unknown harm."""


ToolStatus = Literal["success", "error", "timed_out", "aborted"]
"""The end of an attempt at a tool call. Aborted: its work was cancelled, by the tool itself or in a child run."""


class ToolSchema(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as the model sees it. `parameters` is a JSON Schema of type object."""

    name: str
    description: str
    parameters: dict[str, Json]


OnTimeout = Literal["error", "partial"]
"""The result of a call that timed out: an error, or its last partial result if there is one."""
OnError = Literal["doubt", "report"]
"""The handling of an unsafe call whose attempt ended with an unknown outcome."""


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The specification of a tool, as the core needs it; stored in the log when a run is prepared.

    `lock` names what the call locks: null for nothing, `run` for the run's lock, `server:<name>` for an MCP server.
    `exclusive`: the lock is not shared. `timeout_s` bounds one attempt (null: no bound). `slot` names a resource that
    only one call at a time may use, among all runs and processes. `once` is the scope in which each of its keys has one
    outcome. `postcondition` must hold after a call: a list of
    assertions, each its name with its arguments. `on_error` is the handling of an attempt that started and has an
    unknown outcome: an unsafe call is in doubt, or, with `report`, is reported to the model as failed.
    """

    name: str
    description: str
    parameters: dict[str, Json]
    effect: ToolEffect = "unsafe"
    on_error: OnError = "doubt"
    on_timeout: OnTimeout = "error"
    lock: str | None = "run"
    exclusive: bool = False
    timeout_s: float | None = 60.0
    max_attempts: int = 1
    source: str = "python"
    slot: str | None = None
    once: str | None = None
    postcondition: list[dict[str, Json]] = []

    @property
    def schema(self) -> ToolSchema:
        """The part that the model sees."""
        return ToolSchema(name=self.name, description=self.description, parameters=self.parameters)


class SealedContent(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """The content of an event under the key `key`: `data` in base64, or the artifact (SHA-256, hex) that has it.

    The bytes are a JSON object with the fields that the event has empty, sealed (docs/reference/log.md#sealed-values).
    """

    key: str
    data: str = ""
    artifact: str = ""
    size_bytes: int = 0


class EventFields(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="type"):
    """The fields that every event has, besides its `type`, which is the stored name of its type.

    `revision` and `cursor` are null for drafts, `step` outside of steps.
    If a tool forwards an event from another agent's stream, `step` and `tool_call_id` are those of the forwarding call;
    `inner_step` and `inner_tool_call_id` are its own.
    `sealed` is the content of a stored event whose words only the holder of a key can read; null for any other event.
    `is_end` is true for one event of a stream: the terminal status of the run for which the stream was opened. It is
    added when a stream is read, and never stored.
    """

    run_id: str = ""
    root_id: str = ""
    agent: str = ""
    agent_path: str = ""
    step: int | None = None
    tool_call_id: str | None = None
    inner_step: int | None = None
    inner_tool_call_id: str | None = None
    revision: int | None = None
    cursor: str | None = None
    at: float = 0.0
    sealed: SealedContent | None = None
    is_end: bool = False


# --- observable -------------------------------------------------------------------------------------------------------

RunStatus = Literal[
    "starting", "paused", "resumed", "completed", "error", "cancelled", "running", "waiting_for_tool"
]
TERMINAL_STATUSES = frozenset({"completed", "error", "cancelled"})


Via = Literal["", "api", "console", "cli", "mcp", "a2a", "agui", "responses", "nats"]
"""The door through which a person or another system acted; empty if it is not known."""


class Actor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The author of an action: a name, the door, and the id of the request; all may be unknown."""

    by: str = ""
    via: Via = ""
    request_id: str = ""

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of the event that the action becomes."""
        return {"by": self.by, "via": self.via, "request_id": self.request_id}


NOBODY = Actor()


class Status(EventFields, frozen=True, kw_only=True, tag="status"):
    """The run changed its state. `running` and `waiting_for_tool` are read from other producers, never written.

    `by`, `via` and `request_id` are those of the one who resumed it.
    """

    type: ClassVar[Literal["status"]] = "status"
    status: RunStatus
    reason: str = ""
    message: str = ""
    by: str = ""
    via: Via = ""
    request_id: str = ""


class Step(EventFields, frozen=True, kw_only=True, tag="step"):
    """A model round began or ended. Its `usage` (on completion) is that of the round."""

    type: ClassVar[Literal["step"]] = "step"
    status: Literal["started", "completed"]
    started_at: float | None = None
    completed_at: float | None = None
    usage: TokenUsage | None = None


FinishReason = Literal["", "length", "content_filter", "malformed_call"]
"""Why a reply is incomplete: it was cut at its maximum length or by the provider's filter, or it ends in a tool call
that the provider could not parse; empty if it is complete."""


class Text(EventFields, frozen=True, kw_only=True, tag="text"):
    """The text of a reply: complete in the log; in a stream, a piece that begins at `offset` (in characters)."""

    type: ClassVar[Literal["text"]] = "text"
    text: str
    offset: int = 0


class Reasoning(EventFields, frozen=True, kw_only=True, tag="reasoning"):
    """The reasoning of a reply; fields as in `Text`."""

    type: ClassVar[Literal["reasoning"]] = "reasoning"
    text: str
    offset: int = 0


class FileMade(EventFields, frozen=True, kw_only=True, tag="file"):
    """A file that the model made as part of its reply. The fields are those of `parts.FilePart`."""

    type: ClassVar[Literal["file"]] = "file"
    media_type: str
    name: str = ""
    artifact: str
    bytes: int = 0
    tokens: int | None = None


class Usage(EventFields, frozen=True, kw_only=True, tag="usage"):
    """The usage of one model call, and whether the provider cut the reply."""

    type: ClassVar[Literal["usage"]] = "usage"
    usage: TokenUsage
    model: str
    source: Literal["provider", "estimate"] = "provider"
    cost_usd: str | None = None
    finish_reason: FinishReason = ""


PolicyAction = Literal["deny", "require_approval", "allow"]


class PolicyRuling(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A policy's ruling on a call, and the rule behind it; `failed` are the conditions that could not judge it."""

    action: PolicyAction
    why: str = ""
    failed: list[str] = []


ExecutedBy = Literal["", "provider"]
"""The runner of a tool: its own run, or the model's provider, within the reply (a native tool)."""


class CallRules(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The rules that a step of a workflow adds to those of its tool.

    `approval` is the kind of the approval that the call needs, empty for none. `attempts` and `timeout_s` replace those
    of the tool, `postcondition` is added to that of the tool.
    """

    approval: Literal["", "tool", "compensation"] = ""
    attempts: int | None = None
    timeout_s: float | None = None
    postcondition: list[dict[str, Json]] = []


class ToolCall(EventFields, frozen=True, kw_only=True, tag="tool_call"):
    """The model called a tool. `raw_arguments` is the text of the arguments if it is not a JSON object, else null.

    `policy` is the ruling on the call, if the run's policy has conditions; others follow from the configuration.
    `executed_by` is `provider` for a native tool: its result follows directly, in the commit of the reply. `rules` are
    those of the step of a workflow that makes the call.
    """

    type: ClassVar[Literal["tool_call"]] = "tool_call"
    tool_name: str
    arguments: dict[str, Json] = {}
    raw_arguments: str | None = None
    injected_args: dict[str, Json] = {}
    policy: PolicyRuling | None = None
    executed_by: ExecutedBy = ""
    rules: CallRules | None = None


def is_by_provider(event: object) -> bool:
    """Return whether the event is a call of a native tool, or its result: both are part of a model's reply."""
    return isinstance(event, ToolCall | ToolResult) and event.executed_by == "provider"


class McpProgress(EventFields, frozen=True, kw_only=True, tag="mcp_progress"):
    """The progress of a tool, of MCP or not; the numbers are those that it sent."""

    type: ClassVar[Literal["mcp_progress"]] = "mcp_progress"
    tool_name: str
    progress: int | float
    total: int | float | None = None
    message: str = ""


class ToolPartial(EventFields, frozen=True, kw_only=True, tag="tool_partial"):
    """A running call reports what it has so far; the last report of a call counts."""

    type: ClassVar[Literal["tool_partial"]] = "tool_partial"
    tool_name: str
    value: Json = None


class ToolResult(EventFields, frozen=True, kw_only=True, tag="tool_result"):
    """A tool call ended. `metadata` (docs/reference/events.md) is the canonical record; the other fields mirror it.

    `in_parts`: the result is a list of content parts (`parts.Part`), including files. `executed_by` as in `ToolCall`.
    """

    type: ClassVar[Literal["tool_result"]] = "tool_result"
    tool_name: str
    success: bool
    result: Json = None
    in_parts: bool = False
    error: str | None = None
    duration_ms: float = 0.0
    metadata: dict[str, Json] = {}
    executed_by: ExecutedBy = ""


REPLY_APPROVALS = frozenset({"tool", "policy", "compensation"})
"""Kinds of approval that release a call before it runs; they are in the commit of the model's reply (R10)."""
QUESTION = "elicitation"
"""The kind of approval with which a running call asks a question; `arguments`: `name`, `message`, `schema` or null."""


class ApprovalRequested(EventFields, frozen=True, kw_only=True, tag="approval_requested"):
    """A decision is needed. `kind`: tool, policy, elicitation, budget, takeover, unverifiable.

    `reason`: the rule that requires it, or what is missing. `injected_args`: additional arguments that the model wrote.
    For a call whose postcondition could not be verified, `postcondition` is the report (as in a result's metadata),
    `evidence` the artifacts that it refers to, and `result` the return value of the tool, if known; `in_parts` as in a
    result. `place`: of a question that a workflow itself asks, its place there.
    """

    type: ClassVar[Literal["approval_requested"]] = "approval_requested"
    approval_id: str
    kind: str
    tool_name: str = ""
    arguments: dict[str, Json] = {}
    expires_at: float | None = None
    reason: str = ""
    injected_args: dict[str, Json] = {}
    postcondition: list[dict[str, Json]] = []
    evidence: list[dict[str, Json]] = []
    result: Json = None
    in_parts: bool = False
    place: str = ""


class ApprovalResolved(EventFields, frozen=True, kw_only=True, tag="approval_resolved"):
    """An approval was decided or timed out. `arguments` are the edited ones.

    `outcome` (with `result`) is that of a call which is not run, because it was started before (kind unverifiable) or
    its work was done by hand; `retry` runs it again.
    `token` is the SHA-256 (hex) of the resume token with which it was answered, if any. `always`: exactly the same call
    needs no approval again.
    """

    type: ClassVar[Literal["approval_resolved"]] = "approval_resolved"
    approval_id: str
    decision: Literal["approved", "rejected", "timed_out"]
    arguments: dict[str, Json] | None = None
    outcome: Literal["retry", "succeeded", "failed"] | None = None
    result: Json = None
    by: str = ""
    note: str = ""
    token: str = ""
    always: bool = False
    via: Via = ""
    request_id: str = ""


WaitKind = Literal["sleep", "signal", "callback"]


class WaitStarted(EventFields, frozen=True, kw_only=True, tag="wait_started"):
    """A running call waits: until `until` (Unix seconds; null: without a limit), or for a signal of this `name`.

    A callback is a signal to this very wait, sent with a token (`token_issued`). `wait_id` names the wait within its
    call. `schema` is the JSON Schema of the signal's data, null for any data. A workflow waits by itself, without a
    call: `place` is that of the wait, and `asked` the start of the SHA-256 (hex) of what its code asked for.
    """

    type: ClassVar[Literal["wait_started"]] = "wait_started"
    wait_id: str
    kind: WaitKind
    name: str = ""
    until: float | None = None
    schema: dict[str, Json] | None = None
    place: str = ""
    asked: str = ""


class WaitEnded(EventFields, frozen=True, kw_only=True, tag="wait_ended"):
    """A wait is over, and its call runs again. `data`, `key` and `by` are those of the signal that was received.

    Cancelled: the wait of a workflow's branch that lost a race; `place` as in `wait_started`.
    """

    type: ClassVar[Literal["wait_ended"]] = "wait_ended"
    wait_id: str
    outcome: Literal["elapsed", "received", "timed_out", "cancelled"]
    data: Json = None
    key: str = ""
    by: str = ""
    place: str = ""


class Context(EventFields, frozen=True, kw_only=True, tag="context"):
    """The prompt's history was cut, summarised or compacted."""

    type: ClassVar[Literal["context"]] = "context"
    action: Literal["window", "summarize", "truncate", "offload", "token_budget", "compact"]
    before_count: int
    after_count: int
    details: dict[str, Json] = {}


class MessageInjected(EventFields, frozen=True, kw_only=True, tag="message_injected"):
    """A queued message reaches the model with the step that starts right after this event."""

    type: ClassVar[Literal["message_injected"]] = "message_injected"
    content: str
    parts: list[Part] = []


class Budget(EventFields, frozen=True, kw_only=True, tag="budget"):
    """A budget was announced or exceeded."""

    type: ClassVar[Literal["budget"]] = "budget"
    kind: Literal["advisory", "limit"]
    scope: Literal["context", "tokens", "cost", "seconds"]
    used: int | float
    limit: int | float
    message: str = ""


class Error(EventFields, frozen=True, kw_only=True, tag="error"):
    """The error with which the run fails. `recoverable`: a new run may succeed."""

    type: ClassVar[Literal["error"]] = "error"
    error: str
    error_type: str
    recoverable: bool = False


class RalphIteration(EventFields, frozen=True, kw_only=True, tag="ralph_iteration"):
    """One iteration of a ralph loop."""

    type: ClassVar[Literal["ralph_iteration"]] = "ralph_iteration"
    iteration: int
    status: Literal["started", "completed", "failed"]
    scores: dict[str, float] = {}


class RalphStop(EventFields, frozen=True, kw_only=True, tag="ralph_stop"):
    """A ralph loop met a stop condition."""

    type: ClassVar[Literal["ralph_stop"]] = "ralph_stop"
    stop_type: str
    reason: str = ""
    iterations: int = 0
    final_scores: dict[str, float] = {}


class ChildStarted(EventFields, frozen=True, kw_only=True, tag="child_started"):
    """A child run was started; `place` and `asked` of a child of a workflow as in `wait_started`."""

    type: ClassVar[Literal["child_started"]] = "child_started"
    child_run: str
    name: str
    kind: str
    place: str = ""
    asked: str = ""


class ChildFinished(EventFields, frozen=True, kw_only=True, tag="child_finished"):
    """A child run has ended; its outcome is in its own log."""

    type: ClassVar[Literal["child_finished"]] = "child_finished"
    child_run: str
    status: Literal["completed", "error", "cancelled"]
    output_digest: str = ""


class Custom(EventFields, frozen=True, tag="custom"):
    """An event that a tool emits, of no other type. The only event for tools to construct: `Custom("name", data)`."""

    type: ClassVar[Literal["custom"]] = "custom"
    name: str
    data: Json = None


# --- drafts: in streams only ------------------------------------------------------------------------------------------


class TextReset(EventFields, frozen=True, kw_only=True, tag="text_reset"):
    """The text that the stream has shown of this channel is invalid from `offset` on."""

    type: ClassVar[Literal["text_reset"]] = "text_reset"
    offset: int
    channel: Literal["text", "reasoning", "tool_calls"]
    cause: Literal["retry", "discarded"]


class ToolCallDelta(EventFields, frozen=True, kw_only=True, tag="tool_call_delta"):
    """A piece of a tool call that the model is still writing."""

    type: ClassVar[Literal["tool_call_delta"]] = "tool_call_delta"
    index: int
    tool_name: str
    arguments_delta: str


# --- engine -----------------------------------------------------------------------------------------------------------


ForkTools = Literal["replay", "ask", "run"]
"""The handling of a fork's tool calls: use recorded results where possible, request an approval, or run them."""


class ParentLink(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The place of a child run: its parent, the parent's call (null for a node) and the ordinal within that call.

    `fork_tools` is the policy of the fork above it, null below other runs. `fork_model`: the model that the fork of a
    swarm or loop above it uses instead of its own.
    """

    run: str
    tool_call_id: str | None = None
    ordinal: int = 0
    revision: int = 0
    fork_tools: ForkTools | None = None
    fork_model: str | None = None


class ToldAs(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run whose code asked for operations that a fork shares: up to the first `ends` ends of them.

    The code is told this run's id and session as long as it has not seen more ends.
    """

    run: str
    ends: int
    session: str | None = None


class SharedCode(msgspec.Struct, frozen=True, kw_only=True):
    """The circumstances in which the code of a workflow ran before its fork, which it is told when it runs again.

    `times`: when it began, and when each operation that the fork shares ended, in their order (Unix seconds).
    """

    told: list[ToldAs]
    times: list[float]


class ForkLink(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The origin of a fork: the original run, the revision after which it continues, and the root of the original.

    `digest` is the SHA-256 of the commit with the revision, `tools` the policy for calls, `model` a replacement of the
    model. The fork's own events up to revision `shared` were copied when it was created; it decided the later ones
    itself. `code` is for the code of a workflow.
    """

    run: str
    root: str
    revision: int
    digest: str
    shared: int
    tools: ForkTools = "ask"
    model: str | None = None
    code: SharedCode | None = None


TriggerKind = Literal["api", "cli", "cron", "hook", "child", "retry", "rollback"]


class Trigger(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The cause of a run: `kind`, and the `name` of the schedule or hook, if any.

    `key` names the occurrence for its sender, such as the id of a delivery. `due_at` is the time for which a schedule
    started the run, `fired_at` the time at which it did (Unix seconds). `request_id` and `traceparent` (W3C trace
    context) are those of the request, and are handed down to child runs. `by` and `via` tell who asked for it.
    """

    kind: TriggerKind
    name: str = ""
    key: str = ""
    due_at: float | None = None
    fired_at: float | None = None
    request_id: str = ""
    traceparent: str = ""
    by: str = ""
    via: Via = ""
    depth: int = 0
    """The number of hooks on the ends of runs, in a row, that led here."""

    @property
    def ids(self) -> dict[str, str | int]:
        """The ids for log records: `request`, and `trace` as in the traceparent; only those that are known."""
        known = {"request": self.request_id, "trace": self.traceparent[3:35]}
        return {name: each for name, each in known.items() if each}

    def handed_down(self) -> Trigger:
        """Return the trigger of a child run."""
        return Trigger(
            kind="child", request_id=self.request_id, traceparent=self.traceparent, depth=self.depth
        )


PROGRAM = Trigger(kind="api")
"""The trigger of a run whose submission does not say it: a program, which told nothing about itself."""


class Submitted(EventFields, frozen=True, kw_only=True, tag="submitted"):
    """The first event of a run, with its configuration and input. `lane` is null if the run is not queued in a lane.

    `parts` is the whole input if it is more than one text; `input` is then the text of its parts. `policy` is that of
    the namespace, with the calls that were approved for good; it is joined with that of the configuration.
    """

    type: ClassVar[Literal["submitted"]] = "submitted"
    kind: str
    config: dict[str, Json]
    config_digest: str
    input: str
    parts: list[Part] = []
    input_digest: str
    messages: list[dict[str, Json]] = []
    session: str | None = None
    user: str | None = None
    metadata: dict[str, Json] = {}
    executor: str = "local"
    lane: str | None = None
    idempotency_key: str | None = None
    parent: ParentLink | None = None
    fork: ForkLink | None = None
    policy: dict[str, Json] = {}
    overrides: dict[str, Json] = {}
    """The options of the submission that changed its agent for this run; `config` has them already."""
    rules: int = 0
    """The version of the core's rules for this run, if a release has changed them; a fork keeps its original's."""
    trigger: Trigger | None = None
    """The trigger; null for `PROGRAM`, and for a run that was submitted before there were triggers."""
    start_at: float | None = None
    """The time before which the run does not start (Unix seconds): its first commit parks it."""
    priority: Priority = "normal"
    """Whose turn it is among the runs that wait for a worker or a slot; runs below inherit it."""


class Claimed(EventFields, frozen=True, kw_only=True, tag="claimed"):
    """An executor drives the run from here on; writers of lower epochs are fenced."""

    type: ClassVar[Literal["claimed"]] = "claimed"
    worker: str
    epoch: int
    lease_s: float
    build: str = ""


class Released(EventFields, frozen=True, kw_only=True, tag="released"):
    """The owner gave the run back; the next driver claims it again."""

    type: ClassVar[Literal["released"]] = "released"
    reason: str = ""


class LeftToOthers(EventFields, frozen=True, kw_only=True, tag="left_to_others"):
    """A worker lacks what the run was prepared with; the run waits for another worker.

    Stored once for each reason; the next claim makes all of them void.
    """

    type: ClassVar[Literal["left_to_others"]] = "left_to_others"
    worker: str
    reason: str


class Restored(EventFields, frozen=True, kw_only=True, tag="restored"):
    """The log was restored from a backup, at `restored_at` (Unix seconds): what the run did after it is unknown.

    Ends the claim, and pauses the run at once, until it is resumed.
    """

    type: ClassVar[Literal["restored"]] = "restored"
    restored_at: float


class Prepared(EventFields, frozen=True, kw_only=True, tag="prepared"):
    """The results of the run's preparation: its tools, which are fixed from here on, and its model."""

    type: ClassVar[Literal["prepared"]] = "prepared"
    tools: list[ToolSpec] = []
    model: str = ""
    window_tokens: int | None = None
    """The size of the model's context window; null if unknown."""
    instructions: str = ""
    """The result of the function that returns the instructions, for an agent that has one."""
    standing_plan: str = ""
    """The standing plan that the agent follows, as the prompt has it."""


class ToolsRefreshRequested(EventFields, frozen=True, kw_only=True, tag="tools_refresh_requested"):
    """The tools are listed again before the next step; those of these servers (as in the configuration) are added."""

    type: ClassVar[Literal["tools_refresh_requested"]] = "tools_refresh_requested"
    mcp_servers: dict[str, Json] = {}
    remove: list[str] = []
    by: str = ""


class ToolsRemoved(EventFields, frozen=True, kw_only=True, tag="tools_removed"):
    """A refresh left these tools out; the model is told so by a message after those before the event."""

    type: ClassVar[Literal["tools_removed"]] = "tools_removed"
    tools: list[str]


class ToolsRefreshFailed(EventFields, frozen=True, kw_only=True, tag="tools_refresh_failed"):
    """The tools could not be listed again; the run continues with those it has."""

    type: ClassVar[Literal["tools_refresh_failed"]] = "tools_refresh_failed"
    error_type: str
    error: str


class MemoryHydrated(EventFields, frozen=True, kw_only=True, tag="memory_hydrated"):
    """Memories of earlier runs, as messages before the run's own history; the memory is not read again.

    `messages` is a list of messages as in `submitted`.
    """

    type: ClassVar[Literal["memory_hydrated"]] = "memory_hydrated"
    scope: str
    backend: str
    messages: Json = []


class KnowledgeFound(EventFields, frozen=True, kw_only=True, tag="knowledge_found"):
    """The stored knowledge that fits the run's input; it is not searched again.

    `items` is a list of objects with `id`, `text`, `source` and `score`, the best first.
    """

    type: ClassVar[Literal["knowledge_found"]] = "knowledge_found"
    items: Json = []


class ModelRequested(EventFields, frozen=True, kw_only=True, tag="model_requested"):
    """A model call was decided. `digest` is that of the provider-neutral request (R12).

    `phase` is empty for the call of a step, otherwise the purpose of the call: planner, summary, compaction.
    """

    type: ClassVar[Literal["model_requested"]] = "model_requested"
    attempt: int
    digest: str
    model: str = ""
    phase: str = ""


class ModelFailed(EventFields, frozen=True, kw_only=True, tag="model_failed"):
    """An attempt of a model call failed. `retry_at` is null if the model is not called again; `phase` as requested.

    `next_model`: the fallback model that is called next, at once; empty for none. `window_tokens` and `request_tokens`,
    for a request that is too long: the model's context window and the size of the request according to the server; null
    if it does not state them. `usage` is an estimate for a reply that broke off, from the request and the part that
    arrived; null if nothing arrived. `budget` is the one of the namespace that is used up (`user:ada: 2 USD a day`).
    """

    type: ClassVar[Literal["model_failed"]] = "model_failed"
    attempt: int
    error_type: str
    error: str
    retry_at: float | None = None
    phase: str = ""
    next_model: str = ""
    window_tokens: int | None = None
    request_tokens: int | None = None
    usage: TokenUsage | None = None
    source: Literal["provider", "estimate"] = "estimate"
    cost_usd: str | None = None
    budget: str = ""


class ReplyState(EventFields, frozen=True, kw_only=True, tag="reply_state"):
    """A provider's state of its reply, to be sent back with it; directly before the `usage` or `planner_replied`.

    `provider` and `model` are those that were called. `items` is a list in the provider's own form and order, which
    only the provider reads.
    """

    type: ClassVar[Literal["reply_state"]] = "reply_state"
    provider: str
    model: str
    items: Json = []


class PlannerCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool call of the planner; the fields are those of `ToolCall`."""

    id: str
    tool_name: str
    arguments: dict[str, Json] = {}
    raw_arguments: str | None = None
    injected_args: dict[str, Json] = {}
    policy: PolicyRuling | None = None


class PlannerReplied(EventFields, frozen=True, kw_only=True, tag="planner_replied"):
    """The planner replied in its `round` (1, 2, ...). The reply is not shown; its usage counts."""

    type: ClassVar[Literal["planner_replied"]] = "planner_replied"
    round: int
    text: str = ""
    calls: list[PlannerCall] = []
    usage: TokenUsage
    model: str
    source: Literal["provider", "estimate"] = "provider"
    cost_usd: str | None = None
    phase: str = "planner"
    finish_reason: FinishReason = ""


class PlannerToolReturned(EventFields, frozen=True, kw_only=True, tag="planner_tool_returned"):
    """A tool call of the planner ended; `in_parts` as in `ToolResult`."""

    type: ClassVar[Literal["planner_tool_returned"]] = "planner_tool_returned"
    tool_name: str
    success: bool
    result: Json = None
    in_parts: bool = False
    error: str | None = None
    offloaded_artifact_id: str | None = None
    """The artifact with the text of a result that the planner is shown shortened."""


class PlanMade(EventFields, frozen=True, kw_only=True, tag="plan_made"):
    """The planner has ended. The prompt contains the plan, unless it is empty."""

    type: ClassVar[Literal["plan_made"]] = "plan_made"
    plan: str = ""


class CutBegun(EventFields, frozen=True, kw_only=True, tag="cut_begun"):
    """The prompt is about to be cut; the removed messages are summarised first, by one model call or several.

    `kept` are the messages after the system message that are kept, as ranges: first index, index after the last.
    """

    type: ClassVar[Literal["cut_begun"]] = "cut_begun"
    phase: str
    cause: str
    kept: list[tuple[int, int]] = []


class SummaryMade(EventFields, frozen=True, kw_only=True, tag="summary_made"):
    """A model summarised messages that are about to be cut from the prompt; its usage counts.

    `until`: how many characters of the removed text this summary and the earlier ones cover.
    """

    type: ClassVar[Literal["summary_made"]] = "summary_made"
    text: str
    until: int = 0
    usage: TokenUsage
    model: str
    source: Literal["provider", "estimate"] = "provider"
    cost_usd: str | None = None
    phase: str = "summary"
    finish_reason: FinishReason = ""


class ToolStarted(EventFields, frozen=True, kw_only=True, tag="tool_started"):
    """An unsafe tool is about to be started; from here on, its outcome may be unknown."""

    type: ClassVar[Literal["tool_started"]] = "tool_started"
    attempt: int


class ToolAttemptFailed(EventFields, frozen=True, kw_only=True, tag="tool_attempt_failed"):
    """An attempt of a tool call failed and is retried at `retry_at`."""

    type: ClassVar[Literal["tool_attempt_failed"]] = "tool_attempt_failed"
    attempt: int
    error: str
    retry_at: float


class ResultRecorded(EventFields, frozen=True, kw_only=True, tag="result_recorded"):
    """A recorded result, which a fork may use for one call of the tool with these arguments instead of running it.

    It is that of the call `source` of the original run, stored after the revision of the fork. `below`: for a node that
    begins in the fork, `name#ordinal` with those above it; empty for the run itself. `in_parts` as in `ToolResult`.
    """

    type: ClassVar[Literal["result_recorded"]] = "result_recorded"
    source: str
    tool_name: str
    arguments: dict[str, Json] = {}
    status: Literal["success", "error", "timed_out"] = "success"
    result: Json = None
    in_parts: bool = False
    error: str | None = None
    below: str = ""


class Memoized(EventFields, frozen=True, kw_only=True, tag="memoized"):
    """A memoized part of a tool call is done; a repeated call takes its value from here.

    `evidence` are the artifacts that it stored: objects with `id`, `media_type` and `size_bytes`. In a workflow, where
    its place is the `tool_call_id`, it may also have failed with an `error`.
    """

    type: ClassVar[Literal["memoized"]] = "memoized"
    name: str
    value: Json = None
    evidence: list[dict[str, Json]] = []
    error: str = ""


class Chosen(EventFields, frozen=True, kw_only=True, tag="chosen"):
    """The branch with this `index` was the first of a race in a workflow to end.

    `lost` are the operations of the other branches that have no branch of their own, by their places.
    """

    type: ClassVar[Literal["chosen"]] = "chosen"
    place: str
    index: int
    lost: list[str] = []


class Marked(EventFields, frozen=True, kw_only=True, tag="marked"):
    """A value that the code of a workflow got at a place, and gets again: which code it follows, or a random seed."""

    type: ClassVar[Literal["marked"]] = "marked"
    place: str
    name: str
    value: Json


class OperationSkipped(EventFields, frozen=True, kw_only=True, tag="operation_skipped"):
    """A step of a workflow's table is not run: its condition is not met, or what it needs was skipped.

    `failed`: it cannot be run, for a reference that leads nowhere or a condition that cannot be evaluated.
    """

    type: ClassVar[Literal["operation_skipped"]] = "operation_skipped"
    place: str
    why: str
    failed: bool = False


class Diverged(EventFields, frozen=True, kw_only=True, tag="diverged"):
    """The code of a workflow asks for something else than the log has of this place, so that the run is parked.

    `recorded` is what the log has, `asked` what the code asks for; one of them may be empty.
    """

    type: ClassVar[Literal["diverged"]] = "diverged"
    place: str
    recorded: str
    asked: str


ParkedFor = Literal[
    "approval", "unverifiable", "wait", "timer", "manual", "budget", "child", "policy", "takeover"
]
"""The reasons for which a run is parked."""


class Parked(EventFields, frozen=True, kw_only=True, tag="parked"):
    """The run waits without a worker; its epoch is over. `timer_id` and `due_at` are for reason timer."""

    type: ClassVar[Literal["parked"]] = "parked"
    reason: ParkedFor
    timer_id: str = ""
    due_at: float | None = None


class OutputRejected(EventFields, frozen=True, kw_only=True, tag="output_rejected"):
    """The final answer was not accepted; the next step tells the model.

    `reason`: it does not match the output schema, it was cut and the model must continue it, or it ends in a tool call
    that the provider could not parse.
    """

    type: ClassVar[Literal["output_rejected"]] = "output_rejected"
    message: str
    reason: Literal["schema", "length", "call"] = "schema"


class ChildReturned(EventFields, frozen=True, kw_only=True, tag="child_returned"):
    """The outcome of a child run, for the fold of its parent; directly before `child_finished`.

    `usage` and `cost_usd` are those of the child and its descendants (`cost_usd` null: not all prices are known).
    `output` is only for children without a tool call; otherwise the call's result has it.
    """

    type: ClassVar[Literal["child_returned"]] = "child_returned"
    child_run: str
    output: str = ""
    error_type: str = ""
    error: str = ""
    usage: TokenUsage = TokenUsage()
    cost_usd: str | None = None


class Evaluated(EventFields, frozen=True, kw_only=True, tag="evaluated"):
    """The `ordinal`-th value (0, 1, ...) of a function that the configuration names; `error` if it failed."""

    type: ClassVar[Literal["evaluated"]] = "evaluated"
    name: str
    ordinal: int
    value: Json = None
    error: str | None = None


class OutputMade(EventFields, frozen=True, kw_only=True, tag="output_made"):
    """The output of a run that coordinates others, or of an agent whose answer came in two parts.

    It is directly before the run's terminal status, or before the error with which it ends.
    """

    type: ClassVar[Literal["output_made"]] = "output_made"
    output: str


class ChildReady(EventFields, frozen=True, kw_only=True, tag="child_ready"):
    """The child for which the run is parked, or a descendant of it, can continue."""

    type: ClassVar[Literal["child_ready"]] = "child_ready"
    child_run: str


class TimerFired(EventFields, frozen=True, kw_only=True, tag="timer_fired"):
    """The timer that the run waited for is due."""

    type: ClassVar[Literal["timer_fired"]] = "timer_fired"
    timer_id: str


class MessageQueued(EventFields, frozen=True, kw_only=True, tag="message_queued"):
    """A message waits for the next step. A `request_key` is stored once: it names the request that was repeated."""

    type: ClassVar[Literal["message_queued"]] = "message_queued"
    content: str
    parts: list[Part] = []
    request_key: str = ""
    by: str = ""
    via: Via = ""
    request_id: str = ""


class SignalReceived(EventFields, frozen=True, kw_only=True, tag="signal_received"):
    """A signal was sent to the run; it is kept until a wait for its name takes it. A key is stored once for a name.

    With a `tool_call_id` it answers a callback of that call: `name` is its `wait_id`, `key` the SHA-256 of the token.
    """

    type: ClassVar[Literal["signal_received"]] = "signal_received"
    name: str
    data: Json = None
    key: str = ""
    by: str = ""


class SignalDropped(EventFields, frozen=True, kw_only=True, tag="signal_dropped"):
    """The oldest unread signal of this name does not fit the schema of the wait that met it. `problem` says why."""

    type: ClassVar[Literal["signal_dropped"]] = "signal_dropped"
    name: str
    problem: str
    key: str = ""


class PauseRequested(EventFields, frozen=True, kw_only=True, tag="pause_requested"):
    """The run must pause at the next step boundary; with `withdrawn`, it must no longer."""

    type: ClassVar[Literal["pause_requested"]] = "pause_requested"
    by: str = ""
    withdrawn: bool = False
    via: Via = ""
    request_id: str = ""


class CancelRequested(EventFields, frozen=True, kw_only=True, tag="cancel_requested"):
    """The run was cancelled; in the same commit as `status(cancelled)`, or as a fence before it."""

    type: ClassVar[Literal["cancel_requested"]] = "cancel_requested"
    reason: str = ""
    by: str = ""
    via: Via = ""
    request_id: str = ""


class ApprovalRevoked(EventFields, frozen=True, kw_only=True, tag="approval_revoked"):
    """A pending approval became void because its run ended."""

    type: ClassVar[Literal["approval_revoked"]] = "approval_revoked"
    approval_id: str


class TokenIssued(EventFields, frozen=True, kw_only=True, tag="token_issued"):
    """The holder of the token with this SHA-256 (hex) may answer the approval, once, before `expires_at`.

    With a `wait_id` it is the token of a callback of a call, whose approval is empty; null `expires_at`: with the call.
    """

    type: ClassVar[Literal["token_issued"]] = "token_issued"
    approval_id: str
    sha256: str
    expires_at: float | None
    by: str = ""
    wait_id: str = ""


class TokenRevoked(EventFields, frozen=True, kw_only=True, tag="token_revoked"):
    """The resume token with this SHA-256 (hex) is no longer valid."""

    type: ClassVar[Literal["token_revoked"]] = "token_revoked"
    approval_id: str
    sha256: str
    by: str = ""


class Offloaded(EventFields, frozen=True, kw_only=True, tag="offloaded"):
    """An event that is too large for its commit: it is stored completely as an artifact.

    Readers of its content replace this event by it (`offload.restore`); for others there is its `outline`: the event
    without its long texts.
    """

    type: ClassVar[Literal["offloaded"]] = "offloaded"
    outline: dict[str, Json]
    artifact: str
    """The SHA-256 (hex) of its JSON."""
    size_bytes: int


class LateOutcome(EventFields, frozen=True, kw_only=True, tag="late_outcome"):
    """The outcome of a side effect after the run was over, or after its call was given up.

    Outcome `unknown`: a thread of it still runs, or the outcome cannot be known; the thread's end is another event.
    """

    type: ClassVar[Literal["late_outcome"]] = "late_outcome"
    kind: Literal["model", "tool"]
    outcome: str
    result: Json = None
    error: str | None = None
    usage: TokenUsage | None = None
    """The usage of a model's reply, complete or broken off; `source` is that of the count."""
    source: Literal["provider", "estimate"] = "estimate"
    cost_usd: str | None = None


class LaneEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run in a lane's queue, with the fields that its wake-up needs."""

    run: str
    agent: str
    revision: int
    priority: Priority = "normal"


class LaneUpdated(EventFields, frozen=True, kw_only=True, tag="lane_updated"):
    """The whole queue of a lane, head first, so that the last commit of a lane has its complete state.

    `dropped` are runs that are removed from the history of the lane's session from here on, `purged` those that were in
    the lane and are no longer in the log, `imported` those that come from an archive, where they had ended.
    """

    type: ClassVar[Literal["lane_updated"]] = "lane_updated"
    queue: list[LaneEntry]
    dropped: list[str] = []
    purged: list[str] = []
    imported: list[str] = []
    by: str = ""
    via: Via = ""
    request_id: str = ""


class KeyRecorded(EventFields, frozen=True, kw_only=True, tag="key_recorded"):
    """An idempotency key (or a run id chosen by the caller) belongs to this run of this agent.

    `submission` is stored if the run does not exist yet; once it does, the key is recorded again as `stored`, so that a
    run which is missing later is known to have been purged.
    """

    type: ClassVar[Literal["key_recorded"]] = "key_recorded"
    key: str
    run: str
    shard: int
    input_digest: str
    agent_name: str = ""
    submission: Json = None
    stored: bool = False


class BreakerUpdated(EventFields, frozen=True, kw_only=True, tag="breaker_updated"):
    """The whole state of a circuit breaker, so that the last commit of its subject has all of it.

    `failures`: consecutive ones. open: no call until `until`. half_open: one call runs, and no other until `until`.
    `error_type` is that of the last failure, `run` the run whose call it was.
    """

    type: ClassVar[Literal["breaker_updated"]] = "breaker_updated"
    name: str
    state: Literal["closed", "open", "half_open"]
    failures: int = 0
    until: float = 0.0
    error_type: str = ""
    run: str = ""


class BudgetUpdated(EventFields, frozen=True, kw_only=True, tag="budget_updated"):
    """The spending of the runs of one shard under a budget of the namespace, in the period that began at `began_at`.

    `name` is whose budget it is: `model:openai:gpt-5`, `user:ada`, `namespace`. Of the `calls`, `unpriced` have no
    known cost. A total begins at 0.
    """

    type: ClassVar[Literal["budget_updated"]] = "budget_updated"
    name: str
    per: Literal["hour", "day", "month", "total"]
    time_zone: str = "UTC"
    began_at: float = 0.0
    calls: int = 0
    unpriced: int = 0
    tokens: int = 0
    cost_usd: str = "0"


class ApprovedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that needs no approval any more: exactly this tool with exactly these arguments."""

    tool: str
    arguments: dict[str, Json] = {}
    at: float = 0.0
    by: str = ""


class PolicyUpdated(EventFields, frozen=True, kw_only=True, tag="policy_updated"):
    """All calls of the namespace that operators approved for good, so that the last commit of its subject has them."""

    type: ClassVar[Literal["policy_updated"]] = "policy_updated"
    approved: list[ApprovedCall] = []


class OnceUpdated(EventFields, frozen=True, kw_only=True, tag="once_updated"):
    """The call that owns a key, and with it the one outcome of the key; on a subject of its own for each key.

    `digest` is the SHA-256 (hex) of the call's arguments, `unsafe` the effect of its tool. `root` is empty for a call
    of a root run. The outcome is in the log of the run.
    """

    type: ClassVar[Literal["once_updated"]] = "once_updated"
    scope: str
    key: str
    run: str
    shard: int
    call: str
    state: Literal["running", "over"]
    digest: str
    root: str = ""
    unsafe: bool = True


class SlotHolder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The holder of a slot: a run that may be driven, or a call of it that may run.

    `revision` is that of the run when it took the slot; for a call, that of the claim under which it runs. `root` is
    empty for a root run, `call` for a slot of the run itself. `since` is when it took the slot (Unix seconds).
    `worker` took it for a run that needs further slots; empty if several did.
    """

    run: str
    shard: int
    revision: int
    root: str = ""
    call: str = ""
    since: float = 0.0
    worker: str = ""


class SlotWaiter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A waiter for a slot, with the fields that its wake-up needs; there must be fewer than `runs_max` holders.

    `tool` is that of the call, `since` when it came (Unix seconds).
    """

    run: str
    shard: int
    revision: int
    root: str = ""
    call: str = ""
    agent: str
    runs_max: int
    submitted_at: float
    since: float = 0.0
    tool: str = ""
    worker: str = ""
    priority: Priority = "normal"


class SlotsUpdated(EventFields, frozen=True, kw_only=True, tag="slots_updated"):
    """The holders and waiters of slots, the next waiter first, so that the last commit has the complete state.

    `turns` is what each priority is owed, if runs of several wait: it decides whose turn is next.
    """

    type: ClassVar[Literal["slots_updated"]] = "slots_updated"
    name: str
    holders: list[SlotHolder] = []
    waiting: list[SlotWaiter] = []
    turns: dict[Priority, int] = {}


class Occurrence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One time of a schedule, or several that were missed: `count` of them, `due_at` being that of the last.

    `run` is the run that was started, `reason` why none was. `at` is the time of the decision, `by` the actor who
    asked for it by hand.
    """

    due_at: float
    outcome: Literal["started", "skipped", "missed"]
    run: str = ""
    reason: str = ""
    at: float = 0.0
    count: int = 1
    by: str = ""


class WantedTime(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A time of a schedule that was asked for by hand, or had come when its times were changed."""

    due_at: float
    by: str = ""


class ScheduleCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The number of times of a schedule, by outcome."""

    started: int = 0
    skipped: int = 0
    missed: int = 0


class ScheduleUpdated(EventFields, frozen=True, kw_only=True, tag="schedule_updated"):
    """The whole state of a schedule, so that the last commit of its subject has all of it.

    `spec` is the schedule as it was applied. `next_at` is the first time that was not decided yet; null for none.
    `wanted` are times asked for by hand. `last` is the last time for which a run was started, `recent` the last
    decisions, oldest first.
    """

    type: ClassVar[Literal["schedule_updated"]] = "schedule_updated"
    name: str
    spec: dict[str, Json]
    next_at: float | None = None
    wanted: list[WantedTime] = []
    last: Occurrence | None = None
    recent: list[Occurrence] = []
    counts: ScheduleCounts = ScheduleCounts()
    paused: bool = False
    deleted: bool = False
    by: str = ""


class Buried(EventFields, frozen=True, kw_only=True, tag="buried"):
    """The family of this root run was erased. It is the run's last commit for ever, and soon its only one.

    `how`: deleted, or archived at `url`. `revisions` counts those of the run before it, `digest` is the SHA-256 of the
    family (docs/reference/log.md#tombstones). `row` is the run's row in the run list, without texts and with the totals
    of its family, `members` are the runs below it. `key` is the subject of its idempotency key, if it has one.
    """

    type: ClassVar[Literal["buried"]] = "buried"
    how: Literal["deleted", "archived"]
    url: str = ""
    by: str = ""
    reason: str = ""
    revisions: int
    digest: str
    row: dict[str, Json] = {}
    members: list[str] = []
    key: str = ""


class HookAdvanced(EventFields, frozen=True, kw_only=True, tag="hook_advanced"):
    """A hook on the ends of runs has looked at all commits of its shard up to `position`; 0: up to this very event."""

    type: ClassVar[Literal["hook_advanced"]] = "hook_advanced"
    name: str
    position: int = 0


Role = Literal["viewer", "operator", "admin"]
"""The roles of those who use the HTTP API: the holder of a later one may do what the earlier ones may."""


class AccessGranted(EventFields, frozen=True, kw_only=True, tag="access_granted"):
    """A token of the HTTP API was issued to a holder; on the subject of all tokens.

    `sha256` is that of the token (hex), which is stored nowhere; `expires_at` is Unix seconds, null for never.
    """

    type: ClassVar[Literal["access_granted"]] = "access_granted"
    name: str
    role: Role
    sha256: str
    expires_at: float | None = None
    by: str = ""


class AccessWithdrawn(EventFields, frozen=True, kw_only=True, tag="access_withdrawn"):
    """The token of a holder was withdrawn; on the subject of all tokens."""

    type: ClassVar[Literal["access_withdrawn"]] = "access_withdrawn"
    name: str
    by: str = ""


class AnswerKept(EventFields, frozen=True, kw_only=True, tag="answer_kept"):
    """The answer that was given to a request with an idempotency key; on its own subject for each key.

    `request` is the SHA-256 (hex) of the request, `body` the answer as JSON, which repeats no content of a run.
    """

    type: ClassVar[Literal["answer_kept"]] = "answer_kept"
    request: str
    status: int = 0
    body: str = ""


class AgentSaved(EventFields, frozen=True, kw_only=True, tag="agent_saved"):
    """A version of a stored agent was saved; on the subject of all stored agents.

    `version` counts from 1 for each name. `config` is complete, as `submitted` has it, and `config_digest` its SHA-256
    (hex). `note` says why it was changed.
    """

    type: ClassVar[Literal["agent_saved"]] = "agent_saved"
    name: str
    version: int
    config: dict[str, Json]
    config_digest: str
    note: str = ""
    by: str = ""
    via: Via = ""
    request_id: str = ""


class AgentRemoved(EventFields, frozen=True, kw_only=True, tag="agent_removed"):
    """A stored agent was removed: nothing more is started of it. Its versions stay, `version` was the last one."""

    type: ClassVar[Literal["agent_removed"]] = "agent_removed"
    name: str
    version: int
    by: str = ""
    via: Via = ""
    request_id: str = ""


PlanStatus = Literal["pending", "in_progress", "completed"]


class PlanStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A step of a standing plan. `id` names it within the plan, whatever becomes of its text and place."""

    id: str
    text: str
    status: PlanStatus = "pending"
    note: str = ""


class PlanUpdated(EventFields, frozen=True, kw_only=True, tag="plan_updated"):
    """A version of a standing plan, whole; on a subject of its own for each plan.

    `version` counts from 1. `note` says why it was changed. `run` and `call` are those of the tool call that changed
    it, empty if a person did. A removed plan keeps the steps that it had.
    """

    type: ClassVar[Literal["plan_updated"]] = "plan_updated"
    name: str
    version: int
    goal: str = ""
    steps: list[PlanStep] = []
    removed: bool = False
    note: str = ""
    by: str = ""
    via: Via = ""
    request_id: str = ""
    run: str = ""
    call: str = ""


class Unknown(EventFields, frozen=True, kw_only=True, tag="unknown"):
    """An event of a newer writer: kept as it is, never interpreted."""

    type: ClassVar[Literal["unknown"]] = "unknown"
    original_type: str
    data: dict[str, Json]


Observable = (
    Status
    | Step
    | Text
    | Reasoning
    | FileMade
    | Usage
    | ToolCall
    | McpProgress
    | ToolPartial
    | ToolResult
    | ApprovalRequested
    | ApprovalResolved
    | WaitStarted
    | WaitEnded
    | Context
    | MessageInjected
    | Budget
    | Error
    | RalphIteration
    | RalphStop
    | ChildStarted
    | ChildFinished
    | Custom
)
Engine = (
    Submitted
    | Claimed
    | Released
    | LeftToOthers
    | Restored
    | Prepared
    | MemoryHydrated
    | KnowledgeFound
    | ToolsRefreshRequested
    | ToolsRefreshFailed
    | ToolsRemoved
    | ModelRequested
    | ModelFailed
    | ReplyState
    | PlannerReplied
    | PlannerToolReturned
    | PlanMade
    | CutBegun
    | SummaryMade
    | ToolStarted
    | ToolAttemptFailed
    | Memoized
    | Chosen
    | Marked
    | OperationSkipped
    | Diverged
    | ResultRecorded
    | Parked
    | OutputRejected
    | ChildReturned
    | Evaluated
    | OutputMade
    | ChildReady
    | TimerFired
    | MessageQueued
    | SignalReceived
    | SignalDropped
    | PauseRequested
    | CancelRequested
    | ApprovalRevoked
    | TokenIssued
    | TokenRevoked
    | LateOutcome
    | Offloaded
    | LaneUpdated
    | KeyRecorded
    | BreakerUpdated
    | BudgetUpdated
    | PolicyUpdated
    | OnceUpdated
    | SlotsUpdated
    | ScheduleUpdated
    | HookAdvanced
    | AccessGranted
    | AccessWithdrawn
    | AnswerKept
    | AgentSaved
    | AgentRemoved
    | PlanUpdated
    | Buried
)
Draft = TextReset | ToolCallDelta
StoredEvent = Observable | Engine
StreamEvent = (
    Status
    | Text
    | TextReset
    | FileMade
    | ToolCall
    | McpProgress
    | ToolPartial
    | ApprovalRequested
    | ApprovalResolved
    | WaitStarted
    | WaitEnded
    | Context
    | MessageInjected
    | Budget
    | Error
    | RalphIteration
    | RalphStop
    | Custom
)
"""The events that every stream yields."""
DetailedEvent = Observable | Draft
"""The events that a detailed stream yields."""
Event = Observable | Draft | Engine | Unknown
"""Any event: `type` tells type checkers which one it is."""

OBSERVABLE: tuple[type[Observable], ...] = Observable.__args__
ENGINE: tuple[type[Engine], ...] = Engine.__args__
DRAFTS: tuple[type[Draft], ...] = Draft.__args__


def is_terminal(event: Event) -> bool:
    """Return whether this is the run's last observable event."""
    return isinstance(event, Status) and event.status in TERMINAL_STATUSES


def to_json(event: Event) -> dict[str, Json]:
    """Return the event as a JSON object with all fields, `type` first, in the form of `--json`.

    `sealed` only if it is.
    """
    fields = {name: msgspec.to_builtins(getattr(event, name)) for name in event.__struct_fields__}
    if event.sealed is None:
        del fields["sealed"]
    return {"type": event.type, **fields}
