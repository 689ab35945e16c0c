"""What vendors document about files: types they do not take, size limits, and token counts. No I/O.

Files of a model or type that is not named here are sent, and the vendor decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ....eventlog.parts import FilePart
from ....runtime.ports.media_types import is_text
from ..images import anthropic_tokens, google_tokens, image_size, openai_tokens

_COMMON: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_PDF: Final = frozenset({"application/pdf"})
_DOCX: Final = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
_BEDROCK_DOCUMENT_TYPES: Final = _PDF | {
    _DOCX,
    "application/msword",
    "application/vnd.ms-excel",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}
_GEMINI: Final = _PDF | {"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"}
_GEMINI_SOUNDS: Final = ("audio/", "video/")
_BEDROCK_BLIND: Final = re.compile(
    r"(^|\.)(ai21|cohere|deepseek|openai)\.|titan-text|nova-micro|mistral\.(mistral-7|mix)"
)
_MISTRAL_BLIND: Final = re.compile(r"(code|dev|math)stral|open-mi(stral|xtral)-(7b|8x)|ministral-[38]b-2410")
_XAI_BLIND: Final = re.compile(r"grok-(3|code)")


def _anthropic(model: str, media_type: str) -> bool:
    blind = model.startswith(("claude-2", "claude-instant"))
    return blind or media_type not in _COMMON | _PDF


def _bedrock(model: str, media_type: str) -> bool:
    is_picture = media_type.startswith(("image/", "video/"))
    if not is_picture and media_type not in _BEDROCK_DOCUMENT_TYPES:
        return True
    return is_picture and (
        _BEDROCK_BLIND.search(model) is not None
        or (media_type.startswith("image/") and media_type not in _COMMON)
    )


def _pictures(sees: Callable[[str], bool]) -> Callable[[str, str], bool]:
    """Return the rule of a vendor that takes only images, and only for vision models."""
    return lambda model, media_type: media_type not in _COMMON or not sees(model)


_REFUSES: Final[dict[str, Callable[[str, str], bool]]] = {
    "anthropic": _anthropic,
    "google": lambda _, media_type: media_type not in _GEMINI and not media_type.startswith(_GEMINI_SOUNDS),
    "bedrock": _bedrock,
    "cohere": lambda _model, _media_type: True,  # the library sends it none
    "groq": _pictures(lambda model: re.match(r"llama-?3|gpt-oss|openai/gpt-oss|gemma", model) is None),
    "mistral": lambda model, media_type: (
        media_type not in _COMMON | _PDF or _MISTRAL_BLIND.search(model) is not None
    ),
    "xai": _pictures(lambda model: _XAI_BLIND.match(model) is None),
}


def refuses(vendor: str, model: str, media_type: str) -> bool:
    """Return whether the vendor is known not to take files of this type for the model."""
    rule = _REFUSES.get(vendor)
    return rule is not None and not is_text(media_type) and rule(model, media_type)


_MIB: Final = 1024 * 1024
_SIDE_MAX: Final = 8000
"""The limit of pixels of one side of an image."""
_MANY_PICTURES: Final = 20
_MANY_SIDE_MAX: Final = 2000
"""The limit of pixels of one side of an image, in a request to Claude with more than `_MANY_PICTURES`."""
_BEDROCK_PICTURES, _BEDROCK_DOCUMENTS = 20, 5
"""How many images and how many documents a message of Bedrock may have."""
_READS_LARGE_PDF: Final = re.compile(r"claude-[a-z]+-([4-9]|\d\d)(\D|$)")


def problem(vendor: str, model: str, file: FilePart, data: bytes | None) -> str | None:
    """Return why a single file is too large for the vendor's published limits; None if it is not."""
    limit = _bytes_max(vendor, model, file.media_type)
    if limit is not None and file.bytes > limit:
        what = "picture" if file.media_type.startswith("image/") else "document"
        return f"it has {file.bytes:,} bytes, more than the {limit:,} that {vendor} takes of one {what}"
    size = image_size(data) if data is not None and vendor in {"anthropic", "bedrock"} else None
    if size is not None and max(size) > _SIDE_MAX and "nova" not in model:
        return f"it has {size[0]:,} x {size[1]:,} pixels, and {vendor} takes at most {_SIDE_MAX:,} on a side"
    return None


Held = Mapping[str, bytes]
"""The bytes of files by artifact."""


def together_problem(
    vendor: str, model: str, messages: Sequence[Sequence[FilePart]], data: Held
) -> str | None:
    """Return why the files of a request, by message, exceed the vendor's published limits; None if they do not."""
    if vendor == "bedrock":
        for files in messages:
            if why := _too_many(model, files):
                return why
    if vendor != "anthropic" and not (vendor == "bedrock" and "claude" in model):
        return None
    pictures = [file for files in messages for file in files if _is_picture(file)]
    if len(pictures) <= _MANY_PICTURES:
        return None
    for file in pictures:
        size = image_size(data.get(file.artifact or "", b""))
        if size is not None and max(size) > _MANY_SIDE_MAX:
            return (
                f"with {len(pictures)} pictures in a request none may have more than {_MANY_SIDE_MAX:,} pixels on a "
                f"side (up to {_MANY_PICTURES} may have {_SIDE_MAX:,}), and {file} has {size[0]:,} x {size[1]:,}"
            )
    return None


def _too_many(model: str, files: Sequence[FilePart]) -> str | None:
    pictures = sum(map(_is_picture, files))
    if pictures > _BEDROCK_PICTURES and "nova" not in model:
        return f"a message has {pictures} pictures, and bedrock takes at most {_BEDROCK_PICTURES} in one"
    documents = sum(map(_is_document, files))
    if documents > _BEDROCK_DOCUMENTS:
        return f"a message has {documents} documents, and bedrock takes at most {_BEDROCK_DOCUMENTS} in one"
    return None


def _is_picture(file: FilePart) -> bool:
    return file.media_type.startswith("image/") and not is_text(file.media_type)


def _is_document(file: FilePart) -> bool:
    return not file.media_type.startswith(("image/", "audio/", "video/")) and not is_text(file.media_type)


def _bytes_max(vendor: str, model: str, media_type: str) -> int | None:
    is_picture = media_type.startswith("image/")
    if vendor == "anthropic":
        return 5 * _MIB if is_picture else None
    if vendor != "bedrock" or is_text(media_type) or media_type.startswith(("audio/", "video/")):
        return None
    if is_picture:
        return None if "nova" in model else 3_750 * _MIB // 1000
    if media_type in _PDF and ("nova" in model or _READS_LARGE_PDF.search(model)):
        return None
    return None if "nova" in model and media_type == _DOCX else 4_500 * _MIB // 1000


def tokens(vendor: str, model: str, file: FilePart, data: bytes | None) -> int | None:
    """Return the tokens of a file by the published rule of the model's maker; None if there is none."""
    if vendor == "anthropic" or "claude" in model:
        return anthropic_tokens(file, data)
    if vendor == "google" or "gemini" in model:
        return google_tokens(model.rpartition("/")[2], file, data)
    return openai_tokens(model.rpartition("/")[2], file, data)
