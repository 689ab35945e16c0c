"""Large values live beside the log: a field above the limit is stored as an artifact, and its commit holds a reference.

A reference is `{"$artifact": <SHA-256 of the encoded value>, "size_bytes": n}`. A value of the user's that would look
like one is stored as `{"$value": <it>}`, so that what is read is always what was written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from .errors import LogCorrupted
from .events import (
    Custom,
    Event,
    KnowledgeFound,
    LateOutcome,
    Memoized,
    MemoryHydrated,
    PlannerToolReturned,
    ResultRecorded,
    ToolResult,
)
from .ports import Artifacts

FIELD_BYTES_MAX = 32 * 1024
"""How large a value may be, encoded, to stay in its event."""

E = TypeVar("E", bound=Event)
_FIELDS: dict[type[Event], str] = {
    MemoryHydrated: "messages",
    KnowledgeFound: "items",
    ToolResult: "result",
    Custom: "data",
    Memoized: "value",
    LateOutcome: "result",
    ResultRecorded: "result",
    PlannerToolReturned: "result",
}
OFFLOADED: tuple[type[Event], ...] = tuple(_FIELDS)
"""The events that have such a field."""
_REFERENCE, _SIZE, _VALUE = "$artifact", "size_bytes", "$value"
_BYTES_PER_CHARACTER_MAX = 6
_ENCODER = msgspec.json.Encoder(order="deterministic")


def has_large(events: Iterable[Event]) -> bool:
    """Whether `spill` would change any of them."""
    for event in events:
        field = _FIELDS.get(type(event))
        if field is not None and not _stays(getattr(event, field)):
            return True
    return False


def has_references(events: Iterable[Event]) -> bool:
    """Whether `restore` would change any of them."""
    for event in events:
        field = _FIELDS.get(type(event))
        if field is not None:
            value = getattr(event, field)
            if isinstance(value, dict) and _looks_reserved(value):
                return True
    return False


async def spill(events: Sequence[E], artifacts: Artifacts) -> Sequence[E]:
    """The events as they are stored: large values are put into `artifacts` and replaced by references.

    Returns the very same sequence when nothing is to be replaced.
    """
    changed = {
        index: msgspec.structs.replace(event, **{field: await _shrink(getattr(event, field), artifacts)})
        for index, event in enumerate(events)
        if (field := _FIELDS.get(type(event))) is not None and not _stays(getattr(event, field))
    }
    return [changed.get(index, event) for index, event in enumerate(events)] if changed else events


def inline_bytes(event: Event) -> int:
    """How large the event is, encoded, without the value that would be stored beside it."""
    field = _FIELDS.get(type(event))
    return len(_ENCODER.encode(msgspec.structs.replace(event, **{field: None}) if field else event))


def _stays(value: Any) -> bool:
    match value:
        case None | bool() | int() | float():
            return True
        case str() if len(value) * _BYTES_PER_CHARACTER_MAX < FIELD_BYTES_MAX:
            return True
        case dict() if _looks_reserved(value):
            return False
        case _:
            return len(_ENCODER.encode(value)) <= FIELD_BYTES_MAX


def _looks_reserved(value: dict[str, Any]) -> bool:
    return _REFERENCE in value or _VALUE in value


async def _shrink(value: Any, artifacts: Artifacts) -> Any:
    data = _ENCODER.encode(value)
    if len(data) <= FIELD_BYTES_MAX:
        return {_VALUE: value}
    return {_REFERENCE: await artifacts.put(data), _SIZE: len(data)}


async def restore(events: Sequence[E], artifacts: Artifacts, *, run: str = "", rev: int = 0) -> Sequence[E]:
    """The events as they were before `spill`; the very same sequence when there is nothing to put back.

    `run` and `rev` (of the first event) say in errors where the events stand. Raises `LogCorrupted` for an artifact
    that is missing or damaged.
    """
    changed: dict[int, E] = {}
    for index, event in enumerate(events):
        field = _FIELDS.get(type(event))
        value = getattr(event, field) if field else None
        if field and isinstance(value, dict) and _looks_reserved(value):
            where = (event.run_id or run or "(unknown)", event.revision or rev + index)
            changed[index] = msgspec.structs.replace(event, **{field: await _grow(value, artifacts, where)})
    return [changed.get(index, event) for index, event in enumerate(events)] if changed else events


async def _grow(value: dict[str, Any], artifacts: Artifacts, where: tuple[str, int]) -> Any:
    if value.keys() == {_VALUE}:
        return value[_VALUE]
    digest = value.get(_REFERENCE)
    try:
        return msgspec.json.decode(await artifacts.get(str(digest)))
    except KeyError:
        raise LogCorrupted(*where, f"the artifact {digest} that it refers to is missing") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise LogCorrupted(
            *where, f"the artifact {digest} that it refers to is unreadable ({error})"
        ) from error
