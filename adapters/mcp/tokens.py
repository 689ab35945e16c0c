"""What logins at MCP servers brought: one file for each server and client, for the user of this machine alone.

Tokens are secrets. They are in no configuration, event or log line; a worker reads them when it connects.

A token that refreshes another one may hold once, and be the end of the login when it is used twice. So whoever is about
to use it holds the file, and reads it again first.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec
import platformdirs

_POLL_S: Final = 0.02


def tokens_directory() -> Path:
    """`FOLDLOG_MCP_TOKENS`, else a directory in the user's data."""
    named = os.environ.get("FOLDLOG_MCP_TOKENS")
    return Path(named) if named else platformdirs.user_data_path("foldlog", appauthor=False) / "mcp-tokens"


class TokenFile:
    """The record of one server and client, a JSON object."""

    def __init__(self, url: str, client_id: str = "") -> None:
        name = hashlib.sha256(f"{url}\n{client_id}".encode()).hexdigest()[:32]
        self.path = tokens_directory() / f"{name}.json"
        self._url = url
        self._held: int | None = None

    async def read(self) -> dict[str, Any]:
        """The record; empty if there is none, or none that can be read."""
        try:
            return msgspec.json.decode(await asyncio.to_thread(self.path.read_bytes), type=dict[str, Any])
        except (OSError, msgspec.MsgspecError):
            return {}

    async def hold(self) -> None:
        """Keep whoever else asks for it waiting, in whatever process, until `release` or the end of this process.

        Does nothing where there is no record, and on a file system without locks.
        """
        while sys.platform != "win32" and self._held is None:
            try:
                self._held = _locked(self.path)
            except BlockingIOError:
                await anyio.sleep(_POLL_S)  # another process lets go of it without an event
            except OSError:
                return

    def release(self) -> None:
        """Let others have it. Safe to repeat."""
        if self._held is not None:
            os.close(self._held)
            self._held = None

    async def update(self, **fields: Any) -> None:
        """Change some fields; the file is replaced whole. Raises `OSError`."""
        record = await self.read() | {"url": self._url} | fields
        await asyncio.to_thread(self._replace, msgspec.json.encode(record))

    def _replace(self, data: bytes) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=self.path.parent)  # readable by its owner alone
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        Path(name).replace(self.path)


def _locked(path: Path) -> int | None:
    """The descriptor that holds the file; null for one that was replaced meanwhile. Raises `OSError`."""
    import fcntl

    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None
