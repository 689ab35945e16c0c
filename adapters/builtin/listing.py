"""List a directory for a model: sorted paths; if there are too many, those nearest to the top."""

from __future__ import annotations

from collections import deque
from typing import Final

from .workspace import Entry, Workspace, WorkspaceError, shown

ENTRIES_MAX: Final = 200
ENTRIES_TOP: Final = 5_000
"""Upper bound of any requested limit."""

_SUFFIXES: Final = {"file": "", "directory": "/", "link": "@", "other": "?"}


def list_entries(workspace: Workspace, path: str, depth: int, limit: int) -> str:
    """Return the paths below a directory, to `depth` levels, at most `limit` (and `ENTRIES_TOP`), one per line, sorted.

    A directory ends in `/`, a symbolic link in `@`, another special file in `?`. Raises `WorkspaceError`; a directory
    below that cannot be read is marked.
    """
    limit = min(limit, ENTRIES_TOP)
    found: list[tuple[str, ...]] = []
    marks: dict[tuple[str, ...], str] = {}
    todo: deque[tuple[tuple[str, ...], list[Entry]]] = deque([((), workspace.entries(path))])
    while todo and len(found) <= limit:
        above, entries = todo.popleft()
        for entry in entries:
            here = (*above, entry.name)
            found.append(here)
            marks[here] = _SUFFIXES[entry.kind]
            if entry.kind == "directory" and len(here) < depth:
                try:
                    todo.append((here, workspace.entries("/".join((path, *here)))))
                except WorkspaceError as error:
                    marks[here] = f"/ [{error.problem}]"
    lines = [f"{shown('/'.join(here))}{marks[here]}" for here in sorted(found[:limit])]
    if not found:
        lines.append("[the directory is empty]")
    if len(found) > limit:
        raising = "" if limit == ENTRIES_TOP else ", or raise limit"
        lines.append(f"[more than {limit} entries: list a directory below{raising}]")
    return "\n".join(lines)
