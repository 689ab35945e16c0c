"""The address of a log: URLs, and the credentials in them, which must not be shown."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from ..errors import ConfigError

_TLS_FILES = ("NATS_CA", "NATS_CERT", "NATS_KEY")
_SCHEMES = ("nats", "tls", "ws", "wss")


def servers_of(url: str) -> list[str]:
    """Return the servers in a URL. Raises `ConfigError` if nats-py could not use it."""
    servers = [server.strip() for server in url.split(",") if server.strip()]
    for server in servers or [""]:
        if not server or ("://" in server and server.partition("://")[0] not in _SCHEMES):
            raise ConfigError(
                f"{masked(server)!r} is not the URL of a NATS server, such as nats://host:4222 "
                f"(schemes: {', '.join(_SCHEMES)})"
            )
    return servers


def masked(url: str) -> str:
    """Return the URL without its credentials, for messages and logs."""
    if "@" not in url:
        return url
    parts = urlsplit(url if "://" in url else f"nats://{url}")
    user = f"{parts.username}:***" if parts.password is not None else "***"
    return urlunsplit(
        (parts.scheme, f"{user}@{parts.netloc.rpartition('@')[2]}", parts.path, parts.query, "")
    )


def credentials_file() -> str | None:
    """Return the credentials file named by `NATS_CREDS`, if set. Raises `ConfigError` if the file does not exist."""
    named = os.environ.get("NATS_CREDS")
    if not named:
        return None
    if not Path(named).is_file():
        raise ConfigError(f"NATS_CREDS names {named}, which is not a file")
    return named


def tls_context() -> ssl.SSLContext | None:
    """Return what `NATS_CA`, `NATS_CERT` and `NATS_KEY` say; null for the system's authorities and no certificate.

    Raises `ConfigError` for a file that is missing or of no use, and for a certificate without its key.
    """
    authorities, certificate, key = (os.environ.get(name) or None for name in _TLS_FILES)
    if (certificate is None) != (key is None):
        raise ConfigError(
            "NATS_CERT and NATS_KEY belong together: a certificate and its key, as files in PEM"
        )
    if authorities is None and certificate is None:
        return None
    for name, path in zip(_TLS_FILES, (authorities, certificate, key), strict=True):
        if path is not None and not Path(path).is_file():
            raise ConfigError(f"{name} names {path}, which is not a file")
    try:
        context = ssl.create_default_context(cafile=authorities)
        if certificate is not None:
            context.load_cert_chain(certificate, key)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(f"the files of {', '.join(_TLS_FILES)} cannot be used for TLS: {error}") from error
    return context
