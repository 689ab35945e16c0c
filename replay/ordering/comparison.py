"""Compare two traces by their canonical forms, and report the first difference with the rule that it breaks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from ...eventlog.events import Event
from ..canonical.canonical import Boundary, Canonical, Level, canonical, payload_of
from ..canonical.structure import Ignored
from ..traces.recording import request_behind
from ..traces.requests import Request, RequestPart, differing_parts, in_words
from ..traces.trace import Trace

Side = Trace | Canonical | Sequence[Event]
"""One side of a comparison: a trace, its events as read, or its form. Forms do not show how two requests differ."""
Compared = Literal["content", "shape"]
"""Compare all of `Boundary.key`; or only type, path, step and call, for models and tools that are not deterministic."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The first difference of two forms: the level (from 0), the boundaries that only one side has there, and why.

    `rule` is the ordering rule that requires the event or its place (R1 to R13, `rule_texts`). If a model was sent a
    different request (R12), `request` has all parts that differ.
    """

    level: int
    left: Level
    right: Level
    rule: str
    why: str
    request: tuple[RequestPart, ...] = ()

    @property
    def revisions(self) -> tuple[tuple[tuple[str, int], ...], tuple[tuple[str, int], ...]]:
        """The (run, revision) pairs in the logs of the left and the right side."""
        return _revisions(self.left), _revisions(self.right)


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The result of comparing two traces. `boundaries`: how many are equal, and how many the longer side has."""

    equal: bool
    boundaries: tuple[int, int]
    first_difference: Difference | None


def compare(
    left: Side,
    right: Side,
    *,
    by: Compared = "content",
    ignore: Collection[Ignored] = (),
) -> Comparison:
    """Compare two traces level by level, including the digest of each step's request (R12).

    `ignore` is passed to `canonical`; it does not apply to a side that already is a form.
    """
    a, b = form_of(left, ignore), form_of(right, ignore)
    equal = sum((_keys(x, by) & _keys(y, by)).total() for x, y in zip(a.levels, b.levels, strict=False))
    total = max(a.size, b.size)
    difference = None if equal == total else _first_difference(a, b, by)
    found = Comparison(equal=difference is None, boundaries=(equal, total), first_difference=difference)
    return explained(found, left, right)


def is_prefix(cancelled: Side, whole: Side, *, ignore: Collection[Ignored] = ()) -> Comparison:
    """Check that a cancelled trace is a prefix of a complete one, followed by exactly one cancel for each open run.

    A prefix includes all predecessors of each of its boundaries. `boundaries` counts those of the prefix plus the runs
    that had to be cancelled. `ignore` as in `compare`.
    """
    a, b = form_of(cancelled, ignore), form_of(whole, ignore)
    body = [x for x in a.boundaries if not _is_cancel(x)]
    causes = {x.cause: x for x in b.boundaries}
    strangers = [x for x in body if x.cause not in causes or _asked_otherwise(x, causes[x.cause])]
    cancels = Counter(x.run for x in a.boundaries if _is_cancel(x))
    open_runs = {x.run for x in a.boundaries} - {x.run for x in body if _ends_run(x)}
    cancelled_well = sum(1 for run in open_runs if cancels[run] == 1)
    difference = _prefix_difference(a, b, strangers, cancels, open_runs)
    n_equal = len(body) - len(strangers) + cancelled_well
    found = Comparison(
        equal=difference is None,
        boundaries=(n_equal, len(body) + len(open_runs)),
        first_difference=difference,
    )
    return explained(found, cancelled, whole)


def begins_with(whole: Side, recorded: Side) -> Comparison:
    """Check that `whole` contains everything in `recorded`, the trace of a run that is unfinished or was cancelled.

    `boundaries` counts those of `recorded`, without its cancels.
    """
    a, b = form_of(recorded), form_of(whole)
    body = [x for x in a.boundaries if not _is_cancel(x)]
    causes = {x.cause: x for x in b.boundaries}
    strangers = [x for x in body if x.cause not in causes or _asked_otherwise(x, causes[x.cause])]
    difference = _prefix_difference(a, b, strangers, Counter(), set())
    found = Comparison(
        equal=difference is None,
        boundaries=(len(body) - len(strangers), len(body)),
        first_difference=difference,
    )
    return explained(found, recorded, whole)


def differing_fields(left: Boundary, right: Boundary) -> tuple[str, ...]:
    """Return the names of the payload fields in which two boundaries differ; `request` stands for the R12 digest."""
    a, b = payload_of(left), payload_of(right)
    names = [name for name in sorted(a.keys() | b.keys()) if a.get(name) != b.get(name)]
    return (*names, "request") if left.request != right.request else tuple(names)


def explained(comparison: Comparison, left: Side, right: Side) -> Comparison:
    """Add the parts of the request that differ to an R12 difference, if both sides have their events."""
    found = comparison.first_difference
    if found is None or found.rule != "R12" or isinstance(left, Canonical) or isinstance(right, Canonical):
        return comparison
    x, y = next(pair for pair in _same_place(found.left, found.right) if pair[0].request != pair[1].request)
    a, b = _request_at(left, x), _request_at(right, y)
    if a is None or b is None:
        return comparison
    parts = differing_parts(a, b)
    why = f"{found.why}: {in_words(parts, 'on the left', 'on the right')}"
    first = msgspec.structs.replace(found, why=why, request=parts)
    return msgspec.structs.replace(comparison, first_difference=first)


def form_of(trace: Side, ignore: Collection[Ignored] = ()) -> Canonical:
    """Return the canonical form of a side."""
    return trace if isinstance(trace, Canonical) else canonical(trace, ignore=ignore)


