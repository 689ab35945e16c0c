"""The plan of a fork, shown before it starts: what is shared, what happens first, and what happens to tool calls."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from ...eventlog.events import (
    ForkTools,
    ParentLink,
    Prepared,
    ResultRecorded,
    Submitted,
    TokenUsage,
    ToolCall,
    ToolEffect,
    is_by_provider,
)
from ...eventlog.parts import FilePart, files_of
from ...projections.flow_state import FlowState, OperationKind
from ...projections.fold import apply
from ...projections.run_state import CallState, RunState
from ..core.commands import Claim, ToolsResolved
from ..core.decide import advance, pending, take
from ..core.effects import Evaluate, RunNode
from ..core.lineage import link_to, node_place, recorded_for
from ..core.rules import Rules, rules_of_run
from ..core.tool_calls import approval_needed, callable_, denied, recorded_result, unfit
from ..core.turn import Turn
from .family import Ancestor, Opening, Shared
from .fork import ForkOptions, Origin, replaces_input
from .operations import places_of

CallPlan = Literal["kept", "recorded", "asked", "run", "answered"]
"""The plan of a call: its result is kept or recorded, an approval is requested, it runs, or the core answers it."""
First = Literal["prepare", "model", "calls", "nodes", "code", "end"]


class PlannedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of the original run, and what happens in the fork to it or to one like it.

    `agent_path` is that of the calling run in the fork.
    """

    agent_path: str
    tool_call_id: str
    tool_name: str
    arguments: dict[str, Any]
    step: int
    effect: ToolEffect | None
    becomes: CallPlan


class PlannedOperation(msgspec.Struct, frozen=True, kw_only=True):
    """An operation of a workflow that the fork does not keep: if its code asks for it again, it is done again.

    `agent_path` is that of the workflow in the fork, `kind` as in `OperationKind`; a tool's calls are planned calls.
    """

    agent_path: str
    place: str
    kind: OperationKind
    name: str


class PlannedNode(msgspec.Struct, frozen=True, kw_only=True):
    """A run below the fork: shared as it ended (`kept`), going on in the fork, or starting there at once.

    `run` is the original, up to `revision`; empty and 0 for one that starts. `status` is that of the original there.
    """

    agent_path: str
    becomes: Literal["kept", "goes_on", "begins"]
    run: str = ""
    revision: int = 0
    status: str = ""
    steps: int = 0


class ForkPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of a fork, before it starts. `run` has `status` and `revisions`; the fork leaves it after `revision`.

    `shared` events are copied, with `steps` completed steps and the tokens of `usage`, including those of the runs
    below (`nodes`). `input` is the fork's own, with its `files`: it replaces the run's input if nothing can have
    read that (`replaces_input`), else it is a message for the next step. `first` is what happens first: the
    preparation, a model call (of step `step`), the `open` calls, the `nodes` of a swarm or loop, the `code` of a
    workflow, or the end of the run. Of a workflow, `operations` are kept, and `again` are those that are not. `open`
    are the calls of the rounds open there; `behind` those made later, also in runs below, each with what happens to
    the same call in the fork. `tools` is the policy. `model` and `model_was` are empty for a swarm or loop that keeps
    its models.
    """

    run: str
    kind: str
    status: str
    revisions: int
    revision: int
    agent: str
    model: str
    model_was: str
    tools: ForkTools
    input: str | None
    files: tuple[FilePart, ...]
    replaces_input: bool
    shared: int
    steps: int
    usage: TokenUsage
    first: First
    step: int
    nodes: tuple[PlannedNode, ...]
    operations: int
    again: tuple[PlannedOperation, ...]
    open: tuple[PlannedCall, ...]
    behind: tuple[PlannedCall, ...]


def plan_of(origin: Origin, options: ForkOptions, opening: Opening) -> ForkPlan:
    """Return the plan of the fork with this opening."""
    root = next(iter(opening.values()))
    state = root.turn.state
    first, step = _first(root.turn)
    model = str(origin.submitted.config.get("model", ""))
    return ForkPlan(
        run=origin.run.subject.id,
        kind=state.kind,
        status=origin.state.status,
        revisions=len(origin.run.history),
        revision=origin.at,
        agent=state.agent,
        model=options.model or model,
        model_was=model,
        tools=options.tools,
        input=options.input,
        files=tuple(files_of(options.parts)),
        replaces_input=replaces_input(origin, options),
        shared=sum(len(shared.turn.events) for shared in opening.values()),
        steps=sum(shared.turn.state.steps_completed for shared in opening.values()),
        usage=_usage(opening),
        first=first,
        step=step,
        nodes=tuple(_nodes(opening)),
        operations=sum(len(flow.order) for flow in _flows(opening)),
        again=tuple(operation for shared in _going_on(opening) for operation in _again(shared)),
        open=tuple(call for shared in _going_on(opening) for call in _planned_open(shared.turn)),
        behind=tuple(_behind(origin, opening)),
    )


def _usage(opening: Opening) -> TokenUsage:
    usage = TokenUsage()
    for shared in opening.values():
        usage = usage + shared.turn.state.usage
    return usage


def _going_on(opening: Opening) -> Iterator[Shared]:
    return (shared for shared in opening.values() if not shared.over)


def _first(turn: Turn) -> tuple[First, int]:
    state = turn.state
    if state.kind == "workflow":
        return "code", 0
    if not state.prepared:
        return "prepare", state.step
    if state.kind != "agent":
        return ("nodes" if _next_of(turn) else "end"), 0
    if not state.step_open:
        return "model", state.step + 1
    if not state.model.replied:
        return "model", state.step
    if any(call.result is None for call in state.calls.values()):
        return "calls", state.step
    return ("model", state.step + 1) if state.calls or state.queue else ("end", state.step)


def _next_of(turn: Turn) -> tuple[RunNode | Evaluate, ...]:
    """Return the nodes and functions that a swarm or loop goes on with once it is claimed."""
    claimed = Turn(copy.deepcopy(turn.state), turn.rules, turn.now)
    take(claimed, Claim("plan", 1.0))
    take(claimed, ToolsResolved(tools=(), model=""))
    advance(claimed)
    return tuple(e for e in pending(claimed.state, claimed.now) if isinstance(e, RunNode | Evaluate))


# --- nodes ------------------------------------------------------------------------------------------------------------


def _nodes(opening: Opening) -> Iterator[PlannedNode]:
    """Yield the runs of the flow: the nodes of each run that goes on, parents first."""
    for shared in _going_on(opening):
        state = shared.turn.state
        flow = state.flow
        for child in flow.children if flow is not None else [node.child_run for node in state.nodes]:
            known = opening[child]
            below = known.turn.state
            yield PlannedNode(
                agent_path=below.path,
                becomes="kept" if known.over else "goes_on",
                run=known.was.subject.id,
                revision=known.at,
                status=_status_of(known.was, known.at),
                steps=below.steps_completed,
            )
        for effect in _next_of(shared.turn) if state.kind not in {"agent", "workflow"} else ():
            if isinstance(effect, RunNode) and state.node(effect.name, effect.ordinal) is None:
                yield PlannedNode(agent_path=f"{state.path}/{effect.name}", becomes="begins")


def _status_of(was: Ancestor, at: int) -> str:
    state = RunState()
    for event in was.history[:at]:
        apply(state, event, 0.0)
    return state.status


# --- operations -------------------------------------------------------------------------------------------------------


def _flows(opening: Opening) -> Iterator[FlowState]:
    return (flow for shared in _going_on(opening) if (flow := shared.turn.state.flow) is not None)


def _again(shared: Shared) -> Iterator[PlannedOperation]:
    """Yield what a workflow asked for besides calls, and the fork does not keep."""
    state, flow = shared.turn.state, shared.turn.state.flow
    before = shared.was.folded(len(shared.was.history)).flow if flow is not None else None
    for place, asked in before.asked.items() if flow is not None and before is not None else ():
        if place not in flow.asked and asked.kind != "tool" and not before.has_lost(place):  # type: ignore[union-attr]
            yield PlannedOperation(agent_path=state.path, place=place, kind=asked.kind, name=asked.name)


# --- calls ------------------------------------------------------------------------------------------------------------


def _planned_open(turn: Turn) -> Iterator[PlannedCall]:
    if turn.state.kind == "agent" and _first(turn)[0] == "calls":
        for call in turn.state.calls.values():
            yield _planned(turn.state, call, turn.state.step, _plan_of_call(turn, call))


def _planned(state: RunState, call: CallState, step: int, becomes: CallPlan) -> PlannedCall:
    spec = state.tools.get(call.name)
    return PlannedCall(
        agent_path=state.path,
        tool_call_id=call.id,
        tool_name=call.name,
        arguments=call.arguments,
        step=step,
        effect=spec.effect if spec is not None else None,
        becomes=becomes,
    )


def _plan_of_call(turn: Turn, call: CallState) -> CallPlan:
    if call.result is not None:
        return "kept"
    if not callable_(turn, call):
        return "answered"
    if recorded_result(turn.state, call) is not None:
        return "recorded"
    return "asked" if call.approval_id is not None else "run"


def _behind(origin: Origin, opening: Opening) -> Iterator[PlannedCall]:
    """Yield the calls made after the fork's revision, as if the fork made the same."""
    shared = {each.was.subject.id: each for each in opening.values()}
    begun: dict[str, _Begun] = {}
    for run, was in origin.family.items():
        known = shared.get(run)
        if known is not None:
            submitted = known.turn.state.submitted or origin.submitted
            begun[run] = _Begun(submitted, _recorded(known), known.turn.state.recorded_below)
            yield from () if known.over else _behind_shared(known)
            continue
        above = was.submitted.parent if was.submitted is not None else None
        parent = begun.get(above.run) if above is not None else None
        if above is not None and parent is not None and above.tool_call_id not in parent.recorded:
            place = places_of(origin.family[above.run].history).get(run, "")
            begun[run] = _beginning(was, above, parent, place)
            yield from _behind_new(was, _target_path(origin, was), begun[run])


