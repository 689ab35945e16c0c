"""Read MCP servers from a file in the usual shape, `{"mcpServers": {...}}`."""

from __future__ import annotations

import json
from typing import Any


def read_servers(path: str) -> dict[str, dict[str, Any]]:
    """Return the entries of the file. Raises `ConfigError`, which names the file and what is wrong with it."""
    from ...eventlog.errors import ConfigError
    from ...eventlog.files import read_bounded

    try:
        data = json.loads(read_bounded(path))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON: {error}") from None
    servers = data.get("mcpServers") if isinstance(data, dict) else None
    if not isinstance(servers, dict) or not all(isinstance(entry, dict) for entry in servers.values()):
        raise ConfigError(f'{path} must hold {{"mcpServers": {{"name": {{...}}, ...}}}}')
    return servers
