"""The state of one run, as the fold of its log (`fold`) leaves it: what is known, by concern."""

from __future__ import annotations

from typing import Any

import msgspec

from ..eventlog.commits import ORIGIN, Head
from ..eventlog.events import (
    ApprovalRequested,
    ApprovalResolved,
    ChildReturned,
    Error,
    Evaluated,
    FinishReason,
    Parked,
    RalphIteration,
    ResultRecorded,
    Status,
    Submitted,
    TokenIssued,
    TokenUsage,
    ToolResult,
    ToolSpec,
    ToolsRefreshRequested,
)
from ..eventlog.parts import FilePart
from .id_set import IdSet
from .messages import Message, Place, ReplyItems, chain


class ApprovalState(msgspec.Struct):
    """One approval: its request, its resolution once there is one, and whether it became void."""

    request: ApprovalRequested
    resolution: ApprovalResolved | None = None
    revoked: bool = False
    tokens: list[TokenIssued] = []
    """The resume tokens that were issued for it, but for those revoked."""

    @property
    def pending(self) -> bool:
        """Return whether somebody still has to decide."""
        return self.resolution is None and not self.revoked

    def shorten(self) -> None:
        """Keep what a late answer is compared with, and told: the answer. What was asked stands in the log."""
        self.request = msgspec.structs.replace(
            self.request,
            arguments={},
            reason="",
            injected_args={},
            postcondition=[],
            evidence=[],
            result=None,
        )


class CallState(msgspec.Struct):
    """One tool call of the current step."""

    id: str
    index: int
    name: str
    arguments: dict[str, Any]
    raw_arguments: str | None = None
    injected_args: dict[str, Any] = {}
    cut: FinishReason = ""
    """Why the answer that asked for it is not whole, if it is not."""
    approval_id: str | None = None
    """The latest approval about this call."""
    started: int = 0
    """The attempt of a stored `tool_started` whose outcome is not stored; 0 for none."""
    orphaned: bool = False
    """Started by an owner that was replaced: only a decision may settle it (W20)."""
    failures: int = 0
    asks: int = 0
    """Attempts that ended with a question."""
    doubts: int = 0
    """Attempts of unknown outcome that people had repeated."""
    turn: int = 0
    """Which answer cleared it, 1, 2, ...; 0 for a call that waited for none. Calls take their locks in this order."""
    retry_at: float | None = None
    emitted: int = 0
    """How many events of the call are stored; a re-run skips as many (R21)."""
    marks: dict[str, tuple[int, int]] = {}
    """How many events and children there were when a part was done, or a question asked: a re-run that finds it done is
    so far."""
    children: list[str] = []
    memos: dict[str, Any] = {}
    """Values of the call's named parts, by name."""
    memo_evidence: dict[str, list[dict[str, Any]]] = {}
    """The artifacts that they stored, by the same name."""
    result: ToolResult | None = None

    @property
    def attempt(self) -> int:
        """The attempt that is under way or next: 1, 2, ..."""
        return self.failures + self.asks + self.doubts + 1


class ModelCallState(msgspec.Struct):
    """The model call of the current step, or of a phase besides the steps (`phase` not empty)."""

    phase: str = ""
    model: str = ""
    """The model of the latest attempt, as provider:model."""
    next_model: str = ""
    """The fallback that is asked next, when the model has been given up."""
    given_up: list[str] = []
    """The models that this call was given up with."""
    given_up_failures: int = 0
    """Failed attempts of those."""
    attempt: int = 0
    requested: bool = False
    """Whether the attempt is under way under the current epoch."""
    failures: int = 0
    """Failed attempts of the model."""
    retry_at: float | None = None
    error_type: str = ""
    error: str = ""
    replied: bool = False
    text: str = ""
    files: list[FilePart] = []
    """What it has made besides."""
    reply_state: ReplyItems | None = None
    """What the provider wants back with the reply."""
    usage: TokenUsage = TokenUsage()
    finish_reason: FinishReason = ""


class NodeState(msgspec.Struct):
    """A child run that belongs to no tool call: a node of a swarm, an iteration of a loop."""

    child_run: str
    name: str
    ordinal: int
    """Which of its name it is: 0, 1, ..."""
    status: str | None = None
    """completed, error or cancelled; null while it is open."""
    returned: ChildReturned | None = None
    started_at: float = 0.0
    ended_at: float = 0.0

    @property
    def output(self) -> str:
        """Its output, once it is completed."""
        return self.returned.output if self.returned is not None else ""


class PlanningState(msgspec.Struct):
    """What the planner has found out so far, and at its end the plan."""

    made: bool = False
    plan: str = ""
    rounds: int = 0
    """How many of its replies are stored."""
    messages: list[Message] = []
    """What it said and what its tools answered; of this run's prompt it has only what was there before."""
    places: dict[str, Place] = {}
    """Round and index of each call that it made."""
    calls: dict[str, CallState] = {}
    """Those of its latest round, until all have their results."""


