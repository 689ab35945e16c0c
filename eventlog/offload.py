"""Offloading: a value above the limit is stored as an artifact, and its commit has a reference to it.

A reference is `{"$artifact": <SHA-256 of the encoded value>, "size_bytes": n}`. A user's value that looks like one is
stored as `{"$value": <it>}`, so that readers always get the value that was written.

Where a family is sealed (`sealing`), which the given artifacts know, the content of an event is sealed as a whole, and
then put aside if it is large.

If a commit as a whole is too large, its largest values are offloaded too, even below the limit. Events that have text
instead of such a value are then stored as artifacts completely, and replaced by an `Offloaded` event.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, TypeVar, cast

import msgspec

from .errors import KeyErased, KeyMissing, LogCorrupted
from .events import (
    ApprovalRequested,
    ChildReturned,
    Custom,
    Event,
    EventFields,
    KnowledgeFound,
    LateOutcome,
    Memoized,
    MemoryHydrated,
    MessageInjected,
    Offloaded,
    OutputMade,
    PlanMade,
    PlannerReplied,
    PlannerToolReturned,
    Prepared,
    Reasoning,
    ReplyState,
    ResultRecorded,
    SealedContent,
    SignalReceived,
    StoredEvent,
    Submitted,
    SummaryMade,
    Text,
    ToolCall,
    ToolPartial,
    ToolResult,
    Unknown,
    WaitEnded,
)
from .ports import FamilyArtifacts
from .sealing.content import put_back, taken_out
from .sealing.log import SealedFamily

FIELD_BYTES_MAX = 32 * 1024
"""The largest size of an encoded value that stays in its event."""

E = TypeVar("E", bound=EventFields)
W = TypeVar("W", bound=EventFields)
T = TypeVar("T")
LARGE_FIELDS: dict[type[EventFields], str] = {
    MemoryHydrated: "messages",
    KnowledgeFound: "items",
    ToolResult: "result",
    Custom: "data",
    ToolPartial: "value",
    Memoized: "value",
    WaitEnded: "data",
    SignalReceived: "data",
    LateOutcome: "result",
    ResultRecorded: "result",
    PlannerToolReturned: "result",
    ReplyState: "items",
}
"""The field of each event type that is offloaded if it is large. Types neither here nor in `OUTLINES` stay complete."""
OUTLINES: dict[type[EventFields], dict[str, Any]] = {
    Prepared: {"tools": [], "instructions": ""},
    Text: {"text": ""},
    Reasoning: {"text": ""},
    ToolCall: {"arguments": {}, "raw_arguments": None, "injected_args": {}},
    ApprovalRequested: {"arguments": {}, "injected_args": {}, "result": None},
    MessageInjected: {"content": "", "parts": []},
    ChildReturned: {"output": ""},
    OutputMade: {"output": ""},
    PlannerReplied: {"text": "", "calls": []},
    PlanMade: {"plan": ""},
    SummaryMade: {"text": ""},
}
"""The events that can be offloaded completely, with the values that replace large fields in their outlines."""
ASIDE_BYTES_MIN = 512
"""The smallest event that is offloaded completely; smaller ones would save too little."""
_REFERENCE, _SIZE, _VALUE = "$artifact", "size_bytes", "$value"
_BYTES_PER_CHARACTER_MAX = 6
_ENCODER = msgspec.json.Encoder(order="deterministic")


@cache
def _stored() -> msgspec.json.Decoder[StoredEvent]:
    """Return the decoder of events, made with the first: the types of all events take longer than most imports."""
    return msgspec.json.Decoder(StoredEvent)


def has_large(events: Iterable[Event], artifacts: FamilyArtifacts) -> bool:
    """Return whether `spill` would change any of them."""
    if isinstance(artifacts, SealedFamily):
        return True
    for event in events:
        field = LARGE_FIELDS.get(type(event))
        if field is not None and not _stays(getattr(event, field)):
            return True
    return False


def has_references(events: Iterable[Event]) -> bool:
    """Return whether `restore` would change any of them."""
    for event in events:
        if type(event) is Offloaded or event.sealed is not None:
            return True
        field = LARGE_FIELDS.get(type(event))
        if field is not None:
            value = getattr(event, field)
            if isinstance(value, dict) and _looks_reserved(value):
                return True
    return False


async def spill(events: Sequence[E], artifacts: FamilyArtifacts) -> Sequence[E]:
    """Store large values in `artifacts`, and return the events with references in their place.

    Returns the same sequence object if there are none. Raises `KeyMissing`, `KeyErased` if content is to be sealed.
    """
    if isinstance(artifacts, SealedFamily):
        return [await _sealed(event, artifacts) for event in events]
    changed = {
        index: msgspec.structs.replace(event, **{field: await _shrink(getattr(event, field), artifacts)})
        for index, event in enumerate(events)
        if (field := LARGE_FIELDS.get(type(event))) is not None and not _stays(getattr(event, field))
    }
    return [changed.get(index, event) for index, event in enumerate(events)] if changed else events


def references(events: Iterable[Event]) -> Iterator[str]:
    """Yield the digests of the artifacts to which these stored events refer."""
    for event in events:
        if isinstance(event, Offloaded):
            yield event.artifact
        if event.sealed is not None and event.sealed.artifact:
            yield event.sealed.artifact
        field = LARGE_FIELDS.get(type(event))
        value = getattr(event, field) if field else None
        if isinstance(value, dict) and isinstance(value.get(_REFERENCE), str) and _SIZE in value:
            yield value[_REFERENCE]


async def put_aside(
    events: Sequence[StoredEvent], size_bytes_max: int, artifacts: FamilyArtifacts
) -> Sequence[StoredEvent]:
    """Offload the largest of these events (results of `spill`) until the rest fits into `size_bytes_max`.

    The result may still be too large, if the events that must stay are.
    """
    kept, sizes = list(events), [len(_ENCODER.encode(event)) + 1 for event in events]
    total = sum(sizes)
    for index in sorted(range(len(kept)), key=lambda index: -sizes[index]):
        if total <= size_bytes_max or sizes[index] < ASIDE_BYTES_MIN:
            break
        kept[index] = await _aside(kept[index], artifacts)
        total += len(_ENCODER.encode(kept[index])) + 1 - sizes[index]
    return kept


async def _aside(event: StoredEvent, artifacts: FamilyArtifacts) -> StoredEvent:
    """Offload the value of an event, or the whole event if it has none."""
    if event.sealed is not None:
        return await _sealed_aside(event, artifacts)
    if type(event) in OUTLINES:
        return await _whole_aside(event, artifacts)
    field = LARGE_FIELDS.get(type(event))
    value = getattr(event, field) if field is not None else None
    if isinstance(value, dict) and value.keys() == {_VALUE}:
        value = value[_VALUE]
    if field is None or len(data := _ENCODER.encode(value)) < ASIDE_BYTES_MIN // 2:
        return event
    return msgspec.structs.replace(
        event, **{field: {_REFERENCE: await artifacts.put(data), _SIZE: len(data)}}
    )


async def _whole_aside(event: StoredEvent, artifacts: FamilyArtifacts) -> Offloaded:
    data = _ENCODER.encode(event)
    return Offloaded(
        agent=event.agent,
        agent_path=event.agent_path,
        step=event.step,
        tool_call_id=event.tool_call_id,
        outline=msgspec.to_builtins(msgspec.structs.replace(event, **OUTLINES[type(event)])),
        artifact=await artifacts.put(data),
        size_bytes=len(data),
    )


def inline_bytes(event: Event) -> int:
    """Return the size of the encoded event without the value that can be offloaded."""
    field = LARGE_FIELDS.get(type(event))
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


async def _shrink(value: Any, artifacts: FamilyArtifacts) -> Any:
    data = _ENCODER.encode(value)
    if len(data) <= FIELD_BYTES_MAX:
        return {_VALUE: value}
    return {_REFERENCE: await artifacts.put(data), _SIZE: len(data)}


async def restore(
    events: Sequence[E], artifacts: FamilyArtifacts, *, run: str = "", rev: int = 0
) -> Sequence[E]:
    """Return the events as they were before `spill`; the same sequence object if nothing was offloaded.

    `run` and `rev` (of the first event) locate the events in errors. Raises `LogCorrupted` for an artifact that is
    missing or damaged, `KeyMissing`, `KeyErased`.
    """
    changed: dict[int, E] = {}
    for index, event in enumerate(events):
        where = (event.run_id or run or "(unknown)", event.revision or rev + index)
        if event.sealed is not None:
            changed[index] = await _unsealed(event, event.sealed, artifacts, where)
            continue
        if isinstance(event, Offloaded):
            changed[index] = cast("E", await _whole(event, artifacts, where))
            continue
        field = LARGE_FIELDS.get(type(event))
        value = getattr(event, field) if field else None
        if field and isinstance(value, dict) and _looks_reserved(value):
            changed[index] = msgspec.structs.replace(event, **{field: await _grow(value, artifacts, where)})
    return [changed.get(index, event) for index, event in enumerate(events)] if changed else events


async def restore_what_opens(events: Sequence[E], artifacts: FamilyArtifacts) -> Sequence[E]:
    """Return what `restore` returns; if the content cannot be opened here, the events as they are."""
    try:
        return await restore(events, artifacts)
    except (KeyMissing, KeyErased):
        return events


async def _sealed(event: E, family: SealedFamily) -> E:
    """Return the event with its content sealed. The submission of a root run chooses the key of its family."""
    if event.sealed is not None:
        return event
    if isinstance(event, Submitted) and event.parent is None:
        await family.begin(event)
    taken = taken_out(event)
    if taken is None:
        return event
    outside, content = taken
    cipher = await family.cipher()
    data = cipher.seal(content, family.root)
    sealed = SealedContent(key=cipher.id, data=base64.b64encode(data).decode(), size_bytes=len(data))
    event = msgspec.structs.replace(outside, sealed=sealed)
    return event if len(sealed.data) <= FIELD_BYTES_MAX else await _sealed_aside(event, family)


async def _sealed_aside(event: E, artifacts: FamilyArtifacts) -> E:
    """Offload the sealed content of an event."""
    sealed = event.sealed
    if sealed is None or len(sealed.data) < ASIDE_BYTES_MIN:
        return event
    store = artifacts.plain if isinstance(artifacts, SealedFamily) else artifacts
    digest = await store.put(base64.b64decode(sealed.data))
    return msgspec.structs.replace(event, sealed=msgspec.structs.replace(sealed, data="", artifact=digest))


async def _unsealed(event: E, sealed: SealedContent, artifacts: FamilyArtifacts, where: tuple[str, int]) -> E:
    """Return the event with its content. Raises `KeyMissing`, `KeyErased`, `LogCorrupted`."""
    if not isinstance(artifacts, SealedFamily):
        raise KeyMissing(
            f"run {where[0]} is sealed, and this process has no key for it: read it in its own log, with [seal] in "
            "foldlog.toml or FOLDLOG_SEAL as the workers have it"
        )
    try:
        if sealed.artifact:
            data = await artifacts.plain.get(sealed.artifact)
        else:
            data = base64.b64decode(sealed.data, validate=True)
        return put_back(event, await artifacts.open(data, sealed.key, *where))
    except KeyError:
        raise LogCorrupted(*where, f"its sealed content, artifact {sealed.artifact}, is missing") from None
    except (binascii.Error, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise LogCorrupted(*where, f"its sealed content is unreadable ({error})") from error


async def _whole(event: Offloaded, artifacts: FamilyArtifacts, where: tuple[str, int]) -> StoredEvent:
    """Return an event that was offloaded completely."""
    whole: StoredEvent = await _read(event.artifact, artifacts, where, _stored().decode)
    return in_place_of(event, whole)


def outline_of(event: E) -> E:
    """Return the outline of an offloaded event (`Unknown` if it is invalid), and any other event unchanged."""
    if not isinstance(event, Offloaded):
        return event
    outline: Event = event
    with contextlib.suppress(msgspec.ValidationError):
        outline = msgspec.convert(event.outline, StoredEvent)
    if isinstance(outline, Offloaded):
        outline = Unknown(original_type=event.type, data=event.outline)
    return cast("E", in_place_of(event, outline))


def in_place_of(event: Event, whole: W) -> W:
    """Return `whole` with the fields that reading has given to `event`, which is in its place in the log."""
    return msgspec.structs.replace(
        whole,
        run_id=event.run_id,
        root_id=event.root_id,
        agent=event.agent,
        agent_path=event.agent_path,
        revision=event.revision,
        cursor=event.cursor,
        at=event.at,
    )


async def _grow(value: dict[str, Any], artifacts: FamilyArtifacts, where: tuple[str, int]) -> Any:
    if value.keys() == {_VALUE}:
        return value[_VALUE]
    return await _read(str(value.get(_REFERENCE)), artifacts, where, msgspec.json.decode)


async def _read(
    digest: str, artifacts: FamilyArtifacts, where: tuple[str, int], decode: Callable[[bytes], T]
) -> T:
    try:
        return decode(await artifacts.get(digest))
    except KeyError:
        raise LogCorrupted(*where, f"the artifact {digest} that it refers to is missing") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise LogCorrupted(
            *where, f"the artifact {digest} that it refers to is unreadable ({error})"
        ) from error
