"""All built-in tools over one workspace, for a registry."""

from __future__ import annotations

import os

from ...eventlog.events import OnError
from ...runtime.ports.runner import ToolRunner
from ...runtime.ports.tools import Tool
from .files import file_tools
from .http_request import DEFAULT, HttpSettings, http_request_tool
from .plan import plan_tool
from .shell import shell_tool
from .workspace import Workspace


def builtin_tools(
    workspace: Workspace | str | os.PathLike[str],
    *,
    runner: ToolRunner | None = None,
    http: HttpSettings = DEFAULT,
    on_error: OnError = "doubt",
    slot: str | None = None,
) -> tuple[Tool, ...]:
    """Return all built-in tools; `shell` only with a `runner`, which runs its commands.

    With a `slot`, calls that change the workspace run one at a time over all processes of the namespace whose tools
    have the same slot: for a workspace that several machines share.

    `on_error="report"` reports commands and requests that end in doubt to the model, as in `tool`.

    Raises `ConfigError` if the directory cannot be a workspace.
    """
    confined = workspace if isinstance(workspace, Workspace) else Workspace(workspace)
    shell = () if runner is None else (shell_tool(runner, on_error=on_error, slot=slot),)
    return (*file_tools(confined, slot=slot), *shell, http_request_tool(http, on_error=on_error), plan_tool())
