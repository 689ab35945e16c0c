"""The properties that every log must have, whatever faults its writers met.

They are checked on the stored bytes and on the replies that callers got, with as little code of the runtime as
possible, so that a defect of the runtime cannot hide itself. `docs/maintainers/protocol.md` has each P rule with its
reason, `docs/maintainers/contract.md` the R rules.

- P1: a run has one terminal status.
- P2: no observable event comes after it, and no event at all between a cancel and the end.
- P3: no run is lost.
- P4: an unsafe call is started only by the owner, and again only after a decision.
- P5: revisions and epochs do not fork.
- P6: the runs of a session execute in order.
- P7: no child outlives its parent.
- P8: a family is cancelled as a whole.
- P9: the replies that callers got are true.
- P10: no more runs of an agent have an owner at once than `runs_max`, and no more than the limits of the world; a
  model call under a limit is sent by an owner whose run holds a slot of the provider, and there are no more of those.
- P11: no two unsafe calls with the same slot are started at once.
- P12: a call that a postcondition reports as done is done.
- P13: a worker that claims a run has its tools.
- W58, W59: nothing is stored in clear where content is sealed, and an erased key does not come back.
- W56: a run that a restore holds does nothing until a person lets it go on.
- P14: a call reported as failed without a postcondition or a decision is not done.
- W39, W40: a time of a schedule starts one run, and none is passed over; W38: its times keep coming.
- W41: each end of a run that a hook is meant for starts one run.
- W33: code without a step that the log has goes no further.
- W42: what a run did is compensated once, the last first, in one rollback at a time.
- W65: what is stored as spent of a total is what all runs under it have used, each reply once.
- W43: of all calls with one key, one starts.
- W63: a call changes a standing plan once.
- REQUEST: a model's requests follow from the log.
- STATE: the folded state agrees with the log.
- LEFTOVER: every wake-up is acknowledged.
- R1 to R13: the ordering rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from ...eventlog.commits import Chain, Commit, digest_of_bytes, tombstone_in
from ...eventlog.errors import FoldlogError
from ...eventlog.events import (
    OBSERVABLE,
    QUESTION,
    ApprovalRequested,
    ApprovalResolved,
    BudgetUpdated,
    CancelRequested,
    ChildReturned,
    Claimed,
    Context,
    Error,
    HookAdvanced,
    LaneUpdated,
    LateOutcome,
    MessageInjected,
    MessageQueued,
    ModelFailed,
    ModelRequested,
    Parked,
    PlanUpdated,
    Prepared,
    Released,
    Restored,
    ScheduleUpdated,
    SignalReceived,
    SlotsUpdated,
    Status,
    Step,
    StoredEvent,
    Submitted,
    TokenUsage,
    ToolAttemptFailed,
    ToolCall,
    ToolResult,
    ToolStarted,
    Usage,
    WaitStarted,
    is_terminal,
)
from ...eventlog.ports import Stored, Subject
from ...projections.fold import fold_commit
from ...projections.outcome import Outcome, fold_stored
from ...projections.run_state import RunState
from ...projections.snapshot import state_in
from ...runtime.core.limits import limits_of_run
from ...runtime.shared.slots import PROVIDER_SLOTS
from ...runtime.triggers.event_hooks import STATUSES
from ..ordering.monitor import check_trace
from ..traces.trace import trace_of
from .burying import UNREADABLE
from .flows import UNNOTICED
from .sealing import unsealed
from .timed import decisions, local_times, times_between
from .undoing import rolled_back
from .world import CallerReply, World

_LOOKED_AT = ("wire", "remit")
"""The simulated tools with a postcondition; all their effects are recorded."""
_USAGE_OF_OTHERS = (Step, ChildReturned)
"""Events that repeat the usage of other events."""
_GOING_ON = (Claimed, ModelRequested, ToolCall, ToolStarted)
"""Events of a run that a process drives."""


class _Run:
    """The facts about a run so far."""

    def __init__(self) -> None:
        self.revision, self.digest = 0, ""
        self.epoch, self.owner = 0, ""
        self.over, self.key = False, ""
        self.fenced = False
        """True if it has been cancelled and is not over yet."""
        self.agent, self.runs_max = "", 0
        """The agent, and how many of its runs may be driven at once; 0 for no limit."""
        self.slots: dict[str, str] = {}
        """The slots that its tools need, by tool name."""
        self.calls: dict[str, str] = {}
        """The tools of its calls, by call id."""
        self.started: dict[str, str] = {}
        """The slots of the calls that were started under the current claim and have not ended."""
        self.cancels: set[str] = set()
        self.parent: str | None = None
        self.limits: tuple[str, ...] = ()
        """The limits under which a root run counts."""
        self.held = False
        """True from a restore until a person resumes the run, or cancels it."""


def violations(world: World, *, ended: bool = True) -> list[str]:
    """Return a text such as `P4 ...` for each violated property. With `ended`, every run must be over."""
    runs: dict[str, _Run] = {}
    lanes: dict[str, list[str]] = {}
    found: list[str] = []
    for stored, commit in world.commits():
        if stored.subject.kind == "lane":
            for event in commit.events:
                if isinstance(event, LaneUpdated):
                    lanes[stored.subject.id] = [entry.run for entry in event.queue]
        elif stored.subject.kind == "run":
            run = runs.setdefault(stored.subject.id, _Run())
            run.key = run.key or _key(commit)
            found += _commit(stored, commit, run, runs, lanes)
            found += _crowd(run, runs)
            found += _house(run, runs, world)
            found += _throng(runs)
    found += _families(runs)
    found += _plans(world)
    found += _model_calls(world)
    found += _spending(world)
    found += _starts(world)
    found += _verified(world)
    found += _equipped(world)
    found += _doubts(world)
    found += _replies(world)
    found += _keys(world)
    found += _burials(world, ended=ended)
    found += _once(world)
    found += unsealed(world)
    found += _misfits(world)
    found += _schedules(world, ended=ended)
    found += rolled_back(world, ended=ended)
    found += _hooks(world, ended=ended)
    unknown = {name for name, run in runs.items() if _is_unknown(run, world)}
    if ended:
        found += [
            f"P3 lost run {run}" for run, facts in runs.items() if not facts.over and run not in unknown
        ]
    return found or [*_rules(world, unknown, ended=ended), *_requests(world), *_states(world)]


def _is_unknown(run: _Run, world: World) -> bool:
    """Return whether no caller knows that the run exists: its submission was refused, and no worker claimed it."""
    return not run.epoch and run.key in world.told_no


def _commit(
    stored: Stored, commit: Commit, run: _Run, runs: dict[str, _Run], lanes: dict[str, list[str]]
) -> Iterator[str]:
    name = stored.subject.id
    if commit.rev != run.revision + 1 or commit.prev != run.digest:
        yield f"P5 fork: revision {commit.rev} of {name} does not follow {run.revision}"
    run.revision, run.digest = commit.rev + len(commit.events) - 1, digest_of_bytes(stored.data)
    claims = any(isinstance(event, Claimed) for event in commit.events)
    if commit.epoch and not run.over:
        in_force = run.epoch + 1 if claims else run.epoch
        if commit.epoch != in_force or not (claims or run.owner):
            in_force_now = f"{run.epoch} of {run.owner!r}"
            yield f"P5 fork: {name} revision {commit.rev} of epoch {commit.epoch}, in force {in_force_now}"
        head = next((queue[0] for queue in lanes.values() if name in queue), name)
        if head != name and run.revision > len(commit.events):
            yield f"P6 {name} executes while {head} is at the head of its lane"
    if run.fenced and not is_terminal(commit.events[0]):
        yield f"P2 {commit.events[0].type} of {name} between its cancel and its end"
    yield from _held(name, commit, run)
    for event in commit.events:
        if run.over and isinstance(event, OBSERVABLE):
            yield f"{'P1' if is_terminal(event) else 'P2'} {event.type} of {name} after its terminal status"
        if isinstance(event, OBSERVABLE) and run.parent is not None and runs[run.parent].over:
            yield f"P7 {event.type} of {name} after the terminal status of its parent"
        _fold(run, event)
    if isinstance(first := commit.events[0], Submitted):
        *above, agent = commit.path.split("/")
        limit = (first.config.get("concurrency") or {}).get("runs_max", 0)
        run.agent, run.runs_max = (agent, limit) if agent not in above else ("", 0)


def _held(name: str, commit: Commit, run: _Run) -> Iterator[str]:
    for event in commit.events:
        if isinstance(event, Restored):
            run.held, run.owner = True, ""
        elif isinstance(event, Status) and event.status == "resumed":
            run.held = False
        elif run.held and isinstance(event, _GOING_ON):
            yield f"W56 {event.type} of {name}, which a restore holds"


def _crowd(run: _Run, runs: dict[str, _Run]) -> Iterator[str]:
    """Check P10. The owner may be dead, or fenced without knowing. A run below one of its own agent does not count."""
    driven = [name for name, each in runs.items() if each.owner and not each.over and each.agent == run.agent]
    if run.runs_max and len(driven) > run.runs_max:
        yield f"P10 {len(driven)} runs of {run.agent} are driven at once: {', '.join(driven)}"


def _house(run: _Run, runs: dict[str, _Run], world: World) -> Iterator[str]:
    """Check P10 for the limits of the namespace and its lanes."""
    for limit in run.limits if run.owner and not run.over else ():
        driven = [
            name for name, each in runs.items() if each.owner and not each.over and limit in each.limits
        ]
        if len(driven) > world.limits.get(limit, len(driven)):
            yield f"P10 {len(driven)} runs that count for {limit} are driven at once: {', '.join(driven)}"


def _throng(runs: dict[str, _Run]) -> Iterator[str]:
    started = [(slot, name) for name, run in runs.items() for slot in run.started.values()]
    for slot, count in Counter(slot for slot, _ in started).items():
        if count > 1:
            yield f"P11 {count} calls that need the slot {slot} are started at once: {started}"


def _key(commit: Commit) -> str:
    first = commit.events[0]
    return f"{commit.path}: {first.input}" if isinstance(first, Submitted) else ""


def _fold(run: _Run, event: object) -> None:
    match event:
        case Submitted():
            run.parent = event.parent.run if event.parent else None
            run.limits = () if event.parent else tuple(limits_of_run(event.lane))
        case Claimed():
            run.epoch, run.owner = event.epoch, event.worker
            run.started.clear()
        case Parked() | Released():
            run.owner = ""
            run.started.clear()
        case Prepared():
            run.slots = {spec.name: spec.slot for spec in event.tools if spec.slot is not None}
        case ToolCall():
            run.calls[event.tool_call_id or ""] = event.tool_name
        case ToolStarted() if (tool := run.calls[event.tool_call_id or ""]) in run.slots:
            run.started[event.tool_call_id or ""] = run.slots[tool]
        case ToolResult() | ToolAttemptFailed() | ApprovalRequested():
            run.started.pop(event.tool_call_id or "", None)
        case CancelRequested():
            run.cancels.add(event.reason)
            run.owner, run.fenced = "", True
        case _ if is_terminal(event):  # type: ignore[arg-type] # an event
            run.over, run.fenced = True, False
            run.started.clear()
        case _:
            pass


def _families(runs: dict[str, _Run]) -> Iterator[str]:
    for name, run in runs.items():
        if run.parent is not None and runs[run.parent].over and not run.over:
            yield f"P7 {name} outlives its parent {run.parent}"
        if run.parent is not None and "family" in run.cancels - runs[run.parent].cancels:
            yield f"P8 half a family: {name} is cancelled, its parent {run.parent} is not"


def _plans(world: World) -> Iterator[str]:
    made = Counter(
        (event.name, event.run, event.call)
        for stored, commit in world.commits()
        if stored.subject.kind == "plan"
        for event in commit.events
        if isinstance(event, PlanUpdated) and event.call
    )
    for (plan, run, call), times in made.items():
        if times > 1:
            yield f"W63 call {call} of {run} changed the plan {plan} {times} times"


def _model_calls(world: World) -> Iterator[str]:
    """Check P10 for the limits of providers."""
    for run, worker in world.unslotted:
        yield f"P10 a model call of {run} was sent by {worker} without a slot of its provider"
    for _, commit in world.commits():
        for event in commit.events:
            if isinstance(event, SlotsUpdated) and event.name.startswith(PROVIDER_SLOTS):
                most = world.limits.get(event.name.removeprefix("limit:"), 0)
                if len(event.holders) > most:
                    yield f"P10 {len(event.holders)} model calls hold the {most} slots {event.name}"


def _spending(world: World) -> Iterator[str]:
    """Check W65 for the totals of users."""
    users: dict[str, str] = {}
    used: Counter[str] = Counter()
    counted: dict[Subject, BudgetUpdated] = {}
    for stored, commit in world.commits() if world.budgets else ():
        for event in commit.events:
            match event:
                case BudgetUpdated(per="total"):
                    counted[stored.subject] = event
                case Submitted(user=str() as user):
                    users[commit.run] = user
                case (
                    Usage() | ModelFailed(usage=TokenUsage()) | LateOutcome(usage=TokenUsage())
                ) as paid if not paid.agent_path:
                    used[f"user:{users[commit.run]}"] += (paid.usage or TokenUsage()).total_tokens
                case _:
                    pass
    for owner in sorted({*used, *(each.name for each in counted.values())}):
        tokens = sum(each.tokens for each in counted.values() if each.name == owner)
        if tokens != used[owner]:
            yield f"W65 {owner} has used {used[owner]} tokens, and {tokens} are counted"


def _starts(world: World) -> Iterator[str]:
    for start in world.starts:
        if start.late:
            yield f"P4 unsafe {start.call} of {start.run} was started by {start.by} without permission"
    for run, call in dict.fromkeys((start.run, start.call) for start in world.starts):
        events = [event for event in world.events_of(run) if event.tool_call_id == call]
        started = sum(isinstance(event, ToolStarted) for event in events)
        retries = sum(isinstance(event, ApprovalResolved) and event.outcome == "retry" for event in events)
        asked = sum(isinstance(event, ApprovalRequested) and event.kind == QUESTION for event in events)
        waited = sum(isinstance(event, WaitStarted) for event in events)
        times = sum((start.run, start.call) == (run, call) for start in world.starts)
        if times > min(started, 1 + retries + asked + waited):
            yield f"P4 unsafe {call} of {run} was started {times} times"


def _verified(world: World) -> Iterator[str]:
    for run in world.runs():
        for event in world.events_of(run):
            if not isinstance(event, ToolResult) or event.tool_name not in _LOOKED_AT:
                continue
            looked = event.success and "postcondition" in event.metadata
            if looked and not _is_done(world, event):
                yield f"P12 {event.tool_call_id} of {run} is reported as done, but is not"


def _equipped(world: World) -> Iterator[str]:
    for run in world.runs():
        needs: set[str] = set()
        agent = ""
        for event in world.events_of(run):
            if isinstance(event, Submitted):
                agent, needs = str(event.config.get("name")), set(event.config.get("tools") or ())
            elif isinstance(event, Claimed) and (has := world.tools_of(event.worker, agent)) is not None:
                missing = ", ".join(sorted(needs - has))
                if missing:
                    yield f"P13 {run} was claimed by {event.worker}, which has no tool {missing}"


def _doubts(world: World) -> Iterator[str]:
    """Check P14: a model that reads of a failure repeats the action in another call."""
    for run, call in dict.fromkeys((start.run, start.call) for start in world.starts):
        settled = False
        for event in world.events_of(run):
            if event.tool_call_id != call:
                continue
            if isinstance(event, ApprovalResolved) and event.outcome is not None:
                settled = True
            if isinstance(event, ToolResult) and event.metadata["status"] in {"error", "timed_out"}:
                looked = settled or "postcondition" in event.metadata
                if not looked and _is_done(world, event):
                    yield f"P14 {call} of {run} is reported as failed, but is done"


def _is_done(world: World, result: ToolResult) -> bool:
    return (result.tool_name, result.metadata["idempotency_key"]) in world.effects


def _once(world: World) -> Iterator[str]:
    """Check W43 on the tool `charge`, whose key is its argument."""
    started: dict[str, set[str]] = {}
    for run in world.runs():
        keys: dict[str | None, str] = {}
        for event in world.events_of(run):
            if isinstance(event, ToolCall) and event.tool_name == "charge":
                keys[event.tool_call_id] = str(event.arguments.get("invoice"))
            elif isinstance(event, ToolStarted) and event.tool_call_id in keys:
                started.setdefault(keys[event.tool_call_id], set()).add(f"{run} {event.tool_call_id}")
    for key, calls in started.items():
        if len(calls) > 1:
            yield f"W43 the key {key} was started by {len(calls)} calls: {', '.join(sorted(calls))}"


def _misfits(world: World) -> Iterator[str]:
    """Check W33: code that no longer has a step of the log goes no further."""
    if UNNOTICED in world.state:
        yield f"W33 code without a step of the log went on with {world.state[UNNOTICED]}"


def _schedules(world: World, *, ended: bool) -> Iterator[str]:
    """Check W37 to W40: a time of a schedule starts at most one run, and none is silently passed over."""
    runs: dict[tuple[str, float], set[str]] = {}
    commits: dict[str, list[ScheduleUpdated]] = {}
    for _, commit in world.commits():
        first = commit.events[0]
        if isinstance(first, ScheduleUpdated):
            commits.setdefault(first.name, []).append(first)
        elif isinstance(first, Submitted) and first.trigger is not None and first.trigger.due_at is not None:
            name, due_at = first.trigger.name, first.trigger.due_at
            runs.setdefault((name, due_at), set()).add(commit.run)
            times = local_times(world, name)
            if times is not None and first.input != times.get(due_at):
                yield f"W39 schedule {name}: a run was started for {first.input}"
    for (name, due_at), started in runs.items():
        if len(started) > 1:
            told = ", ".join(sorted(started))
            yield f"W39 schedule {name}: the time {due_at:.0f} has started {len(started)} runs: {told}"
    for name, changes in commits.items():
        yield from _passed_over(world, name, changes)
    served = any(process.worker is not None for process in world.processes.values())
    for name, changes in commits.items():
        if ended and served and not changes[-1].deleted:
            yield f"W38 the times of schedule {name} no longer come"


def _passed_over(world: World, name: str, changes: list[ScheduleUpdated]) -> Iterator[str]:
    for before, after in pairwise(changes):
        if before.next_at is not None and after.next_at is not None:
            passed = times_between(world, name, before.next_at, after.next_at)
            decided = decisions(after) - decisions(before)
            if decided < passed:
                yield f"W40 schedule {name}: {passed - decided} times after {before.next_at:.0f} were passed over"


def _hooks(world: World, *, ended: bool) -> Iterator[str]:
    """Check W41: each end that matches a hook, and came after the hook was set, starts one run; no other end does."""
    begun: dict[str, int] = {}
    started: Counter[tuple[str, str]] = Counter()
    for stored, commit in world.commits():
        for event in commit.events:
            if isinstance(event, HookAdvanced):
                begun.setdefault(event.name, stored.position)
            elif isinstance(event, Submitted) and event.trigger is not None and event.trigger.kind == "hook":
                started[event.trigger.name, event.trigger.key] += 1
    meant = dict(_meant(world))
    for (name, run), runs in started.items():
        if runs > 1 or (name, run) not in meant:
            yield f"W41 hook {name}: the end of {run} has started {runs} runs"
    for (name, run), position in meant.items():
        if ended and position > begun.get(name, position) and not started[name, run]:
            yield f"W41 hook {name}: the end of {run} has started nothing"


def _meant(world: World) -> Iterator[tuple[tuple[str, str], int]]:
    """Yield each hook with each run whose end it matches, and the position of that end."""
    for stored, commit in world.commits():
        ends = [event.status for event in commit.events if isinstance(event, Status) and is_terminal(event)]
        if not ends or commit.run != commit.root:
            continue
        for hook in world.hooks:
            if commit.path in hook.of and ends[0] in STATUSES[hook.on]:
                yield (hook.name, commit.run), stored.position


def _keys(world: World) -> Iterator[str]:
    """Check that an idempotency key belongs to one run."""
    runs: dict[str, set[str]] = {}
    for _, commit in world.commits():
        first = commit.events[0]
        if isinstance(first, Submitted) and first.idempotency_key is not None:
            runs.setdefault(first.idempotency_key, set()).add(commit.run)
    for key, started in runs.items():
        if len(started) > 1:
            yield f"P9 the submissions with the key {key!r} have started {len(started)} runs"


def _burials(world: World, *, ended: bool) -> Iterator[str]:
    """Check P15: only the tombstone of an erased family is left, and nothing is gone without a tombstone."""
    stored: dict[Subject, list[int]] = {}
    buried: set[str] = set()
    for each, commit in world.commits():
        if each.subject.kind == "run":
            stored.setdefault(each.subject, []).append(each.position)
            if commit.root in buried:
                yield f"P15 {commit.events[0].type} of {commit.run} was stored after the tombstone of {commit.root}"
            if tombstone_in(commit) is not None:
                buried.add(commit.root)
    for subject, positions in stored.items():
        left = [each.position for each in world.log.events.now(subject)]
        if subject.root not in buried and left != positions:
            yield f"P15 {len(positions) - len(left)} commits of {subject.id} are gone without a tombstone"
        kept = positions[-1:] if subject.id == subject.root else []
        if ended and subject.root in buried and left != kept:
            yield f"P15 {subject.id} was erased, but has {len(left)} commits"
    if UNREADABLE in world.state:
        yield f"P15 the session of an erased run cannot be read: {world.state[UNREADABLE]}"


def _replies(world: World) -> Iterator[str]:
    """Check that callers' replies agree with the log, and that a command which was carried out is stored once."""
    for reply in world.replies:
        events = world.events_of(reply.run)
        match reply.kind:
            case "inject":
                times = sum(isinstance(e, MessageQueued) and e.content == reply.about for e in events)
                most, least = (0, 0) if reply.answer == "no" else (1, 1 if reply.answer == "ok" else 0)
                if not least <= times <= most:
                    yield f"P9 {reply.about!r} was sent to {reply.run}, answered {reply.answer!r}, stored {times} times"
            case "resolve":
                decisions = [
                    e.decision
                    for e in events
                    if isinstance(e, ApprovalResolved) and e.approval_id == reply.about
                ]
                if decisions != [reply.answer]:
                    yield f"P9 {reply.about} was answered with {reply.answer}, stored is {decisions}"
            case "signal":
                times = sum(
                    isinstance(e, SignalReceived) and f"{e.name} {e.key}" == reply.about for e in events
                )
                if times != (reply.answer == "ok"):
                    yield f"P9 {reply.about!r} was sent to {reply.run}, answered {reply.answer!r}, stored {times} times"
            case "callback":
                yield from _callback_reply(reply, events)
            case "cancel":
                yield from _cancel_reply(reply, events, world)


