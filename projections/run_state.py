"""The state of one run, as folded from its log (`fold`), by concern."""

from __future__ import annotations

from typing import Any

import msgspec

from ..eventlog.commits import ORIGIN, Head
from ..eventlog.events import (
    ApprovalRequested,
    ApprovalResolved,
    CallRules,
    ChildReturned,
    Error,
    Evaluated,
    FinishReason,
    Parked,
    PolicyRuling,
    RalphIteration,
    ResultRecorded,
    SignalReceived,
    Status,
    Submitted,
    TokenIssued,
    TokenUsage,
    ToolResult,
    ToolSpec,
    ToolsRefreshRequested,
    WaitEnded,
    WaitStarted,
)
from ..eventlog.parts import FilePart, files_of
from ..eventlog.priorities import Priority
from .flow_state import FlowState
from .id_set import IdSet
from .messages import Message, Place, ReplyItems, chain


class ApprovalState(msgspec.Struct):
    """One approval: its request, its resolution once there is one, and whether it was revoked."""

    request: ApprovalRequested
    resolution: ApprovalResolved | None = None
    revoked: bool = False
    tokens: list[TokenIssued] = []
    """The resume tokens that were issued for it and not revoked."""

    @property
    def pending(self) -> bool:
        """True if it still needs a decision."""
        return self.resolution is None and not self.revoked

    def shorten(self) -> None:
        """Drop the details of the request, which are in the log; a late answer needs only the decision."""
        self.request = msgspec.structs.replace(
            self.request,
            arguments={},
            reason="",
            injected_args={},
            postcondition=[],
            evidence=[],
            result=None,
        )


class WaitState(msgspec.Struct):
    """One wait of a call, and its end once there is one."""

    started: WaitStarted
    order: int
    """The number of waits that the calls of the step began before it."""
    ended: WaitEnded | None = None
    sent_at: float | None = None
    """The time at which the signal that ended it was stored, in Unix seconds."""


class CallbackState(msgspec.Struct):
    """A callback of a call: the SHA-256 of its tokens, of which one may be used once."""

    until: float | None
    """The latest time at which it is over, in Unix seconds."""
    tokens: list[str] = []
    used: bool = False


class UnreadSignal(msgspec.Struct):
    """A signal that ended no wait yet, and when it was stored, in Unix seconds."""

    event: SignalReceived
    at: float


def signal_key(name: str, key: str) -> str:
    """Return what `RunState.signal_keys` has of a signal with a key."""
    return f"{name}:{key}"


class CallState(msgspec.Struct):
    """One tool call of the current step; of a workflow, also a question or a wait that is open.

    `kind` is tool, ask, or that of the wait.
    """

    id: str
    index: int
    name: str
    arguments: dict[str, Any]
    raw_arguments: str | None = None
    injected_args: dict[str, Any] = {}
    policy: PolicyRuling | None = None
    """The ruling on the call that the log has; null if it follows from the policy alone."""
    rules: CallRules | None = None
    """The rules that the step of a workflow adds to those of the tool."""
    count: int = 0
    """The number of earlier calls of the same tool in the run."""
    cut: FinishReason = ""
    """Why the reply with this call is incomplete; empty if it is complete."""
    approval_id: str | None = None
    """The latest approval about this call."""
    started: int = 0
    """The attempt of a stored `tool_started` whose outcome is not stored; 0 for none."""
    orphaned: bool = False
    """True if it was started by an owner that was replaced: then only a decision may settle it (W20)."""
    failures: int = 0
    asks: int = 0
    """Attempts that ended with a question."""
    doubts: int = 0
    """Attempts of unknown outcome that an operator had repeated."""
    turn: int = 0
    """The number of the answer that released it, from 1; 0 if it needed none. Calls take their locks in this order."""
    retry_at: float | None = None
    emitted: int = 0
    """The number of the call's stored events; a repeated attempt skips as many (R21)."""
    partials: int = 0
    """The number of partial results that the call has reported; `partial` is the last one."""
    partial: Any = None
    marks: dict[str, tuple[int, int]] = {}
    """The numbers of events and children when a memoized part was done or a question asked: a repeated attempt that
    skips the part continues from these numbers."""
    children: list[str] = []
    memos: dict[str, Any] = {}
    """The values of the call's memoized parts, by name."""
    memo_evidence: dict[str, list[dict[str, Any]]] = {}
    """The artifacts that those parts stored, by the same names."""
    waits: dict[str, WaitState] = {}
    """By `wait_id`, in the order in which they started; all but the last are over."""
    callbacks: dict[str, CallbackState] = {}
    """By the `wait_id` under which the call waits, or will."""
    result: ToolResult | None = None
    kind: str = "tool"

    @property
    def open_wait(self) -> WaitStarted | None:
        """The wait that the call is in."""
        if not self.waits:
            return None
        latest = next(reversed(self.waits.values()))
        return latest.started if latest.ended is None else None

    @property
    def attempt(self) -> int:
        """The current or next attempt: 1, 2, ..."""
        return self.failures + self.asks + self.doubts + len(self.waits) + 1


