"""A comparison as JSON builtins, for the command line and the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..canonical.canonical import payload_of
from .rule_texts import explain

if TYPE_CHECKING:
    from ..canonical.canonical import Boundary
    from .alignment import Diff


def document(
    found: Diff, roots: tuple[str, str], *, after: int = 0, limit: int | None = None, equal_too: bool = False
) -> dict[str, Any]:
    """Return the verdict, the first difference, and at most `limit` of the differing rows, from number `after` on.

    `equal_too` includes the equal rows. `next` is the `after` of the next page; None on the last one.
    """
    equal, total = found.boundaries
    rows = [row for row in found.rows if equal_too or row.kind != "same"]
    until = len(rows) if limit is None else after + limit
    return {
        "equal": found.equal,
        "boundaries_equal": equal,
        "boundaries": total,
        "left": {"run": roots[0], "digest": found.left.digest, "boundaries": found.left.size},
        "right": {"run": roots[1], "digest": found.right.digest, "boundaries": found.right.size},
        "first_difference": _first(found),
        "rows": [
            {
                "kind": row.kind,
                "left": _boundary(row.left),
                "right": _boundary(row.right),
                "fields": list(row.fields),
                "values": {name: list(pair) for name, pair in row.values.items()},
            }
            for row in rows[after:until]
        ],
        "next": until if len(rows) > until else None,
    }


def _first(found: Diff) -> dict[str, Any] | None:
    first = found.comparison.first_difference
    if first is None:
        return None
    return {
        "level": first.level,
        "rule": first.rule,
        "why": first.why,
        "rule_text": explain(first.rule),
        "request": [{"part": part.name, "left": part.left, "right": part.right} for part in first.request],
        "left": [_boundary(boundary) for boundary in first.left],
        "right": [_boundary(boundary) for boundary in first.right],
        "revisions": [[list(pair) for pair in side] for side in first.revisions],
    }


def _boundary(boundary: Boundary | None) -> dict[str, Any] | None:
    if boundary is None:
        return None
    return {
        "type": boundary.type,
        "label": boundary.label,
        "run": boundary.run,
        "agent_path": boundary.agent_path,
        "step": boundary.step,
        "call": boundary.call,
        "run_id": boundary.run_id,
        "revisions": list(boundary.revisions),
        "payload": payload_of(boundary),
    }