def _callback_reply(reply: CallerReply, events: list[StoredEvent]) -> Iterator[str]:
    call, sha256 = reply.about.split(" ")
    answers = [e for e in events if isinstance(e, SignalReceived) and e.tool_call_id == call]
    times = sum(each.key == sha256 for each in answers)
    if times != (reply.answer == "ok"):
        yield f"P9 a callback of {call} was answered, told {reply.answer!r}, stored {times} times"
    if len(answers) != len({each.name for each in answers}):
        yield f"P9 a callback of {call} of {reply.run} was answered {len(answers)} times"
    over = any(is_terminal(e) or (isinstance(e, ToolResult) and e.tool_call_id == call) for e in events)
    if not answers and not over:
        yield f"P9 a token of {call} of {reply.run} was refused, and no other was used"


def _cancel_reply(reply: CallerReply, events: list[StoredEvent], world: World) -> Iterator[str]:
    ends = [event.status for event in events if isinstance(event, Status) and is_terminal(event)]
    if reply.answer and ends != [reply.answer.removeprefix("already_")]:
        yield f"P9 the cancel of {reply.run} was answered with {reply.answer}, but it ended as {ends}"
    mine = any(isinstance(event, CancelRequested) and event.reason == reply.about for event in events)
    alone = sum((other.kind, other.about) == ("cancel", reply.about) for other in world.replies) == 1
    if mine and alone and reply.answer.startswith("already_"):
        yield f"P9 the cancel of {reply.run} was stored, but answered with {reply.answer}"


