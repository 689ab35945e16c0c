"""The tree of a flow: which agents run, in which order, and under which conditions.

`parse_flow` reads it from text, `format_flow` writes it as text. Trees are in normal form: a series contains no series,
a group no group, and neither has fewer than two parts; so parsing, writing and parsing again gives an equal tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

import msgspec

from .predicates import Predicate, format_predicate, named_in

LOOP_TIMES = 10
"""The most passes of a loop without a count."""


class Node(msgspec.Struct, frozen=True, tag="node"):
    """The agent (or swarm) of this name runs once; its input is the text that reaches the node."""

    name: str


class Pass(msgspec.Struct, frozen=True, tag="pass"):
    """Nothing runs: the incoming text passes through. Only as an arm of a branch."""


class Series(msgspec.Struct, frozen=True, tag="series"):
    """`a >> b`: one after another, each with the output of the one before."""

    stages: tuple[Node | Parallel | Branch | Loop, ...]


class Parallel(msgspec.Struct, frozen=True, tag="parallel"):
    """`(a | b)`: all at once, each with the same input; their outputs are joined."""

    members: tuple[Node | Series | Branch | Loop, ...]


class Case(msgspec.Struct, frozen=True):
    """`predicate: flow` within a branch."""

    when: Predicate
    then: Node | Series | Parallel | Branch | Loop | Pass


class Branch(msgspec.Struct, frozen=True, tag="branch"):
    """`{"bug": a, else: b}`: the first case whose predicate holds for the incoming text, which is also its input."""

    cases: tuple[Case, ...]
    otherwise: Node | Series | Parallel | Branch | Loop | Pass


class Loop(msgspec.Struct, frozen=True, tag="loop"):
    """`(a >> b)*5 until "done"`: repeats with its own output, at most `times`, until the output meets the predicate."""

    body: Node | Series | Parallel | Branch | Loop
    times: int = LOOP_TIMES
    until: Predicate | None = None


Flow = Node | Series | Parallel | Branch | Loop
Arm = Flow | Pass


def series(stages: list[Flow]) -> Flow:
    """Return the flows one after another, in normal form."""
    flat: list[Node | Parallel | Branch | Loop] = []
    for stage in stages:
        flat.extend(stage.stages if isinstance(stage, Series) else (stage,))
    return flat[0] if len(flat) == 1 else Series(tuple(flat))


def parallel(members: list[Flow]) -> Flow:
    """Return the flows in parallel, in normal form."""
    flat: list[Node | Series | Branch | Loop] = []
    for member in members:
        flat.extend(member.members if isinstance(member, Parallel) else (member,))
    return flat[0] if len(flat) == 1 else Parallel(tuple(flat))


def names_in(flow: Arm) -> tuple[str, ...]:
    """Return the names of the flow's nodes, in the order of the text."""
    return tuple(node.name for node in _walk(flow) if isinstance(node, Node))


def heads_of(flow: Flow) -> tuple[str, ...]:
    """Return the names of the nodes that the flow may hand its own input to, in the order of the text."""
    return tuple(dict.fromkeys(_heads(flow)[0]))


def _heads(flow: Arm) -> tuple[tuple[str, ...], bool]:
    """Return the nodes that the input of a part may reach unchanged, and whether it may get through the part."""
    match flow:
        case Node(name=name):
            return (name,), False
        case Pass():
            return (), True
        case Series(stages=stages):
            names: tuple[str, ...] = ()
            for stage in stages:
                found, through = _heads(stage)
                names += found
                if not through:
                    return names, False
            return names, True
        case Parallel() | Branch() | Loop():
            inner = [_heads(part) for part in _parts(flow)]
            return tuple(name for found, _ in inner for name in found), any(through for _, through in inner)
        case _:
            assert_never(flow)


def tests_in(flow: Arm) -> frozenset[str]:
    """Return the names of the flow's predicates that are functions."""
    found: frozenset[str] = frozenset()
    for part in _walk(flow):
        if isinstance(part, Branch):
            found = found.union(*(named_in(case.when) for case in part.cases))
        elif isinstance(part, Loop) and part.until is not None:
            found |= named_in(part.until)
    return found


def _walk(flow: Arm) -> Iterator[Arm]:
    yield flow
    for part in _parts(flow):
        yield from _walk(part)


def _parts(flow: Arm) -> tuple[Arm, ...]:
    match flow:
        case Node() | Pass():
            return ()
        case Series(stages=stages):
            return stages
        case Parallel(members=members):
            return members
        case Branch(cases=cases, otherwise=otherwise):
            return (*(case.then for case in cases), otherwise)
        case Loop(body=body):
            return (body,)
        case _:
            assert_never(flow)


def format_flow(flow: Arm) -> str:
    """Return the flow as one line of text, which `parse_flow` reads as an equal tree."""
    match flow:
        case Node(name=name):
            return name
        case Pass():
            return "pass"
        case Series(stages=stages):
            return " >> ".join(map(format_flow, stages))
        case Parallel(members=members):
            return f"({' | '.join(map(format_flow, members))})"
        case Branch(cases=cases, otherwise=otherwise):
            written = [f"{format_predicate(case.when)}: {format_flow(case.then)}" for case in cases]
            return f"{{{', '.join([*written, f'else: {format_flow(otherwise)}'])}}}"
        case Loop(body=body, times=times, until=until):
            inner = format_flow(body)
            shown = f"({inner})" if isinstance(body, (Series, Loop)) else inner
            return f"{shown}*{times}" + (f" until {format_predicate(until)}" if until is not None else "")
        case _:
            assert_never(flow)
