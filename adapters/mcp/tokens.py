"""What logins at MCP servers brought: one file for each server and client, for the user of this machine alone.

Tokens are secrets. They are in no configuration, event or log line; a worker reads them when it connects.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import platformdirs


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

    async def read(self) -> dict[str, Any]:
        """The record; empty if there is none, or none that can be read."""
        try:
            return msgspec.json.decode(await asyncio.to_thread(self.path.read_bytes), type=dict[str, Any])
        except (OSError, msgspec.MsgspecError):
            return {}

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
