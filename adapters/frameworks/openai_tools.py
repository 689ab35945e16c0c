"""Function tools of the OpenAI Agents SDK: their approvals, calls and results."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...runtime.ports.files import File, is_content
from ...runtime.ports.tools import ToolFailed
from .foreign_tool import Reading, Run


def is_function(tool: Any) -> bool:
    """Return whether a tool is a function, which the run calls, rather than one that the provider runs."""
    return hasattr(tool, "on_invoke_tool")


def approved(reading: Reading, tools: Iterable[Any]) -> Iterator[str]:
    """Yield the names of the tools that need approval. Raises `ConfigError` if a function decides that."""
    for tool in tools:
        if callable(tool.needs_approval):
            reading.refuse(f"the tool {tool.name!r}: needs_approval is a function; use a policy")
        if tool.needs_approval:
            yield tool.name


def runner(tool: Any) -> Run:
    """Return a function that runs one attempt of a call."""

    async def run(arguments: Mapping[str, Any], context: Any) -> Any:
        from agents.tool_context import ToolContext

        text = json.dumps(dict(arguments), ensure_ascii=False)
        theirs = ToolContext(
            context=context.deps,
            tool_name=tool.name,
            tool_call_id=context.tool_call_id,
            tool_arguments=text,
        )
        return _content(await tool.on_invoke_tool(theirs, text))

    return run


def _content(made: Any) -> Any:
    """Convert a tool's result: images and files become `File`s, other values stay as they are."""
    listed = [_as_file(each) for each in (made if isinstance(made, list | tuple) else [made])]
    return listed if is_content(listed) else made


def _as_file(value: Any) -> Any:
    kind = value.get("type") if isinstance(value, Mapping) else getattr(value, "type", None)
    if kind not in {"image", "file", "text"}:
        return value
    given = dict(value) if isinstance(value, Mapping) else value.model_dump()
    match given:
        case {"type": "text", "text": str(text)}:
            return text
        case {"file_id": str(at)}:
            raise ToolFailed(
                f"the tool returned {at!r}, a file at the provider; return its bytes", in_doubt=True
            )
        case {"image_url": str(url)} | {"file_url": str(url)} if not url.startswith("data:"):
            return File.from_url(url, media_type="image/png" if kind == "image" else None)
        case {"image_url": str(data), **more} | {"file_data": str(data), **more}:
            return _decoded(data, str(more.get("filename") or ""), str(more.get("detail") or ""))
        case _:
            return value


def _decoded(data: str, name: str, detail: str) -> File:
    """Return the file in a data URL or in plain base64."""
    head, comma, body = data.rpartition(",")
    media_type = head.removeprefix("data:").partition(";")[0] if comma else None
    return File.from_bytes(base64.b64decode(body), media_type=media_type or None, name=name, detail=detail)
