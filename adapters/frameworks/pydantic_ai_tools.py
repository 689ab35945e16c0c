"""Tools of pydantic-ai: their calls, the context that they get, and their results."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pydantic
import pydantic_core

from ...runtime.ports.files import File, is_content
from ...runtime.ports.tools import InvalidArguments, ToolFailed
from .foreign_tool import Run


def runner(tool: Any) -> Run:
    """Return a function that runs one attempt of a call."""

    async def run(arguments: Mapping[str, Any], context: Any) -> Any:
        from pydantic_ai import ModelRetry

        try:
            given = tool.function_schema.validator.validate_python(dict(arguments))
        except pydantic.ValidationError as error:
            raise InvalidArguments(str(error)) from None
        called = {"tool_call_id": context.tool_call_id, "tool_name": tool.name}
        try:
            made = await tool.function_schema.call(given, context_of(context, **called))
        except ModelRetry as error:
            raise ToolFailed(error.message) from None
        return _content(made)

    return run


def _content(made: Any) -> Any:
    """Convert a tool's result: files become `File`s, and content that the tool adds beside its result follows it."""
    from pydantic_ai import messages as pai

    if not isinstance(made, pai.ToolReturn):
        return _with_files(made if isinstance(made, list | tuple) else [made], made)
    told = [] if made.content is None else made.content
    beside = (
        [told] if isinstance(told, str) else [each for each in told if not isinstance(each, pai.CachePoint)]
    )
    value = made.return_value
    listed = [*(value if isinstance(value, list | tuple) else [value]), *beside]
    return _with_files(listed, value if not beside else None, always=bool(beside))


def _with_files(listed: Sequence[Any], whole: Any, *, always: bool = False) -> Any:
    """Return content if the list has files, with its other values as text; else `whole` unchanged."""
    content = [_as_file(each) for each in listed]
    if not (always or any(isinstance(each, File) for each in content)):
        return whole
    texts = [each if isinstance(each, File | str) else _text(each) for each in content]
    return texts if is_content(texts) else "\n".join(map(str, texts))


def _as_file(value: Any) -> Any:
    from pydantic_ai import messages as pai

    match value:
        case pai.BinaryContent():
            return File.from_bytes(value.data, media_type=value.media_type)
        case pai.FileUrl():
            return File.from_url(value.url, media_type=value.media_type)
        case pai.TextContent():
            return value.content
        case pai.UploadedFile():
            raise ToolFailed(
                f"the tool returned {value.file_id!r}, a file at the provider; return its bytes",
                in_doubt=True,
            )
        case _:
            return value


def _text(value: Any) -> str:
    return json.dumps(pydantic_core.to_jsonable_python(value), ensure_ascii=False)


def context_of(ours: Any, **called: Any) -> Any:
    """Return a `RunContext` of pydantic-ai for a run or a call. Its model cannot be called."""
    from pydantic_ai import RunContext
    from pydantic_ai.models.test import TestModel
    from pydantic_ai.usage import RunUsage

    used = ours.usage
    return RunContext(
        deps=ours.deps,
        model=TestModel(),
        usage=RunUsage(input_tokens=used.input_tokens, output_tokens=used.output_tokens),
        prompt=ours.input,
        run_id=ours.run_id,
        metadata=ours.metadata,
        **called,
    )
