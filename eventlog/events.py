"""What happened: every event that a foldlog log can hold, as one tagged union.

Events are facts: frozen, named in the past or as a state, tagged by `type`. A field is never renamed or reused; unknown
fields are ignored on read; a changed meaning is a new commit version with an upcaster (`upcasters.py`).

An event as stored holds only what its commit does not say already. An event as read (`commits.as_read`) carries in
addition `run_id`, `root_id`, `agent`, `agent_path`, `revision` (of its run), `cursor` (opaque, ordered within
the family) and `at`. Times are float Unix seconds UTC, durations float milliseconds, money a decimal string.

`OBSERVABLE` events are the contract with callers; `ENGINE` events are bookkeeping of the executors; `DRAFTS` exist in
streams only and are never stored.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec

from .parts import Part

Json = Any
"""Any JSON value as Python builtins. (msgspec has no recursive JSON type that is also fast.)"""


class TokenUsage(
    msgspec.Struct, frozen=True, kw_only=True, gc=False, rename={"cache_writes": "cache_write_tokens"}
):
    """Tokens of one or more model calls. `cached` and `cache_write` are part of input, `reasoning` part of output."""

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    cached_input_tokens: int = 0
    reasoning_tokens: int = 0
    cache_writes: int | msgspec.UnsetType = msgspec.UNSET
    """`cache_write_tokens` as it is stored: left out where a provider wrote none, as most never do."""

    @property
    def cache_read_tokens(self) -> int:
        """Tokens of the input that came from the provider's cache: `cached_input_tokens`."""
        return self.cached_input_tokens

    @property
    def cache_write_tokens(self) -> int:
        """Tokens of the input that the provider put into its cache, and may have charged more for."""
        return self.cache_writes or 0

    def __add__(self, other: TokenUsage) -> TokenUsage:
        """The sum, field by field."""
        return TokenUsage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            total_tokens=self.total_tokens + other.total_tokens,
            cached_input_tokens=self.cached_input_tokens + other.cached_input_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cache_writes=(self.cache_write_tokens + other.cache_write_tokens) or msgspec.UNSET,
        )


ToolEffect = Literal["pure", "idempotent", "unsafe"]
"""What a second run of a tool call would do: nothing, nothing more, or unknown harm."""


ToolStatus = Literal["success", "error", "timed_out", "aborted"]
"""How an attempt at a tool call ended. Aborted: what it did was cancelled, by the tool itself or as its child."""


