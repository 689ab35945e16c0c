"""Read a message from a client: content for a run, or answers to its approvals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from a2a.types import Message, Part
from a2a.utils.errors import InvalidParamsError
from google.protobuf.json_format import MessageToDict

from ...eventlog.errors import ConfigError
from ...eventlog.events import ApprovalRequested
from ...runtime.ports.files import Content, ContentPart, File
from ..protocols.questions import Answered, answer_by, word_of

PARTS_MAX = 1000


def content_of(message: Message) -> Content:
    """Return the content of a message for a run. Raises `InvalidParamsError` for a message without any."""
    if not message.parts or len(message.parts) > PARTS_MAX:
        raise InvalidParamsError(f"a message has 1 to {PARTS_MAX:,} parts")
    try:
        parts = [_part(part) for part in message.parts]
    except ConfigError as error:
        raise InvalidParamsError(str(error)) from None
    texts = [part for part in parts if isinstance(part, str)]
    if len(texts) < len(parts):
        return parts
    if not any(texts):
        raise InvalidParamsError("a message needs a text that is not empty, or a file")
    return "\n".join(texts)


def _part(part: Part) -> ContentPart:
    match part.WhichOneof("content"):
        case "text":
            return part.text
        case "raw":
            return File.from_bytes(part.raw, media_type=part.media_type or None, name=part.filename)
        case "url":
            return File.from_url(part.url, media_type=part.media_type or None, name=part.filename)
        case "data":
            return msgspec.json.encode(_whole(MessageToDict(part.data))).decode()
        case _:
            raise InvalidParamsError("a part of a message is empty")


def answers_in(message: Message, asked: Mapping[str, ApprovalRequested]) -> dict[str, Answered]:
    """Return the answers to all open approvals (`asked`), by approval id.

    A message answers a single approval with a word such as "yes", any number of them with one data part: a form for
    each approval id. Raises `InvalidParamsError` for a message that does not answer them all.
    """
    data = [_whole(MessageToDict(part.data)) for part in message.parts if part.HasField("data")]
    word = word_of(" ".join(part.text for part in message.parts if part.HasField("text")))
    if not data and word is not None:
        if len(asked) > 1:
            raise InvalidParamsError(f"the task asks {len(asked)} things: answer with data, by their ids")
        given: Any = {key: {"approve": word} for key in asked}
    else:
        given = _by_id(data[0] if len(data) == 1 else None, asked)
    if missing := asked.keys() - given.keys():
        raise InvalidParamsError(f"answer all approvals at once; missing: {', '.join(sorted(missing))}")
    return {key: _answer(each, given[key]) for key, each in asked.items()}


def _whole(value: Any) -> Any:
    """Turn floats with integral values back into integers: every number on the wire is a float."""
    if isinstance(value, dict):
        return {key: _whole(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_whole(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _by_id(data: Any, asked: Mapping[str, ApprovalRequested]) -> Mapping[str, Any]:
    """Return the forms by approval id. A bare form answers the only open approval."""
    if isinstance(data, dict) and data and all(isinstance(each, dict) for each in data.values()):
        if unknown := data.keys() - asked.keys():
            raise InvalidParamsError(f"the task does not ask {min(unknown)[:80]!r} now")
        return data
    if isinstance(data, dict) and len(asked) == 1:
        return dict.fromkeys(asked, data)
    raise InvalidParamsError(
        "the task waits for an answer: say yes or no, or send one part with data, "
        '{"approve": true}, or such a form for each approval by its id'
    )


def _answer(asked: ApprovalRequested, form: Mapping[str, Any]) -> Answered:
    found = answer_by(asked, form)
    if found is None and form.get("approve") is False:
        return Answered("rejected")
    if found is None:
        raise InvalidParamsError(
            f"the answer to {asked.approval_id} must meet the schema that the task shows"
        )
    return found
