"""The address of the server that a command talks to, without its password."""

from __future__ import annotations

import os

from .settings import Settings


def address_of(settings: Settings) -> str:
    """Return the log's address for display; if none is given, that of the project's own server."""
    from ...eventlog.embedded import server_status
    from ...eventlog.jetstream.address import masked

    named = settings.server or os.environ.get("NATS_URL")
    if named:
        return ",".join(masked(each.strip()) for each in named.split(","))
    info = server_status()
    return (
        f"{info.address} (the server of {info.directory})" if info is not None else "the project's own server"
    )
