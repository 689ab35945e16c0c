"""The configuration of a server: loopback only, fsync before each acknowledgement, higher limits for a log."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Literal, get_args

from ..errors import ConfigError

Sync = Literal["always", "default"]
"""The sync setting: `always` fsyncs before each acknowledgement; `default` within two minutes, so that a power failure
(but not a crash of the process) loses acknowledged events."""


def sync_setting() -> Sync:
    """Return `FOLDLOG_SYNC`, by default `always`. Raises `ConfigError` for an unknown value."""
    given = os.environ.get("FOLDLOG_SYNC", "always")
    for choice in get_args(Sync):
        if given == choice:
            return choice  # type: ignore[no-any-return]  # get_args forgets the type
    raise ConfigError(f"FOLDLOG_SYNC is {given!r}; it can be 'always' or 'default'.")


def idle_setting_s() -> float:
    """Return `FOLDLOG_KEEPER_IDLE_S`, by default 60; `inf` for no limit. Raises `ConfigError` for another value."""
    given = os.environ.get("FOLDLOG_KEEPER_IDLE_S", "60")
    try:
        idle_s = float(given)
    except ValueError:
        idle_s = -1.0
    if not idle_s > 0:
        raise ConfigError(f"FOLDLOG_KEEPER_IDLE_S is {given!r}; it is a number of seconds above 0, or 'inf'.")
    return idle_s


def server_config(
    *, store: Path, ports: Path, name: str, port: int, token: str | None, sync: Sync, extra: str = ""
) -> str:
    """Return the text of a server's configuration file.

    `ports` is the directory where the server writes `nats-server_<pid>.ports` once it accepts connections; port -1
    means any. The server's defaults of 1000 consumers per stream and 50 open batches are too low for a stream that many
    runs share. Everything else has the server's defaults (max_payload: 1 MiB).
    """
    lines = [
        "host: 127.0.0.1",
        f"port: {port}",
        'http: "127.0.0.1:-1"',
        f"server_name: {json.dumps(name)}",
        f"ports_file_dir: {_quoted(ports)}",
        "jetstream {",
        f"  store_dir: {_quoted(store)}",
        f"  sync_interval: {'always' if sync == 'always' else '2m'}",
        "  limits {",
        "    default_max_consumers: -1",
        "    batch {",
        "      max_inflight_per_stream: 1000",
        "      max_inflight_total: 4000",
        "    }",
        "  }",
        "}",
    ]
    if token is not None:
        lines.append(f"authorization {{ token: {json.dumps(token)} }}")
    return "\n".join([*lines, extra, ""])


def _quoted(path: Path) -> str:
    return json.dumps(str(path), ensure_ascii=False)
