"""Convert a tool's answer for the agent: JSON for structured output, a string for text, else texts and files."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any
from urllib.parse import unquote, urlsplit

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    TextContent,
    TextResourceContents,
    Tool,
)

from ...eventlog.errors import ConfigError
from ...runtime.ports.files import File
from ...runtime.ports.tools import ToolFailed


def outcome(tool: Tool, result: CallToolResult) -> Any:
    """Return the result as JSON, or as texts and files. Raises `ToolFailed` with its text if the tool reports failure.

    Several texts are joined by newlines; a text resource follows its address, and a link to a resource becomes JSON.
    Structured content is used if the tool declares an output schema or returns nothing else, but a plain text that the
    server only wraps for its schema, as `{"result": text}`, stays a text. Images, audio and binary resources become
    files; structured content beside them becomes a text, unless a text already says the same.
    """
    text = "\n".join(block.text for block in result.content if isinstance(block, TextContent))
    is_text = all(isinstance(block, TextContent) for block in result.content)
    structured = result.structured_content
    if result.is_error:
        raise ToolFailed(
            text or f"the tool {tool.name} failed without a message",
            result=structured if is_text else _blocks(result),
        )
    parts = [_part(block) for block in result.content]
    if any(isinstance(part, File) for part in parts):
        said = [] if text or structured is None else [json.dumps(structured, ensure_ascii=False)]
        return [*said, *parts]
    if (
        structured is not None
        and structured != {"result": text}
        and (tool.output_schema or not result.content)
    ):
        return structured
    return "\n".join(str(part) for part in parts)


def _blocks(result: CallToolResult) -> list[Any]:
    """Return the content as the server sent it, without bytes, which events do not contain."""
    blocks = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content]
    for block in blocks:
        for held in (block, block.get("resource", {})):
            held.pop("data", None)
            held.pop("blob", None)
    return blocks


def _part(block: ContentBlock) -> str | File:
    match block:
        case TextContent():
            return block.text
        case ImageContent() | AudioContent():
            return _file(block.data, block.mime_type, "")
        case EmbeddedResource(resource=BlobResourceContents() as resource):
            path = unquote(urlsplit(str(resource.uri)).path)
            return _file(resource.blob, resource.mime_type, path.rpartition("/")[2])
        case EmbeddedResource(resource=TextResourceContents() as resource):
            return f"{resource.uri}\n{resource.text}"
        case _:
            return block.model_dump_json(by_alias=True, exclude_none=True)


def _file(data: str, media_type: str | None, name: str) -> str | File:
    """Return the file. A media type that contradicts the first bytes is replaced; empty content becomes a text."""
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise ToolFailed(
            f"the tool answered with {media_type or 'a file'} that is not base64", in_doubt=True
        ) from None
    try:
        return File.from_bytes(content, media_type=media_type, name=name)
    except ConfigError:
        return File.from_bytes(content) if content else f"[{media_type or 'a file'} without content]"
