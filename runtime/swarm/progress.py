"""How far a flow is: from what its nodes have put out follows which may start, with which input, and what it all gives.

A node runs more than once only in a loop, so its runs are known by name and order, and the whole position is read from
them each time anew: nothing else is remembered, and whoever takes over comes to the same answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, assert_never

import msgspec

from .flow import Arm, Branch, Flow, Loop, Node, Parallel, Pass, Series, tests_in
from .predicates import Predicate, Test, holds, named_in

INPUT = "input"
"""The label of the swarm's own input, where it is joined with outputs."""


class NodeRun(msgspec.Struct, frozen=True):
    """One run of a node: still going, or how it ended. `output` is its own text, `error` why it has none."""

    status: Literal["running", "completed", "error", "cancelled"] = "running"
    output: str = ""
    error: str = ""


class Start(msgspec.Struct, frozen=True):
    """A run of a node that may begin: the `ordinal`-th of this node, from 0. `first`: its input is the swarm's own."""

    name: str
    ordinal: int
    input: str
    first: bool = False


class Progress(msgspec.Struct, frozen=True):
    """What is next. At most one of the three: `starts` in the order of the text, `output`, `failure`.

    None of them: nodes are running. `failure` names the node or predicate; running nodes are to be cancelled.
    """

    starts: tuple[Start, ...] = ()
    output: str | None = None
    failure: str | None = None


def progress(
    flow: Flow, text: str, runs: Mapping[str, Sequence[NodeRun]], tests: Mapping[str, Test] | None = None
) -> Progress:
    """What follows from the runs of each node, in the order they were started, for a swarm with `text` as input.

    `tests` are the predicates that are functions. Total: a predicate that fails is a failure of the flow.
    """
    if (failure := _failed_node(runs)) is not None:
        return Progress(failure=failure)
    position = _Position(runs, tests or {})
    if missing := tests_in(flow) - (tests or {}).keys():
        return Progress(failure=f"no predicate is named {', '.join(map(repr, sorted(missing)))}")
    try:
        outputs = position.reach(flow, (_Output(text, None),))
    except _PredicateFailed as error:
        return Progress(failure=str(error))
    return Progress(starts=tuple(position.starts), output=None if outputs is None else join(outputs))


def _failed_node(runs: Mapping[str, Sequence[NodeRun]]) -> str | None:
    for name, each in runs.items():
        for run in each:
            if run.status == "cancelled":
                return f"node {name!r} was cancelled"
            if run.status == "error":
                return f"node {name!r} failed: {run.error}"
    return None


class _Output(msgspec.Struct, frozen=True):
    text: str
    name: str | None
    """Of the node; None for the swarm's own input."""


_Outputs = tuple[_Output, ...]
"""What goes from one stage to the next: one text, or those of several nodes at once."""


class _PredicateFailed(Exception):
    """A predicate that is a function raised."""


def join(outputs: Sequence[_Output]) -> str:
    """One output as it is; several each below its node's name, in the order of the text."""
    distinct = tuple(dict.fromkeys(outputs))
    if len(distinct) == 1:
        return distinct[0].text
    return "\n\n".join(f"[{output.name or INPUT}]\n{output.text}" for output in distinct)


class _Position:
    """One walk along the flow; it takes up the runs of each node in order, and notes those that are to start."""

    def __init__(self, runs: Mapping[str, Sequence[NodeRun]], tests: Mapping[str, Test]) -> None:
        self._runs, self._tests = runs, tests
        self._taken: dict[str, int] = {}
        self.starts: list[Start] = []

    def reach(self, flow: Arm, incoming: _Outputs) -> _Outputs | None:
        """What comes out of this part of the flow, or None as long as it is not done."""
        match flow:
            case Node(name=name):
                return self._node(name, incoming)
            case Pass():
                return incoming
            case Series(stages=stages):
                return self._series(stages, incoming)
            case Parallel(members=members):
                return self._parallel(members, incoming)
            case Branch():
                return self.reach(self._arm(flow, incoming), incoming)
            case Loop():
                return self._loop(flow, incoming)
            case _:
                assert_never(flow)

    def _node(self, name: str, incoming: _Outputs) -> _Outputs | None:
        ordinal = self._taken.get(name, 0)
        self._taken[name] = ordinal + 1
        runs = self._runs.get(name, ())
        if ordinal == len(runs):
            first = all(output.name is None for output in incoming)
            self.starts.append(Start(name, ordinal, join(incoming), first))
            return None
        run = runs[ordinal]
        return (_Output(run.output, name),) if run.status == "completed" else None

    def _series(self, stages: Sequence[Flow], incoming: _Outputs) -> _Outputs | None:
        outputs: _Outputs | None = incoming
        for stage in stages:
            if outputs is None:
                return None
            outputs = self.reach(stage, outputs)
        return outputs

    def _parallel(self, members: Sequence[Flow], incoming: _Outputs) -> _Outputs | None:
        reached = [self.reach(member, incoming) for member in members]
        together: list[_Output] = []
        for outputs in reached:
            if outputs is None:
                return None
            together.extend(outputs)
        return tuple(together)

    def _arm(self, branch: Branch, incoming: _Outputs) -> Arm:
        text = join(incoming)
        return next((case.then for case in branch.cases if self._holds(case.when, text)), branch.otherwise)

    def _loop(self, loop: Loop, incoming: _Outputs) -> _Outputs | None:
        outputs = incoming
        for _ in range(loop.times):
            reached = self.reach(loop.body, outputs)
            if reached is None:
                return None
            outputs = reached
            if loop.until is not None and self._holds(loop.until, join(outputs)):
                break
        return outputs

    def _holds(self, predicate: Predicate, text: str) -> bool:
        names = ", ".join(map(repr, sorted(named_in(predicate))))
        try:
            return holds(predicate, text, self._tests)
        except Exception as error:
            raise _PredicateFailed(f"predicate {names} failed: {type(error).__name__}: {error}") from error