class ModelCallState(msgspec.Struct):
    """The model call of the current step, or of another phase (`phase` is not empty)."""

    phase: str = ""
    model: str = ""
    """The model of the latest attempt, as provider:model."""
    next_model: str = ""
    """The fallback that is called next, after the model was given up."""
    given_up: list[str] = []
    """The models that were given up for this call."""
    given_up_failures: int = 0
    """The failed attempts of those models."""
    attempt: int = 0
    requested: bool = False
    """True if the attempt is running under the current epoch."""
    failures: int = 0
    """The failed attempts of the current model."""
    retry_at: float | None = None
    error_type: str = ""
    error: str = ""
    budget: str = ""
    """The budget of the namespace that is used up, as the last failure says."""
    replied: bool = False
    text: str = ""
    files: list[FilePart] = []
    """The files of the reply."""
    reply_state: ReplyItems | None = None
    """The provider's state, to be sent back with the reply."""
    usage: TokenUsage = TokenUsage()
    finish_reason: FinishReason = ""


class NodeState(msgspec.Struct):
    """A child run without a tool call: a node of a swarm, an iteration of a loop."""

    child_run: str
    name: str
    ordinal: int
    """Its number among the nodes of the same name: 0, 1, ..."""
    status: str | None = None
    """completed, error or cancelled; None while it is open."""
    returned: ChildReturned | None = None
    started_at: float = 0.0
    ended_at: float = 0.0

    @property
    def output(self) -> str:
        """Its output, once it is completed."""
        return self.returned.output if self.returned is not None else ""


class PlanningState(msgspec.Struct):
    """The progress of the planner, and finally the plan."""

    made: bool = False
    plan: str = ""
    rounds: int = 0
    """The number of its stored replies."""
    messages: list[Message] = []
    """Its replies and the results of its tools; they follow the run's prompt as it was before planning."""
    places: dict[str, Place] = {}
    """The round and index of each of its calls."""
    calls: dict[str, CallState] = {}
    """The calls of its latest round, until all have their results."""


class ElapsedState(msgspec.Struct):
    """The times from which the timeouts of the run and of its open step are computed, in seconds."""

    claimed_at: float = 0.0
    """The time of the first claim; 0 before."""
    paused_at: float | None = None
    """The beginning of the current pause, if any; pauses do not count."""
    paused_s: float = 0.0
    """The length of all earlier pauses."""
    step_paused_s: float = 0.0
    """The length of the earlier pauses within the step."""


class CutState(msgspec.Struct):
    """A cut of the prompt that has begun, and the summary of the removed messages."""

    phase: str
    cause: str
    kept: list[tuple[int, int]]
    """The ranges of messages after the system message that are kept."""
    summary: str = ""
    until: int = 0
    """The number of characters of the removed text that the summary covers."""
    parts: int = 0
    """The number of summaries that were made; each includes those before it."""
    overflows: int = 0
    """The number of times that a part of the text did not fit the model's window."""
    truncated: bool = False
    """True if the provider cut a summary at its maximum length."""


