"""Files from callers and tools: `File`, and content made of texts and files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from ...eventlog.errors import ConfigError
from ...eventlog.parts import FilePart, TextPart
from . import media_types
from .json_values import sound

DOWNLOADS = "foldlog.downloads"
FILE_BYTES_MAX = 20 * 1024 * 1024
"""The largest file, unless the agent's `files` changes it."""
REQUEST_BYTES_MAX = 50 * 1024 * 1024
"""The largest total of the files in one model request, unless the agent's `files` changes it."""


class File:
    """A file for a model to read: its bytes, or the address where the provider fetches them.

    `data` is null for a file at a `url`. `detail` is how closely the model looks at an image: low, high or auto, if the
    provider supports that. Made by `from_path`, `from_bytes` and `from_url`, which raise `ConfigError` for a file that
    is missing or empty, or whose content contradicts its name or `media_type`.
    """

    __slots__ = ("data", "detail", "media_type", "name", "url")

    def __init__(
        self,
        *,
        media_type: str,
        data: bytes | None = None,
        url: str | None = None,
        name: str = "",
        detail: str = "",
    ) -> None:
        self.data, self.url = data, url
        self.name, self.detail = sound(name), sound(detail)
        self.media_type = media_types.canonical(media_type)
        if not self.media_type:
            raise ConfigError(f"{self}: {media_type!r:.80} is not a media type, such as image/png")
        if data is not None:
            self._check(data)

    def _check(self, data: bytes) -> None:
        if not data:
            raise ConfigError(f"{self} is empty")
        if self.media_type == media_types.UNKNOWN:
            self.media_type = media_types.by_signature(data) or media_types.UNKNOWN
        found = media_types.contradicts(self.media_type, data)
        if found is not None:
            raise ConfigError(f"{self} should be {self.media_type}, but its content is {found}")

    @classmethod
    def from_path(cls, path: str | Path, *, media_type: str | None = None, detail: str = "") -> File:
        """Return the file at a path, read at once. Its type follows from its name, else from its first bytes."""
        given = Path(path)
        try:
            data = given.read_bytes()
        except OSError as error:
            raise ConfigError(f"the file {str(path)!r} cannot be read: {error.strerror or error}") from None
        return cls.from_bytes(data, media_type=media_type, name=given.name, detail=detail)

    @classmethod
    def from_bytes(
        cls, data: bytes, *, media_type: str | None = None, name: str = "", detail: str = ""
    ) -> File:
        """Return a file of these bytes. Without a `media_type`, the name decides, else the first bytes."""
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise ConfigError(f"a file must be made of bytes, not {data!r:.60}")
        content = bytes(data)
        return cls(media_type=media_type or _type_of(name, content), data=content, name=name, detail=detail)

    @classmethod
    def from_url(cls, url: str, *, media_type: str | None = None, name: str = "", detail: str = "") -> File:
        """Return the file at an http or https address, which only the provider fetches, unless `fetch` is called.

        Without a `media_type`, the path of the address decides.
        """
        parsed = urlsplit(sound(url))
        if parsed.scheme not in {"http", "https"} or not parsed.hostname:
            raise ConfigError(f"{url!r:.200} is not an http or https address")
        path = unquote(parsed.path)
        found = media_type or media_types.by_name(path)
        if found is None:
            raise ConfigError(f"the address {url!r:.200} does not tell the media_type of the file: give it")
        return cls(media_type=found, url=sound(url), name=name or path.rpartition("/")[2], detail=detail)

    async def fetch(self) -> File:
        """Return the file with its bytes: one at a URL is fetched now, under the rules of `http_request`.

        That is, only from public addresses, within 30 s, and at most 20 MB. Raises `ToolFailed` if that fails.
        """
        if self.url is None:
            return self
        data, media_type = await _download(self.url, FILE_BYTES_MAX)
        stated = media_types.canonical(media_type)
        known = stated if stated not in {"", media_types.UNKNOWN} else self.media_type
        return File(media_type=known, data=data, name=self.name, detail=self.detail)

    def __eq__(self, other: object) -> bool:
        """Return whether it is the same file under the same name."""
        return isinstance(other, File) and self._all() == other._all()

    def __hash__(self) -> int:
        """Return the hash, consistent with equality."""
        return hash(self._all())

    def _all(self) -> tuple[object, ...]:
        return self.media_type, self.name, self.data, self.url, self.detail

    def __repr__(self) -> str:
        """Name, type and size."""
        size = "" if self.data is None else f", {len(self.data):,} bytes"
        return f"<File {self} ({self.media_type}{size})>"

    def __str__(self) -> str:
        """The name."""
        return f"the file {self.name or self.url or 'without a name'!r}"


async def _download(url: str, size_bytes_max: int) -> tuple[bytes, str]:
    """Return the bytes at an address, and their type as the server states it, using the installed downloader."""
    from .plugins import installed, loaded  # what reads the distributions is needed here alone

    entry = installed(DOWNLOADS).get("default")
    if entry is not None:
        found: tuple[bytes, str] = await loaded(entry)(url, size_bytes_max)
        return found
    raise ConfigError(f"no downloader is installed (entry point group {DOWNLOADS})")


def _type_of(name: str, data: bytes) -> str:
    found = media_types.by_name(name) or media_types.by_signature(data)
    if found is not None:
        return found
    try:
        data.decode()
    except UnicodeDecodeError:
        return media_types.UNKNOWN
    return "text/plain"


ContentPart = str | File | TextPart | FilePart
"""A part of content from callers and tools; a `FilePart` refers to a file that is already in the log."""
Content = str | File | Sequence[ContentPart]
"""The input that callers give: a text, a file, or a list of both."""


def is_content(value: Any) -> bool:
    """Return whether a value is a file, or a list of texts and files with at least one file."""
    if isinstance(value, (File, FilePart)):
        return True
    if not isinstance(value, (list, tuple)):
        return False
    files = any(isinstance(each, (File, FilePart)) for each in value)
    return files and all(isinstance(each, ContentPart) for each in value)


def parts_of(content: Content) -> list[TextPart | FilePart | File]:
    """Return the content as a list of parts. Raises `ConfigError` for anything else."""
    listed = [content] if isinstance(content, (str, File, TextPart, FilePart)) else content
    if not isinstance(listed, (list, tuple)):
        raise ConfigError(f"content must be a text, a File, or a list of texts and Files, not {listed!r:.60}")
    return [_part(each) for each in listed]


def _part(given: object) -> TextPart | FilePart | File:
    if isinstance(given, str):
        return TextPart(text=given)
    if isinstance(given, (TextPart, FilePart, File)):
        return given
    raise ConfigError(f"a part of content must be a text or a File, not {given!r:.60}")
