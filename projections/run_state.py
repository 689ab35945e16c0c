"""The state of one run: a pure fold of its log.

`evolve(state, event)` is the reference: it leaves its argument alone. The executor that owns a run folds in place with
`apply`, which is the same code without the copy. Total: neither ever raises for a known event or decides anything.
`fold_commit` adds what concerns whole commits: revisions, and the fencing of executors (protocol rule 4).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import msgspec

from ..eventlog.commits import ORIGIN, Commit, Head, Recorded, head_of
from ..eventlog.errors import LogCorrupted
from ..eventlog.events import (
    QUESTION,
    TERMINAL_STATUSES,
    ApprovalRequested,
    ApprovalResolved,
    ApprovalRevoked,
    BreakerUpdated,
    Budget,
    CancelRequested,
    ChildFinished,
    ChildReady,
    ChildReturned,
    ChildStarted,
    Claimed,
    Context,
    Custom,
    Error,
    Evaluated,
    KeyRecorded,
    KnowledgeFound,
    LaneUpdated,
    LateOutcome,
    McpProgress,
    Memoized,
    MemoryHydrated,
    MessageInjected,
    MessageQueued,
    ModelFailed,
    ModelRequested,
    OutputMade,
    OutputRejected,
    Parked,
    PauseRequested,
    PlanMade,
    PlannerReplied,
    PlannerToolReturned,
    Prepared,
    RalphIteration,
    RalphStop,
    Reasoning,
    Released,
    ResultRecorded,
    Status,
    Step,
    StoredEvent,
    Submitted,
    SummaryMade,
    Text,
    TimerFired,
    TokenIssued,
    TokenRevoked,
    TokenUsage,
    ToolAttemptFailed,
    ToolCall,
    ToolResult,
    ToolSpec,
    ToolsRefreshFailed,
    ToolsRefreshRequested,
    ToolStarted,
    Unknown,
    Usage,
)
from .messages import CallRequest, Message, Place, canonical_json, chain
from .money import plus_cost
from .prompt import (
    budget_line,
    kept_indices,
    knowledge_block,
    plan_block,
    shortened,
    summary_message,
    system_message,
    with_line,
)
from .tokens import estimate_tokens, message_tokens


class ApprovalState(msgspec.Struct):
    """One approval: its request, its resolution once there is one, and whether it became void."""

    request: ApprovalRequested
    resolution: ApprovalResolved | None = None
    revoked: bool = False
    tokens: list[TokenIssued] = []
    """The resume tokens that were issued for it, but for those revoked."""

    @property
    def pending(self) -> bool:
        """Whether somebody still has to decide."""
        return self.resolution is None and not self.revoked


class CallState(msgspec.Struct):
    """One tool call of the current step."""

    id: str
    index: int
    name: str
    arguments: dict[str, Any]
    raw_arguments: str | None = None
    injected_args: dict[str, Any] = {}
    approval_id: str | None = None
    """The latest approval about this call."""
    started: int = 0
    """The attempt of a stored `tool_started` whose outcome is not stored; 0 for none."""
    orphaned: bool = False
    """Started by an owner that was replaced: only a decision may settle it (protocol rule 20)."""
    failures: int = 0
    asks: int = 0
    """Attempts that ended with a question."""
    retry_at: float | None = None
    emitted: int = 0
    """How many events of the call are stored; a re-run skips as many (contract.md section 6)."""
    children: list[str] = []
    memos: dict[str, Any] = {}
    """Values of the call's named parts, by name."""
    result: ToolResult | None = None

    @property
    def attempt(self) -> int:
        """The attempt that is under way or next: 1, 2, ..."""
        return self.failures + self.asks + 1


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
    usage: TokenUsage = TokenUsage()


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


