"""Convert the events of pydantic-ai's stream to deltas, and its end to `Finished`. No I/O."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pydantic_core

from ....eventlog.events import TokenUsage
from ....runtime.ports.models import (
    ContentFiltered,
    Delta,
    FileDelta,
    Finished,
    ModelRequest,
    ProviderCall,
    ReasoningDelta,
    TextDelta,
    TransientModelError,
    cut_reason,
)
from ..failures import Callee
from ..openai.calls import CallAssembly
from . import reply_items

if TYPE_CHECKING:
    from pydantic_ai import messages as pai
    from pydantic_ai.usage import RequestUsage

PAUSES_MAX = 20
"""How often a vendor may pause one answer while its own tools run."""
_PARTS_MAX = 10_000
"""The offset between the part numbers of consecutive responses; no response has this many parts."""
_MADE_UP_ID = "pyd_ai_"
"""Prefix of the ids that the library gives to calls without one; they differ between attempts."""


class AnswerReader:
    """Reads the events of one answer."""

    def __init__(self, request: ModelRequest, callee: Callee) -> None:
        self._callee, self._model = callee, request.model
        self._for_an_hour = request.settings.cache == "1h"
        self._calls = CallAssembly(request.idempotency_key)
        self._any_thought = False
        self._first = 0

    def feed(self, event: Any) -> Iterator[Delta]:
        """Yield what the next event adds."""
        match event.event_kind:
            case "part_start":
                yield from self._start(self._first + event.index, event.part)
            case "part_delta":
                yield from self._delta(self._first + event.index, event.delta)
            case _:
                pass  # These events repeat what the others say.

    def _start(self, index: int, part: pai.ModelResponsePart) -> Iterator[Delta]:
        match part.part_kind:
            case "text" if part.content:
                yield TextDelta(part.content)
            case "thinking":
                if self._any_thought and part.content:
                    yield ReasoningDelta("\n\n")
                yield from self._thought(part.content)
            case "tool-call":
                given = "" if part.tool_call_id.startswith(_MADE_UP_ID) else part.tool_call_id
                yield self._calls.piece(
                    index, call_id=given, name=part.tool_name, arguments=_written(part.args)
                )
            case _:
                pass

    def _delta(self, index: int, delta: pai.ModelResponsePartDelta) -> Iterator[Delta]:
        match delta.part_delta_kind:
            case "text" if delta.content_delta:
                yield TextDelta(delta.content_delta)
            case "thinking":
                yield from self._thought(delta.content_delta)
            case "tool_call" if index in self._calls:
                name, arguments = delta.tool_name_delta or "", _written(delta.args_delta)
                if name or arguments:
                    yield self._calls.piece(index, arguments=arguments)
            case _:
                pass

    def _thought(self, text: str | None) -> Iterator[Delta]:
        if text:
            self._any_thought = True
            yield ReasoningDelta(text)

    def goes_on(self, parts: Sequence[Any]) -> bool:
        """Return whether the vendor paused its answer after these responses, so that another response continues it.

        Raises `TransientModelError` if it has paused too often.
        """
        if parts[-1].get().state != "suspended":
            return False
        if len(parts) > PAUSES_MAX:
            raise TransientModelError(self._callee.says(f"the vendor paused its answer {PAUSES_MAX} times"))
        self._first += _PARTS_MAX  # the parts of the next response are numbered from 0
        return True

    def finished(self, whole: pai.ModelResponse) -> Finished:
        """Return the end of the answer. Raises `ModelError` for an answer without one, and for a blocked request."""
        details = whole.provider_details or {}
        said = str(details.get("finish_reason") or whole.finish_reason or "")
        if blocked := details.get("block_reason"):
            raise ContentFiltered(self._callee.says(f"the request was blocked ({blocked})"))
        if not said:
            raise TransientModelError(self._callee.says("the stream ended before the answer was complete"))
        cut = cut_reason(said) or cut_reason(whole.finish_reason or "")
        if not cut and whole.finish_reason == "error":
            raise TransientModelError(self._callee.says(f"the answer broke off ({said})"))
        return Finished(
            reason=cut or ("tool_calls" if len(self._calls) else "stop"),
            usage=usage_of(whole.usage, for_an_hour=self._for_an_hour),
            model=whole.model_name or self._model,
            reply_items=reply_items.wanted(whole),
        )


def with_last_usage(response: Any) -> Any:
    """Patch a response of the library to use the last usage that a server reports, rather than the sum of all.

    Servers that report usage in every chunk report the total of the answer so far.
    """
    add = getattr(response, "_add_usage", None)
    if add is not None:

        def replaced(usage: RequestUsage, *, reported: bool, cumulative: bool = False) -> None:
            add(usage, reported=reported, cumulative=reported or cumulative)

        response._add_usage = replaced  # noqa: SLF001 - the library has no option for it
    return response


def with_calls_apart(response: Any) -> Any:
    """Patch xAI's response of the library to keep calls with equal ids apart, which it would otherwise merge."""
    handle = getattr(response, "_handle_client_side_tool_call", None)
    if handle is not None:
        ids = Counter[str]()

        def apart(whole: Any, call: Any) -> Iterator[Any]:
            ids[call.id] += 1
            if (number := ids[call.id]) > 1:
                call.id = f"{call.id}-{number}"
            yield from handle(whole, call)

        response._handle_client_side_tool_call = apart  # noqa: SLF001 - the library has no option for it
    return response


