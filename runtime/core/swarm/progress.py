"""The progress of a workflow: how its nodes ended determines which run next, with which input, and the output.

A node runs more than once only in a loop, so its runs are identified by name and ordinal. The position in the flow is
recomputed from them each time; nothing else is remembered, so a takeover reaches the same position.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, assert_never

import msgspec

from ....eventlog.events import Evaluated
from ....projections.run_state import NodeState
from ..effects import Evaluate, RunNode
from .flow import Arm, Branch, Flow, Loop, Node, Parallel, Pass, Series
from .predicates import Named, Not, Predicate, holds

_FAILED = frozenset({"error", "cancelled"})
INPUT = "input"
"""The label of the swarm's own input, where it is joined with outputs of nodes."""


class Failure(msgspec.Struct, frozen=True):
    """Why a swarm cannot go on: `node_failed`, `predicate_failed` or `max_handoffs`, and a message."""

    error_type: str
    message: str


class Progress(msgspec.Struct, frozen=True):
    """The next nodes and predicates, open or to be started (`wanted`), or how the swarm ends."""

    wanted: tuple[RunNode | Evaluate, ...] = ()
    output: str | None = None
    failure: Failure | None = None


def progress(
    flow: Flow,
    text: str,
    nodes: Sequence[NodeState],
    evaluations: Mapping[str, Sequence[Evaluated]],
) -> Progress:
    """Return the progress of a swarm with `text` as input, from its nodes in the order of their start. Total.

    A predicate that is a function is evaluated under the name `predicate@place`, its place in the tree.
    """
    if (failure := failed(nodes)) is not None:
        return Progress(failure=failure)
    position = _Position(nodes, evaluations)
    try:
        outputs = position.reach(flow, (_Output(text, None),), "0")
    except _PredicateFailed as error:
        return Progress(failure=Failure("predicate_failed", str(error)))
    return Progress(tuple(position.wanted), output=None if outputs is None else _joined(outputs))


FlowPlace = tuple[tuple[Literal["|", ">"], int], ...]
"""The place of a node's run in its flow, outermost part first: which member ("|") of a group, which stage (">") of a
series or pass of a loop. Two runs are concurrent exactly if their places first differ in the member of a group."""


def places(
    flow: Flow,
    text: str,
    nodes: Sequence[NodeState],
    evaluations: Mapping[str, Sequence[Evaluated]],
) -> dict[tuple[str, int], FlowPlace]:
    """Return the place of each started run of a node, by name and ordinal; also for a swarm that failed."""
    going = [msgspec.structs.replace(n, status=None) if n.status in _FAILED else n for n in nodes]
    values = {
        name: tuple(itertools.takewhile(lambda value: value.error is None, each))
        for name, each in evaluations.items()
    }
    position = _Position(going, values)
    position.reach(flow, (_Output(text, None),), "0")
    return position.places


def failed(nodes: Sequence[NodeState]) -> Failure | None:
    """Return the first node, in the order of their start, that ended without an output."""
    for node in nodes:
        if node.status in _FAILED:
            why = node.returned.error if node.returned is not None else ""
            end = "was cancelled" if node.status == "cancelled" else "failed"
            return Failure("node_failed", f"node {node.name!r} {end}{why and ': '}{why}")
    return None


class _Output(msgspec.Struct, frozen=True):
    text: str
    name: str | None
    """The name of the node; None for the swarm's own input."""


_Outputs = tuple[_Output, ...]
"""The texts passed from one stage to the next: one text, or those of several parallel nodes."""


class _PredicateFailed(Exception):
    """A predicate function raised an error."""


def _joined(outputs: _Outputs) -> str:
    """Return one output unchanged; several each below its node's name, in the order of the text."""
    distinct = tuple(dict.fromkeys(outputs))
    if len(distinct) == 1:
        return distinct[0].text
    return "\n\n".join(f"[{output.name or INPUT}]\n{output.text}" for output in distinct)


