"""The reply items of a vendor: the parts of an answer in order, as pydantic-ai writes them.

The message already contains texts and calls, so an item only records their place: `{"text": 12}` stands for the next
twelve characters of the answer's text and `{"call": 0}` for its first call, each with the vendor's signature
(`provider_details`); `{"file": 0}` stands for the first file that the model generated. All other parts (thinking with
its signature, redacted thinking, calls of the vendor's own tools) are kept whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ....projections.messages import Message

if TYPE_CHECKING:
    from pydantic_ai import messages as pai

NATIVE = frozenset({"builtin-tool-call", "builtin-tool-return"})
"""The kinds of parts for calls and results of the vendor's own tools."""
_NOT_SENT = frozenset({"timestamp"})
_SIGNED = ("provider_name", "provider_details")


def wanted(whole: pai.ModelResponse) -> list[dict[str, Any]]:
    """Return the parts of an answer in order; none if only texts and calls have to be sent back."""
    items = list(_items(whole.parts))
    opaque = [item for item in items if item.keys() - {"text", "call", "file"}]
    return items if any(_is_signed(item) or item.get("part_kind") in NATIVE for item in opaque) else []


def _items(parts: Sequence[pai.ModelResponsePart]) -> Iterator[dict[str, Any]]:
    calls = files = 0
    for part in parts:
        match part.part_kind:
            case "text":
                yield {"text": _length(part.content), **_signed(part)}
            case "tool-call":
                yield {"call": calls, **_signed(part)}
                calls += 1
            case "file":
                yield {"file": files, **_signed(part)}
                files += 1
            case "thinking" | "builtin-tool-call" | "builtin-tool-return":
                yield _dumped(part)
            case _:
                pass


def _is_signed(item: dict[str, Any]) -> bool:
    """Return whether the vendor can tell that the item is its own."""
    return bool(item.get("signature") or item.get("provider_details") or item.get("id"))


def _signed(part: Any) -> dict[str, Any]:
    if not part.provider_details:
        return {}
    return {name: value for name in _SIGNED if (value := _dumped(part).get(name))}


def _dumped(part: Any) -> dict[str, Any]:
    """Return the part as JSON, without unset fields."""
    from pydantic_ai import messages as pai

    (turn,) = pai.ModelMessagesTypeAdapter.dump_python([pai.ModelResponse(parts=[part])], mode="json")
    (dumped,) = turn["parts"]
    return {name: value for name, value in dumped.items() if value is not None and name not in _NOT_SENT}


def _length(text: str) -> int:
    """Return the number of characters, counting a surrogate pair as one, as in the message."""
    return len(text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def restored(
    message: Message, call_parts: Sequence[pai.ToolCallPart], file_parts: Sequence[pai.FilePart]
) -> Iterator[pai.ModelResponsePart]:
    """Yield the parts of a message, each at its place. A text, file or call that no item names comes last."""
    from pydantic_ai import messages as pai

    assert message.reply_state is not None  # noqa: S101 - the caller has looked
    text, named, shown = message.content, set[int](), set[int]()
    opaque: list[dict[str, Any]] = [item for item in message.reply_state.items if isinstance(item, dict)]
    last = max((number for number, item in enumerate(opaque) if "text" in item), default=-1)
    for number, item in enumerate(opaque):
        if "text" in item:
            piece, text = (text, "") if number == last else (text[: item["text"]], text[item["text"] :])
            yield _with(pai.TextPart(piece), item)
        elif "call" in item and item["call"] < len(call_parts):
            named.add(item["call"])
            yield _with(call_parts[item["call"]], item)
        elif "file" in item and item["file"] < len(file_parts):
            shown.add(item["file"])
            yield _with(file_parts[item["file"]], item)
        elif "part_kind" in item:
            yield _parsed(item)
    if text:
        yield pai.TextPart(text)
    yield from (part for number, part in enumerate(file_parts) if number not in shown)
    yield from (part for number, part in enumerate(call_parts) if number not in named)


def _with(part: Any, item: dict[str, Any]) -> Any:
    for name in _SIGNED:
        if name in item:
            setattr(part, name, item[name])
    return part


def _parsed(item: dict[str, Any]) -> pai.ModelResponsePart:
    from pydantic_ai import messages as pai

    (turn,) = pai.ModelMessagesTypeAdapter.validate_python([{"kind": "response", "parts": [item]}])
    return turn.parts[0]
