"""Which server a command talks to, in words that hold no password."""

from __future__ import annotations

import os

from .settings import Settings


def address_of(settings: Settings) -> str:
    """The log's address for people; asks the project's own server if none is named."""
    from ...eventlog.embedded import server_status
    from ...eventlog.jetstream.address import masked

    named = settings.server or os.environ.get("NATS_URL")
    if named:
        return ",".join(masked(each.strip()) for each in named.split(","))
    info = server_status()
    return (
        f"{info.address} (the server of {info.directory})" if info is not None else "the project's own server"
    )
