"""Parse prompts and replies: plain text, or a JSON envelope with attachments."""

from __future__ import annotations

import base64
import binascii
from typing import Any

import msgspec

from ...eventlog.errors import ConfigError
from ...runtime.ports.files import Content, File

ATTACHMENTS_MAX = 100


class BadPrompt(Exception):
    """A prompt that cannot be accepted; answered with code 400."""


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt: content for a new run, or the id of a `run` to follow again. `conversation` is the run's session."""

    content: Content
    conversation: str = ""
    run: str = ""


def read_prompt(data: bytes) -> Prompt:
    """Parse a prompt. Unknown fields are ignored, as the protocol requires. Raises `BadPrompt`."""
    if not data.lstrip(b"\t\n\r ").startswith(b"{"):
        text = _utf8(data)
        if not text:
            raise BadPrompt("the prompt is empty")
        return Prompt(content=text)
    try:
        given = msgspec.json.decode(data)
    except (ValueError, RecursionError):
        raise BadPrompt("the envelope is not valid JSON") from None
    prompt, attachments = given.get("prompt"), given.get("attachments") or []
    if not isinstance(prompt, str) or not prompt:
        raise BadPrompt("the envelope needs a prompt, a text that is not empty")
    if not isinstance(attachments, list) or len(attachments) > ATTACHMENTS_MAX:
        raise BadPrompt(f"attachments must be a list of at most {ATTACHMENTS_MAX}")
    files = [_file(each) for each in attachments]
    return Prompt(
        content=[prompt, *files] if files else prompt,
        conversation=_named(given, "conversation"),
        run=_named(given, "run"),
    )


def read_reply(data: bytes) -> tuple[str, dict[str, Any]]:
    """Return a reply's text and its JSON object, one of which is empty. Raises `BadPrompt`."""
    if not data.lstrip(b"\t\n\r ").startswith(b"{"):
        return _utf8(data), {}
    try:
        given = msgspec.json.decode(data)
    except (ValueError, RecursionError):
        raise BadPrompt("the reply is not valid JSON") from None
    prompt = given.get("prompt")
    return (prompt, {}) if isinstance(prompt, str) else ("", given)


def _named(given: dict[str, Any], name: str) -> str:
    value = given.get(name, "")
    if not isinstance(value, str):
        raise BadPrompt(f"{name} must be a text")
    return value


def _utf8(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BadPrompt("the text is not UTF-8") from None


def _file(given: Any) -> File:
    name, content = (
        (given.get(key) for key in ("filename", "content")) if isinstance(given, dict) else ("", "")
    )
    if not isinstance(name, str) or not isinstance(content, str) or not name or "/" in name:
        raise BadPrompt("an attachment needs a filename without a path, and its content")
    try:
        return File.from_bytes(base64.b64decode(content, validate=True), name=name)
    except (binascii.Error, ValueError):
        raise BadPrompt(f"the attachment {name[:80]!r} is not valid base64") from None
    except ConfigError as error:
        raise BadPrompt(str(error)) from None