class ElapsedState(msgspec.Struct):
    """What the time-outs of the run and of its open step are counted from; in seconds."""

    claimed_at: float = 0.0
    """When the run was claimed first; 0 before."""
    paused_at: float | None = None
    """Since when the run is paused; that does not count."""
    paused_s: float = 0.0
    """How long it was paused before, in all."""
    step_paused_s: float = 0.0
    """And within the step."""


class CutState(msgspec.Struct):
    """A cut of the prompt that has begun, and the summary of what leaves it."""

    phase: str
    cause: str
    kept: list[tuple[int, int]]
    """The messages behind the system message that stay."""
    summary: str = ""
    until: int = 0
    """How much of the text of what leaves the summary holds, in characters."""
    parts: int = 0
    """How many summaries were made, each of which holds those before it."""
    overflows: int = 0
    """How often a part of the text did not fit the model's window."""
    truncated: bool = False
    """Whether the provider cut a summary at the limit of its length."""


class ContextState(msgspec.Struct):
    """How much the prompt holds, and what was done about it."""

    window_tokens: int | None = None
    """How much the model reads at most: as it is known, or as its server has taught the run, whichever is less."""
    taught_tokens: int | None = None
    """What a request that was refused as too long has taught of that."""
    told: bool = False
    """Whether each message says how full the window is."""
    tokens: int = 0
    """What the next request takes: as the provider counted, and an estimate of what came since."""
    tool_tokens: int = 0
    messages: int = 0
    """How many messages the conversation has had, those that were cut among them."""
    has_input: bool = True
    """Whether the run's own input is still part of the prompt."""
    cut: CutState | None = None
    """The cut that is being made."""
    summaries: int = 0
    compactions: int = 0
    compacted_at: tuple[int, bool] | None = None
    """Where the run was compacted last: how many steps were complete, and whether one was open."""


class SpentState(msgspec.Struct):
    """What the steps took. Time in seconds, without that in which the run was paused."""

    seconds: float = 0.0
    step_seconds: float = 0.0
    step_cost_usd: str | None = "0"
    step_broken: TokenUsage = TokenUsage()
    """Of the answers of the step that broke off."""
    began_at: float = 0.0
    raised: dict[str, str] = {}
    """By how much operators have raised which ceiling, as decimals."""


SPAWN_SELF = "spawn_self"
"""The tool by which an agent starts a copy of itself."""

TODO_SOURCE = "todo"
"""The source of the tools that keep a run's list of things to do."""


class Todo(msgspec.Struct):
    """Something to do."""

    id: str
    text: str
    done: bool = False