class ContextState(msgspec.Struct):
    """How much the prompt holds, and what was done about it."""

    window_tokens: int | None = None
    told: bool = False
    """Whether each message says how full the window is."""
    tokens: int = 0
    """What the next request takes: as the provider counted, and an estimate of what came since."""
    tool_tokens: int = 0
    messages: int = 0
    """How many messages the conversation has had, those that were cut among them."""
    has_input: bool = True
    """Whether the run's own input is still part of the prompt."""
    summary: str = ""
    """Made, and not in its place yet."""
    summaries: int = 0
    compactions: int = 0


class SpentState(msgspec.Struct):
    """What the steps took. Time in seconds, without that in which the run was paused."""

    seconds: float = 0.0
    step_seconds: float = 0.0
    step_cost_usd: str | None = "0"
    began_at: float = 0.0
    raised: dict[str, str] = {}
    """By how much operators have raised which ceiling, as decimals."""


TODO_SOURCE = "todo"
"""The source of the tools that keep a run's list of things to do."""


class Todo(msgspec.Struct):
    """Something to do."""

    id: str
    text: str
    done: bool = False


class RunState(msgspec.Struct):
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
    parked: Parked | None = None
    paused: str | None = None
    """The reason of an open `status(paused)`, else null."""
    pause_requested: bool = False
    terminal: Status | None = None
    error: Error | None = None
    cancel_reason: str | None = None
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
    approvals: dict[str, ApprovalState] = {}
    recorded: dict[str, list[ResultRecorded]] = {}
    """Results that a fork may still give to calls instead of running them, by `recording_key`, oldest first."""
    open_children: dict[str, str | None] = {}
    """Child runs that are not over, with the call each belongs to."""
    child_count: int = 0
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
    knowledge: str = ""
    """What the system message says of stored knowledge."""
    planning: PlanningState = msgspec.field(default_factory=PlanningState)
    elapsed: ElapsedState = msgspec.field(default_factory=ElapsedState)
    context: ContextState = msgspec.field(default_factory=ContextState)
    spent: SpentState = msgspec.field(default_factory=SpentState)
    messages: list[Message] = []
    history_count: int = 0
    """How many messages stand before the run's own input."""
    messages_digest: str = ""
    usage: TokenUsage = TokenUsage()
    """Of all model calls: those of steps and those besides."""
    cost_usd: str | None = "0"
    """Of the same; a decimal, null once the price of a call is unknown."""
    retries: dict[str, int] = {}
    """How often the run has tried again, by the type of the error."""
    output: str = ""
    output_rejections: int = 0
    last_round: str = ""
    same_rounds: int = 0
    unknown_type: str | None = None
    """The type of the first event that this code does not know; it must not drive such a run."""

    @property
    def exists(self) -> bool:
        """Whether the run was submitted."""
        return self.submitted is not None

    @property
    def over(self) -> bool:
        """Whether the run has its terminal status."""
        return self.terminal is not None

    @property
    def runnable(self) -> bool:
        """Stored, not parked, not over: somebody should drive it (its lane aside)."""
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


def evolve(state: RunState, event: StoredEvent | Unknown, at: float = 0.0) -> RunState:
    """Fold one fact into a copy of the state."""
    after = copy.deepcopy(state)
    apply(after, event, at)
    return after


def fold_commit(state: RunState, recorded: Recorded) -> None:
    """Fold one verified commit in place. Raises `LogCorrupted` for a commit that the protocol forbids."""
    commit = recorded.commit
    check_epoch(state, commit)
    if not state.exists:
        state.run, state.root, state.path, state.submitted_at = (
            commit.run,
            commit.root,
            commit.path,
            commit.at,
        )
    for index, event in enumerate(commit.events):
        apply(state, event, commit.at)
        if isinstance(event, Claimed):
            state.owner_revision = commit.rev + index
    state.head = head_of(recorded)
    state.updated_at = commit.at