def _rules(world: World, unknown: set[str], *, ended: bool) -> Iterator[str]:
    for root in world.roots():
        trace = trace_of(world.family(root))
        yield from map(str, check_trace(trace, ended=ended and root not in unknown))


def _requests(world: World) -> Iterator[str]:
    """Check that all attempts at a step send the same request, and that it has the messages injected before it."""
    asked: dict[tuple[str, int], set[str]] = {}
    said: dict[tuple[str, int], list[str]] = {}
    for each in world.asked:
        place = each.run, each.step
        asked.setdefault(place, set()).add(repr(each.messages))
        said[place] = [message.content for message in each.messages if message.role == "user"]
    for (run, step), requests in asked.items():
        events = world.events_of(run)
        cuts = sum(isinstance(event, Context) for event in events)  # each one changes the request
        stored = [e for e in events if isinstance(e, ModelRequested) and e.step == step and not e.phase]
        digests = {event.digest for event in stored}
        if len(requests) > 1 + cuts:
            yield f"REQUEST step {step} of {run} sent the model {len(requests)} different requests"
        if not 1 <= len(digests) <= 1 + cuts:
            yield f"REQUEST step {step} of {run} has {len(digests)} digests"
        carried = [content for content in _messages_before(events, step) if content not in said[run, step]]
        if carried and not cuts:
            yield f"REQUEST step {step} of {run} does not carry {carried}"


