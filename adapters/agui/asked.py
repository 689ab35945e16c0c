"""Parse and check a request (`RunAgentInput`). Content that an agent cannot take is refused, never dropped."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ...eventlog.errors import ConfigError
from ...runtime.ports.files import Content, ContentPart, File
from ..http.answers import Refused

MESSAGES_MAX = 1000
INTERRUPTS_MAX = 1000
_FILES = ("image", "audio", "video", "document")


class Answer(msgspec.Struct, frozen=True):
    """The answer to one interrupt; `payload` is None if it was dismissed."""

    interrupt: str
    payload: Mapping[str, Any] | None


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A checked request: `content` starts a run, or `answers` continue one that waits."""

    thread: str
    run: str
    messages: list[dict[str, Any]]
    content: Content = ""
    before: tuple[dict[str, Any], ...] = ()
    """The messages before `content`, used if the thread has no runs in the log."""
    instructions: str = ""
    properties: Any = None
    answers: tuple[Answer, ...] = ()


def read_asked(body: Any) -> Asked:
    """Parse the body of a request. Raises `Refused` (422)."""
    if not isinstance(body, dict):
        raise Refused(422, "the body must be a RunAgentInput")
    if body.get("tools"):
        raise Refused(422, "tools: an agent has its own; tools of the client are not carried")
    if body.get("state"):
        raise Refused(422, "state: agents share no state with the client; leave it empty")
    messages = _objects(body, "messages", MESSAGES_MAX)
    answers = tuple(_answer(each) for each in _objects(body, "resume", INTERRUPTS_MAX))
    content: Content = ""
    if not answers:
        if not messages or messages[-1].get("role") != "user":
            raise Refused(422, "messages: the last one must be of the user")
        content = _content(messages[-1])
    return Asked(
        thread=_text(body, "threadId"),
        run=_text(body, "runId"),
        messages=messages,
        content=content,
        before=tuple(_said(messages[:-1])),
        instructions=_instructions(messages, _objects(body, "context", MESSAGES_MAX)),
        properties=body.get("forwardedProps") or None,
        answers=answers,
    )


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise Refused(422, f"{name} must be a text that is not empty")
    return value


def _objects(body: Mapping[str, Any], name: str, most: int) -> list[dict[str, Any]]:
    found = body.get(name)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise Refused(422, f"{name} must be a list of objects")
    if len(found) > most:
        raise Refused(422, f"{name} has more than {most:,} entries")
    return found


def _answer(entry: Mapping[str, Any]) -> Answer:
    interrupt, status, payload = (entry.get(name) for name in ("interruptId", "status", "payload"))
    if not isinstance(interrupt, str) or status not in ("resolved", "cancelled"):
        raise Refused(422, "resume: an entry has an interruptId and a status, resolved or cancelled")
    if payload is not None and not isinstance(payload, dict):
        raise Refused(422, "resume: a payload is an object, as the responseSchema of its interrupt says")
    return Answer(interrupt, (payload or {}) if status == "resolved" else None)


def _said(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the text messages of the user and the assistant, without their ids and without tool calls."""
    return [
        {"role": each["role"], "content": each["content"]}
        for each in messages
        if each.get("role") in ("user", "assistant")
        and isinstance(each.get("content"), str)
        and each["content"]
    ]


def _instructions(messages: Sequence[Mapping[str, Any]], context: Sequence[Mapping[str, Any]]) -> str:
    """Join system messages, developer messages and the page's context into instructions."""
    said = [each.get("content") for each in messages if each.get("role") in ("system", "developer")]
    told = [f"{each.get('description', '')}: {each.get('value', '')}" for each in context]
    return "\n\n".join(each for each in [*said, *told] if isinstance(each, str) and each)


def _content(message: Mapping[str, Any]) -> Content:
    given = message.get("content")
    if isinstance(given, str) and given:
        return given
    if not isinstance(given, list) or not given:
        raise Refused(422, "messages: the last one must have a text, or a list of parts")
    return [_part(each) for each in given]


def _part(part: Any) -> ContentPart:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    source = part.get("source") if isinstance(kind, str) and kind in _FILES else None
    value = source.get("value") if isinstance(source, dict) else None
    if not isinstance(source, dict) or not isinstance(value, str):
        raise Refused(422, f"messages: an agent takes text, {', '.join(_FILES)}, not {kind!r:.80}")
    media_type = source.get("mimeType")
    media_type = media_type if isinstance(media_type, str) else None
    try:
        if source.get("type") == "url":
            return File.from_url(value, media_type=media_type)
        return File.from_bytes(base64.b64decode(value, validate=True), media_type=media_type)
    except (binascii.Error, ValueError):
        raise Refused(422, "messages: the data of a part is not valid base64") from None
    except ConfigError as error:
        raise Refused(422, f"messages: {error}") from None