class RunState(msgspec.Struct):  # noqa: PLW1641  # it changes, so it has no hash
    """All that is known about a run. `head` says up to where."""

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
    """Why workers left the run to others since it was last claimed, and who did so first."""
    parked: Parked | None = None
    paused: str | None = None
    """The reason of an open `status(paused)`, else null."""
    pause_requested: bool = False
    terminal: Status | None = None
    error: Error | None = None
    cancel_reason: str | None = None
    """Why the run was cancelled; null if it was not."""
    cancel_by: str = ""
    prepared: bool = False
    tools: dict[str, ToolSpec] = {}
    mcp_servers: dict[str, Any] = {}
    """The servers whose tools the run has: those of its configuration, and those that refreshes added."""
    refresh: ToolsRefreshRequested | None = None
    """The refresh that is to happen before the next step."""
    refreshes: int = 0
    step: int = 0
    step_open: bool = False
    steps_completed: int = 0
    step_started_at: float = 0.0
    model: ModelCallState = msgspec.field(default_factory=ModelCallState)
    interrupted: ModelCallState | None = None
    """The call of the open step, while a summary is made before it can go on."""
    calls: dict[str, CallState] = {}
    call_places: dict[str, Place] = {}
    """Of the calls that the messages speak of, and of those of the step."""
    cut_calls: IdSet = msgspec.field(default_factory=IdSet)
    """The ids of all others."""
    approvals: dict[str, ApprovalState] = {}
    recorded: dict[str, list[ResultRecorded]] = {}
    """Results that a fork may still give to calls instead of running them, by `recording_key`, oldest first."""
    recorded_below: list[ResultRecorded] = []
    """Those that the nodes below the run may give, once they begin."""
    open_children: dict[str, str | None] = {}
    """Child runs that are not over, with the call each belongs to."""
    child_count: int = 0
    spawned: int = 0
    """How many of the child runs are copies that `spawn_self` has started."""
    child_wakes: int = 0
    """How often the run was woken from below: the wake-up of a child may cover it since then."""
    nodes: list[NodeState] = []
    """The child runs without a tool call, in the order of their start."""
    evaluations: dict[str, list[Evaluated]] = {}
    """By the name of the function, in the order of their ordinals."""
    iterations: list[RalphIteration] = []
    """The latest event of each iteration of a ralph loop."""
    inner_usage: TokenUsage = TokenUsage()
    """What the children that are over used, with all below them."""
    inner_cost_usd: str | None = "0"
    queue: list[str] = []
    todos: list[Todo] = []
    """What the run has noted that is to be done, oldest first."""
    hydrated: bool = False
    """Whether the run was told of earlier ones already."""
    looked_up: bool = False
    """Whether stored knowledge was searched already."""
    knowledge: str = ""
    """What the system message says of stored knowledge."""
    planning: PlanningState = msgspec.field(default_factory=PlanningState)
    elapsed: ElapsedState = msgspec.field(default_factory=ElapsedState)
    context: ContextState = msgspec.field(default_factory=ContextState)
    spent: SpentState = msgspec.field(default_factory=SpentState)
    messages: list[Message] = []
    history_count: int = 0
    """How many messages stand before the run's own input."""
    linked_messages: int = 0
    """How many of the messages `linked_digest` covers: the others are linked when somebody asks for the digest."""
    linked_digest: str = ""
    usage: TokenUsage = TokenUsage()
    """Of all model calls: those of steps and those besides."""
    cost_usd: str | None = "0"
    """Of the same; a decimal, null once the price of a call is unknown."""
    retries: dict[str, int] = {}
    """How often the run has tried again, by the type of the error."""
    output: str = ""
    output_rejections: int = 0
    continued: str = ""
    """The first part of an answer that was cut, while the model is asked to go on with it."""
    last_round: str = ""
    same_rounds: int = 0
    unknown_type: str | None = None
    """The type of the first event that this code does not know; it must not drive such a run."""

    def __eq__(self, other: object) -> bool:
        """Return whether they know the same, apart from cached digests."""
        if not isinstance(other, RunState) or self.messages_digest != other.messages_digest:
            return False
        return super().__eq__(other)

    @property
    def messages_digest(self) -> str:
        """The chain over the messages (R12), for who asks a model: others do not pay for it."""
        self.link_messages()
        return self.linked_digest

    def link_messages(self) -> None:
        """Lead the chain on to the last message."""
        for message in self.messages[self.linked_messages :]:
            self.linked_digest = chain(self.linked_digest, message, self.call_places)
        self.linked_messages = len(self.messages)

    def place_call(self, call_id: str, place: Place) -> None:
        """Keep where a call was made. What was said of an earlier one with its id is linked with that one's place."""
        if call_id in self.call_places:
            self.link_messages()
        self.call_places[call_id] = place

    def knows_call(self, call_id: str) -> bool:
        """Return whether a call of the run, or of what it follows, has this id."""
        return call_id in self.call_places or call_id in self.cut_calls

    def shorten_approvals(self) -> None:
        """What people were asked about the calls of the step, which is complete, was carried out."""
        for approval in reversed(self.approvals.values()):
            if approval.request.step is not None and approval.request.step < self.step:
                break  # those before were shortened with their step
            if approval.request.step == self.step and not approval.pending:
                approval.shorten()

    def forget_calls(self) -> None:
        """Keep of the calls that no message speaks of any more that their ids are taken."""
        told = {message.tool_call_id for message in self.messages}
        told |= {call.id for message in self.messages for call in message.tool_calls}
        for call_id in self.call_places.keys() - told - self.calls.keys():
            del self.call_places[call_id]
            self.cut_calls.add(call_id)

    @property
    def exists(self) -> bool:
        """Return whether the run was submitted."""
        return self.submitted is not None

    @property
    def over(self) -> bool:
        """Return whether the run has its terminal status."""
        return self.terminal is not None

    @property
    def cancelling(self) -> bool:
        """Whether a cancel is stored and the run is not over yet: it does nothing more, and somebody has to end it."""
        return self.cancel_reason is not None and not self.over

    @property
    def closed(self) -> bool:
        """Return whether the run is over or about to be cancelled: nothing can be told to it any more."""
        return self.over or self.cancelling

    @property
    def runnable(self) -> bool:
        """Stored, not parked, not over: somebody should drive it, or end it (its lane aside)."""
        return self.exists and not self.over and self.parked is None

    def nodes_of(self, name: str) -> list[NodeState]:
        """The child runs without a tool call that have this name, by their ordinals."""
        return [node for node in self.nodes if node.name == name]

    def node(self, name: str, ordinal: int) -> NodeState | None:
        """The `ordinal`-th of them, if it was started."""
        return next(iter(self.nodes_of(name)[ordinal:]), None)

    @property
    def kind(self) -> str:
        """What it is a run of: agent, swarm, ralph; empty before it exists."""
        return self.submitted.kind if self.submitted is not None else ""

    @property
    def agent(self) -> str:
        """The name of what runs."""
        return self.path.rpartition("/")[2]

    @property
    def served_as(self) -> str:
        """The name that its wake-ups go by: that of its root, whose driver drives all below it."""
        return self.path.partition("/")[0]

    @property
    def status(self) -> str:
        """In one word: queued, running, paused, completed, error or cancelled."""
        if self.terminal is not None:
            return self.terminal.status
        if self.paused is not None:
            return "paused"
        return "running" if self.epoch else "queued"

    @property
    def pending_approvals(self) -> list[ApprovalState]:
        """The approvals that somebody still has to decide, oldest first."""
        return [approval for approval in self.approvals.values() if approval.pending]