def _messages_before(events: list[StoredEvent], step: int) -> Iterator[str]:
    for event in events:
        if isinstance(event, Step) and (event.step, event.status) == (step, "started"):
            return
        if isinstance(event, MessageInjected):
            yield event.content


def _states(world: World) -> Iterator[str]:
    """Check that the folded state, the outcome and the snapshots of each run agree with the log."""
    chain = Chain()
    snapshots = _snapshots(world)
    states: dict[str, RunState] = {}
    outcomes: dict[str, Outcome] = {}
    for stored, commit in world.commits():
        if stored.subject.kind != "run" or tombstone_in(commit) is not None:
            continue
        run = stored.subject.id
        try:
            fold_commit(states.setdefault(run, RunState()), chain.verify(stored))
            fold_stored(outcomes.setdefault(run, Outcome()), stored)
            for snapshot in snapshots.pop(stored.position, ()):
                if snapshot != states[run]:
                    yield f"STATE a snapshot of {run} at revision {snapshot.head.rev} differs from the log"
        except FoldlogError as error:
            yield f"STATE the log of {run} cannot be folded: {error}"
            return
    for position in snapshots:
        yield f"STATE a snapshot is at position {position}, where the log has no commit of a run"
    for run, state in states.items():
        own = [event for event in world.events_of(run) if not event.agent_path]
        yield from _state(run, state, outcomes[run], own)


