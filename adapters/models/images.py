"""Estimate the tokens of files by the providers' published rules, from the picture size in the header. No I/O."""

from __future__ import annotations

import math
import re
import struct
from typing import Final

from ...eventlog.parts import FilePart

Size = tuple[int, int]
"""Width and height in pixels."""

_START_OF_FRAME: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_PAGE: Final = re.compile(rb"/Type\s*/Page\b")

_TILE, _TILED_SIDE, _TILED_SHORT = 512, 2048, 768
_PATCH, _PATCHES_MAX = 32, 1536
_GEMINI_TILE, _GEMINI_SIDE, _GEMINI_SMALL = 258, 768, 384
_GEMINI_FIXED: Final = (1120, 560)
_GEMINI_SOUND: Final = 32
_SOUND_BYTES_PER_S: Final = 16_000
_BY_TILES: Final = (
    ("gpt-4o-mini", 2833, 5667),
    ("gpt-4o", 85, 170),
    ("gpt-4.5", 85, 170),
    ("gpt-4-turbo", 85, 170),
    ("gpt-5", 70, 140),
    ("o1", 75, 150),
    ("o3", 75, 150),
)
"""The tokens of an image and of each of its tiles, by model prefix (OpenAI's guide "Images and vision")."""
_BY_PATCHES: Final = (
    ("gpt-4.1-mini", 1.62),
    ("gpt-4.1-nano", 2.46),
    ("gpt-5-mini", 1.62),
    ("gpt-5-nano", 2.46),
    ("o4-mini", 1.72),
)
"""The tokens of a patch of an image, by model prefix."""


def image_size(data: bytes) -> Size | None:
    """Return the size of a PNG, JPEG, GIF or WebP; None for anything else."""
    try:
        if data.startswith(b"\x89PNG\r\n\x1a\n"):
            width, height = struct.unpack(">II", data[16:24])
        elif data.startswith((b"GIF87a", b"GIF89a")):
            width, height = struct.unpack("<HH", data[6:10])
        elif data.startswith(b"\xff\xd8"):
            return _jpeg_size(data)
        elif data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return _webp_size(data)
        else:
            return None
    except struct.error:
        return None
    return width, height


def _jpeg_size(data: bytes) -> Size | None:
    at = 2
    while at + 9 <= len(data) and data[at : at + 1] == b"\xff":
        if data[at + 1] in _START_OF_FRAME:
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return width, height
        (length,) = struct.unpack(">H", data[at + 2 : at + 4])
        at += 2 + length
    return None


def _webp_size(data: bytes) -> Size | None:
    kind = data[12:16]
    if kind == b"VP8X":
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    if kind == b"VP8 ":
        width, height = struct.unpack("<HH", data[26:30])
        return width & 0x3FFF, height & 0x3FFF
    if kind == b"VP8L":
        (bits,) = struct.unpack("<I", data[21:25])
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return None


def openai_tokens(model: str, file: FilePart, data: bytes | None) -> int | None:
    """Return the tokens of an image for an OpenAI model; None for other files, and unknown models and sizes."""
    size = image_size(data) if data is not None and file.media_type.startswith("image/") else None
    if size is None or min(size) < 1:
        return None
    for prefix, factor in _BY_PATCHES:
        if model.startswith(prefix):
            return math.ceil(min(_count(size, _PATCH), _PATCHES_MAX) * factor)
    for prefix, base, tile in _BY_TILES:
        if model.startswith(prefix):
            return base if file.detail == "low" else base + tile * _count(_scaled(size), _TILE)
    return None


def _count(size: Size, side: int) -> int:
    return math.ceil(size[0] / side) * math.ceil(size[1] / side)


def _scaled(size: Size) -> Size:
    """Return the size after OpenAI's scaling, which limits both the longest and the shortest side."""
    scale = min(1.0, _TILED_SIDE / max(size))
    scale *= min(1.0, _TILED_SHORT / (min(size) * scale))
    return round(size[0] * scale), round(size[1] * scale)


def anthropic_tokens(file: FilePart, data: bytes | None) -> int | None:
    """Return the tokens of an image or a PDF for a Claude model; None for other files."""
    if data is None:
        return None
    if file.media_type == "application/pdf":
        return 3000 * pdf_pages(data)
    size = image_size(data) if file.media_type.startswith("image/") else None
    if size is None or min(size) < 1:
        return None
    scale = min(1.0, 1568 / max(size))
    return min(1600, math.ceil(size[0] * scale * size[1] * scale / 750))


def google_tokens(model: str, file: FilePart, data: bytes | None) -> int | None:
    """Return the tokens of an image, a PDF or audio for a Gemini model; None for other files.

    Since version 3 an image or a page has a fixed number of tokens; before, the number depends on the size. The length
    of audio other than WAV is estimated at 128 kbit/s.
    """
    if data is None:
        return None
    picture, page = _GEMINI_FIXED if re.match(r"gemini-[3-9]", model) else (None, _GEMINI_TILE)
    if file.media_type == "application/pdf":
        return page * pdf_pages(data)
    if file.media_type.startswith("audio/"):
        return math.ceil(len(data) / _sound_bytes_per_s(data) * _GEMINI_SOUND)
    size = image_size(data) if file.media_type.startswith("image/") else None
    if size is None or min(size) < 1 or picture is not None:
        return picture if file.media_type.startswith("image/") else None
    return _GEMINI_TILE if max(size) <= _GEMINI_SMALL else _GEMINI_TILE * _count(size, _GEMINI_SIDE)


def _sound_bytes_per_s(data: bytes) -> int:
    is_wav = data[:4] == b"RIFF" and data[8:16] == b"WAVEfmt "
    return (int.from_bytes(data[28:32], "little") if is_wav else 0) or _SOUND_BYTES_PER_S


def pdf_pages(data: bytes) -> int:
    """Estimate the number of pages of a PDF, at least one. Pages in compressed objects are not counted."""
    return max(1, len(_PAGE.findall(data)))
