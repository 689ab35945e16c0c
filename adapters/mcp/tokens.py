"""The tokens of logins to MCP servers: one file for each server and client, readable only by its user.

Tokens are secrets. They are never in a configuration, event or log line; a worker reads them when it connects.

A refresh token may be valid only once, and using it twice may end the login. So a process that is about to use it locks
the file, and reads it again first.
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
    """Return `FOLDLOG_MCP_TOKENS`, else a directory in the user's data directory."""
    named = os.environ.get("FOLDLOG_MCP_TOKENS")
    return Path(named) if named else platformdirs.user_data_path("foldlog", appauthor=False) / "mcp-tokens"


class TokenFile:
    """The file with the record of one server and client, a JSON object."""

    def __init__(self, url: str, client_id: str = "") -> None:
        name = hashlib.sha256(f"{url}\n{client_id}".encode()).hexdigest()[:32]
        self.path = tokens_directory() / f"{name}.json"
        self._url = url
        self._held: int | None = None

    async def read(self) -> dict[str, Any]:
        """Return the record; empty if there is none, or if it is unreadable."""
        try:
            return msgspec.json.decode(await asyncio.to_thread(self.path.read_bytes), type=dict[str, Any])
        except (OSError, msgspec.MsgspecError):
            return {}

    async def hold(self) -> None:
        """Lock the file against all other processes and tasks, until `release` or the end of this process.

        Does nothing if there is no record, or the file system has no locks.
        """
        while sys.platform != "win32" and self._held is None:
            try:
                self._held = _locked(self.path)
            except BlockingIOError:
                await anyio.sleep(_POLL_S)  # another process releases it without an event
            except OSError:
                return

    def release(self) -> None:
        """Unlock the file. Safe to repeat."""
        if self._held is not None:
            os.close(self._held)
            self._held = None

    async def update(self, **fields: Any) -> None:
        """Update some fields; the file is replaced atomically. Raises `OSError`."""
        record = await self.read() | {"url": self._url} | fields
        await asyncio.to_thread(self._replace, msgspec.json.encode(record))

    def _replace(self, data: bytes) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=self.path.parent)  # readable only by its owner
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        Path(name).replace(self.path)


def _locked(path: Path) -> int | None:
    """Return the descriptor that holds the lock; None if the file was replaced meanwhile. Raises `OSError`."""
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
