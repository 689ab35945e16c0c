"""Media types by file name and by signature, the fixed first bytes of some types."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

Begins = Callable[[bytes], bool]
HEAD_BYTES: Final = 512
"""The part of a file in which signatures are searched for."""
UNKNOWN: Final = "application/octet-stream"

_ALIASES: Final = {
    "image/jpg": "image/jpeg",
    "image/pjpeg": "image/jpeg",
    "image/x-png": "image/png",
    "audio/mp3": "audio/mpeg",
    "audio/x-wav": "audio/wav",
    "audio/wave": "audio/wav",
    "audio/vnd.wave": "audio/wav",
    "audio/x-flac": "audio/flac",
    "audio/x-m4a": "audio/mp4",
    "audio/m4a": "audio/mp4",
    "application/x-pdf": "application/pdf",
}
_BY_SUFFIX: Final = {
    "aac": "audio/aac",
    "avif": "image/avif",
    "bmp": "image/bmp",
    "csv": "text/csv",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "flac": "audio/flac",
    "gif": "image/gif",
    "heic": "image/heic",
    "htm": "text/html",
    "html": "text/html",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "json": "application/json",
    "log": "text/plain",
    "m4a": "audio/mp4",
    "md": "text/markdown",
    "mkv": "video/x-matroska",
    "mov": "video/quicktime",
    "mp3": "audio/mpeg",
    "mp4": "video/mp4",
    "mpeg": "video/mpeg",
    "mpg": "video/mpeg",
    "oga": "audio/ogg",
    "ogg": "audio/ogg",
    "pdf": "application/pdf",
    "png": "image/png",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "svg": "image/svg+xml",
    "tif": "image/tiff",
    "tiff": "image/tiff",
    "toml": "application/toml",
    "txt": "text/plain",
    "wav": "audio/wav",
    "webm": "video/webm",
    "webp": "image/webp",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "xml": "application/xml",
    "yaml": "application/yaml",
    "yml": "application/yaml",
    "zip": "application/zip",
}
_TEXTS: Final = frozenset(
    {
        "application/json",
        "application/toml",
        "application/xml",
        "application/yaml",
        "application/x-yaml",
        "image/svg+xml",
    }
)
_MEDIA_TYPE: Final = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]*/[a-z0-9][a-z0-9!#$&^_.+-]*")


def _at_start(*starts: bytes) -> Begins:
    return lambda head: head.startswith(starts)


def _riff(kind: bytes) -> Begins:
    return lambda head: head[:4] == b"RIFF" and head[8:12] == kind


def _iso(*brands: bytes) -> Begins:
    """Return the check for an ISO base media file of one of these brands; of any brand if none is given."""
    return lambda head: head[4:8] == b"ftyp" and (not brands or head[8:12] in brands)


def _bmp(head: bytes) -> bool:
    return head.startswith(b"BM") and head[6:10] == bytes(4)


def _pdf(head: bytes) -> bool:
    return head.lstrip(b"\xef\xbb\xbf\0\t\n\r ").startswith(b"%PDF-")


_ZIP: Final = _at_start(b"PK\x03\x04", b"PK\x05\x06")
_SIGNATURES: Final[dict[str, Begins]] = {
    "image/png": _at_start(b"\x89PNG\r\n\x1a\n"),
    "image/jpeg": _at_start(b"\xff\xd8\xff"),
    "image/gif": _at_start(b"GIF87a", b"GIF89a"),
    "image/webp": _riff(b"WEBP"),
    "image/bmp": _bmp,
    "image/tiff": _at_start(b"II*\0", b"MM\0*"),
    "image/heic": _iso(b"heic", b"heix", b"hevc", b"mif1", b"msf1"),
    "image/avif": _iso(b"avif", b"avis"),
    "application/pdf": _pdf,
    "audio/wav": _riff(b"WAVE"),
    "audio/flac": _at_start(b"fLaC"),
    "audio/ogg": _at_start(b"OggS"),
    "audio/aac": _at_start(b"\xff\xf1", b"\xff\xf9"),
    "audio/mpeg": _at_start(
        b"ID3\x02", b"ID3\x03", b"ID3\x04", b"\xff\xfb", b"\xff\xfa", b"\xff\xf3", b"\xff\xf2"
    ),
    "video/webm": _at_start(b"\x1a\x45\xdf\xa3"),
    "video/x-matroska": _at_start(b"\x1a\x45\xdf\xa3"),
    "audio/mp4": _iso(),
    "video/mp4": _iso(),
    "video/quicktime": _iso(),
    "application/zip": _ZIP,
    **{media_type: _ZIP for name, media_type in _BY_SUFFIX.items() if name in {"docx", "pptx", "xlsx"}},
}
"""By type, the check of its first bytes; the first type that matches is that of a file of unknown type."""


def canonical(media_type: str) -> str:
    """Return the media type in lower case, without parameters, by its registered name; empty if it is not one."""
    plain = media_type.partition(";")[0].strip().lower()
    return _ALIASES.get(plain, plain) if _MEDIA_TYPE.fullmatch(plain) else ""


def by_name(name: str) -> str | None:
    """Return the media type for the suffix of a file name, or of a URL's path; null if it is unknown."""
    return _BY_SUFFIX.get(name.rpartition(".")[2].lower()) if "." in name else None


def by_signature(data: bytes) -> str | None:
    """Return the media type for the first bytes; null if they are unknown."""
    head = data[:HEAD_BYTES]
    return next((media_type for media_type, begins in _SIGNATURES.items() if begins(head)), None)


def is_text(media_type: str) -> bool:
    """Return whether a file of this type is text."""
    return media_type.startswith("text/") or media_type in _TEXTS or media_type.endswith(("+json", "+xml"))


def contradicts(media_type: str, data: bytes) -> str | None:
    """Return what the bytes are, as text, if a file of this type cannot begin like that; null if it can."""
    begins = _SIGNATURES.get(media_type)
    if begins is not None and begins(data[:HEAD_BYTES]):
        return None
    found = by_signature(data)
    if begins is not None:
        return found or "not one"
    return found if is_text(media_type) else None
