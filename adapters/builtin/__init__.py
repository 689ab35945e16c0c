"""Built-in tools: files of a workspace, commands, HTTP requests, plans.

    registry = Registry(agents=[agent], tools=builtin_tools("project"))

An agent lists those it uses: `Agent("editor", tools=["read_file", "apply_patch"])`.
"""

from .http_request import HttpSettings, http_request_tool
from .plan import plan_tool
from .shell import shell_tool
from .toolset import builtin_tools
from .workspace import OutsideWorkspace, Workspace, WorkspaceError

__all__ = [
    "HttpSettings",
    "OutsideWorkspace",
    "Workspace",
    "WorkspaceError",
    "builtin_tools",
    "http_request_tool",
    "plan_tool",
    "shell_tool",
]
