"""An archive in an object store, by obstore: S3, GCS, Azure, a directory, or the memory of this process.

A copy is one object, `ROOT-DIGEST.jsonl.gz`: the lines of `foldlog events export --artifacts`, compressed. An object is
never overwritten: of two concurrent writers, the second finds the copy of the first, which has the same content.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import re
import zlib
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ...eventlog.commits import digest_of_bytes
from ...eventlog.errors import ConfigError, LogUnavailable
from ...eventlog.files import ARCHIVE_BYTES_MAX
from ...eventlog.ports import Log, Subject
from ...replay.traces.archive import Archive, export, read_archive
from ...runtime.ports.archives import ArchivedFamily, ArchiveUnavailable

if TYPE_CHECKING:
    from obstore.store import ObjectStore

SCHEMES = ("file", "memory", "s3", "gs", "az")
_NAME = re.compile(r"([A-Za-z0-9_-]{1,64})-([0-9a-f]{64})\.jsonl\.gz")
_PROBE = "foldlog-probe"
_MEMORY: dict[str, ObjectStore] = {}
"""The archives in the memory of this process, by their URLs."""


class ObjectArchive:
    """`ArchiveStore` at a URL: `file:///DIR`, `s3://BUCKET/PREFIX`, `gs://`, `az://`, `memory://NAME`.

    Credentials and endpoints come from the environment, as the store's own tools read them (`AWS_ACCESS_KEY_ID`,
    `AWS_ENDPOINT_URL`, ...). Raises `ConfigError` for another URL, or without the extra `foldlog[archive]`.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._store = object_store(self.url, SCHEMES)

    async def check(self) -> None:
        """Write and delete a probe object. Raises `ArchiveUnavailable` if that fails."""
        import obstore

        with self._guarded("cannot be written"):
            await obstore.put_async(self._store, _PROBE, b"")
            await obstore.delete_async(self._store, _PROBE)

    async def keep(self, log: Log, root: Subject, digest: str) -> str:
        """Store a copy of the family of `root` unless the archive has one; read it back, check it, and return its URL.

        `digest` is that of the family, as in its tombstone. Raises `ArchiveUnavailable`, `LogCorrupted`, and
        `LogUnavailable` if the family has changed since the digest was computed.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError

        data = b"".join([line async for line in export(log, root.id, artifacts=True)])
        if family_digest(await asyncio.to_thread(read_archive, data)) != digest:
            raise LogUnavailable(f"run {root.id} was written while it was copied; try again")
        name = f"{root.id}-{digest}.jsonl.gz"
        packed = await asyncio.to_thread(gzip.compress, data, mtime=0)
        with self._guarded(f"cannot store {name}"), contextlib.suppress(AlreadyExistsError):
            await obstore.put_async(self._store, name, packed, mode="create")
        url = f"{self.url}/{name}"
        if family_digest(await self.read(url)) != digest:
            raise ArchiveUnavailable(
                f"{url} holds something else than the run it is named after: move it away"
            )
        return url

    async def read(self, url: str) -> Archive:
        """Read and check the copy at this URL. Raises `KeyError` if there is none, `ArchiveUnavailable`."""
        import obstore

        name = self._name(url)
        with self._guarded(f"cannot read {name}"):
            try:
                found = await obstore.get_async(self._store, name)
                packed = bytes(await found.bytes_async())
            except FileNotFoundError:
                raise KeyError(url) from None
        return await asyncio.to_thread(_read, url, packed)

    async def delete(self, url: str) -> bool:
        """Delete the copy at this URL; return whether there was one. Raises `ArchiveUnavailable`."""
        import obstore

        name = self._name(url)
        with self._guarded(f"cannot delete {name}"):
            try:
                await obstore.head_async(self._store, name)
                await obstore.delete_async(self._store, name)
            except FileNotFoundError:
                return False
        return True

    async def list(self) -> AsyncIterator[ArchivedFamily]:
        """Yield the copies in the order of their names. Raises `ArchiveUnavailable`."""
        import obstore

        found: list[Any] = []
        with self._guarded("cannot be listed"):
            async for some in obstore.list(self._store):
                found += some
        for each in sorted(found, key=lambda each: str(each["path"])):
            match = _NAME.fullmatch(each["path"])
            if match is not None:
                yield ArchivedFamily(
                    run_id=match[1],
                    digest=match[2],
                    url=f"{self.url}/{each['path']}",
                    size_bytes=each["size"],
                    at=each["last_modified"].timestamp(),
                )

    def _name(self, url: str) -> str:
        """Return the name of an object of this archive. Raises `ConfigError` for any other URL."""
        base, _, name = url.rpartition("/")
        if base != self.url or not _NAME.fullmatch(name):
            raise ConfigError(f"{url!r:.200} is not a copy in the archive {self.url}")
        return name

    @contextlib.contextmanager
    def _guarded(self, what: str) -> Iterator[None]:
        from obstore.exceptions import BaseError

        try:
            yield
        except (BaseError, OSError) as error:
            reason = str(error).partition("\n")[0]
            raise ArchiveUnavailable(f"the archive {self.url} {what}: {reason}") from error


def family_digest(archive: Archive) -> str:
    """Return the digest of an archive's only family: the SHA-256 (hex) that its tombstone records."""
    last = {stored.subject.id: digest_of_bytes(stored.data) for stored in archive.stored}
    lines = (f"{run} {last[run]}\n" for run in sorted(last))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def object_store(url: str, schemes: Sequence[str]) -> ObjectStore:
    """Return the object store at a URL.

    Raises `ConfigError` for a URL with another scheme or without the extra `foldlog[archive]`, and
    `ArchiveUnavailable` for a store that cannot be used.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in schemes or not rest:
        known = ", ".join(f"{each}://" for each in schemes)
        raise ConfigError(f"{url!r:.200} is not the URL of an archive: it begins with {known} and has a path")
    try:
        from obstore.exceptions import BaseError
        from obstore.store import MemoryStore, from_url
    except ImportError:
        raise ConfigError("archives need obstore: pip install 'foldlog[archive]'") from None
    if scheme == "memory":
        return _MEMORY.setdefault(url, MemoryStore())
    try:
        return from_url(url, mkdir=True) if scheme == "file" else from_url(url)
    except (BaseError, ValueError, OSError) as error:
        raise ArchiveUnavailable(
            f"the archive {url} cannot be used: {str(error).partition(chr(10))[0]}"
        ) from error


def _read(url: str, packed: bytes) -> Archive:
    unpacking = zlib.decompressobj(wbits=31)
    try:
        data = unpacking.decompress(packed, ARCHIVE_BYTES_MAX)
    except zlib.error as error:
        raise ArchiveUnavailable(f"{url} is damaged: {error}") from error
    if unpacking.unconsumed_tail or not unpacking.eof:
        raise ArchiveUnavailable(f"{url} is cut off, or larger than {ARCHIVE_BYTES_MAX:,} bytes")
    return read_archive(data)
