"""The first commit of a run: the task and its configuration, validated before anything is stored."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, get_args

import msgspec

from ...eventlog.errors import ConfigError, PayloadTooLarge
from ...eventlog.events import (
    PROGRAM,
    Actor,
    ParentLink,
    Parked,
    Status,
    StoredEvent,
    Submitted,
    Trigger,
    TriggerKind,
    Via,
)
from ...eventlog.names import check_name
from ...eventlog.parts import Part, TextPart, files_of
from ...eventlog.ports import COMMIT_BYTES_MAX
from ...eventlog.priorities import Priority, priority_of
from ...projections.messages import canonical_json, parse_messages, sha256_hex
from ..ports.json_values import as_stored
from ..ports.runnable import Runnable
from . import lineage
from .rules import RULES_NOW

TRACEPARENT = re.compile(r"[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
"""The W3C trace context of version 00; later versions begin with the same fields."""
TRIGGER_TEXT_MAX = 512
"""The greatest length of a text in a trigger, in characters."""
START_TIMER = "start"
CHILD = "child"
"""The executor of a run that belongs to a call of its parent: the parent's driver drives it, and no other (W19)."""


def submitted_event(  # noqa: PLR0913 - its parts
    runnable: Runnable,
    input: str,  # noqa: A002 - the word of the field
    *,
    executor: str,
    parts: Sequence[Part] = (),
    messages: Sequence[Mapping[str, Any]] = (),
    session: str | None = None,
    lane: str | None = None,
    user: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    idempotency_key: str | None = None,
    parent: ParentLink | None = None,
    policy: Mapping[str, Any] = MappingProxyType({}),
    overrides: Mapping[str, Any] = MappingProxyType({}),
    trigger: Trigger | None = None,
    start_at: float | None = None,
    priority: Priority | int | None = None,
) -> Submitted:
    """Return the event that opens a run, with `parts`, `policy` and `overrides` as in `Submitted`.

    Raises `ConfigError`, `PayloadTooLarge`.
    """
    check_text("the input of a run", input)
    _check_start(trigger, start_at, session)
    check_input = getattr(runnable, "check_input", None)
    if check_input is not None:
        check_input(input)
    names = {"the session": session, "the user": user, "the idempotency key": idempotency_key}
    for what, text in names.items():
        if text is not None:
            check_text(what, text)
            if not text:
                raise ConfigError(f"{what} must not be empty; leave it out instead")
    history = _history(messages)
    extra = _json_object("metadata", {} if metadata is None else metadata)
    config = runnable.to_config()
    task = {"input": input, "messages": history, "session": session, "metadata": extra}
    if user is not None:
        task["user"] = user
    if lane is not None:
        check_lane(session, lane)
        task["lane"] = lane
    if parts:
        task["parts"] = [msgspec.to_builtins(as_stored(part)) for part in parts]
    if overrides:
        task["overrides"] = dict(overrides)
    config_json = canonical_json(config)
    size = len(config_json) + len(canonical_json({"policy": dict(policy), **task}))
    if size > COMMIT_BYTES_MAX - 16 * 1024:
        raise PayloadTooLarge(
            "the input of the run (with messages and metadata)", size, COMMIT_BYTES_MAX - 16 * 1024
        )
    return Submitted(
        kind=runnable.kind,
        config=config,
        config_digest=sha256_hex(config_json),
        input=input,
        parts=list(parts),
        input_digest=sha256_hex(
            canonical_json({"kind": runnable.kind, "agent": runnable.name, **uncounted(task)})
        ),
        messages=history,
        session=session,
        user=user,
        metadata=extra,
        executor=executor,
        lane=None if session is None else lane_of(session, lane),
        idempotency_key=idempotency_key,
        parent=parent,
        policy=dict(policy),
        overrides=dict(overrides),
        rules=RULES_NOW,
        trigger=trigger,
        start_at=start_at,
        priority="normal" if priority is None else priority_of(priority),
    )


def uncounted(value: Any) -> Any:
    """Return JSON without the `tokens` of its file parts: another process may know another rule for them."""
    match value:
        case {"type": "file", "media_type": str()}:
            return {name: each for name, each in value.items() if name != "tokens"}
        case dict():
            return {name: uncounted(each) for name, each in value.items()}
        case list():
            return [uncounted(each) for each in value]
        case _:
            return value


def with_text(submitted: Submitted, text: str) -> Sequence[Part]:
    """Return the input of a run in parts, with another text before its files; empty for one text."""
    if text == submitted.input:
        return submitted.parts
    files = files_of(submitted.parts)
    return [TextPart(text=text), *files] if files else []


def with_model(submitted: Submitted, model: str) -> Submitted:
    """Return the submission with another model; of a swarm or loop, for all its agents."""
    config = lineage.with_model(submitted.kind, submitted.config, model)
    return msgspec.structs.replace(submitted, config=config, config_digest=sha256_hex(canonical_json(config)))


