"""The decider of a workflow that is a table: which steps are to start, which are skipped, and when the table is over.

Pure: it sees the steps and what came of each so far, and evaluates nothing. Conditions and references are judged by
`agents/workflow/table_decider.py`, whose findings are facts of the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

OnStepError = Literal["fail", "continue", "rollback"]
"""The consequence of a failed step for its table: it ends with an error, goes on with the steps that need it, or ends
and is rolled back."""
Outcome = Literal["open", "done", "failed", "skipped"]
"""The status of a step that was started or skipped."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A step, as far as its order matters: all of `needs` come before it."""

    id: str
    needs: tuple[str, ...] = ()
    on_error: OnStepError = "fail"


class Skipped(msgspec.Struct, frozen=True):
    """A step that is not to run, and why."""

    id: str
    why: str


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """The consequences of the outcomes so far.

    `start` are the steps whose turn it is, in the order of the table. `end` is empty while the table is not over;
    `failed` are the steps that end it with an error, in the order of the table.
    """

    start: tuple[str, ...] = ()
    skip: tuple[Skipped, ...] = ()
    end: Literal["", "completed", "failed"] = ""
    failed: tuple[str, ...] = ()


def next_move(steps: Sequence[Step], found: Mapping[str, Outcome]) -> Move:
    """Return what is to happen next. Steps without an outcome have neither been started nor skipped.

    After a failure that ends the table nothing starts any more, and the end waits for the steps that are open. A step
    is skipped with the first of its needs that was; one that failed and lets the table go on counts as done.
    """
    at_work = any(outcome == "open" for outcome in found.values())
    failed = tuple(
        step.id for step in steps if found.get(step.id) == "failed" and step.on_error != "continue"
    )
    if failed:
        return Move(end="" if at_work else "failed", failed=failed)
    waiting = [step for step in steps if step.id not in found]
    skip = tuple(
        Skipped(step.id, f"it needs {need!r}, which was skipped")
        for step in waiting
        if (need := next((need for need in step.needs if found.get(need) == "skipped"), None)) is not None
    )
    start = tuple(
        step.id for step in waiting if all(found.get(need) in {"done", "failed"} for need in step.needs)
    )
    over = not (at_work or waiting)
    return Move(start=start, skip=skip, end="completed" if over else "")


def cycles(needs: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Return the cycles of steps that need each other, each once, with its first step at both ends.

    A step that needs itself is none. Unknown steps are passed over.
    """
    found: list[list[str]] = []
    state: dict[str, Literal["ahead", "over"]] = {}
    for first in needs:
        path: list[str] = []
        ahead = [(first, _others(needs, first))] if first not in state else []
        while ahead:
            step, rest = ahead[-1]
            if state.get(step) is None:
                state[step] = "ahead"
                path.append(step)
            need = next(rest, None)
            if need is None:
                state[step] = "over"
                path.pop()
                ahead.pop()
            elif state.get(need) is None:
                ahead.append((need, _others(needs, need)))
            elif state[need] == "ahead":
                found.append([*path[path.index(need) :], need])
    return found


def _others(needs: Mapping[str, Iterable[str]], step: str) -> Iterator[str]:
    return iter([need for need in needs[step] if need in needs and need != step])


def in_order(steps: Sequence[Step]) -> list[Step]:
    """Return the steps so that each comes after all that it needs, else in the order of the table."""
    left, placed, ordered = list(steps), set[str](), list[Step]()
    while left:
        step = next((each for each in left if placed.issuperset(each.needs)), left[0])
        left.remove(step)
        placed.add(step.id)
        ordered.append(step)
    return ordered