def check_epoch(state: RunState, commit: Commit) -> None:
    """Protocol rule 4: an executor commits under its own epoch in force; a claim raises it by one."""
    if commit.epoch == 0:
        return
    claims = any(isinstance(event, Claimed) for event in commit.events)
    in_force = state.epoch + 1 if claims else state.epoch
    if commit.epoch != in_force or (state.owner is None and not claims and not state.over):
        raise LogCorrupted(
            commit.run,
            commit.rev,
            f"an executor of epoch {commit.epoch} wrote while epoch {state.epoch} was in force",
        )


def apply(state: RunState, event: StoredEvent | Unknown, at: float) -> None:  # noqa: C901, PLR0912, PLR0915 - one case each
    """Fold one fact in place; `at` is the time of its commit."""
    if event.agent_path:  # forwarded from an inner agent: it only counts as an event of its call
        _count_emitted(state, event.tool_call_id)
        return
    match event:  # the most frequent first: a case is found by trying
        case ToolCall():
            _call(state, event)
        case ToolResult():
            call = _in_call(state, event.tool_call_id)
            call.result, call.started, call.orphaned = event, 0, False
            _keep_todos(state, call, event)
            if "recorded_from" in event.metadata:
                state.recorded.get(recording_key(call.name, call.arguments), [])[:1] = []
        case Step(status="started"):
            state.step, state.step_open, state.step_started_at = event.step or state.step + 1, True, at
            state.model, state.calls, state.interrupted = ModelCallState(), {}, None
            state.elapsed.step_paused_s = 0.0
            state.spent.began_at, state.spent.step_cost_usd = event.started_at or at, "0"
        case Step():
            _spend_time(state, event.completed_at or at)
            _complete_step(state)
        case ModelRequested():
            _request_model(state, event)
        case Usage():
            state.model.replied, state.model.requested, state.model.usage = True, False, event.usage
            _count_usage(state, event)
            state.spent.step_cost_usd = event.cost_usd
        case Text(step=None):  # of no model: why the run stops
            state.output = event.text
        case Text():
            state.model.text = event.text
        case McpProgress() | Custom():
            _count_emitted(state, event.tool_call_id)
        case Submitted():
            _submit(state, event)
        case Claimed():
            _claim(state, event)
            state.elapsed.claimed_at = state.elapsed.claimed_at or at
        case Released():
            state.owner = None
        case Parked():
            state.owner, state.parked = None, event
        case TimerFired():
            state.parked = None
            if state.model.retry_at is not None:  # the timer's word counts, not a clock that may be behind it
                state.model.retry_at = 0.0
        case ToolsRefreshRequested():
            state.refresh = event
            state.refreshes += 1
        case ToolsRefreshFailed():
            state.refresh = None
        case Prepared():
            state.prepared = True
            if state.refresh is not None:
                state.mcp_servers, state.refresh = state.mcp_servers | state.refresh.mcp_servers, None
            state.tools = {tool.name: tool for tool in event.tools}
            _learn_window(state, event)
        case Status():
            _status(state, event)
            _stop_the_clock(state.elapsed, event, at)
        case ModelFailed():
            _fail_model(state, event)
        case PlannerReplied():
            _count_usage(state, event)
            _planner_replied(state, event)
        case PlannerToolReturned():
            _planner_tool_returned(state, event)
        case MemoryHydrated():
            _hydrate(state, event)
        case KnowledgeFound():
            state.knowledge = knowledge_block(event.items)
            _tell_system(state)
        case SummaryMade():
            _count_usage(state, event)
            state.context.summary, state.context.summaries = event.text, state.context.summaries + 1
            state.model = ModelCallState(phase=event.phase, attempt=state.model.attempt, replied=True)
        case Context():
            _cut(state, event)
        case PlanMade():
            state.planning, state.model = PlanningState(made=True, plan=event.plan), ModelCallState()
            _tell_system(state)
        case ToolStarted():
            _in_call(state, event.tool_call_id).started = event.attempt
        case ToolAttemptFailed():
            call = _in_call(state, event.tool_call_id)
            call.started, call.retry_at = 0, event.retry_at
            call.failures += 1
            _count_retry(state, "tool_failure")
        case ResultRecorded():
            key = recording_key(event.tool_name, event.arguments)
            state.recorded.setdefault(key, []).append(event)
        case Memoized():
            _in_call(state, event.tool_call_id).memos[event.name] = event.value
        case ApprovalRequested():
            _ask(state, event)
        case ApprovalResolved():
            _resolve(state, event)
        case ApprovalRevoked():
            if event.approval_id in state.approvals:
                state.approvals[event.approval_id].revoked = True
        case TokenIssued():
            if event.approval_id in state.approvals:
                state.approvals[event.approval_id].tokens.append(event)
        case TokenRevoked():
            if event.approval_id in state.approvals:
                tokens = state.approvals[event.approval_id].tokens
                tokens[:] = [token for token in tokens if token.sha256 != event.sha256]
        case MessageQueued():
            state.queue.append(event.content)
        case MessageInjected():
            state.queue[:1] = []
            _add_message(state, Message(role="user", content=event.content))
        case OutputRejected():
            state.output_rejections += 1
            _add_message(state, Message(role="user", content=event.message))
        case PauseRequested():
            state.pause_requested = not event.withdrawn
        case CancelRequested():
            state.cancel_reason = event.reason
        case ChildStarted():
            state.open_children[event.child_run] = event.tool_call_id
            state.child_count += 1
            if event.tool_call_id is None:
                ordinal = len(state.nodes_of(event.name))
                state.nodes.append(
                    NodeState(child_run=event.child_run, name=event.name, ordinal=ordinal, started_at=at)
                )
            if event.tool_call_id in state.calls:
                state.calls[event.tool_call_id].children.append(event.child_run)
        case ChildFinished():
            state.open_children.pop(event.child_run, None)
            for node in state.nodes:
                if node.child_run == event.child_run:
                    node.status, node.ended_at = event.status, at
        case ChildReady():
            state.parked = None
            state.child_wakes += 1
        case ChildReturned():
            state.inner_usage = state.inner_usage + event.usage
            state.inner_cost_usd = plus_cost(state.inner_cost_usd, event.cost_usd)
            for node in state.nodes:
                if node.child_run == event.child_run:
                    node.returned = event
        case Evaluated():
            state.evaluations.setdefault(event.name, []).append(event)
        case OutputMade():
            state.output = event.output
        case Error():
            state.error = event
        case Unknown():
            state.unknown_type = state.unknown_type or event.original_type
        case RalphIteration():
            state.iterations[event.iteration - 1 :] = [event]
        case Reasoning() | Budget() | LateOutcome() | RalphStop():
            pass
        case LaneUpdated() | KeyRecorded() | BreakerUpdated():
            pass  # of other subjects


