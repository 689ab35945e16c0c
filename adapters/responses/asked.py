"""Parse and check a request. A parameter that an agent does not support is refused by name, never ignored."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ...eventlog.errors import ConfigError
from ...eventlog.parts import TextPart
from ...runtime.ports.files import Content, ContentPart, File
from .errors import BadRequest

CARRIED = frozenset(
    {
        "model",
        "input",
        "stream",
        "background",
        "previous_response_id",
        "conversation",
        "instructions",
        "metadata",
        "user",
        "temperature",
        "top_p",
        "max_output_tokens",
        "reasoning",
    }
)
HINTS = frozenset({"prompt_cache_key", "prompt_cache_retention", "safety_identifier", "stream_options"})
"""Parameters that do not change the answer: accepted and ignored."""
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "include": ([],),
    "parallel_tool_calls": (True,),
    "service_tier": ("auto",),
    "store": (True,),
    "text": ({}, {"format": {"type": "text"}}),
    "tool_choice": ("auto",),
    "tools": ([],),
    "top_logprobs": (0,),
    "truncation": ("disabled",),
}
"""Parameters that an agent does not support, each with the values that request nothing and are accepted."""
ITEMS_MAX = 1000
PREVIOUS = "previous_response_id"
_SYSTEM = ("system", "developer")


class Decision(msgspec.Struct, frozen=True):
    """The answer to one approval."""

    approval_id: str
    approve: bool
    reason: str = ""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A checked request: either `content` that starts a run, or `decisions` for the run `previous`."""

    model: str
    content: Content = ""
    messages: tuple[dict[str, Any], ...] = ()
    decisions: tuple[Decision, ...] = ()
    instructions: str = ""
    stream: bool = False
    background: bool = False
    previous: str | None = None
    conversation: str | None = None
    metadata: dict[str, str] = {}
    user: str | None = None
    settings: dict[str, Any] = {}


def read_asked(body: Any) -> Asked:
    """Parse the body of a request. Raises `BadRequest`."""
    if not isinstance(body, dict):
        raise BadRequest("the body must be a JSON object")
    given = {name: value for name, value in body.items() if value is not None}
    for name, value in given.items():
        _check_carried(name, value)
    conversation = _conversation(given.get("conversation"))
    previous = _text(given, PREVIOUS)
    if conversation and previous:
        raise BadRequest(f"give conversation or {PREVIOUS}, not both", "conversation")
    found = _Input()
    found.read(given.get("input"))
    if found.decisions and not previous:
        raise BadRequest(f"an mcp_approval_response needs the {PREVIOUS} that asked", PREVIOUS)
    if found.messages and (conversation or previous):
        raise BadRequest(
            "a conversation has its history already: send one message of the user", "input", "too_many_items"
        )
    system = [_text(given, "instructions") or "", *found.system]
    return Asked(
        model=_text(given, "model") or "",
        content=found.content,
        messages=tuple(found.messages),
        decisions=tuple(found.decisions),
        instructions="\n\n".join(filter(None, system)),
        stream=_flag(given, "stream"),
        background=_flag(given, "background"),
        previous=previous,
        conversation=conversation,
        metadata=_metadata(given.get("metadata", {})),
        user=_text(given, "user"),
        settings=_settings(given),
    )


def _check_carried(name: str, value: Any) -> None:
    if name in CARRIED or name in HINTS:
        return
    if name not in NEUTRAL:
        raise BadRequest(f"unknown parameter: {name[:80]!r}", name[:80], "unknown_parameter")
    if value not in NEUTRAL[name]:
        why = (
            "an agent has its own"
            if name in {"tools", "tool_choice", "text"}
            else "an agent does not carry it"
        )
        raise BadRequest(f"{name}: {why}; leave it out", name, "unsupported_parameter")


def _text(given: Mapping[str, Any], name: str) -> str | None:
    value = given.get(name)
    if value is not None and (not isinstance(value, str) or not value):
        raise BadRequest(f"{name} must be a text that is not empty", name, "invalid_type")
    return value


def _flag(given: Mapping[str, Any], name: str) -> bool:
    value = given.get(name, False)
    if not isinstance(value, bool):
        raise BadRequest(f"{name} must be true or false", name, "invalid_type")
    return value


def _conversation(given: Any) -> str | None:
    found = given.get("id") if isinstance(given, dict) else given
    if given is not None and (not isinstance(found, str) or not found):
        raise BadRequest(
            "conversation must be a name, or an object with an id", "conversation", "invalid_type"
        )
    return found


def _metadata(given: Any) -> dict[str, str]:
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise BadRequest("metadata must be an object of texts", "metadata", "invalid_type")
    if PREVIOUS in given:
        raise BadRequest(f"metadata cannot have the key {PREVIOUS}", "metadata")
    return given


def _settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the model settings of the request under foldlog's names; the runtime checks their values."""
    found = {name: given[name] for name in ("temperature", "top_p") if name in given}
    if "max_output_tokens" in given:
        found["max_tokens"] = given["max_output_tokens"]
    reasoning = given.get("reasoning", {})
    if not isinstance(reasoning, dict):
        raise BadRequest("reasoning must be an object", "reasoning", "invalid_type")
    for name, value in reasoning.items():
        if value is not None and name != "effort":
            raise BadRequest(
                f"reasoning.{name[:80]}: an agent does not carry it", "reasoning", "unsupported_parameter"
            )
    if reasoning.get("effort") is not None:
        found["reasoning"] = reasoning["effort"]
    return found


