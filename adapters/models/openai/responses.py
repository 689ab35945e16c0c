"""The Responses API: convert a request to parameters, and events to deltas. No I/O.

The server stores nothing (`store=False`): the log is the only memory, and each request contains the whole history.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ....projections.messages import CallRequest, Message
from ....runtime.ports.json_schema import for_provider
from ....runtime.ports.models import Delta, Finished, ModelRequest, ReasoningDelta, TextDelta, cut_reason
from ....runtime.ports.settings import TOOL_CHOICES
from ..failures import Callee, reported
from ..uploads import Files
from . import native
from .calls import CallAssembly
from .chat import arguments_json, arguments_of, field_of, text_of, usage_of
from .content import NO_FILES, responses_content, with_files_behind
from .known import reasons
from .reply_items import OutputItems, restored


def parameters(request: ModelRequest, files: Files = NO_FILES) -> dict[str, Any]:
    """Return the parameters of `responses.create`."""
    settings = request.settings
    chosen: dict[str, Any] = {
        "model": request.model,
        "input": [
            item
            for message in with_files_behind(request.messages, in_results=True)
            for item in _items(message, files)
        ],
        "store": False,
        "stream": True,
    }
    included = native.included(request.native_tools)
    if reasons(request.model) or settings.reasoning not in {None, "off"}:
        included = ["reasoning.encrypted_content", *included]  # without it nothing could be given back
    if included:
        chosen["include"] = included
    if request.tools or request.native_tools:
        chosen["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
                "strict": False,
            }
            for tool in request.tools
        ] + [native.parameter(tool) for tool in request.native_tools]
    if request.tools:
        if (choice := settings.tool_choice) is not None:
            chosen["tool_choice"] = choice if choice in TOOL_CHOICES else {"type": "function", "name": choice}
        if settings.parallel_tool_calls is not None:
            chosen["parallel_tool_calls"] = settings.parallel_tool_calls
    text: dict[str, Any] = {}
    if request.output_schema is not None:
        wanted, strict = for_provider(request.output_schema)
        text["format"] = {"type": "json_schema", "name": "output", "schema": wanted, "strict": strict}
    if settings.verbosity is not None:
        text["verbosity"] = settings.verbosity
    effort = "none" if settings.reasoning == "off" else settings.reasoning
    asked = {
        "text": text or None,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "max_output_tokens": settings.max_tokens,
        "reasoning": None if effort is None else {"effort": effort},
        "service_tier": settings.service_tier,
    }
    return chosen | {name: value for name, value in asked.items() if value is not None}


def _items(message: Message, files: Files) -> Iterator[dict[str, Any]]:
    if message.role == "tool":
        output = responses_content(message, files)
        yield {"type": "function_call_output", "call_id": message.tool_call_id, "output": output}
        return
    calls = [_call_item(call) for call in message.tool_calls]
    if message.reply_state is not None:
        yield from restored(message.reply_state.items, message.content, calls)
        return
    if message.content or not calls:
        yield {"role": message.role, "content": responses_content(message, files)}
    yield from calls


def _call_item(call: CallRequest) -> dict[str, Any]:
    arguments = arguments_json(call.arguments)
    return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments}


class ResponsesReader:
    """Reads the events of one answer."""

    def __init__(self, request: ModelRequest, callee: Callee) -> None:
        self._callee = callee
        self._calls = CallAssembly(request.idempotency_key)
        self._items = OutputItems()
        self._finished: Finished | None = None

    def feed(self, event: Any) -> Iterator[Delta]:
        """Yield what the next event adds. Raises `MalformedStream`, and `ModelError` if the event reports one."""
        match text_of(event, "type"):
            case "response.output_text.delta" | "response.refusal.delta":
                self._items.write(field_of(event, "output_index"), text_of(event, "delta"))
                yield TextDelta(text_of(event, "delta"))
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                yield ReasoningDelta(text_of(event, "delta"))
            case "response.reasoning_summary_part.added" if field_of(event, "summary_index"):
                yield ReasoningDelta("\n\n")
            case "response.output_item.added":
                yield from self._call(event)
            case "response.output_item.done":
                yield from self._call(event)
                key, item = field_of(event, "output_index"), _as_it_came(field_of(event, "item"))
                self._items.add(key, item, self._calls.number(key))
                if (done := native.made(item)) is not None:
                    yield done
            case "response.function_call_arguments.delta" if field_of(event, "output_index") in self._calls:
                yield self._calls.piece(
                    field_of(event, "output_index"), arguments=arguments_of(event, "delta")
                )
            case "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled":
                self._finish(field_of(event, "response"))
            case "error":
                raise reported(self._callee, _error(event))
            case _:
                pass  # events that add nothing to the deltas above

    def is_over(self) -> bool:
        """Return whether the terminal event has arrived."""
        return self._finished is not None

    def end(self) -> None:
        """Do nothing: the end of the stream alone never ends an answer here."""

    def finished(self) -> Finished | None:
        """Return the end of the answer; None without a terminal event, that is, if the stream was cut."""
        return self._finished

    def _call(self, event: Any) -> Iterator[Delta]:
        """Yield the beginning of a call, and its parts that did not arrive as deltas."""
        item, key = field_of(event, "item"), field_of(event, "output_index")
        if text_of(item, "type") != "function_call" or self._calls.has_arguments(key):
            return
        call_id, name, arguments = (
            text_of(item, "call_id"),
            text_of(item, "name"),
            arguments_of(item, "arguments"),
        )
        piece = self._calls.piece(key, call_id=call_id, name=name, arguments=arguments)
        if piece.id or piece.name or piece.arguments:
            yield piece

    def _finish(self, response: Any) -> None:
        status = text_of(response, "status")
        if status not in {"completed", "incomplete"}:
            raise reported(self._callee, _error(field_of(response, "error")))
        whole = "tool_calls" if len(self._calls) else "stop"
        cut = text_of(field_of(response, "incomplete_details"), "reason") if status == "incomplete" else ""
        self._finished = Finished(
            reason=whole if status == "completed" else cut_reason(cut) or "length",  # cut, whatever the word
            usage=usage_of(field_of(response, "usage"), "input_tokens", "output_tokens"),
            model=text_of(response, "model"),
            reply_items=self._items.wanted(),
        )


def _as_it_came(item: Any) -> dict[str, Any]:
    """Return an output item as the server wrote it."""
    if isinstance(item, dict):
        return item
    found: dict[str, Any] = item.to_dict(mode="json", exclude_unset=True, warnings=False)
    return found


def _error(error: Any) -> dict[str, Any]:
    return {"code": field_of(error, "code"), "message": field_of(error, "message") or "no reason given"}
