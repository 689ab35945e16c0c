"""Align two canonical forms: pair the boundaries that correspond, even if the forms differ in length.

This is a patience diff. A key that occurs exactly once on both sides is an anchor; the longest chain of anchors that
ascends on both sides is kept, and each gap between two anchors is aligned on its own. A gap without anchors is tried
again with the next key. The first key is the content regardless of the step, so that an inserted step does not make all
later ones differ; the second is everything that a comparison compares, which tells repeated contents apart; the third
is the place regardless of the content, so that a changed boundary is paired with its counterpart. Paths are relative to
the root, so that runs of two different agents can be aligned. Takes about n log n.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Any, Literal

import msgspec

from ..canonical.canonical import Boundary, Canonical, payload_of
from ..canonical.structure import Ignored
from .comparison import Comparison, Side, compare, differing_fields, explained, form_of

RowKind = Literal["same", "changed", "left", "right"]


class Row(msgspec.Struct, frozen=True):
    """One boundary of each side, or of one side only. `fields` names what differs, including parts of the place."""

    kind: RowKind
    left: Boundary | None
    right: Boundary | None
    fields: tuple[str, ...] = ()

    @property
    def values(self) -> dict[str, tuple[Any, Any]]:
        """The differing fields with their values on the left and on the right."""
        return {name: (_value(self.left, name), _value(self.right, name)) for name in self.fields}


class Diff(msgspec.Struct, frozen=True, kw_only=True):
    """Two aligned forms, and the result of comparing them."""

    left: Canonical
    right: Canonical
    comparison: Comparison
    rows: tuple[Row, ...]

    @property
    def equal(self) -> bool:
        """Return whether the forms are equal."""
        return self.comparison.equal

    @property
    def boundaries(self) -> tuple[int, int]:
        """The number of rows with equal boundaries, and the number of boundaries on the longer side."""
        same = sum(row.kind == "same" for row in self.rows)
        return same, max(self.left.size, self.right.size)

    def excerpt(self, around: int = 3) -> list[Row | int]:
        """Return each difference with up to `around` rows before and after; an int counts the equal rows left out."""
        near = set[int]()
        for number, row in enumerate(self.rows):
            if row.kind != "same":
                near.update(range(number - around, number + around + 1))
        shown: list[Row | int] = []
        for number, row in enumerate(self.rows):
            if number in near:
                shown.append(row)
            elif shown and isinstance(shown[-1], int):
                shown[-1] += 1
            else:
                shown.append(1)
        return shown


def diff(left: Side, right: Side, *, ignore: Collection[Ignored] = ()) -> Diff:
    """Compare and align two traces. `ignore` as in `compare`."""
    a, b = form_of(left, ignore), form_of(right, ignore)
    comparison = explained(compare(a, b), left, right)
    return Diff(left=a, right=b, comparison=comparison, rows=tuple(align(a, b)))


def align(left: Canonical, right: Canonical) -> list[Row]:
    """Return the rows of a table of both sides; each boundary appears once, and each side keeps its order."""
    a, b = left.boundaries, right.boundaries
    rows: list[Row] = []
    at_a = at_b = 0
    for i, j in [*_matches(a, b), (len(a), len(b))]:
        rows += [Row("left", boundary, None) for boundary in a[at_a:i]]
        rows += [Row("right", None, boundary) for boundary in b[at_b:j]]
        if i < len(a):
            rows.append(_row(a[i], b[j]))
        at_a, at_b = i + 1, j + 1
    return rows


_PLACE = ("agent_path", "run", "step", "call")


def _row(left: Boundary, right: Boundary) -> Row:
    if left.key == right.key:
        return Row("same", left, right)
    moved = tuple(name for name in _PLACE if getattr(left, name) != getattr(right, name))
    return Row("changed", left, right, (*differing_fields(left, right), *moved))


def _value(boundary: Boundary | None, name: str) -> Any:
    if boundary is None:
        return None
    return getattr(boundary, name) if name in (*_PLACE, "request") else payload_of(boundary).get(name)


Key = Callable[[Boundary], Hashable]
_Segment = tuple[int, int, int, int, int]


def _matches(a: Sequence[Boundary], b: Sequence[Boundary]) -> list[tuple[int, int]]:
    """Return index pairs, ascending on both sides."""
    keys = [([key(x) for x in a], [key(x) for x in b]) for key in _TIERS]
    found: list[tuple[int, int]] = []
    todo: list[_Segment] = [(0, len(a), 0, len(b), 0)]
    while todo:
        a0, a1, b0, b1, tier = todo.pop()
        if a0 == a1 or b0 == b1 or tier == len(keys):
            continue
        own, other = keys[tier]
        while a0 < a1 and b0 < b1 and own[a0] == other[b0]:
            found.append((a0, b0))
            a0, b0 = a0 + 1, b0 + 1
        while a0 < a1 and b0 < b1 and own[a1 - 1] == other[b1 - 1]:
            a1, b1 = a1 - 1, b1 - 1
            found.append((a1, b1))
        anchors = _anchors(own, other, (a0, a1, b0, b1))
        found += anchors
        for i, j in [*anchors, (a1, b1)]:
            todo.append((a0, i, b0, j, tier if anchors else tier + 1))
            a0, b0 = i + 1, j + 1
    return sorted(found)


def _relative(boundary: Boundary) -> tuple[str, str]:
    """Return the run and the agent path, relative to the root."""
    return boundary.run.partition("/")[2], boundary.agent_path.partition("/")[2]


def _everything(boundary: Boundary) -> Hashable:
    where = _relative(boundary), boundary.type, boundary.step, boundary.call
    return where, boundary.digest, boundary.request


def _content(boundary: Boundary) -> Hashable:
    index = boundary.call.rpartition(".")[2] if boundary.call else None
    return _relative(boundary), boundary.type, index, boundary.digest


def _place(boundary: Boundary) -> Hashable:
    return _relative(boundary), boundary.type, boundary.step, boundary.call


_TIERS: tuple[Key, ...] = (_content, _everything, _place)


def _anchors(
    own: Sequence[Hashable], other: Sequence[Hashable], segment: tuple[int, int, int, int]
) -> list[tuple[int, int]]:
    """Return the longest ascending chain of keys that occur exactly once on each side."""
    a0, a1, b0, b1 = segment
    ours, theirs = Counter(own[a0:a1]), Counter(other[b0:b1])
    places = {other[j]: j for j in range(b0, b1) if theirs[other[j]] == 1}
    pairs = [(i, places[own[i]]) for i in range(a0, a1) if ours[own[i]] == 1 and own[i] in places]
    return _longest_ascending(pairs)


def _longest_ascending(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest subsequence whose second numbers ascend."""
    tails: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for number, (_, j) in enumerate(pairs):
        length = bisect_left(tails, j)
        before.append(ends[length - 1] if length else -1)
        tails[length : length + 1] = [j]
        ends[length : length + 1] = [number]
    chain: list[tuple[int, int]] = []
    at = ends[-1] if ends else -1
    while at >= 0:
        chain.append(pairs[at])
        at = before[at]
    return chain[::-1]
