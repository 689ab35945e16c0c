"""The embedded nats-server: one per project directory, shared by all its processes, kept by a keeper.

    info = await ensure_server()          # starts a keeper and its server if none runs
    connection = await nats.connect(info.url)

The first process that needs the server starts a detached keeper (`keeper.py`), which holds the lock of the store and
has the server as its child. The keeper restarts a server that dies, on the same port; it ends when no client was
connected for `FOLDLOG_KEEPER_IDLE_S` seconds (60), or by `stop_server`. `EphemeralServer` is a server without a keeper,
for tests and demonstrations.
"""

from .access import ensure_server, server_status, stop_server
from .binary import find_binary
from .config import Sync
from .ephemeral import EphemeralServer
from .errors import (
    DirectoryUnusable,
    LostTail,
    NatsServerMissing,
    PlatformUnsupported,
    ServerDied,
    ServerNotReady,
    StoreDamaged,
    StoreLocked,
    TailLost,
)
from .info import ServerInfo
from .layout import log_directory, project_directory

__all__ = [
    "DirectoryUnusable",
    "EphemeralServer",
    "LostTail",
    "NatsServerMissing",
    "PlatformUnsupported",
    "ServerDied",
    "ServerInfo",
    "ServerNotReady",
    "StoreDamaged",
    "StoreLocked",
    "Sync",
    "TailLost",
    "ensure_server",
    "find_binary",
    "log_directory",
    "project_directory",
    "server_status",
    "stop_server",
]
