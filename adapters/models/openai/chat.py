"""Chat completions: convert a request to parameters, and chunks to deltas. No I/O."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from ....eventlog.events import TokenUsage
from ....projections.messages import Message
from ....runtime.ports.json_schema import for_provider
from ....runtime.ports.models import Delta, Finished, ModelRequest, ReasoningDelta, TextDelta, cut_reason
from ....runtime.ports.settings import TOOL_CHOICES
from ..endpoint import Endpoint
from ..failures import MalformedStream
from ..uploads import Files
from .calls import CallAssembly
from .content import NO_FILES, chat_content, with_files_behind

REASONING = "reasoning"
"""The key of the only reply item of a chat server: the complete text of the model's reasoning."""


def parameters(request: ModelRequest, endpoint: Endpoint, files: Files = NO_FILES) -> dict[str, Any]:
    """Return the parameters of `chat.completions.create`.

    Unless a setting says otherwise, `parallel_tool_calls` is left out, because some models refuse the parameter; the
    API's default is to allow them.
    """
    settings = request.settings
    chosen: dict[str, Any] = {
        "model": request.model,
        "messages": [
            _message(each, files, endpoint.reasoning_back)
            for each in with_files_behind(request.messages, in_results=False)
        ],
        "stream": True,
    }
    if endpoint.options.usage_in_stream:
        chosen["stream_options"] = {"include_usage": True}
    if request.tools:
        chosen["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                },
            }
            for tool in request.tools
        ]
        if settings.tool_choice is not None:
            chosen["tool_choice"] = _tool_choice(settings.tool_choice)
        if settings.parallel_tool_calls is not None:
            chosen["parallel_tool_calls"] = settings.parallel_tool_calls
    if request.output_schema is not None:
        wanted, strict = for_provider(request.output_schema)
        schema = {"name": "output", "schema": wanted, "strict": strict}
        chosen["response_format"] = {"type": "json_schema", "json_schema": schema}
    asked = {
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        endpoint.max_tokens_parameter: settings.max_tokens,
        "stop": list(settings.stop) if settings.stop else None,
        "seed": settings.seed,
        "reasoning_effort": "none" if settings.reasoning == "off" else settings.reasoning,
        "verbosity": settings.verbosity,
        "service_tier": settings.service_tier,
    }
    return chosen | {name: value for name, value in asked.items() if value is not None}


def _tool_choice(choice: str) -> Any:
    return choice if choice in TOOL_CHOICES else {"type": "function", "function": {"name": choice}}


def _message(message: Message, files: Files, reasoning_back: str) -> dict[str, Any]:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": message.content}
    thoughts = _thoughts(message, reasoning_back)
    if not message.tool_calls:
        return {"role": message.role, "content": chat_content(message, files), **thoughts}
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": arguments_json(call.arguments)},
        }
        for call in message.tool_calls
    ]
    return {"role": "assistant", "content": message.content or None, **thoughts, "tool_calls": calls}


def _thoughts(message: Message, field: str) -> dict[str, str]:
    """Return the model's reasoning, in the field in which its server requires it.

    Such a server refuses a call without the field, even if there was no reasoning, or another model made the call.
    """
    if not field or message.role != "assistant":
        return {}
    items = message.reply_state.items if message.reply_state is not None else []
    told = "".join(item[REASONING] for item in items if isinstance(item, dict) and REASONING in item)
    return {field: told} if told or message.tool_calls else {}


def arguments_json(written: str) -> str:
    """Return the arguments of an earlier call as a JSON object, since many servers refuse anything else."""
    try:
        if isinstance(json.loads(written), dict):
            return written
    except (ValueError, RecursionError):
        pass
    return json.dumps({"invalid_json": written}, ensure_ascii=False) if written.strip() else "{}"


