"""Upload files through a provider's file API if a request with all of them inline would be too large.

A file is uploaded once per process and event loop, and expires at the provider by itself. The log does not record
uploads: a request is determined by the digests of its files, and another worker uploads them again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from ...eventlog.parts import FilePart, files_of
from ...runtime.ports.models import InvalidRequest, ModelRequest

LIFETIME_S: Final = 24 * 3600
"""How long a provider keeps an uploaded file, which is reused except in its last hour."""
_REUSED_S: Final = LIFETIME_S - 3600

Upload = Callable[[FilePart, bytes], Awaitable[str]]
"""Uploads a file, and returns its id at the provider."""


class Files(NamedTuple):
    """The files of a request: bytes by artifact, and ids of uploaded files by artifact and media type."""

    data: Mapping[str, bytes] = MappingProxyType({})
    ids: Mapping[tuple[str, str], str] = MappingProxyType({})

    def id_of(self, part: FilePart) -> str | None:
        """Return the provider's id of an uploaded file; None for a file that is sent inline."""
        return self.ids.get(_key(part))


class Uploads:
    """The files that were uploaded to one server."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[str, float]] = {}
        self._locks: dict[tuple[str, str], asyncio.Lock] = {}

    async def files(
        self,
        request: ModelRequest,
        limit: int | None,
        upload: Upload,
        can_be_uploaded: Callable[[FilePart], bool],
    ) -> Files:
        """Return the files of a request, uploading as many as needed to keep the others below `limit` bytes.

        The largest are uploaded first; a limit of None uploads none. Raises `InvalidRequest` if the files that cannot
        be uploaded exceed the limit.
        """
        data = await request.file_bytes()
        given = [file for message in request.messages for file in files_of(message.parts) if file.artifact]
        sizes = dict[tuple[str, str], int]()
        for file in given:
            sizes[_key(file)] = sizes.get(_key(file), 0) + len(data[file.artifact or ""])
        inline = sum(sizes.values())
        if limit is None or inline <= limit:
            return Files(data)
        ids = dict[tuple[str, str], str]()
        for file in sorted(_distinct(given), key=lambda file: -sizes[_key(file)]):
            if inline <= limit:
                break
            if can_be_uploaded(file):
                ids[_key(file)] = await self._id_of(file, data[file.artifact or ""], upload)
                inline -= sizes[_key(file)]
        if inline > limit:
            left = [file for file in _distinct(given) if _key(file) not in ids]
            named = max(left, key=lambda file: sizes[_key(file)])
            raise InvalidRequest(
                f"the files of the request have {inline:,} bytes, more than the {limit:,} that the provider takes "
                f"inline, and it has no other way for {named}"
            )
        return Files(data, ids)

    async def _id_of(self, file: FilePart, data: bytes, upload: Upload) -> str:
        key, now = _key(file), asyncio.get_running_loop().time
        async with self._locks.setdefault(key, asyncio.Lock()):
            known = self._known.get(key)
            if known is None or known[1] <= now():
                begun = now()
                known = self._known[key] = (await upload(file, data), begun + _REUSED_S)
            return known[0]


def name_of(part: FilePart) -> str:
    """Return the file's name, or a made-up one: providers require a name."""
    return part.name or "file." + part.media_type.rpartition("/")[2]


def _key(part: FilePart) -> tuple[str, str]:
    return part.artifact or "", part.media_type


def _distinct(files: Iterable[FilePart]) -> list[FilePart]:
    found: dict[Any, FilePart] = {}
    for file in files:
        found.setdefault(_key(file), file)
    return list(found.values())
