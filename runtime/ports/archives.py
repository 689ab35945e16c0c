"""The port to copies of families that are erased from the log: one object for each, in a directory or object store.

A store is found under entry point group `foldlog.archives`, name `default` (a function of a URL), or passed as an
object.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

import msgspec

from ...eventlog.errors import ConfigError, FoldlogError
from ...eventlog.ports import Log, Stored, Subject
from .plugins import installed, made


class ArchiveUnavailable(FoldlogError):
    """The archive cannot be read or written now. The message has the URL and the reason."""


class StoredRuns(Protocol):
    """An archive: runs as they were stored, in log order, with their large values by digest."""

    @property
    def stored(self) -> Sequence[Stored]:
        """The commits."""
        ...

    @property
    def artifacts(self) -> Mapping[str, bytes]:
        """The large values."""
        ...


class ArchivedFamily(msgspec.Struct, frozen=True, kw_only=True):
    """An object of an archive: the root and the digest of the family, its URL, and its size as stored."""

    run_id: str
    digest: str
    url: str
    size_bytes: int
    at: float


class ArchiveStore(Protocol):
    """Copies of families, each written once under a name of its root and its digest."""

    async def check(self) -> None:
        """Raise `ArchiveUnavailable` if nothing can be written there."""
        ...

    async def keep(self, log: Log, root: Subject, digest: str) -> str:
        """Store the copy of a family, unless it is there; read it back, compare it, and return its URL.

        Raises `ArchiveUnavailable`, and `LogCorrupted` for a copy that is not what the log has.
        """
        ...

    async def read(self, url: str) -> StoredRuns:
        """Return the copy at this URL, checked. Raises `KeyError` if there is none, `ArchiveUnavailable`."""
        ...

    async def delete(self, url: str) -> bool:
        """Delete the copy at this URL; return whether there was one. Raises `ArchiveUnavailable`."""
        ...

    def list(self) -> AsyncIterator[ArchivedFamily]:
        """Yield the copies. Raises `ArchiveUnavailable`."""
        ...


ARCHIVES = "foldlog.archives"


def archive_at(url: str) -> ArchiveStore:
    """Return the archive at a URL: `file:///directory`, `s3://bucket/prefix`, `gs://`, `az://`, `memory://`.

    Raises `ConfigError` for another URL, or if the plugin is not installed.
    """
    found = installed(ARCHIVES)
    if "default" not in found:
        raise ConfigError("no plugin for archives (entry point foldlog.archives) is installed")
    store: ArchiveStore = made(found["default"], url)
    return store
