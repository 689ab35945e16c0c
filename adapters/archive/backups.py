"""Backups in an object store: each file that `eventlog.backup` writes is an object, and the manifest is stored last.

A backup is written to a temporary directory and uploaded from there; it is downloaded to one before it is checked or
restored. Since the objects are the files of the directory, a copy made with other tools is a valid backup.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from ...eventlog.backup import MANIFEST, Manifest, open_backup
from ...eventlog.errors import ConfigError
from ...runtime.ports.archives import ArchiveUnavailable
from .store import object_store

SCHEMES = ("file", "s3", "gs", "az")


class ObjectBackups:
    """The backups at a URL: `s3://BUCKET/PREFIX`, `gs://`, `az://`, `file:///DIR`.

    Credentials and endpoints come from the environment, as for archives. Raises `ConfigError` for another URL, or
    without the extra `foldlog[archive]`. All methods raise `ArchiveUnavailable` if a request to the store fails.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._store = object_store(self.url, SCHEMES)

    async def send(self, directory: Path, manifest: Manifest) -> str:
        """Upload the backup in `directory`, and return its URL. If that fails, the uploaded objects are removed."""
        import obstore

        sent: list[str] = []
        try:
            with self._guarded("cannot be written"):
                for file in [*(stream.file for stream in manifest.streams), MANIFEST]:
                    sent.append(f"{directory.name}/{file}")
                    await obstore.put_async(self._store, sent[-1], directory / file)
        except BaseException:
            with contextlib.suppress(Exception):
                await asyncio.shield(obstore.delete_async(self._store, sent))
            raise
        return f"{self.url}/{directory.name}"

    async def fetch_manifests(self, into: Path) -> None:
        """Download the manifest of each complete backup into a directory of its own below `into`.

        If the URL is that of a single backup, its directory is named after the last part of the URL.
        """
        import obstore

        found: list[str] = []
        with self._guarded("cannot be listed"):
            async for some in obstore.list(self._store):
                found += [str(each["path"]) for each in some]
        for path in map(PurePosixPath, found):
            if path.name == MANIFEST and len(path.parts) <= 2:  # noqa: PLR2004 - a directory and its manifest
                name = path.parts[0] if len(path.parts) > 1 else self.url.rpartition("/")[2]
                await self._fetch(str(path), into / name)

    async def fetch(self, into: Path) -> tuple[Path, Manifest]:
        """Download the backup at the URL, or the newest of several; return its directory below `into` and its manifest.

        Raises `ConfigError` if there is none or a newer release wrote it, `BackupDamaged`.
        """
        await self.fetch_manifests(into)
        if not await asyncio.to_thread(lambda: any(into.iterdir())):
            raise ConfigError(f"{self.url} has no backup: `foldlog backup create {self.url}` makes one")
        directory, manifest = open_backup(into)
        for stream in manifest.streams:
            path = stream.file if self._is_one(directory) else f"{directory.name}/{stream.file}"
            with contextlib.suppress(KeyError):  # the check of the files reports it
                await self._fetch(path, directory)
        return directory, manifest

    def place(self, directory: Path) -> str:
        """Return the URL from which the backup in `directory` was downloaded."""
        return self.url if self._is_one(directory) else f"{self.url}/{directory.name}"

    def _is_one(self, directory: Path) -> bool:
        return directory.name == self.url.rpartition("/")[2]

    async def _fetch(self, path: str, directory: Path) -> None:
        """Download an object into `directory`, under the last part of its path. Raises `KeyError` if it is missing."""
        import obstore

        with self._guarded(f"cannot be read ({path})"):
            try:
                found = await obstore.get_async(self._store, path)
            except FileNotFoundError:
                raise KeyError(path) from None
            await asyncio.to_thread(directory.mkdir, 0o700, parents=True, exist_ok=True)
            with (directory / PurePosixPath(path).name).open("wb") as file:
                async for chunk in found.stream():
                    await asyncio.to_thread(file.write, chunk)

    @contextlib.contextmanager
    def _guarded(self, what: str) -> Iterator[None]:
        from obstore.exceptions import BaseError

        try:
            yield
        except (BaseError, OSError) as error:
            reason: Any = str(error).partition("\n")[0]
            raise ArchiveUnavailable(f"the backups at {self.url} {what}: {reason}") from error
