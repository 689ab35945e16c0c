"""Find lines of files that match a pattern: this process reads the files, a child process matches (`matcher`)."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, Final

from ...runtime.ports.tools import ToolFailed
from .reading import marked
from .workspace import Workspace, WorkspaceError, shown

MATCHES_MAX: Final = 100
MATCHES_TOP: Final = 5_000
"""Upper bound of any requested limit."""
SEARCH_S_MAX: Final = 20.0
LINE_CHARACTERS_MAX: Final = 300
SKIPPED: Final = frozenset({".cache", ".git", ".hg", ".svn", ".venv", "__pycache__", "node_modules"})
"""Directories that are skipped, unless the search starts in one."""

_MATCHER: Final = (sys.executable, "-I", "-S", str(Path(__file__).with_name("matcher.py")))


def search(
    workspace: Workspace,
    pattern: str,
    path: str,
    include: Sequence[str],
    limit: int,
    timeout_s: float = SEARCH_S_MAX,
) -> str:
    """Return `path:line: text` of at most `limit` (and `MATCHES_TOP`) matching lines, in the order of paths.

    `include` are shell patterns for a file's name or its path below `path`; none means all files. Binary and unreadable
    files are left out and counted. After `timeout_s` the matches so far are returned, with a mark. Raises `ToolFailed`
    for an invalid pattern, `WorkspaceError` for the path.
    """
    limit = min(limit, MATCHES_TOP)
    files = _Files(workspace, path, include)
    with tempfile.TemporaryFile() as found:
        timed_out = _match(files, pattern, limit + 1, found, timeout_s)
        found.seek(0)
        matches = [json.loads(line) for line in found if line.endswith(b"\n")]
    if matches and isinstance(matches[0], str):
        raise ToolFailed(f"the pattern {pattern!r} is not a valid regular expression of Python: {matches[0]}")
    lines = [
        f"{shown(files.sent[file])}:{number}: {marked(text, more)}"
        for file, number, text, more in matches[:limit]
    ]
    if len(matches) > limit:
        lines.append(f"[more than {limit} matches: narrow the pattern, path or include]")
    elif timed_out:
        lines.append(f"[stopped after {timeout_s:g} s: narrow the pattern, path or include]")
    if files.left_out:
        lines.append(f"[{files.left_out} files are left out: binary, too large, or unreadable]")
    return "\n".join(lines or ["No matches found."])


def _match(files: _Files, pattern: str, lines_max: int, found: IO[bytes], timeout_s: float) -> bool:
    """Send the files to a matcher, which writes its matches to `found`; return whether it timed out."""
    task = json.dumps(
        {
            "pattern": pattern,
            "lines_max": lines_max,
            "characters_max": LINE_CHARACTERS_MAX,
            "timeout_s": timeout_s,
        }
    )
    with subprocess.Popen(
        _MATCHER, stdin=subprocess.PIPE, stdout=found, stderr=subprocess.DEVNULL
    ) as matcher:
        assert matcher.stdin is not None  # noqa: S101 - for the type checker: it is a pipe
        with suppress(BrokenPipeError), matcher.stdin as pipe:
            pipe.write(task.encode() + b"\n")
            for content in files:
                pipe.write(b"%d\n" % len(content))
                pipe.write(content)
        return matcher.wait() == -signal.SIGALRM


class _Files:
    """Iterates over the contents of the files below a path; `sent` are their paths, `left_out` counts the others."""

    def __init__(self, workspace: Workspace, path: str, include: Sequence[str]) -> None:
        self._workspace, self._include = workspace, include
        self.sent: list[str] = []
        self.left_out = 0
        if workspace.kind(path) == "directory":
            self._paths = self._below(path, "")
        else:
            workspace.open(path).close()
            self._paths = iter([path])

    def __iter__(self) -> Iterator[bytes]:
        for path in self._paths:
            try:
                content = self._workspace.read(path)
            except WorkspaceError:
                self.left_out += 1
                continue
            if b"\0" in content:
                self.left_out += 1
                continue
            self.sent.append(path)
            yield content

    def _below(self, path: str, below: str) -> Iterator[str]:
        for entry in self._workspace.entries(path):
            here = entry.name if path == "." else f"{path}/{entry.name}"
            if entry.kind == "file" and self._included(entry.name, f"{below}{entry.name}"):
                yield here
            elif entry.kind == "directory" and entry.name not in SKIPPED:
                try:
                    yield from self._below(here, f"{below}{entry.name}/")
                except WorkspaceError:
                    self.left_out += 1

    def _included(self, name: str, below: str) -> bool:
        return not self._include or any(
            fnmatchcase(name, each) or fnmatchcase(below, each) for each in self._include
        )