class ContextState(msgspec.Struct):
    """The size of the prompt, and the cuts made to it."""

    window_tokens: int | None = None
    """The model's context window: the configured one or the learned one, whichever is less."""
    learned_tokens: int | None = None
    """The upper bound of the window that was learned from requests refused as too long."""
    shows_budget: bool = False
    """True if each message shows the model how full the window is."""
    tokens: int = 0
    """The size of the next request: as the provider counted, plus an estimate of later messages."""
    tool_tokens: int = 0
    messages: int = 0
    """The number of messages in the conversation, including those that were cut."""
    has_files: bool = False
    """A message has had parts, so that there may be files to leave out."""
    has_input: bool = True
    """True if the run's own input is still part of the prompt."""
    cut: CutState | None = None
    """The cut in progress, if any."""
    summaries: int = 0
    compactions: int = 0
    compacted_at: tuple[int, bool] | None = None
    """The place of the last compaction: the number of completed steps, and whether one was open."""


class SpentState(msgspec.Struct):
    """The time and money that steps took. Time is in seconds, without pauses."""

    seconds: float = 0.0
    step_seconds: float = 0.0
    step_cost_usd: str | None = "0"
    step_broken: TokenUsage = TokenUsage()
    """The usage of the step's replies that broke off."""
    began_at: float = 0.0
    raised: dict[str, str] = {}
    """The amounts by which operators have raised each ceiling, as decimals."""


SPAWN_SELF = "spawn_self"
"""The tool with which an agent starts a copy of itself."""
TODO_SOURCE = "todo"
"""The source of the tools that keep a run's to-do list."""


class Todo(msgspec.Struct):
    """An item of a to-do list."""

    id: str
    text: str
    done: bool = False