class ChatReader:
    """Reads the chunks of one answer, and checks them, which the SDK does not."""

    def __init__(
        self, request: ModelRequest, *, reason_optional: bool = False, reasoning_back: bool = False
    ) -> None:
        """Read one answer. `reason_optional`: a stream that ends without a finish reason counts as complete.

        `reasoning_back`: the server requires the model's reasoning in later requests.
        """
        self._thoughts: list[str] | None = [] if reasoning_back else None
        self._calls = CallAssembly(request.idempotency_key)
        self._reason, self._reason_optional, self._any = "", reason_optional, False
        self._usage: TokenUsage | None = None
        self._model = ""

    def feed(self, chunk: Any) -> Iterator[Delta]:
        """Yield what the next chunk adds. Raises `MalformedStream`."""
        self._model = text_of(chunk, "model") or self._model
        if (usage := field_of(chunk, "usage")) is not None:
            # The last one counts: some servers send usage with every chunk.
            self._usage = usage_of(usage, "prompt_tokens", "completion_tokens") or self._usage
        for choice in field_of(chunk, "choices") or ():
            for delta in self._delta(field_of(choice, "delta")):
                self._any = True
                yield delta
            self._reason = text_of(choice, "finish_reason") or self._reason

    def is_over(self) -> bool:
        """Return false: usage may follow the finish reason, so the stream is read to its end."""
        return False

    def end(self) -> None:
        """Handle the end of the stream, which was not cut as far as is known."""
        if self._reason_optional and self._any:
            self._reason = self._reason or "stop"

    def finished(self) -> Finished | None:
        """Return the end of the answer; None without a finish reason, that is, if the stream was cut."""
        if not self._reason:
            return None
        whole = "tool_calls" if self._reason == "stop" and len(self._calls) else self._reason
        reason = cut_reason(self._reason) or whole
        wanted = [{REASONING: "".join(self._thoughts)}] if self._thoughts else []
        return Finished(reason=reason, usage=self._usage, model=self._model, reply_items=wanted)

    def _delta(self, delta: Any) -> Iterator[Delta]:
        # Two names are in use among compatible servers.
        for name in ("reasoning_content", "reasoning"):
            thoughts = "".join(piece.text for piece in _pieces(delta, name))
            if thoughts:
                if self._thoughts is not None:
                    self._thoughts.append(thoughts)
                yield ReasoningDelta(thoughts)
                break
        pieces = list(_pieces(delta, "content"))
        yield from pieces
        if not pieces and (refusal := text_of(delta, "refusal")):
            yield TextDelta(refusal)
        for piece in field_of(delta, "tool_calls") or ():
            function = field_of(piece, "function")
            yield self._calls.piece(
                field_of(piece, "index"),
                call_id=text_of(piece, "id"),
                name=text_of(function, "name"),
                arguments=arguments_of(function, "arguments"),
            )


def _pieces(delta: Any, name: str) -> Iterator[TextDelta | ReasoningDelta]:
    """Yield the pieces of a field that is text, or a list of parts (Mistral and others) that may include reasoning."""
    value = field_of(delta, name)
    if not isinstance(value, list):
        if text := text_of(delta, name):
            yield TextDelta(text)
        return
    for part in value:
        if isinstance(part, str):
            yield TextDelta(part)
        elif field_of(part, "thinking") is not None:
            yield from (ReasoningDelta(piece.text) for piece in _pieces(part, "thinking"))
        elif text := text_of(part, "text"):
            yield TextDelta(text)


def field_of(part: Any, name: str) -> Any:
    """Return a field of a value that the SDK has parsed or left as a dict; None if it is missing."""
    return part.get(name) if isinstance(part, dict) else getattr(part, name, None)


def text_of(part: Any, name: str) -> str:
    """Return a text field; empty if it is missing. Raises `MalformedStream` if it is not text."""
    value = field_of(part, name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise MalformedStream(f"{name} is not text")
    return value


def arguments_of(part: Any, name: str) -> str:
    """Return the text of a call's arguments, or of a piece of them. Some servers send the object itself.

    Raises `MalformedStream` for any other value.
    """
    value = field_of(part, name)
    if not isinstance(value, dict):
        return text_of(part, name)
    return json.dumps(value, ensure_ascii=False) if value else ""  # an empty one may be followed by text


def count_of(part: Any, name: str) -> int:
    """Return a number of tokens; 0 if it is missing or invalid."""
    value = field_of(part, name)
    return value if isinstance(value, int) and value > 0 else 0


def usage_of(usage: Any, read_name: str, written_name: str) -> TokenUsage | None:
    """Return the reported usage, from fields of these names; None if the input is 0, which means unknown."""
    read, written = count_of(usage, read_name), count_of(usage, written_name)
    if not read:
        return None
    details = field_of(usage, f"{read_name}_details")
    return TokenUsage(
        input_tokens=read,
        output_tokens=written,
        total_tokens=count_of(usage, "total_tokens") or read + written,
        cached_input_tokens=count_of(details, "cached_tokens") or count_of(usage, "prompt_cache_hit_tokens"),
        cache_writes=count_of(details, "cache_write_tokens") or msgspec.UNSET,
        reasoning_tokens=count_of(field_of(usage, f"{written_name}_details"), "reasoning_tokens"),
    )
