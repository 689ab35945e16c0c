"""Sharing of a family by a fork: the forked run, and the runs below it that belong to its history.

The family is cut at one position of its log: right before the run's next revision. Runs that were over by then are
copied unchanged; those that go on in the fork are completed like the run itself (`history`, `nodes`). Each gets an id
in the fork's family, and its `fork` says where it comes from. Pure: no clock, no I/O.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from ...eventlog.commits import Recorded
from ...eventlog.errors import ConfigError
from ...eventlog.events import (
    ChildFinished,
    ChildReturned,
    ChildStarted,
    ForkLink,
    ResultRecorded,
    Status,
    StoredEvent,
    Submitted,
    Unknown,
)
from ...eventlog.names import child_run_id
from ...eventlog.ports import Subject
from ...projections.fold import apply
from ...projections.run_state import RunState
from ..core.commands import Inject
from ..core.lineage import link_to, node_place
from ..core.submission import with_model
from ..core.turn import Turn
from .history import ForkTarget, check, results_behind, take_over
from .nodes import take_over_nodes
from .operations import places_of, take_over_operations, with_code
from .sharing import sharing_of


class Ancestor(msgspec.Struct, frozen=True):
    """A run of the forked family. For each event: the position of its commit in the log, its digest and its time."""

    subject: Subject
    path: str
    history: list[StoredEvent | Unknown]
    positions: list[int]
    digests: list[str]
    times: list[float]

    def folded(self, at: int) -> RunState:
        """Return the state of the run as it was at a revision."""
        state = RunState(run=self.subject.id, root=self.subject.root, path=self.path)
        for event, when in zip(self.history[:at], self.times, strict=False):
            apply(state, event, when)
        return state

    @property
    def submitted(self) -> Submitted | None:
        """The event that opened it."""
        first = self.history[0] if self.history else None
        return first if isinstance(first, Submitted) else None

    def revision_before(self, position: float) -> int:
        """Return its last revision that is in the log before a position; 0 for none."""
        return bisect_left(self.positions, position)


Family = Mapping[str, Ancestor]
"""A run and all runs below it, by their ids, parents first."""


class Ancestors:
    """A run and all runs below it, gathered from the commits of its family in log order."""

    def __init__(self, run: str) -> None:
        self._run = run
        self.family: dict[str, Ancestor] = {}
        self.others: set[str] = set()
        """The runs of the family that are not below it."""

    def has(self, recorded: Recorded) -> bool:
        """Return whether the commit belongs to the run or to one below it."""
        run = recorded.subject.id
        if run in self.family or run == self._run:
            return True
        submitted = next((e for e in recorded.commit.events if isinstance(e, Submitted)), None)
        parent = submitted.parent if submitted is not None else None
        if parent is not None and parent.run in self.family:
            return True
        self.others.add(run)
        return False

    def add(self, recorded: Recorded, events: Sequence[StoredEvent | Unknown]) -> None:
        """Add a commit's events, with their large values."""
        subject = recorded.subject
        run = self.family.setdefault(subject.id, Ancestor(subject, recorded.commit.path, [], [], [], []))
        run.history.extend(events)
        run.positions.extend(recorded.position for _ in events)
        run.digests.extend(recorded.digest for _ in events)
        run.times.extend(recorded.commit.at for _ in events)


class Shared(msgspec.Struct, frozen=True):
    """One run of the fork: its original, up to which revision, and the turn that opens it. `over`: copied unchanged."""

    was: Ancestor
    at: int
    turn: Turn
    over: bool = False


Opening = dict[str, Shared]
"""The runs of a fork by their ids, its root first."""


def share(
    family: Family, at: int, submitted: Submitted, run: str, now: float, message: Inject | None = None
) -> Opening:
    """Return everything that opens the fork `run` of the family's first run, which `submitted` begins.

    Raises `ConfigError` if a run cannot be forked there, or has events of a newer version.
    """
    origin = next(iter(family.values()))
    sharing = _Sharing(family, origin.positions[at] if at < len(origin.history) else math.inf, now)
    name = origin.path.rpartition("/")[2]
    target = sharing.with_children(origin, at, ForkTarget(run=run, root=run, path=name, path_was=origin.path))
    sharing.open(origin, at, submitted, target, message)
    return sharing.shared


