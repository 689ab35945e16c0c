"""The tree that a run belongs to: its origin, the runs below it, and the forks of all of them."""

from __future__ import annotations

import msgspec

from ....projections.run_list import RunRow
from ..routing import Call, Nothing, Route

ROWS_MAX = 500


class TreeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A run of the tree at its depth; `relation` to the one above it: child, fork, or empty at the top."""

    row: RunRow
    depth: int
    relation: str


class Tree(msgspec.Struct, frozen=True):
    """The runs of the tree from its top, each followed by those below it; `more`: there are more than 500."""

    rows: list[TreeRow]
    more: bool


async def show_tree(call: Call[Nothing, Nothing]) -> Tree:
    """Show the tree of children and forks that a run belongs to."""
    index = await call.door.index()
    top = await index.run(call.path("run"))
    seen = {top.run_id}
    while (above := top.parent or top.forked_from) and above not in seen:
        seen.add(above)
        found, _ = await index.rows_of([above])
        if not found:
            break
        top = found[0]
    rows, waiting, shown = list[TreeRow](), [(top, 0, "")], set[str]()
    while waiting and len(rows) < ROWS_MAX:
        row, depth, relation = waiting.pop()
        if row.run_id in shown:
            continue
        shown.add(row.run_id)
        rows.append(TreeRow(row=row, depth=depth, relation=relation))
        children = await index.runs(ROWS_MAX, parent=row.run_id)
        forks = await index.runs(ROWS_MAX, forked_from=row.run_id)
        waiting += [(each, depth + 1, "fork") for each in forks if each.parent is None]
        waiting += [(each, depth + 1, "child") for each in children]
    return Tree(rows, bool(waiting))


ROUTES = (Route(method="GET", path="/runs/{run}/tree", role="viewer", endpoint=show_tree, answer=Tree),)
