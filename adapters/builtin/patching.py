"""A patch carried out in a workspace: its changes checked against the files, and made one after the other.

`apply` works as the command `apply_patch` of Codex does: in the patch's order, up to the first change that fails; what
was changed before stays. `check` is what Codex's tool does before it: each change is tried against the files as they
are, so that a patch that cannot be applied changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from errno import EISDIR, ENOENT

import msgspec

from ...runtime.toolport import ToolFailed
from .patch_language import AddFile, Change, DeleteFile, UpdateFile
from .patch_matching import updated
from .workspace import Workspace, WorkspaceError


class PatchFailed(ToolFailed):
    """A change could not be made; those before it were."""


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
    """Raise what would hinder a change if it were the first: `PatchFailed`, `PatchMismatch`, `WorkspaceError`."""
    for change in changes:
        match change:
            case AddFile():
                workspace.check(change.path)
            case DeleteFile():
                _text(workspace, change.path, "Failed to read")
            case UpdateFile():
                _updated(workspace, change)
                if change.move_to is not None:
                    workspace.check(change.move_to)


def apply(workspace: Workspace, changes: Sequence[Change]) -> Summary:
    """Make the changes. Raises `PatchFailed`, `PatchMismatch` or `WorkspaceError` for the first that cannot be made."""
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
    """As Codex says it, which leaves the reason out; what only a workspace refuses says so itself."""
    return error if error.number is None else PatchFailed(message)


def _full(workspace: Workspace, path: str) -> str:
    return os.path.normpath(workspace.root / path)
