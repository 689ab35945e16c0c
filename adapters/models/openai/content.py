"""Messages with files, as OpenAI's two APIs take them. No I/O.

Images, PDF and audio are sent inline as data URLs, or by the URL that the caller gave; text files are sent as text.
Chat completions take no files in tool results, and neither API takes files in an assistant message: these files are
sent in a user message after the results.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from ....eventlog.parts import FilePart, Part, TextPart, files_of
from ....projections.messages import Message
from ....runtime.ports.media_types import is_text
from ....runtime.ports.models import InvalidRequest
from ..uploads import Files, name_of

NO_FILES: Final = Files()
IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_AUDIO: Final = {"audio/wav": "wav", "audio/mpeg": "mp3"}
_BLIND: Final = ("gpt-3.5", "o1-mini", "o1-preview", "o3-mini", "davinci", "babbage")
"""Models, by prefix, that read text only."""


def refuses(api: str, model: str, media_type: str) -> bool:
    """Return whether OpenAI is known not to take files of this type for the model."""
    if media_type.startswith("video/"):
        return True
    if media_type.startswith("audio/"):
        return api != "chat" or media_type not in _AUDIO or "audio" not in model
    blind = model.startswith(_BLIND) or model in {"gpt-4", "gpt-4-0613", "gpt-4-32k"}
    if media_type.startswith("image/") and not is_text(media_type):
        return blind or media_type not in IMAGES
    return blind and media_type == "application/pdf"


def with_files_behind(messages: Sequence[Message], *, in_results: bool) -> Iterator[Message]:
    """Yield the messages; files that a message cannot hold are moved to a user message after the tool results.

    `in_results`: the API takes files in tool results.
    """
    behind: list[Part] = []
    for message in messages:
        if behind and message.role != "tool":
            yield _behind(behind)
            behind = []
        files = files_of(message.parts)
        if not files or message.role == "user" or (message.role == "tool" and in_results):
            yield message
            continue
        whose = f"tool call {message.tool_call_id}" if message.role == "tool" else "your answer"
        behind += [TextPart(text=f"Files of {whose}:"), *files]
        told = "\n".join(filter(None, (message.content, *(f"[{file} follows]" for file in files))))
        yield msgspec.structs.replace(message, content=told, parts=())
    if behind:
        yield _behind(behind)


def _behind(parts: Sequence[Part]) -> Message:
    return Message(role="user", content="files", parts=tuple(parts))


def chat_content(message: Message, files: Files) -> str | list[dict[str, Any]]:
    """Return the content of a message for chat completions. Raises `InvalidRequest` for an unsupported file."""
    return [_chat_part(part, files) for part in message.parts] if message.parts else message.content


def _chat_part(part: Part, files: Files) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    text = as_text(part, files)
    if text is not None:
        return {"type": "text", "text": text}
    if part.media_type.startswith("image/"):
        detail = {"detail": part.detail} if part.detail else {}
        return {"type": "image_url", "image_url": {"url": part.url or _data_url(part, files), **detail}}
    if part.url is not None:
        raise InvalidRequest(
            f"chat completions take no URL of {part.media_type}: fetch the file ({part.url})"
        )
    if part.media_type in _AUDIO:
        audio = {"data": _base64(part, files), "format": _AUDIO[part.media_type]}
        return {"type": "input_audio", "input_audio": audio}
    if (uploaded := files.id_of(part)) is not None:
        return {"type": "file", "file": {"file_id": uploaded}}
    return {"type": "file", "file": {"filename": name_of(part), "file_data": _data_url(part, files)}}


def responses_content(message: Message, files: Files) -> str | list[dict[str, Any]]:
    """Return the content of a message, or the output of a tool, for the Responses API."""
    return [_responses_part(part, files) for part in message.parts] if message.parts else message.content


def _responses_part(part: Part, files: Files) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "input_text", "text": part.text}
    text = as_text(part, files)
    if text is not None:
        return {"type": "input_text", "text": text}
    uploaded = files.id_of(part)
    if part.media_type.startswith("image/") and uploaded is not None:
        return {"type": "input_image", "file_id": uploaded, "detail": part.detail or "auto"}
    if part.media_type.startswith("image/"):
        url = part.url or _data_url(part, files)
        return {"type": "input_image", "image_url": url, "detail": part.detail or "auto"}
    if part.url is not None:
        return {"type": "input_file", "file_url": part.url}
    if uploaded is not None:
        return {"type": "input_file", "file_id": uploaded}
    return {"type": "input_file", "filename": name_of(part), "file_data": _data_url(part, files)}


def can_be_uploaded(api: str, part: FilePart) -> bool:
    """Return whether the API takes such a file by id; chat completions take no images and no audio by id."""
    is_media = part.media_type.startswith(("image/", "audio/"))
    return not is_text(part.media_type) and not (api == "chat" and is_media)


def as_text(part: FilePart, files: Files) -> str | None:
    """Return the content of a text file with its name and type; None for other files and for files at a URL."""
    if part.artifact is None or not is_text(part.media_type):
        return None
    text = _bytes(part, files).decode(errors="replace")
    return f'<file name="{name_of(part)}" type="{part.media_type}">\n{text}\n</file>'


def _data_url(part: FilePart, files: Files) -> str:
    return f"data:{part.media_type};base64,{_base64(part, files)}"


def _base64(part: FilePart, files: Files) -> str:
    return base64.b64encode(_bytes(part, files)).decode()


def _bytes(part: FilePart, files: Files) -> bytes:
    return files.data[part.artifact or ""]