def joined(pieces: Sequence[pai.ModelResponse]) -> pai.ModelResponse:
    """Join the responses of an answer that the vendor paused and continued, with their total usage."""
    *before, last = pieces
    if not before:
        return last
    parts = [part for piece in pieces for part in piece.parts]
    usage = sum((piece.usage for piece in before), start=last.usage)
    return dataclasses.replace(last, parts=parts, usage=usage)


def made(whole: pai.ModelResponse) -> Iterator[Delta]:
    """Yield the calls of the vendor's own tools, and the files that the model generated."""
    returns = {part.tool_call_id: part for part in whole.parts if part.part_kind == "builtin-tool-return"}
    for part in whole.parts:
        match part.part_kind:
            case "builtin-tool-call":
                yield _provider_call(part, returns.get(part.tool_call_id))
            case "file":
                yield FileDelta(data=part.content.data, media_type=part.content.media_type)
            case _:
                pass


def _provider_call(call: pai.NativeToolCallPart, answer: pai.NativeToolReturnPart | None) -> ProviderCall:
    try:
        arguments = call.args_as_dict()
    except ValueError:  # the vendor ran what the model wrote
        arguments = {"invalid_json": str(call.args)}
    result = None if answer is None else _shown(pydantic_core.to_jsonable_python(answer.content))
    return ProviderCall(
        id="" if call.tool_call_id.startswith(_MADE_UP_ID) else call.tool_call_id,
        name=call.tool_name,
        arguments=arguments,
        result=result,
        error="the reply has no result of it" if answer is None else _failure(result),
    )


_SEALED = ("encrypted_",)
"""Fields of results, by prefix, that only the vendor can read: they are part of the reply items."""
_FAILED = ("OUTCOME_FAILED", "OUTCOME_DEADLINE_EXCEEDED")


def _shown(value: Any) -> Any:
    """Return a result without the fields that only the vendor can read."""
    if isinstance(value, list):
        return [_shown(each) for each in value]
    if isinstance(value, dict):
        return {name: _shown(each) for name, each in value.items() if not name.startswith(_SEALED)}
    return value


def _failure(result: Any) -> str | None:
    """Return the error that a result reports; None if it reports none."""
    if not isinstance(result, dict):
        return None
    if str(result.get("type", "")).endswith("_error"):
        return str(result.get("error_code") or result["type"])
    return str(result["outcome"]) if result.get("outcome") in _FAILED else None


def _written(arguments: str | dict[str, Any] | None) -> str:
    """Return the arguments as the model wrote them; some vendors send the object itself."""
    if isinstance(arguments, dict):
        return json.dumps(arguments, ensure_ascii=False)
    return arguments or ""


def usage_of(usage: RequestUsage, *, for_an_hour: bool = False) -> TokenUsage | None:
    """Return the vendor's token counts; None if it reports none.

    `for_an_hour`: the request asked for a cache lifetime of an hour. Unless the vendor reports such cache writes
    separately, all cache writes count as such.
    """
    if not usage.input_tokens:
        return None
    long = usage.cache_write_1h_tokens or (usage.cache_write_tokens if for_an_hour else 0)
    return TokenUsage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.input_tokens + usage.output_tokens,
        cached_input_tokens=usage.cache_read_tokens,
        reasoning_tokens=usage.output_reasoning_tokens or 0,
        cache_writes=usage.cache_write_tokens or msgspec.UNSET,
        cache_writes_1h=long or msgspec.UNSET,
    )