class _Begun(msgspec.Struct, frozen=True):
    """A run that the fork has or would start: the calls with recorded results, and the results for its nodes."""

    submitted: Submitted
    recorded: set[str]
    below: list[ResultRecorded]


def _beginning(was: Ancestor, above: ParentLink, parent: _Begun, place: str) -> _Begun:
    """Return a run as it would start below another one."""
    assert was.submitted is not None  # noqa: S101 - for the type checker
    link = link_to(parent.submitted, above.run, above.tool_call_id, above.ordinal)
    submitted = msgspec.structs.replace(was.submitted, parent=link, fork=None)
    place = node_place(was.path.rpartition("/")[2], above.ordinal, place)
    kept = list(recorded_for(place, parent.below)) if above.tool_call_id is None else []
    own = {result.source for result in kept if not result.below}
    return _Begun(submitted, own, [result for result in kept if result.below])


def _recorded(shared: Shared) -> set[str]:
    """Return the calls of a run whose results the fork has: what they started is not run again."""
    return {recorded.source for each in shared.turn.state.recorded.values() for recorded in each}


def _target_path(origin: Origin, was: Ancestor) -> str:
    """Return the agent path of a run in the fork."""
    return origin.run.path.rpartition("/")[2] + was.path.removeprefix(origin.run.path)


def _behind_shared(shared: Shared) -> Iterator[PlannedCall]:
    """Yield the later calls of a run that goes on in the fork."""
    turn = shared.turn
    tools = turn.state.tools or _tools_in(shared.was)
    if turn.state.kind == "workflow":  # it gets to know a tool with its first call
        tools = {**_tools_in(shared.was), **turn.state.tools}
    state = msgspec.structs.replace(turn.state, recorded={}, tools=tools)
    known = _recorded(shared)
    flow = turn.state.flow
    kept = flow.asked if flow is not None else turn.state.calls if turn.state.step_open else {}
    for call, step in _calls_in(shared.was, 0 if flow is not None else shared.at):
        if call.id not in kept:
            plan: CallPlan = (
                "recorded" if call.id in known else _plan_of_new(state, turn.rules, turn.now, call)
            )
            yield _planned(state, call, step, plan)


def _behind_new(was: Ancestor, path: str, begun: _Begun) -> Iterator[PlannedCall]:
    """Yield the calls of a run that would start in the fork."""
    state = RunState(path=path, submitted=begun.submitted, tools=_tools_in(was))
    rules = rules_of_run(begun.submitted)
    for call, step in _calls_in(was, 0):
        plan: CallPlan = "recorded" if call.id in begun.recorded else _plan_of_new(state, rules, 0.0, call)
        yield _planned(state, call, step, plan)


def _tools_in(was: Ancestor) -> dict[str, Any]:
    prepared = [event for event in was.history if isinstance(event, Prepared) and not event.agent_path]
    return {tool.name: tool for tool in prepared[-1].tools} if prepared else {}


def _calls_in(was: Ancestor, at: int) -> Iterator[tuple[CallState, int]]:
    for event in was.history[at:]:
        if isinstance(event, ToolCall) and not event.agent_path and not is_by_provider(event):
            call = CallState(
                id=event.tool_call_id or "",
                index=0,
                name=event.tool_name,
                arguments=event.arguments,
                raw_arguments=event.raw_arguments,
                rules=event.rules,
            )
            yield call, event.step or 0


def _plan_of_new(state: RunState, rules: Rules, now: float, call: CallState) -> CallPlan:
    """Return the plan for a call without a recorded result."""
    turn = Turn(state, rules, now)
    if (
        not callable_(turn, call)
        or denied(state, rules, call) is not None
        or unfit(state, rules, call) is not None
    ):
        return "answered"
    return "run" if approval_needed(turn, call) is None else "asked"