class _Position:
    """One walk along the flow: it consumes the runs of each node in order, and collects what is wanted.

    Its methods return the outputs of a part of the flow, or None as long as those are not known.
    """

    def __init__(self, nodes: Sequence[NodeState], evaluations: Mapping[str, Sequence[Evaluated]]) -> None:
        self._nodes = {(node.name, node.ordinal): node for node in nodes}
        self._evaluations = evaluations
        self._taken: dict[str, int] = {}
        self._at: FlowPlace = ()
        self.places: dict[tuple[str, int], FlowPlace] = {}
        self.wanted: list[RunNode | Evaluate] = []

    def reach(self, flow: Arm, incoming: _Outputs, place: str) -> _Outputs | None:
        """Return the outputs of the part of the flow at `place`."""
        match flow:
            case Node(name=name):
                return self._node(name, incoming)
            case Pass():
                return incoming
            case Series(stages=stages):
                return self._series(stages, incoming, place)
            case Parallel(members=members):
                return self._parallel(members, incoming, place)
            case Branch():
                return self._branch(flow, incoming, place)
            case Loop():
                return self._loop(flow, incoming, place)
            case _:
                assert_never(flow)

    @contextlib.contextmanager
    def _within(self, kind: Literal["|", ">"], index: int) -> Iterator[None]:
        outer, self._at = self._at, (*self._at, (kind, index))
        yield
        self._at = outer

    def _next(self, name: str) -> int:
        """Return the ordinal of the next run of a node, or of the next value of a predicate, on this walk."""
        ordinal = self._taken.get(name, 0)
        self._taken[name] = ordinal + 1
        return ordinal

    def _node(self, name: str, incoming: _Outputs) -> _Outputs | None:
        ordinal = self._next(name)
        self.places[name, ordinal] = self._at
        node = self._nodes.get((name, ordinal))
        if node is not None and node.status is not None:
            return (_Output(node.output, name),)
        first = all(output.name is None for output in incoming)
        text = _joined(incoming)
        self.wanted.append(RunNode(name=name, ordinal=ordinal, input=text, first=first, files=first))
        return None

    def _series(self, stages: Sequence[Flow], incoming: _Outputs, place: str) -> _Outputs | None:
        outputs: _Outputs | None = incoming
        for index, stage in enumerate(stages):
            if outputs is None:
                return None
            with self._within(">", index):
                outputs = self.reach(stage, outputs, f"{place}.{index}")
        return outputs

    def _parallel(self, members: Sequence[Flow], incoming: _Outputs, place: str) -> _Outputs | None:
        reached: list[_Outputs | None] = []
        for index, member in enumerate(members):
            with self._within("|", index):
                reached.append(self.reach(member, incoming, f"{place}.{index}"))
        together: list[_Output] = []
        for outputs in reached:
            if outputs is None:
                return None
            together.extend(outputs)
        return tuple(together)

    def _branch(self, branch: Branch, incoming: _Outputs, place: str) -> _Outputs | None:
        text = _joined(incoming)
        for index, case in enumerate(branch.cases):
            met = self._holds(case.when, text, f"{place}.{index}")
            if met is None:
                return None
            if met:
                return self.reach(case.then, incoming, f"{place}.{index}.0")
        return self.reach(branch.otherwise, incoming, f"{place}.{len(branch.cases)}")

    def _loop(self, loop: Loop, incoming: _Outputs, place: str) -> _Outputs | None:
        for number in range(loop.times):
            with self._within(">", number):
                outputs = self.reach(loop.body, incoming, f"{place}.0")
            if outputs is None:
                return None
            met = loop.until is not None and self._holds(loop.until, _joined(outputs), place)
            if met is None:
                return None
            incoming = outputs
            if met:
                break
        return incoming

    def _holds(self, predicate: Predicate, text: str, place: str) -> bool | None:
        match predicate:
            case Not(predicate=inner):
                met = self._holds(inner, text, place)
                return None if met is None else not met
            case Named(name=name):
                return self._value(f"{name}@{place}", text)
            case _:
                return holds(predicate, text)

    def _value(self, name: str, text: str) -> bool | None:
        ordinal = self._next(name)
        values = self._evaluations.get(name, ())
        if ordinal >= len(values):
            self.wanted.append(Evaluate(name=name, ordinal=ordinal, argument=text))
            return None
        value = values[ordinal]
        if value.error is not None:
            raise _PredicateFailed(f"predicate {name.partition('@')[0]!r} failed: {value.error}")
        return bool(value.value)
