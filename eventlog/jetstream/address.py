"""Where a log is, and how it may be told: URLs, and the credentials that must not be shown."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from ..errors import ConfigError

_SCHEMES = ("nats", "tls", "ws", "wss")


def servers_of(url: str) -> list[str]:
    """The servers of a URL. Raises `ConfigError` if nats-py could not use it."""
    servers = [server.strip() for server in url.split(",") if server.strip()]
    for server in servers or [""]:
        if not server or ("://" in server and server.partition("://")[0] not in _SCHEMES):
            raise ConfigError(
                f"{masked(server)!r} is no URL of a NATS server, which looks like nats://host:4222 "
                f"(schemes: {', '.join(_SCHEMES)})"
            )
    return servers


def masked(url: str) -> str:
    """The URL without its credentials, fit for messages and logs."""
    if "@" not in url:
        return url
    parts = urlsplit(url if "://" in url else f"nats://{url}")
    user = f"{parts.username}:***" if parts.password is not None else "***"
    return urlunsplit(
        (parts.scheme, f"{user}@{parts.netloc.rpartition('@')[2]}", parts.path, parts.query, "")
    )


def credentials_file() -> str | None:
    """The credentials file that `NATS_CREDS` names, None without it. Raises `ConfigError` if there is none."""
    named = os.environ.get("NATS_CREDS")
    if not named:
        return None
    if not Path(named).is_file():
        raise ConfigError(f"NATS_CREDS names {named}, which is no file")
    return named
