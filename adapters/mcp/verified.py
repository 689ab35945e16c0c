"""Postconditions of a server's tools: the probe is another tool of the same server, its answer the evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mcp_types import Tool

from ...runtime.agents.mcp_servers import ToolPostcondition, ToolProbe
from ...runtime.core.postconditions import Postcondition, check_references, with_arguments
from ...runtime.ports.evidence import Evidence, of_result
from ...runtime.ports.tools import ToolContextPort
from ...runtime.tools.verified import Probe, VerifiedTool
from .tool import McpTool


def verified(path: str, tool: McpTool, written: ToolPostcondition, offered: Sequence[Tool]) -> VerifiedTool:
    """Return the tool with its postcondition. Raises `ConfigError` for a `${name}` that is not a parameter of it."""
    parameters = tool.spec.parameters.get("properties", {})
    condition = Postcondition(tool.spec.name, written.assertions, parameters)
    if written.probe is None:
        return VerifiedTool(tool, condition, None, None)
    check_references(f"{path}.probe.arguments", written.probe.arguments, parameters)
    (looked,) = (each for each in offered if each.name == written.probe.tool)
    return VerifiedTool(
        tool, condition, _probe(written.probe, McpTool(looked.name, looked, tool.server)), None
    )


def _probe(written: ToolProbe, tool: McpTool) -> Probe:
    async def look(arguments: Mapping[str, Any], context: ToolContextPort) -> Evidence:
        return of_result(await tool.call(with_arguments(written.arguments, arguments), context), None)

    return look