def recording_key(tool_name: str, arguments: dict[str, Any]) -> str:
    """What a call must have in common with a recorded one to get its result."""
    return f"{tool_name} {canonical_json(arguments).decode()}"


def _submit(state: RunState, event: Submitted) -> None:
    state.submitted = event
    state.mcp_servers = dict(event.config.get("mcp_servers") or {})
    state.context.told = event.config.get("budget_awareness") == "per-message"
    _tell_system(state)
    for item in event.messages:
        message = msgspec.convert(item, Message)
        for call in message.tool_calls:
            state.call_places[call.id] = (0, len(state.call_places))
        _add_message(state, message)
    state.history_count = len(state.messages)
    _add_message(state, Message(role="user", content=event.input))


def _request_model(state: RunState, event: ModelRequested) -> None:
    if event.phase != state.model.phase:
        state.interrupted = state.model if event.phase and state.step_open else None
        state.model = ModelCallState(phase=event.phase)
    model = state.model
    if model.next_model:
        model.given_up.append(model.model)
        model.given_up_failures += model.failures
        model.failures, model.next_model = 0, ""
    model.attempt, model.model, model.requested, model.retry_at = event.attempt, event.model, True, None
    model.replied = False
    model.error_type = model.error = ""  # not final: a takeover must not take it so


