"""Tools that come with foldlog, confined to a workspace.

    registry = Registry(agents=[agent], tools=builtin_tools("project"))

An agent names the ones it wants: `Agent("editor", tools=["read_file", "apply_patch"])`.
"""

from .toolset import builtin_tools
from .workspace import OutsideWorkspace, Workspace, WorkspaceError

__all__ = ["OutsideWorkspace", "Workspace", "WorkspaceError", "builtin_tools"]
