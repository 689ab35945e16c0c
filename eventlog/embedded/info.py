"""The address of a directory's server: `server.json`, and the check that it is still valid."""

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
    """A running server.

    `url` contains the token (`nats://TOKEN@127.0.0.1:PORT`), in the form for nats-py and the `nats` command line; show
    `address` instead. Clients that do not read a token from the URL (JavaScript) need `address` and `token`.
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
        """Return a text without the token."""
        return f"<nats-server {self.version} at {self.address}, process {self.pid}, log in {self.directory}>"

    @property
    def address(self) -> str:
        """The URL without the token."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def risk(self) -> str | None:
        """The risk of the sync setting, as text; None if there is none."""
        if self.sync == "always":
            return None
        return (
            "FOLDLOG_SYNC=default: events are fsynced within two minutes; a power failure loses acknowledged events "
            "since the last fsync"
        )


class Identity(Struct, frozen=True, kw_only=True):
    """The values that a server keeps over restarts, so that its clients find it again."""

    name: str
    token: str
    port: int


def read_info(layout: Layout) -> ServerInfo | None:
    """Return the content of `server.json`, valid or not; None if it is missing or cannot be decoded."""
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
    """Return the server of `server.json`, if it replies under its name and its keeper is alive.

    The file is read again after the reply: a keeper that is about to end first removes the file and then looks for
    connections, so either the keeper sees this connection, or this process sees that the file is missing.
    """
    info = read_info(layout)
    if info is None or not is_alive(info.keeper_pid) or not _greets(info):
        return None
    return read_info(layout)


def _greets(info: ServerInfo) -> bool:
    """Return whether a server with JetStream and this name accepts connections on the port."""
    try:
        with socket.create_connection(("127.0.0.1", info.port), PROBE_TIMEOUT_S) as connection:
            word, _, greeting = connection.makefile("rb").readline().partition(b" ")
        said = json.loads(greeting) if word == b"INFO" else {}
    except (OSError, ValueError):
        return False
    return bool(said.get("server_name") == info.name and said.get("jetstream"))


def runs(pid: int, marker: str) -> bool:
    """Return whether process `pid` has `marker` in its command line; the pid may have been reused."""
    import psutil

    try:
        return any(marker in part for part in psutil.Process(pid).cmdline())
    except psutil.Error:
        return False


def is_alive(pid: int) -> bool:
    """Return whether there is a process `pid`."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