class ToolSchema(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as the model sees it. `parameters` is a JSON Schema of type object."""

    name: str
    description: str
    parameters: dict[str, Json]


OnError = Literal["doubt", "report"]
"""What becomes of an unsafe call whose attempt ended without a certain outcome."""


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that the core needs to know of a tool; stored in the log when a run is prepared.

    `lock` names what the call locks: null for nothing, `run` for the run's lock, `server:<name>` for an MCP server.
    `exclusive`: the lock is taken alone, not shared. `timeout_s` bounds one attempt (null: no bound). `slot` names what
    one call at a time may use, of whatever run in whatever process. `postcondition` is what has to hold after a call: a
    list of assertions, each its name with its arguments. `on_error` says what an attempt means that started and whose
    outcome is unknown: an unsafe call is in doubt, or, with `report`, has failed as far as the model is told.
    """

    name: str
    description: str
    parameters: dict[str, Json]
    effect: ToolEffect = "unsafe"
    on_error: OnError = "doubt"
    lock: str | None = "run"
    exclusive: bool = False
    timeout_s: float | None = 60.0
    max_attempts: int = 1
    source: str = "python"
    slot: str | None = None
    postcondition: list[dict[str, Json]] = []

    @property
    def schema(self) -> ToolSchema:
        """The part that the model sees."""
        return ToolSchema(name=self.name, description=self.description, parameters=self.parameters)


class EventFields(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="type"):
    """The fields that every event has, besides its `type`: the stored name of its kind.

    `revision` and `cursor` are null for drafts, `step` outside of steps.

    Of an event that a tool passes on from another agent's stream, `step` and `tool_call_id` are those of the call that
    passes it on; `inner_step` and `inner_tool_call_id` are its own.

    `is_end` is true for one event of a stream: the terminal of the run that the stream was opened for. It is added when
    a stream is read, and never stored.
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
    is_end: bool = False


# --- observable -------------------------------------------------------------------------------------------------------

RunStatus = Literal[
    "starting", "paused", "resumed", "completed", "error", "cancelled", "running", "waiting_for_tool"
]
TERMINAL_STATUSES = frozenset({"completed", "error", "cancelled"})


class Status(EventFields, frozen=True, kw_only=True, tag="status"):
    """The run changed its state. `running` and `waiting_for_tool` are read from other producers, never written."""

    type: ClassVar[Literal["status"]] = "status"
    status: RunStatus
    reason: str = ""
    message: str = ""


class Step(EventFields, frozen=True, kw_only=True, tag="step"):
    """A model round began or ended. Its `usage` (on completion) is that of the round."""

    type: ClassVar[Literal["step"]] = "step"
    status: Literal["started", "completed"]
    started_at: float | None = None
    completed_at: float | None = None
    usage: TokenUsage | None = None


FinishReason = Literal["", "length", "content_filter", "malformed_call"]
"""Why an answer is not whole: cut at the limit of its length, or by the provider's filter, or it ends in a tool call
that the provider could not read; empty if it is whole."""


class Text(EventFields, frozen=True, kw_only=True, tag="text"):
    """What the model said: complete in the log; in a stream a piece that begins at `offset` (in characters)."""

    type: ClassVar[Literal["text"]] = "text"
    text: str
    offset: int = 0


class Reasoning(EventFields, frozen=True, kw_only=True, tag="reasoning"):
    """What the model thought aloud; as `Text`."""

    type: ClassVar[Literal["reasoning"]] = "reasoning"
    text: str
    offset: int = 0


class FileMade(EventFields, frozen=True, kw_only=True, tag="file"):
    """The model made a file, as part of its reply. The fields are those of `parts.FilePart`."""

    type: ClassVar[Literal["file"]] = "file"
    media_type: str
    name: str = ""
    artifact: str
    bytes: int = 0
    tokens: int | None = None


class Usage(EventFields, frozen=True, kw_only=True, tag="usage"):
    """What one model round cost, and whether the provider cut its answer."""

    type: ClassVar[Literal["usage"]] = "usage"
    usage: TokenUsage
    model: str
    source: Literal["provider", "estimate"] = "provider"
    cost_usd: str | None = None
    finish_reason: FinishReason = ""


class ToolCall(EventFields, frozen=True, kw_only=True, tag="tool_call"):
    """The model asked for a tool. `raw_arguments` holds its text when that is not a JSON object, else null."""

    type: ClassVar[Literal["tool_call"]] = "tool_call"
    tool_name: str
    arguments: dict[str, Json] = {}
    raw_arguments: str | None = None
    injected_args: dict[str, Json] = {}


class McpProgress(EventFields, frozen=True, kw_only=True, tag="mcp_progress"):
    """A tool, MCP or not, says how far it is; numbers as it sent them."""

    type: ClassVar[Literal["mcp_progress"]] = "mcp_progress"
    tool_name: str
    progress: int | float
    total: int | float | None = None
    message: str = ""


class ToolResult(EventFields, frozen=True, kw_only=True, tag="tool_result"):
    """A tool call ended. `metadata` (docs/reference/events.md) is the canonical record; the other fields mirror it.

    `in_parts`: the result is a list of content parts (`parts.Part`), files among them.
    """

    type: ClassVar[Literal["tool_result"]] = "tool_result"
    tool_name: str
    success: bool
    result: Json = None
    in_parts: bool = False
    error: str | None = None
    duration_ms: float = 0.0
    metadata: dict[str, Json] = {}


REPLY_APPROVALS = frozenset({"tool", "policy"})
"""Kinds of approval that clear a call before it runs, and stand in the commit of the model's reply (R10)."""


QUESTION = "elicitation"
"""The kind of approval by which a running call asks; `arguments` are `name`, `message`, `schema` (or null)."""


class ApprovalRequested(EventFields, frozen=True, kw_only=True, tag="approval_requested"):
    """Somebody has to decide. `kind`: tool, policy, elicitation, budget, takeover, unverifiable.

    `reason`: the rule that wants it, or what is missing. `injected_args`: what the model wrote besides the arguments of
    the tool. Of a call whose postcondition could not be verified: `postcondition` is the report (as in a result's
    metadata), `evidence` the artifacts that were seen, `result` what the tool returned, if that is known; `in_parts` as
    in a result.
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


class ApprovalResolved(EventFields, frozen=True, kw_only=True, tag="approval_resolved"):
    """Somebody, or the clock, decided. `arguments` are the edited ones.

    `outcome` (with `result`) is that of a call which is not run: it was started before (kind unverifiable), or somebody
    did by hand what it does; `retry` runs it again.

    `token` is the SHA-256 (hex) of the resume token that it was answered with, if it was.
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


class Context(EventFields, frozen=True, kw_only=True, tag="context"):
    """The prompt's history was cut, summarised or compacted."""

    type: ClassVar[Literal["context"]] = "context"
    action: Literal["window", "summarize", "truncate", "offload", "token_budget", "compact"]
    before_count: int
    after_count: int
    details: dict[str, Json] = {}


class MessageInjected(EventFields, frozen=True, kw_only=True, tag="message_injected"):
    """A queued message reaches the model with the step that starts right behind this event."""

    type: ClassVar[Literal["message_injected"]] = "message_injected"
    content: str


class Budget(EventFields, frozen=True, kw_only=True, tag="budget"):
    """A budget was announced or ran out."""

    type: ClassVar[Literal["budget"]] = "budget"
    kind: Literal["advisory", "limit"]
    scope: Literal["context", "tokens", "cost", "seconds"]
    used: int | float
    limit: int | float
    message: str = ""


class Error(EventFields, frozen=True, kw_only=True, tag="error"):
    """Why the run fails. `recoverable`: the same run may be retried with hope."""

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
    """A child run exists from here on."""

    type: ClassVar[Literal["child_started"]] = "child_started"
    child_run: str
    name: str
    kind: str


class ChildFinished(EventFields, frozen=True, kw_only=True, tag="child_finished"):
    """A child run has ended; its outcome stands in its own log."""

    type: ClassVar[Literal["child_finished"]] = "child_finished"
    child_run: str
    status: Literal["completed", "error", "cancelled"]
    output_digest: str = ""


class Custom(EventFields, frozen=True, tag="custom"):
    """What a tool emits and no other family covers. The one event that is written by hand: `Custom("name", data)`."""

    type: ClassVar[Literal["custom"]] = "custom"
    name: str
    data: Json = None


# --- drafts: in streams only ------------------------------------------------------------------------------------------


class TextReset(EventFields, frozen=True, kw_only=True, tag="text_reset"):
    """From `offset` on, what the stream showed of this channel does not hold."""

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
"""What becomes of the tool calls of a fork: recorded results where there are some, an approval, or just a run."""


class ParentLink(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a child run hangs: its parent, the parent's call (null for a node) and the ordinal within that call.

    `fork_tools` is the policy of the fork that it is below, null below other runs. `fork_model`: the model that the
    fork of a swarm or loop above it asks instead of its own.
    """

    run: str
    tool_call_id: str | None = None
    ordinal: int = 0
    revision: int = 0
    fork_tools: ForkTools | None = None
    fork_model: str | None = None


class ForkLink(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a fork comes from: the run that it left, behind which revision, and the root of that run's family.

    `digest` is the SHA-256 of the commit that holds the revision, `tools` the policy for calls, `model` the one that is
    asked instead. The run's own events up to revision `shared` were taken over from there when it was made; what
    follows, it decided itself.
    """

    run: str
    root: str
    revision: int
    digest: str
    shared: int
    tools: ForkTools = "ask"
    model: str | None = None


class Submitted(EventFields, frozen=True, kw_only=True, tag="submitted"):
    """The first event of a run: what is to be done. `lane` is null when the run waits for nobody.

    `parts` is the input as a whole where that is more than one text; `input` is its text then.
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
    rules: int = 0
    """By which rules the core decides about the run, where a release has changed them; a fork keeps its parent's."""


class Claimed(EventFields, frozen=True, kw_only=True, tag="claimed"):
    """An executor drives the run from here on; writers of lower epochs are fenced."""

    type: ClassVar[Literal["claimed"]] = "claimed"
    worker: str
    epoch: int
    lease_s: float


class Released(EventFields, frozen=True, kw_only=True, tag="released"):
    """The owner gave the run back; the next driver claims it again."""

    type: ClassVar[Literal["released"]] = "released"
    reason: str = ""


class LeftToOthers(EventFields, frozen=True, kw_only=True, tag="left_to_others"):
    """A worker cannot do what the run was prepared for, and nobody else had taken the run; it waits for one that can.

    Stored once for each reason; the next claim makes all of them void.
    """

    type: ClassVar[Literal["left_to_others"]] = "left_to_others"
    worker: str
    reason: str


class Prepared(EventFields, frozen=True, kw_only=True, tag="prepared"):
    """What the run's preparation read from outside: the tool set, fixed from here on."""

    type: ClassVar[Literal["prepared"]] = "prepared"
    tools: list[ToolSpec] = []
    model: str = ""
    window_tokens: int | None = None
    """How much the model reads at most; null where nobody knows."""
    instructions: str = ""
    """What the function that gives the instructions has returned, for an agent that has one."""


class ToolsRefreshRequested(EventFields, frozen=True, kw_only=True, tag="tools_refresh_requested"):
    """Before the next step the tools are listed again; those of these servers (as in the configuration) join them."""

    type: ClassVar[Literal["tools_refresh_requested"]] = "tools_refresh_requested"
    mcp_servers: dict[str, Json] = {}
    by: str = ""


class ToolsRefreshFailed(EventFields, frozen=True, kw_only=True, tag="tools_refresh_failed"):
    """The tools could not be listed again; the run goes on with those it has."""

    type: ClassVar[Literal["tools_refresh_failed"]] = "tools_refresh_failed"
    error_type: str
    error: str


class MemoryHydrated(EventFields, frozen=True, kw_only=True, tag="memory_hydrated"):
    """What the run was told of earlier ones, as messages before its own history; never read again.

    `messages` is a list of messages as in `submitted`.
    """

    type: ClassVar[Literal["memory_hydrated"]] = "memory_hydrated"
    scope: str
    backend: str
    messages: Json = []


class KnowledgeFound(EventFields, frozen=True, kw_only=True, tag="knowledge_found"):
    """The stored knowledge that fits the run's input; never searched for again.

    `items` is a list of objects with `id`, `text`, `source` and `score`, the best first.
    """

    type: ClassVar[Literal["knowledge_found"]] = "knowledge_found"
    items: Json = []


class ModelRequested(EventFields, frozen=True, kw_only=True, tag="model_requested"):
    """A model call was decided on. `digest` is that of the provider-neutral request (R12).

    `phase` is empty for the call of a step, else what the call is for besides: planner, summary, compaction.
    """

    type: ClassVar[Literal["model_requested"]] = "model_requested"
    attempt: int
    digest: str
    model: str = ""
    phase: str = ""


class ModelFailed(EventFields, frozen=True, kw_only=True, tag="model_failed"):
    """A model call attempt failed. `retry_at` is null when the model is not asked again. `phase` as in the request.

    `next_model`: the fallback model that is asked instead, at once; empty for none. `window_tokens` and
    `request_tokens`, of a request that is too long: what the server says that the model reads at most, and what the
    request takes; null where it does not say. `usage` is what an answer took that broke off: an estimate, by what was
    asked and what had arrived; null where nothing had.
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


class ReplyState(EventFields, frozen=True, kw_only=True, tag="reply_state"):
    """What a provider wants back with its reply: directly before the reply's `usage`, or its `planner_replied`.

    `provider` and `model` are those that were asked. `items` is a list in the provider's own form and order, which only
    the provider reads.
    """

    type: ClassVar[Literal["reply_state"]] = "reply_state"
    provider: str
    model: str
    items: Json = []


class PlannerCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool that the planner asked for; the fields are those of `ToolCall`."""

    id: str
    tool_name: str
    arguments: dict[str, Json] = {}
    raw_arguments: str | None = None
    injected_args: dict[str, Json] = {}


class PlannerReplied(EventFields, frozen=True, kw_only=True, tag="planner_replied"):
    """The planner answered in its `round` (1, 2, ...). Nothing of it is shown; its usage counts."""

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
    """Where the text of a result lies that the planner is shown in part."""


class PlanMade(EventFields, frozen=True, kw_only=True, tag="plan_made"):
    """The planner is done. The executor's prompt carries the plan; an empty one leaves it as it is."""

    type: ClassVar[Literal["plan_made"]] = "plan_made"
    plan: str = ""


class CutBegun(EventFields, frozen=True, kw_only=True, tag="cut_begun"):
    """The prompt is about to be cut: what leaves it is summarised first, by one model call or several.

    `kept` are the messages behind the system message that stay, as ranges: first index, index behind the last.
    """

    type: ClassVar[Literal["cut_begun"]] = "cut_begun"
    phase: str
    cause: str
    kept: list[tuple[int, int]] = []


class SummaryMade(EventFields, frozen=True, kw_only=True, tag="summary_made"):
    """A model put into few words what is about to be cut from the prompt; its usage counts.

    `until`: how much of the text of what leaves this summary and those before it hold, in characters.
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
    """An unsafe tool is about to be started; from here on its outcome may be unknown."""

    type: ClassVar[Literal["tool_started"]] = "tool_started"
    attempt: int


class ToolAttemptFailed(EventFields, frozen=True, kw_only=True, tag="tool_attempt_failed"):
    """A tool attempt failed and is tried again at `retry_at`."""

    type: ClassVar[Literal["tool_attempt_failed"]] = "tool_attempt_failed"
    attempt: int
    error: str
    retry_at: float


class ResultRecorded(EventFields, frozen=True, kw_only=True, tag="result_recorded"):
    """A fork has this result for one call of the tool with these arguments, and need not run it.

    It is that of the call `source` of the run that the fork left, stored behind the revision where it left. `below`:
    for a node that begins in the fork, as `name#ordinal` with those before it; empty for the run itself. `in_parts` as
    in `ToolResult`.
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
    """A named part of a tool call is done; the call takes its value from here when it runs again.

    `evidence` are the artifacts that it stored: objects with `id`, `media_type` and `size_bytes`.
    """

    type: ClassVar[Literal["memoized"]] = "memoized"
    name: str
    value: Json = None
    evidence: list[dict[str, Json]] = []


class Parked(EventFields, frozen=True, kw_only=True, tag="parked"):
    """The run waits and holds no worker; its epoch is over. `timer_id` and `due_at` belong to reason timer."""

    type: ClassVar[Literal["parked"]] = "parked"
    reason: Literal["approval", "unverifiable", "timer", "manual", "budget", "child", "policy"]
    timer_id: str = ""
    due_at: float | None = None


class OutputRejected(EventFields, frozen=True, kw_only=True, tag="output_rejected"):
    """The final answer cannot stand as it is; the next step tells the model.

    `reason`: it does not meet the output schema, its length was cut and the model is asked to go on, or it ends in a
    tool call that the provider could not read.
    """

    type: ClassVar[Literal["output_rejected"]] = "output_rejected"
    message: str
    reason: Literal["schema", "length", "call"] = "schema"


class ChildReturned(EventFields, frozen=True, kw_only=True, tag="child_returned"):
    """What a child run came to, for the fold of its parent; directly before `child_finished`.

    `usage` and `cost_usd` are those of the child and all below it (`cost_usd` null: not all prices are known).
    `output` is kept for children without a tool call; else the call's result holds it.
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

    It is directly before the run's terminal status, or before the error that it ends with.
    """

    type: ClassVar[Literal["output_made"]] = "output_made"
    output: str


class ChildReady(EventFields, frozen=True, kw_only=True, tag="child_ready"):
    """What the run is parked on, at or below this child, can go on."""

    type: ClassVar[Literal["child_ready"]] = "child_ready"
    child_run: str


class TimerFired(EventFields, frozen=True, kw_only=True, tag="timer_fired"):
    """The timer that the run waited for is due."""

    type: ClassVar[Literal["timer_fired"]] = "timer_fired"
    timer_id: str


class MessageQueued(EventFields, frozen=True, kw_only=True, tag="message_queued"):
    """A message waits for the next step."""

    type: ClassVar[Literal["message_queued"]] = "message_queued"
    content: str


class PauseRequested(EventFields, frozen=True, kw_only=True, tag="pause_requested"):
    """The run pauses at the next step boundary; or, `withdrawn`, it does not any more."""

    type: ClassVar[Literal["pause_requested"]] = "pause_requested"
    by: str = ""
    withdrawn: bool = False


class CancelRequested(EventFields, frozen=True, kw_only=True, tag="cancel_requested"):
    """Stands in one commit with `status(cancelled)`."""

    type: ClassVar[Literal["cancel_requested"]] = "cancel_requested"
    reason: str = ""
    by: str = ""


class ApprovalRevoked(EventFields, frozen=True, kw_only=True, tag="approval_revoked"):
    """A pending approval became void because its run ended."""

    type: ClassVar[Literal["approval_revoked"]] = "approval_revoked"
    approval_id: str


class TokenIssued(EventFields, frozen=True, kw_only=True, tag="token_issued"):
    """The holder of the resume token with this SHA-256 (hex) may answer the approval, once, before `expires_at`."""

    type: ClassVar[Literal["token_issued"]] = "token_issued"
    approval_id: str
    sha256: str
    expires_at: float
    by: str = ""


class TokenRevoked(EventFields, frozen=True, kw_only=True, tag="token_revoked"):
    """The resume token with this SHA-256 (hex) answers nothing any more."""

    type: ClassVar[Literal["token_revoked"]] = "token_revoked"
    approval_id: str
    sha256: str
    by: str = ""


class Offloaded(EventFields, frozen=True, kw_only=True, tag="offloaded"):
    """An event that is too large for its commit: it lies beside the log, whole, as an artifact.

    Whoever reads what was said puts it back in this one's place (`offload.restore`); who only asks what happened has
    its `outline`: the event with its long texts left out.
    """

    type: ClassVar[Literal["offloaded"]] = "offloaded"
    outline: dict[str, Json]
    artifact: str
    """The SHA-256 (hex) of its JSON."""
    size_bytes: int


class LateOutcome(EventFields, frozen=True, kw_only=True, tag="late_outcome"):
    """What a side effect turned out to be after the run was over, or after its call was given up.

    Outcome `unknown`: a thread of it goes on, or nobody knows; what the thread comes to is told by another.
    """

    type: ClassVar[Literal["late_outcome"]] = "late_outcome"
    kind: Literal["model", "tool"]
    outcome: str
    result: Json = None
    error: str | None = None
    usage: TokenUsage | None = None
    """Of a model's answer, whole or broken off; `source` says whose count it is."""
    source: Literal["provider", "estimate"] = "estimate"
    cost_usd: str | None = None


class LaneEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One run in a lane's queue, with what its wake-up needs."""

    run: str
    agent: str
    revision: int


class LaneUpdated(EventFields, frozen=True, kw_only=True, tag="lane_updated"):
    """The whole queue of a lane, head first, so that the last commit of a lane tells all.

    `dropped` names runs that are taken out of the history of the lane's session from here on, `purged` those that were
    in the lane and are not in the log any more, `imported` those that come from an archive, where they had ended.
    """

    type: ClassVar[Literal["lane_updated"]] = "lane_updated"
    queue: list[LaneEntry]
    dropped: list[str] = []
    purged: list[str] = []
    imported: list[str] = []


class KeyRecorded(EventFields, frozen=True, kw_only=True, tag="key_recorded"):
    """An idempotency key (or a run id chosen by the caller) belongs to this run of this agent.

    `submission` is what is to be stored if the run is not there; once it is, the key is recorded again as `stored`, so
    that a run which is missing is known to have been purged.
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
    """The whole state of a circuit breaker, so that the last commit of its subject tells all.

    `failures` in a row. open: no call until `until`. half_open: one call is on its way, and until `until` no other.
    `error_type` is that of the last failure, `run` the run whose call it was.
    """

    type: ClassVar[Literal["breaker_updated"]] = "breaker_updated"
    name: str
    state: Literal["closed", "open", "half_open"]
    failures: int = 0
    until: float = 0.0
    error_type: str = ""
    run: str = ""


class SlotHolder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run that may be driven, or a call of it that may run.

    `revision` is that of the run when it took the slot; for a call, that of the claim under which it runs. `root` is
    empty for a root run, `call` for a slot of the run itself.
    """

    run: str
    shard: int
    revision: int
    root: str = ""
    call: str = ""


class SlotWaiter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who waits for a slot, with what its wake-up needs; there have to be fewer than `runs_max` holders."""

    run: str
    shard: int
    revision: int
    root: str = ""
    call: str = ""
    agent: str
    runs_max: int
    submitted_at: float


class SlotsUpdated(EventFields, frozen=True, kw_only=True, tag="slots_updated"):
    """Who may be driven at once, and who waits, the next one first, so that the last commit of the slots tells all."""

    type: ClassVar[Literal["slots_updated"]] = "slots_updated"
    name: str
    holders: list[SlotHolder] = []
    waiting: list[SlotWaiter] = []


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
    | ToolResult
    | ApprovalRequested
    | ApprovalResolved
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
    | Prepared
    | MemoryHydrated
    | KnowledgeFound
    | ToolsRefreshRequested
    | ToolsRefreshFailed
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
    | ResultRecorded
    | Parked
    | OutputRejected
    | ChildReturned
    | Evaluated
    | OutputMade
    | ChildReady
    | TimerFired
    | MessageQueued
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
    | SlotsUpdated
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
    | ApprovalRequested
    | ApprovalResolved
    | Context
    | MessageInjected
    | Budget
    | Error
    | RalphIteration
    | RalphStop
    | Custom
)
"""What every stream yields."""
DetailedEvent = Observable | Draft
"""What a detailed stream yields."""
Event = Observable | Draft | Engine | Unknown
"""Any event: `type` tells type checkers which one it is."""

OBSERVABLE: tuple[type[Observable], ...] = Observable.__args__
ENGINE: tuple[type[Engine], ...] = Engine.__args__
DRAFTS: tuple[type[Draft], ...] = Draft.__args__


def is_terminal(event: Event) -> bool:
    """Return whether this is the run's last observable event."""
    return isinstance(event, Status) and event.status in TERMINAL_STATUSES


def to_json(event: Event) -> dict[str, Json]:
    """The event as a JSON object with every field present, `type` first, as callers and `--json` show it."""
    fields = {name: msgspec.to_builtins(getattr(event, name)) for name in event.__struct_fields__}
    return {"type": event.type, **fields}
