"""Tools that come with foldlog: files in a workspace."""

from .workspace import Workspace, WorkspaceError

__all__ = ["Workspace", "WorkspaceError"]
