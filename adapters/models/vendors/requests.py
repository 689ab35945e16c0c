"""Convert a request of the runtime to pydantic-ai's messages, settings and parameters. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ....eventlog.parts import FilePart, Part, TextPart, files_of
from ....projections.messages import Message
from ....runtime.ports.json_schema import for_provider
from ....runtime.ports.models import InvalidRequest, ModelRequest, NativeTool
from ....runtime.ports.settings import TOOL_CHOICES
from ..openai.chat import arguments_json
from ..openai.content import as_text, with_files_behind
from ..uploads import Files
from .reply_items import restored

if TYPE_CHECKING:
    from pydantic_ai import messages as pai
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.native_tools import AbstractNativeTool

    from ..endpoint import HttpOptions
    from .vendors import Vendor


def history(request: ModelRequest, system: str, files: Files, vendor: Vendor) -> list[pai.ModelMessage]:
    """Return the conversation; all messages between two answers of the model form one request.

    `system` is the vendor's name in pydantic-ai, and `files` has the bytes of each artifact, or its id at the vendor.
    Raises `InvalidRequest` for a file at a URL that the vendor does not fetch by itself.
    """
    own = vendor.makes_files
    shown = (
        request.messages if own else with_files_behind(request.messages, in_results=vendor.files_in_results)
    )
    build = _Turns(request, system, files, vendor.fetches)
    turns: list[pai.ModelMessage] = []
    for is_answer, group in groupby(shown, key=lambda message: message.role == "assistant"):
        messages = list(group)
        turns += map(build.answer, messages) if is_answer else [build.asked(messages)]
    return [turn for turn in turns if turn.parts]


class _Turns:
    """Builds the turns of one conversation."""

    def __init__(
        self,
        request: ModelRequest,
        system: str,
        files: Files,
        by_url: Callable[[FilePart], bool],
    ) -> None:
        self._system, self._files, self._by_url = system, files, by_url
        self._stable = request.messages[request.stable - 1] if request.stable else None
        self._retention = retention(request)
        self._tools = {call.id: call.name for message in request.messages for call in message.tool_calls}

    def asked(self, messages: Sequence[Message]) -> pai.ModelRequest:
        from pydantic_ai import messages as pai

        return pai.ModelRequest(parts=[self._request_part(message) for message in messages])

    def _request_part(self, message: Message) -> pai.ModelRequestPart:
        from pydantic_ai import messages as pai

        content = list(map(self._content, message.parts)) or message.content
        match message.role:
            case "system":
                return pai.SystemPromptPart(message.content)
            case "tool":
                call = message.tool_call_id or ""
                return pai.ToolReturnPart(self._tools.get(call, ""), content, call)
            case _ if message is self._stable:
                parts = content if isinstance(content, list) else [content]
                return pai.UserPromptPart([*parts, pai.CachePoint(ttl=self._retention)])
            case _:
                return pai.UserPromptPart(content)

    def _content(self, part: Part) -> Any:
        from pydantic_ai import messages as pai

        if isinstance(part, TextPart):
            return part.text
        if (text := as_text(part, self._files)) is not None:
            return text
        if (uploaded := self._files.id_of(part)) is not None:
            return pai.UploadedFile(uploaded, self._system, media_type=part.media_type)
        if part.url is None:
            return self._binary(part)
        if not self._by_url(part):
            raise InvalidRequest(
                f"{part}: the provider does not fetch such URLs; give it as File.fetch() does"
            )
        kind = {"image": pai.ImageUrl, "audio": pai.AudioUrl, "video": pai.VideoUrl}
        return kind.get(part.media_type.partition("/")[0], pai.DocumentUrl)(
            part.url, media_type=part.media_type
        )

    def _binary(self, part: FilePart) -> pai.BinaryContent:
        from pydantic_ai import messages as pai

        return pai.BinaryContent(self._files.data[part.artifact or ""], media_type=part.media_type)

    def answer(self, message: Message) -> pai.ModelResponse:
        from pydantic_ai import messages as pai

        calls = [
            pai.ToolCallPart(call.name, arguments_json(call.arguments), call.id)
            for call in message.tool_calls
        ]
        files = [pai.FilePart(self._binary(file)) for file in files_of(message.parts)]
        if message.reply_state is not None:
            parts = list(restored(message, calls, files))
        else:
            parts = [*([pai.TextPart(message.content)] if message.content else []), *files, *calls]
        return pai.ModelResponse(parts=parts, provider_name=self._system)


SETTINGS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "max_tokens",
    "seed": "seed",
    "parallel_tool_calls": "parallel_tool_calls",
    "service_tier": "service_tier",
}
"""Settings with the same meaning, by their names in pydantic-ai."""


def settings(request: ModelRequest, options: HttpOptions, vendor: Vendor) -> dict[str, Any]:
    """Return the settings of the request, merged with those of the provider's configuration."""
    chosen: dict[str, Any] = {"framing_announcement": "never"}
    if vendor.max_retries:
        chosen["max_retries"] = 0  # ours are events
    asked, given = request.settings, request.settings.given()
    chosen |= {theirs: given[ours] for ours, theirs in SETTINGS.items() if ours in given}
    if request.tools and (choice := asked.tool_choice) is not None:
        chosen["tool_choice"] = choice if choice in TOOL_CHOICES else [choice]
    if asked.stop is not None:
        chosen["stop_sequences"] = list(asked.stop)
    if isinstance(asked.reasoning, int):
        chosen |= vendor.thinking_tokens(asked.reasoning)
    elif asked.reasoning is not None:
        chosen["thinking"] = False if asked.reasoning == "off" else asked.reasoning
    if request.stable:  # the end of the history's prefix has a mark of its own
        chosen["cache"] = {"retention": retention(request), "messages": False}
    if body := {**options.extra_body, **(asked.extra_body or {})}:
        chosen["extra_body"] = body
    return chosen


