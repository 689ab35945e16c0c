"""Show a file to a model: numbered lines, with marks where something is left out."""

from __future__ import annotations

from typing import Final

from .workspace import Workspace, WorkspaceError

LINES_MAX: Final = 2000
LINE_CHARACTERS_MAX: Final = 500
CHARACTERS_MAX: Final = 100_000
"""Limit of one result; the rest can be read with another offset."""


def read_lines(workspace: Workspace, path: str, offset: int, limit: int) -> str:
    """Return at most `limit` lines from `offset` (from 1). Raises `WorkspaceError`, also for a binary file."""
    content = workspace.read(path)
    if b"\0" in content:
        raise WorkspaceError(path, "is a binary file")
    text = content.decode(errors="replace")
    lines = text.removesuffix("\n").split("\n") if text else []
    if offset > max(1, len(lines)):
        raise WorkspaceError(path, f"has only {len(lines):,} lines")
    shown = _fitting(lines[offset - 1 : offset - 1 + limit], offset)
    return "\n".join([*shown, *_marks(lines, offset + len(shown), replaced=not _is_text(content))])


def cut(line: str, characters_max: int = LINE_CHARACTERS_MAX) -> str:
    """Return the line, or its beginning and the number of characters left out."""
    return marked(line[:characters_max], len(line) - characters_max)


def marked(line: str, more: int) -> str:
    """Return the line, with a mark if it has `more` characters."""
    return line if more <= 0 else f"{line} [{more:,} more characters]"


def _fitting(lines: list[str], first: int) -> list[str]:
    """Return the numbered lines that fit into one result, at least one."""
    shown = list[str]()
    size = 0
    for number, line in enumerate(lines, start=first):
        text = f"L{number}: {cut(line.removesuffix(chr(13)))}"
        size += len(text) + 1
        if shown and size > CHARACTERS_MAX:
            break
        shown.append(text)
    return shown


def _marks(lines: list[str], following: int, *, replaced: bool) -> list[str]:
    marks = list[str]()
    if not lines:
        marks.append("[the file is empty]")
    if following <= len(lines):
        marks.append(f"[lines {following} to {len(lines)} are left out: continue with offset={following}]")
    if replaced:
        marks.append("[the file is not UTF-8: \ufffd stands for bytes that cannot be shown]")
    return marks


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True
