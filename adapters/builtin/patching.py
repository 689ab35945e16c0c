"""Apply a patch in a workspace: check its changes against the files, and make them one by one.

`apply` works like the command `apply_patch` of Codex: in the patch's order, up to the first change that fails; earlier
changes stay. `check` does what Codex's tool does first: it tries each change, so that a patch that does not apply
changes nothing. Unlike Codex, it tries each change against the files as the earlier changes would leave them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from errno import EISDIR, ENOENT
from pathlib import PurePath

import msgspec

from ...runtime.ports.tools import ToolFailed
from .patch_language import AddFile, Change, DeleteFile, UpdateFile
from .patch_matching import updated
from .workspace import Workspace, WorkspaceError


class PatchFailed(ToolFailed):
    """A change failed; the changes before it were made."""


class Summary(msgspec.Struct, frozen=True):
    """The files that a patch changed, by their names in it; a moved file by its new one."""

    added: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()

    def __str__(self) -> str:
        marked = (("A", self.added), ("M", self.modified), ("D", self.deleted))
        rows = [f"{mark} {path}" for mark, paths in marked for path in paths]
        return "\n".join(["Success. Updated the following files:", *rows])


def check(workspace: Workspace, changes: Sequence[Change]) -> None:
    """Raise the error that applying the changes would raise: `PatchFailed`, `PatchMismatch`, `WorkspaceError`."""
    tried = _Tried(workspace)
    for change in changes:
        match change:
            case AddFile():
                tried.write(change.path, change.content)
            case DeleteFile():
                tried.text(change.path, "Failed to read")
                tried.remove(change.path)
            case UpdateFile():
                content = tried.text(change.path, "Failed to read file to update")
                content = updated(content, change.chunks, _full(workspace, change.path))
                tried.write(change.move_to or change.path, content)
                if change.move_to is not None and not _is_same(workspace, change.path, change.move_to):
                    tried.remove(change.path)


class _Tried:
    """The files as the changes so far would leave them: the contents written, and None for deleted ones.

    Each is under its own path; a written file is also under the path that its links lead to.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._files: dict[str, str | None] = {}

    def text(self, path: str, failed: str) -> str:
        """Return the text of a file. Raises `PatchFailed`, `WorkspaceError`."""
        place = self._place(path)
        found = place if place in self._files else os.path.realpath(place)
        if found not in self._files:
            return _text(self._workspace, path, failed)
        content = self._files[found]
        if content is None:
            raise PatchFailed(
                f"{failed} {_full(self._workspace, path)}: {os.strerror(ENOENT)} (os error {ENOENT})"
            )
        return content

    def write(self, path: str, content: str) -> None:
        """Record a write. Raises `PatchFailed` if a directory is in the way, `WorkspaceError`."""
        self._workspace.check(path)
        place = self._place(path)
        above = PurePath(place).parents
        if any(self._files.get(str(each)) is not None for each in above) or os.path.isdir(place):  # noqa: PTH112
            raise PatchFailed(f"Failed to write file {_full(self._workspace, path)}")
        leads_to = place if self._files.get(place, "") is None else os.path.realpath(place)
        self._files[place] = self._files[leads_to] = content

    def remove(self, path: str) -> None:
        """Record a deletion; of a link, the target stays."""
        self._files[self._place(path)] = None

    def _place(self, path: str) -> str:
        """Return the real path, following links in its directories but not a link at its end."""
        directory, name = os.path.split(_full(self._workspace, path))
        return os.path.join(os.path.realpath(directory), name)  # noqa: PTH118


def _is_same(workspace: Workspace, path: str, other: str) -> bool:
    """Return whether a move leads to the file itself; files that do not exist yet are compared by path."""
    try:
        return workspace.is_same(path, other)
    except WorkspaceError:
        return _full(workspace, path) == _full(workspace, other)


def apply(workspace: Workspace, changes: Sequence[Change]) -> Summary:
    """Make the changes. Raises `PatchFailed`, `PatchMismatch` or `WorkspaceError` for the first one that fails."""
    if not changes:
        raise PatchFailed("No files were modified.")
    added, modified, deleted = list[str](), list[str](), list[str]()
    for change in changes:
        match change:
            case AddFile():
                _write(workspace, change.path, change.content)
                added.append(change.path)
            case DeleteFile():
                _remove(workspace, change.path, "Failed to delete file")
                deleted.append(change.path)
            case UpdateFile():
                modified.append(_update(workspace, change))
    return Summary(tuple(added), tuple(modified), tuple(deleted))


def _update(workspace: Workspace, change: UpdateFile) -> str:
    content = _updated(workspace, change)
    path = change.path if change.move_to is None else change.move_to
    _write(workspace, path, content)
    if change.move_to is not None and not workspace.is_same(change.path, path):
        _remove(workspace, change.path, "Failed to remove original")
    return path


def _updated(workspace: Workspace, change: UpdateFile) -> str:
    content = _text(workspace, change.path, "Failed to read file to update")
    return updated(content, change.chunks, _full(workspace, change.path))


def _text(workspace: Workspace, path: str, failed: str) -> str:
    full = _full(workspace, path)
    try:
        return workspace.read(path).decode()
    except UnicodeDecodeError:
        reason = "stream did not contain valid UTF-8"
    except WorkspaceError as error:
        if error.number is None:
            raise
        no_file = error.number == EISDIR
        reason = f"path `{full}` is not a file" if no_file else f"{error.problem} (os error {error.number})"
    raise PatchFailed(f"{failed} {full}: {reason}")


def _write(workspace: Workspace, path: str, content: str) -> None:
    failed = f"Failed to write file {_full(workspace, path)}"
    try:
        data = content.encode()
    except UnicodeEncodeError:
        raise PatchFailed(failed) from None
    try:
        workspace.write(path, data, parents=False)
    except WorkspaceError as error:
        if error.number != ENOENT:
            raise _told(error, failed) from error
    else:
        return
    try:
        workspace.make_parents(path)
    except WorkspaceError as error:
        raise _told(error, f"Failed to create parent directories for {_full(workspace, path)}") from error
    try:
        workspace.write(path, data)
    except WorkspaceError as error:
        raise _told(error, failed) from error


def _remove(workspace: Workspace, path: str, failed: str) -> None:
    try:
        workspace.remove(path)
    except WorkspaceError as error:
        raise _told(error, f"{failed} {_full(workspace, path)}") from error


def _told(error: WorkspaceError, message: str) -> ToolFailed:
    """Return the error with Codex's message, which has no reason; refusals of the workspace keep their own message."""
    return error if error.number is None else PatchFailed(message)


def _full(workspace: Workspace, path: str) -> str:
    return os.path.normpath(workspace.root / path)
