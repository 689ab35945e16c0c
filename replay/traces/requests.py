"""The differences of two model requests: messages, tools and parameters, with the value of each side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

import msgspec

from ...eventlog.events import ToolSchema
from ...projections.messages import Message, canonical_json

PARTS_MAX = 5
"""The most parts that a sentence lists; programs have all of them."""
TEXT_MAX = 200
_BEFORE = 30
SAME = (
    "their messages, tools, parameters and models are the same; tool calls in the messages are at other places, "
    "or a stored digest does not match the stored events"
)


class RequestPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a model request with its value on each side; None for a side that does not have it."""

    name: str
    left: Any
    right: Any

    @property
    def shown(self) -> tuple[str, str]:
        """Both values as JSON; long ones are cut to the text around the first difference."""
        left, right = (_json(self.left), _json(self.right))
        same = next((n for n, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), 0)
        begin = max(0, same - _BEFORE) if max(len(left), len(right)) > TEXT_MAX else 0
        return _cut(left, begin), _cut(right, begin)


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A model request, reduced to what determines the reply (R12)."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSchema, ...]
    parameters: dict[str, Any]
    """The output schema, the model, and the settings that determine the reply, by name."""


def differing_parts(left: Request, right: Request) -> tuple[RequestPart, ...]:
    """Return the parts that differ: messages first, then tools, then parameters."""
    return (
        *_messages(left.messages, right.messages),
        *_tools(left.tools, right.tools),
        *_parameters(left.parameters, right.parameters),
    )


def in_words(parts: Sequence[RequestPart], left: str, right: str) -> str:
    """Return the differing parts in one line; `left` and `right` name the sides."""
    sentences = [_sentence(part, left, right) for part in parts[:PARTS_MAX]]
    if len(parts) > PARTS_MAX:
        sentences.append(f"and {len(parts) - PARTS_MAX} more")
    return "; ".join(sentences) or SAME


def _sentence(part: RequestPart, left: str, right: str) -> str:
    a, b = part.shown
    if part.left is None:
        return f"{part.name} is {b} {right} and missing {left}"
    if part.right is None:
        return f"{part.name} is {a} {left} and missing {right}"
    return f"{part.name} is {a} {left} and {b} {right}"


def _messages(left: Sequence[Message], right: Sequence[Message]) -> Iterator[RequestPart]:
    """Yield the differing messages, without the equal ones at the beginning and at the end."""
    begin, shorter = 0, min(len(left), len(right))
    while begin < shorter and _said(left[begin]) == _said(right[begin]):
        begin += 1
    end = 0
    while end < shorter - begin and _said(left[-1 - end]) == _said(right[-1 - end]):
        end += 1
    pairs = zip_longest(left[begin : len(left) - end], right[begin : len(right) - end])
    for number, (a, b) in enumerate(pairs, start=begin + 1):
        yield from _message(f"message {number}", a, b)


def _message(name: str, a: Message | None, b: Message | None) -> Iterator[RequestPart]:
    if a is None or b is None:
        there = a or b
        assert there is not None  # noqa: S101 - for the type checker
        yield RequestPart(name=f"{name} ({there.role})", left=_value(a), right=_value(b))
        return
    if a.role != b.role:
        yield RequestPart(name=f"{name}, role", left=a.role, right=b.role)
    role = f" ({a.role})" if a.role == b.role else ""
    if a.content != b.content:
        yield RequestPart(name=f"{name}{role}", left=a.content, right=b.content)
    if _calls(a) != _calls(b):
        yield RequestPart(name=f"{name}{role}, tool calls", left=_calls(a), right=_calls(b))


def _value(message: Message | None) -> Any:
    if message is None:
        return None
    return [message.content, _calls(message)] if message.tool_calls else message.content


def _calls(message: Message) -> list[list[str]]:
    return [[call.name, call.arguments] for call in message.tool_calls]


def _said(message: Message) -> tuple[Any, ...]:
    return message.role, message.content, _calls(message)


def _tools(left: Sequence[ToolSchema], right: Sequence[ToolSchema]) -> Iterator[RequestPart]:
    then, now = ({tool.name: tool for tool in tools} for tools in (left, right))
    for name in dict.fromkeys([*then, *now]):
        a, b = then.get(name), now.get(name)
        if a is None or b is None:
            values = [None if tool is None else tool.description for tool in (a, b)]
            yield RequestPart(name=f"tool {name!r}", left=values[0], right=values[1])
            continue
        for field in ("description", "parameters"):
            if getattr(a, field) != getattr(b, field):
                yield RequestPart(
                    name=f"tool {name!r}, {field}", left=getattr(a, field), right=getattr(b, field)
                )
    if then.keys() == now.keys() and list(then) != list(now):
        yield RequestPart(name="the order of the tools", left=list(then), right=list(now))


def _parameters(left: dict[str, Any], right: dict[str, Any]) -> Iterator[RequestPart]:
    for name in dict.fromkeys([*left, *right]):
        if left.get(name) != right.get(name):
            yield RequestPart(name=name, left=left.get(name), right=right.get(name))


def _json(value: Any) -> str:
    return canonical_json(value).decode()


def _cut(text: str, begin: int) -> str:
    end = begin + TEXT_MAX
    return f"{'…' if begin else ''}{text[begin:end]}{'…' if end < len(text) else ''}"
