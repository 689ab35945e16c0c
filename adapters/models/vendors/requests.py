"""A request of the runtime as pydantic-ai's messages, settings and parameters. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ....projections.messages import Message
from ....runtime.ports.models import ModelRequest
from ..openai.chat import arguments_json

if TYPE_CHECKING:
    from pydantic_ai import messages as pai
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.settings import ModelSettings

    from ..endpoint import HttpOptions


def history(request: ModelRequest) -> list[pai.ModelMessage]:
    """The conversation: what comes between two answers of the model is one request."""
    tool_names = {call.id: call.name for message in request.messages for call in message.tool_calls}
    turns: list[pai.ModelMessage] = []
    for is_answer, group in groupby(request.messages, key=lambda message: message.role == "assistant"):
        messages = list(group)
        turns += map(_answer, messages) if is_answer else [_asked(messages, tool_names)]
    return [turn for turn in turns if turn.parts]


def _asked(messages: Sequence[Message], tool_names: Mapping[str, str]) -> pai.ModelRequest:
    from pydantic_ai import messages as pai

    return pai.ModelRequest(parts=[_request_part(message, tool_names) for message in messages])


def _request_part(message: Message, tool_names: Mapping[str, str]) -> pai.ModelRequestPart:
    from pydantic_ai import messages as pai

    match message.role:
        case "system":
            return pai.SystemPromptPart(message.content)
        case "tool":
            call = message.tool_call_id or ""
            return pai.ToolReturnPart(tool_names.get(call, ""), message.content, call)
        case _:
            return pai.UserPromptPart(message.content)


def _answer(message: Message) -> pai.ModelResponse:
    from pydantic_ai import messages as pai

    return pai.ModelResponse(parts=list(_response_parts(message)))


def _response_parts(message: Message) -> Iterator[pai.ModelResponsePart]:
    from pydantic_ai import messages as pai

    if message.content:
        yield pai.TextPart(message.content)
    for call in message.tool_calls:
        yield pai.ToolCallPart(call.name, arguments_json(call.arguments), call.id)


def settings(request: ModelRequest, options: HttpOptions, *, max_retries: bool) -> ModelSettings:
    """What the request sets, and what the provider's configuration adds to each."""
    chosen: dict[str, Any] = {"framing_announcement": "never"}
    if max_retries:
        chosen["max_retries"] = 0  # ours are events
    if request.temperature is not None:
        chosen["temperature"] = request.temperature
    if request.max_tokens is not None:
        chosen["max_tokens"] = request.max_tokens
    if request.tools and (choice := request.tool_choice) is not None:
        chosen["tool_choice"] = choice if choice in {"auto", "none", "required"} else [choice]
    if options.extra_body:
        chosen["extra_body"] = dict(options.extra_body)
    return chosen


def parameters(request: ModelRequest, profile: Mapping[str, Any]) -> ModelRequestParameters:
    """Tools and the shape of the output, in the way that the model knows (`profile` is pydantic-ai's)."""
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.output import OutputObjectDefinition
    from pydantic_ai.tools import ToolDefinition

    tools = [
        ToolDefinition(name=tool.name, parameters_json_schema=tool.parameters, description=tool.description)
        for tool in request.tools
    ]
    if request.output_schema is None:
        return ModelRequestParameters(function_tools=tools)
    shape = OutputObjectDefinition(json_schema=request.output_schema, name="output")
    return ModelRequestParameters(
        function_tools=tools,
        output_mode="native" if _knows_schemas(profile, tools=bool(tools)) else "prompted",
        output_object=shape,
    )


def _knows_schemas(profile: Mapping[str, Any], *, tools: bool) -> bool:
    """Return whether the model takes the schema itself; else it is told of it in words."""
    combines = not tools or profile.get("google_supports_tool_combination", True)
    return bool(profile.get("supports_json_schema_output")) and bool(combines)