def reopen(family: Family, submitted: Submitted, run: str, now: float) -> Opening:
    """Return everything that opened a fork, as the fork `run`: each run with the history that it originally shared."""
    origin = next(iter(family.values()))
    sharing = _Sharing(family, math.inf, now)
    name = origin.path.rpartition("/")[2]
    sharing.again(origin, submitted, ForkTarget(run=run, root=run, path=name, path_was=origin.path))
    return sharing.shared


def in_order(opening: Opening) -> Iterator[tuple[str, StoredEvent]]:
    """Yield all events of a fork, each with its run, in an order that is valid for a log (R7)."""
    yield from _in_order(opening, next(iter(opening)), set())


def _in_order(opening: Opening, run: str, done: set[str]) -> Iterator[tuple[str, StoredEvent]]:
    done.add(run)
    begun: list[str] = []
    for event in opening[run].turn.events:
        if isinstance(event, ChildReturned | ChildFinished) and not event.agent_path:
            child = event.child_run
            if child in opening and child not in done:
                yield from _in_order(opening, child, done)
        if isinstance(event, ChildStarted) and not event.agent_path:
            begun.append(event.child_run)
        yield run, event
    for child in begun:
        if child not in done:
            yield from _in_order(opening, child, done)


class _Sharing:
    """One fork being built: `cut` is the position of the log at which its family is cut."""

    def __init__(self, family: Family, cut: float, now: float) -> None:
        self._family, self._cut, self._now = family, cut, now
        self.shared: Opening = {}

    def with_children(self, was: Ancestor, at: int, target: ForkTarget) -> ForkTarget:
        """Return the target with the ids that the children of the run get."""
        children: dict[str, str] = {}
        for event in was.history[:at]:
            child = self._family.get(event.child_run) if isinstance(event, ChildStarted) else None
            link = child.submitted.parent if child is not None and child.submitted is not None else None
            if isinstance(event, ChildStarted) and child and link and child.revision_before(self._cut):
                place = link.tool_call_id or f"node {child.path.rpartition('/')[2]}"
                place = f"place {event.place}" if event.place else place
                children[child.subject.id] = child_run_id(target.run, place, link.ordinal)
        return msgspec.structs.replace(target, children=children)

    def open(
        self, was: Ancestor, at: int, submitted: Submitted, target: ForkTarget, message: Inject | None = None
    ) -> None:
        """Share a run that goes on in the fork, and the runs below it that belong to its history."""
        _check(was, at)
        replays = submitted.fork is not None and submitted.fork.tools == "replay"
        recorded = self._results_below(was, target) if replays else ()
        match submitted.kind:
            case "agent":
                turn = take_over(was.history, at, submitted, target, self._now, message)
            case "workflow":
                own = results_behind(was.history, at) if replays else ()
                results, state = [*own, *recorded], was.folded(at)
                turn = take_over_operations(was.history[:at], state, submitted, target, self._now, results)
            case _:
                turn = take_over_nodes(was.history, at, submitted, target, self._now, recorded)
        self._add(Shared(was, at, turn), target)

    def _results_below(self, was: Ancestor, target: ForkTarget, above: str = "") -> Iterator[ResultRecorded]:
        """Yield the results of nodes that began after the cut, for the fork's nodes at the same places."""
        places = places_of(was.history)
        for run, node in self._family.items():
            link = node.submitted.parent if node.submitted is not None else None
            if link is None or link.run != was.subject.id or link.tool_call_id or run in target.children:
                continue
            name = node.path.rpartition("/")[2]
            place = f"{above}{node_place(name, link.ordinal, places.get(run, ''))}"
            yield from results_behind(node.history, 0, place)
            yield from self._results_below(node, target, f"{place}/")

    def copy(self, was: Ancestor, submitted: Submitted, target: ForkTarget) -> None:
        """Share a finished run unchanged, with all runs below it."""
        _check(was, len(was.history))
        if submitted.kind == "workflow":
            state = was.folded(len(was.history))
            submitted = with_code(submitted, state, state.flow.order if state.flow is not None else ())
        turn = target.turn(submitted, self._now)
        begun = next((n for n, event in enumerate(was.history) if isinstance(event, Status)), 0)
        lived = (event for event in was.history[begun + 1 :] if sharing_of(event) != "driving")
        turn.add(*map(target.rebase, lived))
        self._add(Shared(was, len(was.history), turn, over=True), target)

    def again(self, was: Ancestor, submitted: Submitted, target: ForkTarget) -> None:
        """Share what a fork's run shared itself, and the runs below it that were forked with it."""
        shared = submitted.fork.shared if submitted.fork is not None else 0
        target = self.with_children(was, shared, target)
        turn = target.turn(submitted, self._now)
        turn.add(*map(target.rebase, was.history[len(turn.events) : shared]))
        self.shared[target.run] = Shared(was, shared, turn)
        for old, run in target.children.items():
            child = self._family[old]
            before = child.submitted
            if before is None or before.fork is None or before.parent is None:
                continue
            link = msgspec.structs.replace(before.parent, run=target.run)
            path = f"{target.path}/{child.path.rpartition('/')[2]}"
            below = ForkTarget(run=run, root=target.root, path=path, path_was=child.path)
            self.again(child, msgspec.structs.replace(before, parent=link), below)

    def _add(self, shared: Shared, target: ForkTarget) -> None:
        turn = shared.turn
        turn.events[0] = turn.state.submitted = _counted(turn)
        self.shared[target.run] = shared
        over = {event.child_run for event in turn.events if isinstance(event, ChildFinished)}
        for event in turn.events:
            if isinstance(event, ChildStarted) and not event.agent_path:
                old = next((was for was, now in target.children.items() if now == event.child_run), None)
                if old is not None:
                    self._child(shared, target, self._family[old], over=event.child_run in over)

    def _child(self, parent: Shared, above: ForkTarget, was: Ancestor, *, over: bool) -> None:
        at = was.revision_before(self._cut)
        over = over or _is_completed(was, at)  # even if the run did not know yet
        at = len(was.history) if over else at
        name = was.path.rpartition("/")[2]
        path = f"{above.path}/{name}"
        target = ForkTarget(run=above.children[was.subject.id], root=above.root, path=path, path_was=was.path)
        target = self.with_children(was, at, target)
        submitted = _child_of(parent.turn.state.submitted, above.run, was, at, over=over)
        if over:
            self.copy(was, submitted, target)
        else:
            self.open(was, at, submitted, target)