def _snapshots(world: World) -> dict[int, list[RunState]]:
    """Return all snapshots that were ever stored, by position."""
    found: dict[int, list[RunState]] = {}
    for data in world.snapshots.stored:
        state = state_in(data)
        if state is not None:
            found.setdefault(state.head.position, []).append(state)
    return found


def _state(run: str, state: RunState, outcome: Outcome, events: list[StoredEvent]) -> Iterator[str]:
    usage = TokenUsage()
    for event in events:
        if not isinstance(event, _USAGE_OF_OTHERS):
            usage = usage + (getattr(event, "usage", None) or TokenUsage())
    if state.usage != usage or outcome.usage != usage:
        yield f"STATE {run} has used {usage.total_tokens} tokens, its state says {state.usage.total_tokens}"
    ends = [event.status for event in events if isinstance(event, Status) and is_terminal(event)]
    if ends != [state.terminal.status] * bool(ends) if state.terminal is not None else ends:
        yield f"STATE {run} ended as {ends}, its state says {state.status}"
    failed = any(isinstance(event, Error) for event in events)
    if failed != (state.error is not None):
        yield f"STATE {run} failed: {failed}, its state says {state.error}"
    steps = Counter(event.status for event in events if isinstance(event, Step))
    if state.steps_completed != steps["completed"]:
        yield f"STATE {run} completed {steps['completed']} steps, its state says {state.steps_completed}"


def left_over(world: World) -> list[str]:
    """Return the wake-ups that were never acknowledged."""
    return [f"LEFTOVER {wakeup}" for wakeup in world.log.wakeups.unacknowledged]
