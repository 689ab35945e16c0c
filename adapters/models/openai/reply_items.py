"""The reply items of the Responses API: its output items, in their original order.

The message already contains texts and calls, so an item only records their place: `{"text": 12}` stands for the next
twelve characters of the answer's text, with other fields of that output item (`phase`), and `{"call": 0}` for the first
call. All other items (reasoning with its `encrypted_content`, calls of the provider's own tools) are kept whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

_KEPT_OF_MESSAGE = ("phase",)


class _Item(msgspec.Struct):
    key: int
    kept: dict[str, Any]
    is_opaque: bool = False


class OutputItems:
    """Gathers the output items of one answer."""

    def __init__(self) -> None:
        self._items: list[_Item] = []
        self._characters: dict[int, int] = {}

    def write(self, key: Any, text: str) -> None:
        """Count a piece of text of the output item with the server's `key`."""
        place = _place(key)
        self._characters[place] = self._characters.get(place, 0) + len(text)

    def add(self, key: Any, item: dict[str, Any], call: int | None) -> None:
        """Add a complete output item; `call` is the number of the call, if the item is one."""
        match item.get("type"):
            case "message":
                kept = {name: item[name] for name in _KEPT_OF_MESSAGE if item.get(name)}
                self._items.append(_Item(_place(key), kept))
            case "function_call":
                self._items.append(_Item(_place(key), {"call": call or 0}))
            case _:
                self._items.append(_Item(_place(key), item, is_opaque=True))

    def wanted(self) -> list[dict[str, Any]]:
        """Return all items in the answer's order; none if text and calls are all that has to be sent back."""
        if not any(item.is_opaque or item.kept.keys() & set(_KEPT_OF_MESSAGE) for item in self._items):
            return []
        return [self._as_kept(item) for item in sorted(self._items, key=lambda item: item.key)]

    def _as_kept(self, item: _Item) -> dict[str, Any]:
        if item.is_opaque or "call" in item.kept:
            return item.kept
        return {"text": self._characters.get(item.key, 0), **item.kept}


def _place(key: Any) -> int:
    return key if isinstance(key, int) else 0


def restored(items: Sequence[Any], text: str, calls: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield an earlier answer as input items: its items in order, with text and calls at their places.

    Reasoning is yielded only before the item that it led to, because the API refuses it alone. Text and calls without
    an item come last.
    """
    left, thoughts = dict(enumerate(calls)), list[dict[str, Any]]()
    texts = sum(1 for item in items if isinstance(item, dict) and "text" in item)
    for item in items:
        match item:
            case {"type": "reasoning"}:
                thoughts.append(item)
            case {"type": str()}:
                yield from thoughts
                yield item
                thoughts = []
            case {"text": int(length)}:
                rest = {name: item[name] for name in _KEPT_OF_MESSAGE if name in item}
                texts -= 1
                piece, text = (text[:length], text[length:]) if texts else (text, "")
                if piece:
                    yield from thoughts
                    yield {"role": "assistant", "content": piece, **rest}
                    thoughts = []
            case {"call": int(number)} if number in left:
                yield from thoughts
                yield left.pop(number)
                thoughts = []
            case _:
                pass  # an item without its call
    if text:
        yield {"role": "assistant", "content": text}
    yield from left.values()