def _is_completed(was: Ancestor, at: int) -> bool:
    ends = (e for e in was.history[:at] if isinstance(e, Status) and not e.agent_path)
    return any(end.status == "completed" for end in ends)


def _check(was: Ancestor, at: int) -> None:
    try:
        check(was.history, at)
    except ConfigError as error:
        raise ConfigError(f"run {was.subject.id}: {error}") from None


def _counted(turn: Turn) -> Submitted:
    """Return the submission of the turn's run, with the number of events it shares."""
    submitted = turn.events[0]
    assert isinstance(submitted, Submitted)  # noqa: S101 - for the type checker
    assert submitted.fork is not None  # noqa: S101
    link = msgspec.structs.replace(submitted.fork, shared=len(turn.events))
    return msgspec.structs.replace(submitted, fork=link)


def _child_of(parent: Submitted | None, run: str, was: Ancestor, at: int, *, over: bool) -> Submitted:
    """Return the submission of a run below the fork; a node that goes on uses the fork's model."""
    before = was.submitted
    assert before is not None  # noqa: S101 - for the type checker
    assert before.parent is not None  # noqa: S101
    assert parent is not None  # noqa: S101
    link = link_to(parent, run, before.parent.tool_call_id, before.parent.ordinal)
    fork = ForkLink(
        run=was.subject.id,
        root=was.subject.root,
        revision=at,
        digest=was.digests[at - 1],
        shared=0,
        tools=link.fork_tools or "ask",
        model=None if over else link.fork_model,
    )
    submitted = msgspec.structs.replace(before, parent=link, fork=fork)
    return submitted if fork.model is None else with_model(submitted, fork.model)