def _fail_model(state: RunState, event: ModelFailed) -> None:
    model = state.model
    model.requested, model.retry_at, model.next_model = False, event.retry_at, event.next_model
    model.failures += 1
    model.error_type, model.error = event.error_type, event.error
    if event.retry_at is not None:
        _count_retry(state, event.error_type)


def _ask_anew(state: RunState) -> None:
    before = state.model
    failures = before.given_up_failures + before.failures
    state.model = ModelCallState(phase=before.phase, attempt=before.attempt, given_up_failures=failures)


def _count_retry(state: RunState, error_type: str) -> None:
    state.retries[error_type] = state.retries.get(error_type, 0) + 1


def _count_usage(state: RunState, event: Usage | PlannerReplied | SummaryMade) -> None:
    state.usage = state.usage + event.usage
    state.cost_usd = plus_cost(state.cost_usd, event.cost_usd)


def _planner_replied(state: RunState, event: PlannerReplied) -> None:
    planning, known = state.planning, len(state.planning.places)
    state.model = ModelCallState(phase=event.phase, attempt=state.model.attempt, replied=True)
    planning.rounds = event.round
    planning.calls = {
        call.id: CallState(
            id=call.id,
            index=known + number,
            name=call.tool_name,
            arguments=call.arguments,
            raw_arguments=call.raw_arguments,
            injected_args=call.injected_args,
        )
        for number, call in enumerate(event.calls)
    }
    planning.places |= {call.id: (event.round, number) for number, call in enumerate(event.calls)}
    planning.messages.append(_asking(event.text, planning.calls.values()))


def _planner_tool_returned(state: RunState, event: PlannerToolReturned) -> None:
    planning = state.planning
    call = planning.calls.get(event.tool_call_id or "")
    if call is None:
        return
    call.result = ToolResult(
        tool_name=event.tool_name, success=event.success, result=event.result, error=event.error
    )
    if all(each.result is not None for each in planning.calls.values()):
        planning.messages += _answers(planning.calls.values())
        planning.calls = {}


def _tell_system(state: RunState) -> None:
    """Put what the system message says now in its place."""
    config = state.submitted.config if state.submitted is not None else {}
    instructions = str(config.get("instructions") or "")
    message = system_message(instructions, state.knowledge, plan_block(state.planning.plan))
    had = bool(state.messages) and state.messages[0].role == "system"
    told = [message] if message is not None else []
    state.history_count += len(told) - had
    _set_messages(state, [*told, *state.messages[had:]])


def _claim(state: RunState, event: Claimed) -> None:
    state.epoch, state.owner, state.owner_lease_s = event.epoch, event.worker, event.lease_s
    state.model.requested = False
    for call in state.calls.values():
        call.orphaned = call.orphaned or (call.started > 0 and call.result is None)


def _status(state: RunState, event: Status) -> None:
    if event.status == "paused":
        state.paused = event.reason
        if event.reason == "manual":  # one that was asked for waits behind an approval, and is not forgotten
            state.pause_requested = False
    elif event.status == "resumed":
        if state.paused == "policy":  # all models have failed, and are asked anew
            _ask_anew(state)
        state.paused = state.parked = None
    elif event.status in TERMINAL_STATUSES:
        state.terminal, state.owner, state.parked, state.paused = event, None, None, None


def _stop_the_clock(elapsed: ElapsedState, event: Status, at: float) -> None:
    if event.status == "paused" and elapsed.paused_at is None:
        elapsed.paused_at = at
    elif event.status == "resumed" and elapsed.paused_at is not None:
        paused_s = max(0.0, at - elapsed.paused_at)
        elapsed.paused_s += paused_s
        elapsed.step_paused_s += paused_s
        elapsed.paused_at = None


def _call(state: RunState, event: ToolCall) -> None:
    call_id = event.tool_call_id or ""
    state.call_places[call_id] = (state.step, len(state.calls))
    state.calls[call_id] = CallState(
        id=call_id,
        index=len(state.calls),
        name=event.tool_name,
        arguments=event.arguments,
        raw_arguments=event.raw_arguments,
        injected_args=event.injected_args,
    )


