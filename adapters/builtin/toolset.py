"""All built-in tools over one workspace, for a registry."""

from __future__ import annotations

import os

from ...runtime.toolport import Tool
from .files import file_tools
from .workspace import Workspace


def builtin_tools(workspace: Workspace | str | os.PathLike[str]) -> tuple[Tool, ...]:
    """Every built-in tool, confined to the directory. Raises `ConfigError` if it cannot be a workspace."""
    confined = workspace if isinstance(workspace, Workspace) else Workspace(workspace)
    return file_tools(confined)