class _Input:
    """Reads the items of an input: the last message becomes the run's input, the others its history."""

    def __init__(self) -> None:
        self.content: Content = ""
        self.messages: list[dict[str, Any]] = []
        self.decisions: list[Decision] = []
        self.system: list[str] = []

    def read(self, given: Any) -> None:
        """Read the parameter `input`. Raises `BadRequest`."""
        if isinstance(given, str) and given:
            self.content = given
            return
        if not isinstance(given, list) or not given:
            raise BadRequest(
                "input must be a text or a list of items, and not empty", "input", "invalid_type"
            )
        if len(given) > ITEMS_MAX:
            raise BadRequest(f"input has more than {ITEMS_MAX:,} items", "input", "too_many_items")
        for index, item in enumerate(given):
            where = f"input[{index}]"
            if not isinstance(item, dict):
                raise BadRequest(f"{where} must be an object", where, "invalid_type")
            self._item(item, where)
        if self.decisions:
            if self.messages or self.system:
                raise BadRequest("send the answers to approvals alone, without messages", "input")
            return
        if not self.messages or self.messages[-1]["role"] != "user":
            raise BadRequest("the last item of the input must be a message of the user", "input")
        self.content = self.messages.pop()["content"]

    def _item(self, item: Mapping[str, Any], where: str) -> None:
        match item.get("type", "message"):
            case "message":
                self._message(item, where)
            case "mcp_approval_response":
                self.decisions.append(_decision(item, where))
            case "mcp_approval_request":
                pass  # clients send the request back along with the answer, which names it
            case "mcp_call":
                self.messages += _call(item, where)
            case kind:
                raise BadRequest(
                    f"{where}: an agent takes no item of type {kind!r:.80}", where, "unsupported_item"
                )

    def _message(self, item: Mapping[str, Any], where: str) -> None:
        role = item.get("role")
        if not isinstance(role, str) or role not in {"user", "assistant", *_SYSTEM}:
            raise BadRequest(f"{where}.role must be user, assistant, system or developer", where)
        content = _content(item.get("content"), f"{where}.content")
        texts_only = all(isinstance(part, TextPart) for part in content)
        if role != "user" and not texts_only:
            raise BadRequest(f"{where}: only messages of the user have files", where)
        text = "\n".join(part.text for part in content if isinstance(part, TextPart))
        if role in _SYSTEM:
            self.system.append(text)
        else:
            self.messages.append({"role": role, "content": text if texts_only else content})


def _decision(item: Mapping[str, Any], where: str) -> Decision:
    approval, approve, reason = (item.get(name) for name in ("approval_request_id", "approve", "reason"))
    if not isinstance(approval, str) or not isinstance(approve, bool) or not isinstance(reason, str | None):
        raise BadRequest(f"{where} needs approval_request_id (a text) and approve (true or false)", where)
    return Decision(approval, approve, reason or "")


def _call(item: Mapping[str, Any], where: str) -> Iterable[dict[str, Any]]:
    """Return a call of an earlier response as two messages: the assistant's call and the tool's result."""
    names = ("id", "name", "arguments")
    if not all(isinstance(item.get(name), str) for name in names):
        raise BadRequest(f"{where} needs the texts id, name and arguments", where)
    output = item.get("output")
    told = output if isinstance(output, str) else json.dumps(item.get("error") or "no result")
    return (
        {"role": "assistant", "content": "", "tool_calls": [{name: item[name] for name in names}]},
        {"role": "tool", "tool_call_id": item["id"], "content": told},
    )


def _content(given: Any, where: str) -> list[ContentPart]:
    if isinstance(given, str):
        return [TextPart(text=given)]
    if not isinstance(given, list) or not given:
        raise BadRequest(f"{where} must be a text or a list of parts, and not empty", where, "invalid_type")
    return [_part(part, f"{where}[{index}]") for index, part in enumerate(given)]


def _part(part: Any, where: str) -> ContentPart:
    kind = part.get("type") if isinstance(part, dict) else None
    try:
        match kind:
            case "input_text" | "output_text" | "text" if isinstance(part.get("text"), str):
                return TextPart(text=part["text"])
            case "input_image" if isinstance(part.get("image_url"), str):
                return _file(part["image_url"], "", part.get("detail") or "", where)
            case "input_file" if isinstance(part.get("file_data"), str):
                return _file(part["file_data"], _name(part), "", where)
            case "input_file" if isinstance(part.get("file_url"), str):
                return File.from_url(part["file_url"], name=_name(part))
            case _:
                pass
    except ConfigError as error:
        raise BadRequest(f"{where}: {error}", where) from None
    if isinstance(part, dict) and part.get("file_id") is not None:
        raise BadRequest(f"{where}: there are no uploaded files here; send the file itself", where)
    raise BadRequest(
        f"{where}: an agent takes input_text, input_image and input_file, not {kind!r:.80}", where
    )


def _name(part: Mapping[str, Any]) -> str:
    name = part.get("filename", "")
    return name if isinstance(name, str) else ""


def _file(given: str, name: str, detail: str, where: str) -> File:
    """Return the file for an http URL, a data URL or plain base64. Raises `BadRequest`, `ConfigError`."""
    if given.startswith(("http://", "https://")):
        return File.from_url(given, name=name, detail=detail)
    head, comma, data = given.rpartition(",")
    if comma and not (head.startswith("data:") and head.endswith(";base64")):
        raise BadRequest(f"{where}: a data URL has the form data:TYPE;base64,DATA", where)
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise BadRequest(f"{where}: the data is not valid base64", where) from None
    media_type = head.removeprefix("data:").removesuffix(";base64").partition(";")[0] or None
    return File.from_bytes(content, media_type=media_type, name=name, detail=detail)
