"""Convert a tool's answer for the agent: JSON for structured output, a string for text, else content blocks."""

from __future__ import annotations

from typing import Any

from mcp_types import CallToolResult, TextContent, Tool

from ...runtime.ports.tools import ToolFailed


def outcome(tool: Tool, result: CallToolResult) -> Any:
    """Return the result as JSON. Raises `ToolFailed` with the answer's text if the tool reports a failure.

    Several texts are joined by newlines. Structured content is used if the tool declares an output schema or returns
    nothing else; but a plain text that the server only wraps for its schema, as `{"result": text}`, remains a text.
    """
    text = "\n".join(block.text for block in result.content if isinstance(block, TextContent))
    is_text = all(isinstance(block, TextContent) for block in result.content)
    blocks = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content]
    structured = result.structured_content
    if result.is_error:
        raise ToolFailed(
            text or f"the tool {tool.name} failed without a message",
            result=structured if is_text else blocks,
        )
    if structured is not None and structured != {"result": text} and (tool.output_schema or not blocks):
        return structured
    return text if is_text else blocks