def _check_start(trigger: Trigger | None, start_at: float | None, session: str | None) -> None:
    if trigger is not None:
        check_trigger(trigger)
    if start_at is not None and session is not None:
        raise ConfigError(
            "a run in a session cannot start later: it would hold up the runs behind it; start it without the session"
        )


def opening_events(submitted: Submitted) -> list[StoredEvent]:
    """Return the events of a run's first commit: its submission, and its first status, until its time if it has one."""
    opened: list[StoredEvent] = [submitted, Status(status="starting")]
    if submitted.start_at is not None:
        opened.append(Parked(reason="timer", timer_id=START_TIMER, due_at=submitted.start_at))
    return opened


def check_trigger(trigger: object) -> None:
    """Raise `ConfigError` unless this is a trigger whose ids can be stored and shown."""
    if not isinstance(trigger, Trigger):
        raise ConfigError(f"the trigger must be a Trigger, not {type(trigger).__name__}")
    kinds = get_args(TriggerKind)
    if trigger.kind not in kinds:
        raise ConfigError(f"the trigger's kind must be one of {', '.join(kinds)}, not {trigger.kind!r}")
    for name in ("name", "key", "request_id", "traceparent", "by"):
        text = getattr(trigger, name)
        check_text(f"the trigger's {name}", text)
        if len(text) > TRIGGER_TEXT_MAX or not text.isprintable():
            raise ConfigError(
                f"the trigger's {name} must have at most {TRIGGER_TEXT_MAX} printable characters"
            )
    if trigger.traceparent and not TRACEPARENT.fullmatch(trigger.traceparent):
        raise ConfigError(f"{trigger.traceparent!r} is not a traceparent: 00-<32 hex>-<16 hex>-<2 hex>")


def actor_of(by: object) -> Actor:
    """Return the author of an action, given by name or with more. Raises `ConfigError` for what cannot be stored."""
    actor = by if isinstance(by, Actor) else Actor(by=by)  # type: ignore[arg-type] # checked below
    check_text("the name of the actor (by)", actor.by)
    check_text("the actor's request_id", actor.request_id)
    if actor.via not in get_args(Via):
        doors = ", ".join(filter(None, get_args(Via)))
        raise ConfigError(f"the actor's via must be one of {doors}, not {actor.via!r:.40}")
    if max(len(actor.by), len(actor.request_id)) > TRIGGER_TEXT_MAX:
        raise ConfigError(f"an actor's name and request_id have at most {TRIGGER_TEXT_MAX} characters")
    return actor


def with_actor(trigger: Trigger | None, by: object) -> Trigger | None:
    """Return what started a run, with its actor; null for a program that says nothing, which stores nothing."""
    actor, found = actor_of(by), trigger or PROGRAM
    check_trigger(found)
    found = msgspec.structs.replace(
        found,
        by=actor.by or found.by,
        via="" if actor.via == found.kind else actor.via or found.via,
        request_id=found.request_id or actor.request_id,
    )
    return None if found == PROGRAM else found


def check_text(what: str, value: object) -> None:
    """Raise `ConfigError` unless the value is text that the log can store."""
    if not isinstance(value, str):
        raise ConfigError(f"{what} must be text, not {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"{what} is not valid Unicode at character {error.start + 1}") from None


def _history(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages as stored. Raises `ConfigError`."""
    if not _are_objects(messages):
        raise ConfigError("messages: must be a list of objects with role and content")
    try:
        return [msgspec.to_builtins(as_stored(message)) for message in parse_messages(messages)]
    except (TypeError, ValueError) as error:
        raise ConfigError(f"messages: {error}") from error


def _are_objects(given: object) -> bool:
    return isinstance(given, Sequence) and all(isinstance(each, Mapping) for each in given)


def handed_down(above: Submitted | None) -> Trigger:
    """Return the trigger of a run below this one."""
    trigger = above.trigger if above is not None else None
    return (trigger or Trigger(kind="child")).handed_down()


def check_lane(session: str | None, lane: object) -> None:
    """Raise `ConfigError` unless the lane has a valid name, and is that of a session."""
    check_name("the lane", lane)
    if session is None:
        raise ConfigError(f"the lane {lane!r} is a lane of a session: give the session, too")


def lane_of(session: str, lane: str | None = None) -> str:
    """Return the lane in which runs of a session run one after another; of its named lanes, or that without a name."""
    return f"session:{session}" if lane is None else f"lane:{lane}:{session}"


def _json_object(what: str, value: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{what} must be a JSON object, not {type(value).__name__}")
    try:
        result: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise ConfigError(f"{what} must be a JSON object: {error}") from error
    if result != value:
        raise ConfigError(f"{what} must hold only JSON values: it would change when stored")
    return result