def retention(request: ModelRequest) -> str:
    """Return how long the vendor is to cache the marked prefix."""
    return "1h" if request.settings.cache == "1h" else "5m"


def parameters(request: ModelRequest, profile: Mapping[str, Any]) -> ModelRequestParameters:
    """Return the tools and the output schema, in a form that the model supports (`profile` is pydantic-ai's)."""
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.output import OutputObjectDefinition
    from pydantic_ai.tools import ToolDefinition

    tools = [
        ToolDefinition(name=tool.name, parameters_json_schema=tool.parameters, description=tool.description)
        for tool in request.tools
    ]
    native = list(map(_native_tool, request.native_tools))
    if request.output_schema is None:
        return ModelRequestParameters(function_tools=tools, native_tools=native)
    wanted, strict = for_provider(request.output_schema)
    # Without a strict form the vendor is not told that there is none: Anthropic has no other.
    shape = OutputObjectDefinition(json_schema=wanted, name="output", strict=True if strict else None)
    return ModelRequestParameters(
        function_tools=tools,
        native_tools=native,
        output_mode="native" if _knows_schemas(profile, tools=bool(tools or native)) else "prompted",
        output_object=shape,
    )


def _native_tool(tool: NativeTool) -> AbstractNativeTool:
    from pydantic_ai import native_tools as pai

    options = tool.options
    match tool.type:
        case "web_search":
            return pai.WebSearchTool(**options)
        case "code_execution":
            return pai.CodeExecutionTool()
        case _:
            return pai.FileSearchTool(file_store_ids=options["store_ids"])


def _knows_schemas(profile: Mapping[str, Any], *, tools: bool) -> bool:
    """Return whether the model supports an output schema; otherwise the schema is described in the prompt."""
    combines = not tools or profile.get("google_supports_tool_combination", True)
    return bool(profile.get("supports_json_schema_output")) and bool(combines)