def _in_call(state: RunState, call_id: str | None) -> CallState:
    """The call, or a throw-away one for an id that the step does not have: the fold is total."""
    return state.calls.get(call_id or "") or CallState(id="", index=0, name="", arguments={})


def _count_emitted(state: RunState, call_id: str | None) -> None:
    _in_call(state, call_id).emitted += 1


def _ask(state: RunState, event: ApprovalRequested) -> None:
    state.approvals[event.approval_id] = ApprovalState(request=event)
    call = _in_call(state, event.tool_call_id)
    call.approval_id = event.approval_id
    if event.kind == QUESTION:  # which ended an attempt
        call.asks += 1
        call.started, call.retry_at = 0, None


def _resolve(state: RunState, event: ApprovalResolved) -> None:
    approval = state.approvals.get(event.approval_id)
    if approval is None or not approval.pending:
        return
    approval.resolution = event
    if state.parked is not None and state.parked.reason in {"approval", "unverifiable", "budget", "child"}:
        state.parked = None
    if approval.request.kind == "budget" and event.decision == "approved":
        _raise_ceiling(state.spent, approval.request.arguments.get("budget"), event.arguments)
    call = state.calls.get(event.tool_call_id or "")
    if call is not None and approval.request.kind == "unverifiable" and event.outcome == "retry":
        call.started, call.orphaned = 0, False


def _complete_step(state: RunState) -> None:
    state.step_open = False
    state.steps_completed += 1
    calls = list(state.calls.values())
    usage = state.model.usage
    _give_back(
        state,
        _asking(state.model.text, calls),
        usage.input_tokens and usage.input_tokens + usage.output_tokens,
    )
    for message in _answers(calls):
        _give_back(state, message)
    this_round = "\n".join(f"{c.name} {written_arguments(c)}" for c in calls)
    state.same_rounds = state.same_rounds + 1 if calls and this_round == state.last_round else 1
    state.last_round = this_round
    if not calls:
        state.output = state.model.text


def _asking(text: str, calls: Iterable[CallState]) -> Message:
    requests = tuple(CallRequest(id=c.id, name=c.name, arguments=written_arguments(c)) for c in calls)
    return Message(role="assistant", content=text, tool_calls=requests)


def _answers(calls: Iterable[CallState]) -> list[Message]:
    return [Message(role="tool", tool_call_id=c.id, content=answer_text(c.result)) for c in calls]


def written_arguments(call: CallState | ToolCall) -> str:
    """The arguments as the conversation has them: as the model wrote them, injected ones among them."""
    if call.raw_arguments is not None:
        return call.raw_arguments
    return canonical_json({**call.arguments, **call.injected_args}).decode()


def answer_text(result: ToolResult | None) -> str:
    """What the model reads of a call's outcome; `aborted` for one that has none (R4)."""
    if result is None:
        return "aborted"
    if not result.success:
        return f"error: {result.error}"
    text, offloaded = result_text(result.result), result.metadata.get("offloaded_artifact_id")
    return shortened(text, offloaded) if isinstance(offloaded, str) else text


def result_text(result: object) -> str:
    """A result as text: JSON, unless it is text already."""
    return result if isinstance(result, str) else canonical_json(result).decode()


def _add_message(state: RunState, message: Message) -> None:
    state.messages.append(message)
    state.context.tokens += message_tokens(message)
    state.context.messages += 1
    state.messages_digest = chain(state.messages_digest, message, state.call_places)


def _set_messages(state: RunState, messages: list[Message]) -> None:
    """Another history: the chain begins anew."""
    count = state.context.messages + max(0, len(messages) - len(state.messages))
    state.messages, state.messages_digest, state.context.tokens = [], "", state.context.tool_tokens
    for message in messages:
        _add_message(state, message)
    state.context.messages = count


