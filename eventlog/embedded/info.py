"""How to reach the server of a directory: `server.json`, and whether what it says is still true."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import msgspec
from msgspec import Struct

from .config import Sync
from .layout import Layout, write_private

PROBE_TIMEOUT_S = 0.5


class ServerInfo(Struct, frozen=True, kw_only=True):
    """A server that runs.

    `url` holds the token (`nats://TOKEN@127.0.0.1:PORT`), as nats-py and the `nats` command line take it: do not
    show it, show `address`. Clients that do not read a token from the URL (JavaScript) take `address` and `token`.
    `started_at` is UTC, ISO 8601.
    """

    url: str
    token: str | None
    directory: Path
    name: str
    port: int
    pid: int
    keeper_pid: int
    version: str
    sync: Sync
    monitor_url: str
    started_at: str

    def __repr__(self) -> str:
        """Without the token."""
        return f"<nats-server {self.version} at {self.address}, process {self.pid}, log in {self.directory}>"

    @property
    def address(self) -> str:
        """The URL without the token."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def risk(self) -> str | None:
        """What the sync setting may lose, for people; None if nothing."""
        if self.sync == "always":
            return None
        return (
            "FOLDLOG_SYNC=default: events are fsynced within two minutes; a power failure loses those since then, "
            "although they were acknowledged"
        )


class Identity(Struct, frozen=True, kw_only=True):
    """What a server keeps over restarts, so that its clients find it again."""

    name: str
    token: str
    port: int


def read_info(layout: Layout) -> ServerInfo | None:
    """What `server.json` says, true or not; None if it is absent or unreadable."""
    try:
        return msgspec.json.decode(layout.info.read_bytes(), type=ServerInfo, dec_hook=_path)
    except (OSError, msgspec.MsgspecError):
        return None


def _path(_kind: type, value: str) -> Path:
    return Path(value)


def write_info(layout: Layout, info: ServerInfo) -> None:
    """Announce a server. Raises OSError."""
    write_private(layout.info, msgspec.json.format(msgspec.json.encode(info, enc_hook=str), indent=2))


def answering(layout: Layout) -> ServerInfo | None:
    """The server of `server.json`, if it answers under its name and has its keeper.

    The file is read once more after the answer: a keeper that is about to end removes the file first and looks for
    connections then, so either it sees this one or this one sees the file gone.
    """
    info = read_info(layout)
    if info is None or not is_alive(info.keeper_pid) or not _greets(info):
        return None
    return read_info(layout)


def _greets(info: ServerInfo) -> bool:
    """Does a server with JetStream and this name accept connections on the port?"""
    try:
        with socket.create_connection(("127.0.0.1", info.port), PROBE_TIMEOUT_S) as connection:
            word, _, greeting = connection.makefile("rb").readline().partition(b" ")
        said = json.loads(greeting) if word == b"INFO" else {}
    except (OSError, ValueError):
        return False
    return bool(said.get("server_name") == info.name and said.get("jetstream"))


def runs(pid: int, marker: str) -> bool:
    """Is there a process `pid` with `marker` in its command line? A pid alone may belong to somebody else by now."""
    import psutil

    try:
        return any(marker in part for part in psutil.Process(pid).cmdline())
    except psutil.Error:
        return False


def is_alive(pid: int) -> bool:
    """Is there a process `pid`?"""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