def _keys(level: Iterable[Boundary], by: Compared) -> Counter[tuple[object, ...]]:
    return Counter(_key(boundary, by) for boundary in level)


def _key(boundary: Boundary, by: Compared) -> tuple[object, ...]:
    return boundary.key if by == "content" else boundary.place


def _first_difference(a: Canonical, b: Canonical, by: Compared) -> Difference:
    for number in range(max(len(a.levels), len(b.levels))):
        left, right = _level(a, number), _level(b, number)
        only_left, only_right = _without(left, right, by), _without(right, left, by)
        if only_left or only_right:
            rule, why = _explain(a, b, only_left, only_right, by)
            return Difference(level=number, left=only_left, right=only_right, rule=rule, why=why)
    raise AssertionError("forms with unequal boundaries must differ in some level")


def _level(form: Canonical, number: int) -> Level:
    return form.levels[number] if number < len(form.levels) else ()


def _without(level: Level, other: Level, by: Compared) -> Level:
    keys = _keys(other, by)
    return tuple(boundary for boundary in level if _key(boundary, by) not in keys)


def _explain(a: Canonical, b: Canonical, left: Level, right: Level, by: Compared) -> tuple[str, str]:
    """Return the rule and a sentence for the difference of a level."""
    for x, y in _same_place(left, right):
        fields = differing_fields(x, y)
        if fields == ("request",) and not (x.request and y.request):
            side = "right" if x.request else "left"
            return (
                "R3",
                f"step {x.step} of {x.run} has no usage in the {side} trace: no reply of the model is stored",
            )
        if fields == ("request",):
            return "R12", f"step {x.step} of {x.run} sent the model a different request"
        return rule_of(x), f"{x.label} of {x.run} differs in {', '.join(fields)}"
    if left and right and left[0].label == right[0].label and left[0].run != right[0].run:
        return rule_of(
            left[0]
        ), f"{left[0].label} belongs to {left[0].run} on the left, and to {right[0].run} on the right"
    if left and right:
        return _explain_place(left[0], right[0], b, by)
    (only, other, side) = (left[0], b, "left") if left else (right[0], a, "right")
    if any(_key(boundary, by) == _key(only, by) for boundary in other.boundaries):
        return rule_of(only), f"{only.label} of {only.run} is at another place in the order"
    return rule_of(only), f"{only.label} of {only.run} is only in the {side} trace"


def _request_at(side: Trace | Sequence[Event], boundary: Boundary) -> Request | None:
    events = side.events if isinstance(side, Trace) else side
    return request_behind(events, boundary.run_id, boundary.request)


def _explain_place(x: Boundary, y: Boundary, other: Canonical, by: Compared) -> tuple[str, str]:
    if any(_key(boundary, by) == _key(x, by) for boundary in other.boundaries):
        return rule_of(x), f"{x.label} is where {y.label} is in the right trace"
    return rule_of(x), f"{x.label} of {x.run} is only in the left trace; the right one has {y.label} there"


def _same_place(left: Level, right: Level) -> Iterator[tuple[Boundary, Boundary]]:
    places = {boundary.place: boundary for boundary in right}
    return ((x, places[x.place]) for x in left if x.place in places)


_RULES = {
    "step": "R2",
    "text": "R3",
    "reasoning": "R3",
    "usage": "R3",
    "tool_call": "R3",
    "child_started": "R7",
    "child_finished": "R7",
    "ralph_iteration": "R9",
    "ralph_stop": "R9",
    "approval_requested": "R10",
    "approval_resolved": "R10",
    "message_injected": "R13",
    "context": "R1",
    "budget": "R1",
}


def rule_of(boundary: Boundary) -> str:
    """Return the ordering rule that determines the place of an event of this family."""
    if boundary.call is not None and boundary.agent_path.count("/") > boundary.run.count("/"):
        return "R7"
    if boundary.type == "status":
        status = payload_of(boundary)["status"]
        return {"starting": "R1", "paused": "R10", "resumed": "R10", "cancelled": "R8"}.get(status, "R6")
    return _RULES.get(boundary.type, "R4" if boundary.call is not None else "R6")


def _is_cancel(boundary: Boundary) -> bool:
    return (
        boundary.type == "status" and boundary.call is None and payload_of(boundary)["status"] == "cancelled"
    )


def _ends_run(boundary: Boundary) -> bool:
    return (
        boundary.type == "status"
        and boundary.call is None
        and payload_of(boundary)["status"] in {"completed", "error"}
    )


def _asked_otherwise(x: Boundary, y: Boundary) -> bool:
    return bool(x.request) and x.request != y.request


def _prefix_difference(
    a: Canonical, b: Canonical, strangers: list[Boundary], cancels: Counter[str], open_runs: set[str]
) -> Difference | None:
    if strangers:
        only = strangers[0]
        number = next(n for n, level in enumerate(a.levels) if only in level)
        there = tuple(x for x in _level(b, number) if x.place == only.place)
        rule, why = _explain(a, b, (only,), there, "content")
        return Difference(level=number, left=(only,), right=there, rule=rule, why=why)
    for run in sorted(open_runs | set(cancels)):
        wanted = 1 if run in open_runs else 0
        if cancels[run] != wanted:
            ends = tuple(x for x in a.boundaries if x.run == run and x.type == "status" and x.call is None)
            why = f"{run} has status(cancelled) {cancels[run]} times instead of {wanted}"
            return Difference(level=len(a.levels) - 1, left=ends, right=(), rule="R6", why=why)
    return None


def _revisions(level: Level) -> tuple[tuple[str, int], ...]:
    return tuple((boundary.run_id, revision) for boundary in level for revision in boundary.revisions)
