"""Files by vendor: types that it is known not to take, and what a file takes of a prompt by its published rule. No I/O.

Only what the vendors' documents say is here. A model or type that is not named gets the file, and the vendor decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from ....eventlog.parts import FilePart
from ....runtime.ports.media_types import is_text
from ..images import anthropic_tokens, google_tokens, openai_tokens

_COMMON: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_PDF: Final = frozenset({"application/pdf"})
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
    if media_type.startswith("audio/"):
        return True
    return is_picture and (
        _BEDROCK_BLIND.search(model) is not None
        or (media_type.startswith("image/") and media_type not in _COMMON)
    )


def _pictures(sees: Callable[[str], bool]) -> Callable[[str, str], bool]:
    """Return the rule of a vendor that takes nothing but pictures, and only for models that see."""
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


def tokens(vendor: str, model: str, file: FilePart, data: bytes | None) -> int | None:
    """Return what a file takes of a prompt by the rule of who made the model; null where none is known."""
    if vendor == "anthropic" or "claude" in model:
        return anthropic_tokens(file, data)
    if vendor == "google" or "gemini" in model:
        return google_tokens(model.rpartition("/")[2], file, data)
    return openai_tokens(model.rpartition("/")[2], file, data)
