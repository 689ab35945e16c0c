"""Check code against logs: run the code of each workflow over the stored events of its run, without any effect.

This does before a deployment what a driver does when it resumes a run: the code, or the table, starts from its
beginning and gets the recorded outcomes. It must start every operation in the log, and more only if the run is open.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ...eventlog.errors import FoldlogError
from ...eventlog.events import Event, Memoized, Unknown
from ...projections.fold import apply
from ...projections.run_state import RunState
from ...runtime import Registry, Workflow
from ...runtime.agents.workflow.program import Divergence, Progress
from ...runtime.core.workflow.places import described
from ...runtime.ports.runnable import Runnable, all_members
from ..canonical.structure import asks_for
from ..traces.trace import Trace
from .replaying import as_decided, check_artifacts


class CodeMisfit(msgspec.Struct, frozen=True, kw_only=True):
    """The first difference between the log of a run and the code.

    `place` is the operation's place, `revision` that of its event (0 if the log has none), `recorded` the operation in
    the log, and `asked` the one that the code starts; all are empty if `why` is another reason.
    """

    run: str
    agent: str
    why: str
    place: str = ""
    revision: int = 0
    recorded: str = ""
    asked: str = ""


class CodeCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The result: the workflows whose code was run, and the first difference of each one that does not fit."""

    runs: tuple[str, ...]
    misfits: tuple[CodeMisfit, ...] = ()


def check_code(trace: Trace, registry: Registry, *, ended: bool = True) -> CodeCheck:
    """Run the code of every open workflow of a family; with `ended`, also of those that have ended.

    Raises `ConfigError` for a trace without the artifacts that it refers to.
    """
    check_artifacts(trace)
    runs: list[str] = []
    misfits: list[CodeMisfit] = []
    for state, events in _states(trace):
        submitted = state.submitted
        if submitted is None or submitted.kind != "workflow" or (state.over and not ended):
            continue
        runs.append(state.run)
        found = _misfit(state, events, registry)
        if found is not None:
            misfits.append(found)
    return CodeCheck(runs=tuple(runs), misfits=tuple(misfits))


def _states(trace: Trace) -> Iterator[tuple[RunState, list[Event]]]:
    """Yield the final state of each run with its events, in the order in which the runs began."""
    states: dict[str, tuple[RunState, list[Event]]] = {}
    at = 0
    for recorded in trace.commits:
        commit = recorded.commit
        state, events = states.setdefault(
            commit.run,
            (RunState(run=commit.run, root=commit.root, path=commit.path, submitted_at=commit.at), []),
        )
        state.updated_at = commit.at
        for stored in commit.events:
            event = as_decided(stored, trace.events[at])
            events.append(trace.events[at])
            at += 1
            if not isinstance(event, Unknown):
                apply(state, event, commit.at)  # type: ignore[arg-type] # a stored event
    yield from states.values()


def _misfit(state: RunState, events: list[Event], registry: Registry) -> CodeMisfit | None:
    try:
        progress = _progress(state, registry)
    except Divergence as found:
        asked = found.asked or "nothing"
        return CodeMisfit(
            run=state.run,
            agent=state.agent,
            why=f"the log has {found.recorded or 'nothing'}, the code asks for {asked}",
            place=found.place,
            revision=_revision(events, found.place),
            recorded=found.recorded,
            asked=found.asked,
        )
    except FoldlogError as error:
        return CodeMisfit(run=state.run, agent=state.agent, why=str(error))
    why = _end_differs(state, progress)
    return None if why is None else CodeMisfit(run=state.run, agent=state.agent, why=why)


def _progress(state: RunState, registry: Registry) -> Progress:
    """Run the code over the log of a run, and return how far it gets. Raises `Divergence`, `FoldlogError`."""
    submitted = state.submitted
    assert submitted is not None  # noqa: S101 - the caller has seen it
    live = _live(state.agent, registry)
    if "steps" in submitted.config:
        workflow: Runnable = registry.table(submitted.config, live)
    else:
        workflow = live if live is not None else registry.agent(state.agent)
        if isinstance(workflow, Workflow):
            workflow = registry.version_of(workflow, submitted.config)
    registry.check(workflow)
    if not isinstance(workflow, Workflow):
        raise FoldlogError(f"{workflow.name!r} is a {workflow.kind} in this registry, not a workflow")
    decider = workflow.decider(state)
    try:
        progress, flow = decider.go_on(state), state.flow
        if flow is not None and (left := decider.unasked):
            raise Divergence(left[0], described(flow.asked[left[0]]), "")
        return progress
    finally:
        decider.close()


def _live(name: str, registry: Registry) -> Runnable | None:
    below = (each for one in registry.agents.values() for each in all_members(one) if each.name == name)
    return registry.agents.get(name) or next(below, None)


def _end_differs(state: RunState, progress: Progress) -> str | None:
    """Return how the code's end differs from that of the run; None if it does not, or the code did not end the run."""
    error = state.error.error_type if state.error is not None else ""
    completed = state.terminal is not None and state.terminal.status == "completed"
    if not completed and error not in {"workflow_failed", "operations_max"}:
        return None
    end = progress.end
    if end is None:
        return "the run is over, and the code goes on"
    if end.error_type != error:
        told = f"{end.error_type}: {end.message}" if end.error_type else "an output"
        return f"the run ended with {error or 'an output'}, and the code ends with {told}"
    return None if end.output == state.output or error else "the code ends with another output"


def _revision(events: list[Event], place: str) -> int:
    """Return the revision of the event that records the operation; 0 if there is none."""
    for event in events:
        made = event.tool_call_id if isinstance(event, Memoized) else asks_for(event)
        if made == place:
            return event.revision or 0
    return 0