def _give_back(state: RunState, message: Message, reported: int = 0) -> None:
    """A message for the model to read again. `reported`: what the provider says that the prompt takes with it."""
    context, size = state.context, message_tokens(message)
    used = reported or context.tokens + size
    told = message
    if context.told and context.window_tokens is not None:
        told = with_line(message, budget_line(used, context.window_tokens))
    _add_message(state, told)
    context.tokens = used + message_tokens(told) - size


def _learn_window(state: RunState, event: Prepared) -> None:
    context = state.context
    context.window_tokens = event.window_tokens
    if event.window_tokens is None:
        return
    before = context.tool_tokens
    context.tool_tokens = sum(
        estimate_tokens(f"{tool.name}{tool.description}{canonical_json(tool.parameters).decode()}")
        for tool in event.tools
    )
    context.tokens += context.tool_tokens - before


def _spend_time(state: RunState, completed_at: float) -> None:
    spent = state.spent
    spent.step_seconds = max(0.0, completed_at - spent.began_at - state.elapsed.step_paused_s)
    spent.seconds += spent.step_seconds


def _raise_ceiling(spent: SpentState, ceiling: object, answer: dict[str, Any] | None) -> None:
    amount = plus_cost(spent.raised.get(str(ceiling), "0"), str((answer or {}).get("raise", 0)))
    if amount is not None:
        spent.raised[str(ceiling)] = amount


def _cut(state: RunState, event: Context) -> None:
    """Keep what a cut keeps, with the summary in the place of the rest; the call that it made room for goes on."""
    if "kept" not in event.details:
        return
    had = bool(state.messages) and state.messages[0].role == "system"
    own, body = state.history_count - had, state.messages[had:]
    kept = list(kept_indices(event.details["kept"], len(body)))
    where = event.details.get("summary")
    summary = [summary_message(state.context.summary)] if where in {"first", "last"} else []
    first, last = (summary, []) if where == "first" else ([], summary)
    state.context.has_input = state.context.has_input and own in kept
    _set_messages(state, [*state.messages[:had], *first, *(body[index] for index in kept), *last])
    state.history_count = had + len(first) + sum(index < own for index in kept)
    state.context.summary = ""
    state.context.compactions += event.action == "compact"
    before = state.interrupted if state.interrupted is not None else state.model
    fresh = before if state.step_open and not before.phase else ModelCallState()
    attempt = max(before.attempt, state.model.attempt)
    state.interrupted = None
    state.model = msgspec.structs.replace(
        fresh, attempt=attempt, requested=False, retry_at=None, error_type="", error=""
    )


def _hydrate(state: RunState, event: MemoryHydrated) -> None:
    """Put what is remembered between the system message and the run's own history."""
    state.hydrated = True
    remembered: list[Message] = []
    for item in event.messages if isinstance(event.messages, list | tuple) else ():
        try:
            message = msgspec.convert(item, Message)
        except msgspec.ValidationError:  # of nobody's writing
            continue
        for call in message.tool_calls:
            state.call_places[call.id] = (0, len(state.call_places))
        if message.tool_call_id is None or message.tool_call_id in state.call_places:
            remembered.append(message)
    had = bool(state.messages) and state.messages[0].role == "system"
    state.history_count += len(remembered)
    _set_messages(state, [*state.messages[:had], *remembered, *state.messages[had:]])


def _keep_todos(state: RunState, call: CallState, event: ToolResult) -> None:
    tool = state.tools.get(call.name)
    if not event.success or tool is None or tool.source != TODO_SOURCE:
        return
    arguments = event.metadata.get("edited_arguments", call.arguments)
    told = arguments if isinstance(arguments, dict) else {}
    if call.name == "add_todo":
        state.todos.append(Todo(id=f"{state.step}.{call.index}", text=str(told.get("text", ""))))
    elif call.name == "complete_todo":
        for todo in state.todos:
            todo.done = todo.done or todo.id == told.get("id")