class RunState(msgspec.Struct):  # noqa: PLW1641  # it changes, so it has no hash
    """The state of a run after the commit `head`."""

    run: str = ""
    root: str = ""
    path: str = ""
    head: Head = ORIGIN
    submitted: Submitted | None = None
    submitted_at: float = 0.0
    updated_at: float = 0.0
    epoch: int = 0
    owner: str | None = None
    owner_lease_s: float = 0.0
    owner_revision: int = 0
    left: dict[str, str] = {}
    """The reasons why workers left the run to others since its last claim, each with the last worker that gave it."""
    parked: Parked | None = None
    paused: str | None = None
    """The reason of an open `status(paused)`, otherwise None."""
    pause_requested: bool = False
    pause_by: str = ""
    """The one who requested the pause that is requested or open."""
    held_at: float | None = None
    """The time of the restore (Unix seconds) since which the run waits for a person to let it go on."""
    terminal: Status | None = None
    error: Error | None = None
    cancel_reason: str | None = None
    """The reason of the cancel; None if the run was not cancelled."""
    cancel_by: str = ""
    prepared: bool = False
    instructions: str = ""
    """The instructions that a function returned for this run; they precede those of the configuration."""
    standing_plan: str = ""
    """The standing plan that the run follows, as its prompt has it."""
    tools: dict[str, ToolSpec] = {}
    mcp_servers: dict[str, Any] = {}
    """The tool servers of the run: those of its configuration, and those that refreshes added."""
    removed_tools: list[str] = []
    """The tools that were removed by their names, for the rest of the run."""
    refresh: ToolsRefreshRequested | None = None
    """The requested refresh, which happens before the next step."""
    refreshes: int = 0
    step: int = 0
    step_open: bool = False
    steps_completed: int = 0
    step_started_at: float = 0.0
    model: ModelCallState = msgspec.field(default_factory=ModelCallState)
    interrupted: ModelCallState | None = None
    """The call of the open step or planner, while it waits for a summary."""
    calls: dict[str, CallState] = {}
    call_places: dict[str, Place] = {}
    """The places of the calls in the messages and of those of the step."""
    cut_calls: IdSet = msgspec.field(default_factory=IdSet)
    """The ids of all other calls."""
    tool_counts: dict[str, int] = {}
    """The number of calls that the model made, by tool."""
    always: dict[str, str] = {}
    """The `recording_key` of each call that an operator approved for good, by the approval."""
    approvals: dict[str, ApprovalState] = {}
    recorded: dict[str, list[ResultRecorded]] = {}
    """Results that a fork may still use for calls instead of running them, by `recording_key`, oldest first."""
    recorded_below: list[ResultRecorded] = []
    """Recorded results for the nodes below the run, which get them when they begin."""
    flow: FlowState | None = None
    """The operations of a workflow; null for any other run. Its open calls, questions and waits are in `calls`."""
    open_children: dict[str, str | None] = {}
    """Child runs that are not over, with the call to which each belongs."""
    child_count: int = 0
    spawned: int = 0
    """The number of child runs that `spawn_self` has started."""
    child_wakes: int = 0
    """The number of times that a child woke the run; since then the wake-up of the child may cover the run."""
    nodes: list[NodeState] = []
    """The child runs without a tool call, in the order of their start."""
    evaluations: dict[str, list[Evaluated]] = {}
    """The values of functions, by name, in the order of their ordinals."""
    iterations: list[RalphIteration] = []
    """The latest event of each iteration of a ralph loop."""
    inner_usage: TokenUsage = TokenUsage()
    """The usage of the children that are over, with their descendants."""
    inner_cost_usd: str | None = "0"
    queue: list[Message] = []
    message_keys: dict[str, int] = {}
    """By the key of the request that queued a message, the revision of the run before it."""
    signals: list[UnreadSignal] = []
    """The signals that ended no wait yet, oldest first."""
    signal_count: int = 0
    """The number of signals that were stored."""
    signal_keys: dict[str, int] = {}
    """By the name and key of a signal that was stored with a key, its number: 1 for the run's first.

    Those of callbacks have no name here, and the SHA-256 of their tokens as key.
    """
    todos: list[Todo] = []
    """The to-do list of the run, oldest first.

    It is folded here, from tool results, so that its tools need no more than the state that their driver has: a fold of
    its own would read the whole history at each call.
    """
    hydrated: bool = False
    """True if memories of earlier runs were added already."""
    looked_up: bool = False
    """True if the knowledge store was searched already."""
    knowledge: str = ""
    """The part of the system message with the knowledge that was found."""
    planning: PlanningState = msgspec.field(default_factory=PlanningState)
    elapsed: ElapsedState = msgspec.field(default_factory=ElapsedState)
    context: ContextState = msgspec.field(default_factory=ContextState)
    spent: SpentState = msgspec.field(default_factory=SpentState)
    messages: list[Message] = []
    history_count: int = 0
    """The number of messages before the run's own input."""
    linked_messages: int = 0
    """The number of messages that `linked_digest` covers; the others are linked when the digest is needed."""
    linked_digest: str = ""
    usage: TokenUsage = TokenUsage()
    """The usage of all model calls, including those outside of steps."""
    cost_usd: str | None = "0"
    """The cost of all model calls; a decimal, None once the price of a call is unknown."""
    retries: dict[str, int] = {}
    """The number of retries, by the type of the error."""
    output: str = ""
    output_rejections: int = 0
    continued: str = ""
    """The first part of an answer that was cut, while the model is continuing it."""
    last_round: str = ""
    same_rounds: int = 0
    unknown_type: str | None = None
    """The type of the first event of an unknown type; this code must not drive such a run."""

    def __eq__(self, other: object) -> bool:
        """Return whether the states are equal, apart from cached digests."""
        if not isinstance(other, RunState) or self.messages_digest != other.messages_digest:
            return False
        return super().__eq__(other)

    @property
    def messages_digest(self) -> str:
        """The chain over the messages (R12), computed on demand, because only model calls need it."""
        self.link_messages()
        return self.linked_digest

    def link_messages(self) -> None:
        """Extend the chain to the last message."""
        for message in self.messages[self.linked_messages :]:
            self.linked_digest = chain(self.linked_digest, message, self.call_places)
        self.linked_messages = len(self.messages)

    def place_call(self, call_id: str, place: Place) -> None:
        """Record the place of a call. Messages about an earlier call with this id are linked first, with its place."""
        if call_id in self.call_places:
            self.link_messages()
        self.call_places[call_id] = place

    def knows_call(self, call_id: str) -> bool:
        """Return whether a call of the run, or of the messages before it, has this id."""
        return call_id in self.call_places or call_id in self.cut_calls

    def shorten_approvals(self) -> None:
        """Shorten the decided approvals of the step, which is complete."""
        for approval in reversed(self.approvals.values()):
            if approval.request.step is not None and approval.request.step < self.step:
                break  # earlier ones were shortened with their own steps
            if approval.request.step == self.step and not approval.pending:
                approval.shorten()

    def forget_calls(self) -> None:
        """Keep only the ids of the calls that no message mentions any more."""
        mentioned = {message.tool_call_id for message in self.messages}
        mentioned |= {call.id for message in self.messages for call in message.tool_calls}
        for call_id in self.call_places.keys() - mentioned - self.calls.keys():
            del self.call_places[call_id]
            self.cut_calls.add(call_id)

    @property
    def exists(self) -> bool:
        """True if the run was submitted."""
        return self.submitted is not None

    @property
    def over(self) -> bool:
        """True if the run has its terminal status."""
        return self.terminal is not None

    @property
    def cancelling(self) -> bool:
        """True if a cancel is stored but the run is not over yet: it does nothing more, but must still be ended."""
        return self.cancel_reason is not None and not self.over

    @property
    def closed(self) -> bool:
        """True if the run is over or about to be cancelled: it accepts no further input."""
        return self.over or self.cancelling

    @property
    def runnable(self) -> bool:
        """True if a worker should drive or end the run, unless it waits in a lane: stored, not parked, not over."""
        return self.exists and not self.over and self.parked is None

    @property
    def call_step(self) -> int | None:
        """The step of the events of its calls: that of the agent, none for a workflow."""
        return self.step if self.flow is None else None

    def nodes_of(self, name: str) -> list[NodeState]:
        """Return the nodes of this name, by their ordinals."""
        return [node for node in self.nodes if node.name == name]

    def node(self, name: str, ordinal: int) -> NodeState | None:
        """Return the `ordinal`-th node of this name, if it was started."""
        return next(iter(self.nodes_of(name)[ordinal:]), None)

    @property
    def kind(self) -> str:
        """The kind of the run: agent, swarm, ralph, workflow; empty before it exists."""
        return self.submitted.kind if self.submitted is not None else ""

    @property
    def agent(self) -> str:
        """The name of the agent, swarm or loop."""
        return self.path.rpartition("/")[2]

    @property
    def served_as(self) -> str:
        """The agent under which its wake-ups are queued: that of its root, whose driver drives the family."""
        return self.path.partition("/")[0]

    @property
    def priority(self) -> Priority:
        """The priority with which it was submitted."""
        return self.submitted.priority if self.submitted is not None else "normal"

    @property
    def status(self) -> str:
        """The status: queued, running, paused, completed, error or cancelled."""
        if self.terminal is not None:
            return self.terminal.status
        if self.paused is not None:
            return "paused"
        return "running" if self.epoch else "queued"

    def signal_number(self, name: str, key: str) -> int | None:
        """Return the number of the signal that was stored with this key, from 1; null for none, and without a key."""
        return self.signal_keys.get(signal_key(name, key)) if key else None

    @property
    def queued_texts(self) -> tuple[str, ...]:
        """The messages for the next step: their texts, and their files by name, type and size."""
        return tuple(
            " ".join(filter(None, (each.content, *(f"[{file}]" for file in files_of(each.parts)))))
            for each in self.queue
        )

    @property
    def waiting_calls(self) -> list[CallState]:
        """The calls of the open step that are in a wait, the one whose wait started first before the others."""
        waiting = [call for call in self.calls.values() if call.open_wait is not None]
        return sorted(waiting, key=lambda call: next(reversed(call.waits.values())).order)

    @property
    def pending_approvals(self) -> list[ApprovalState]:
        """The approvals that still need a decision, oldest first."""
        return [approval for approval in self.approvals.values() if approval.pending]
