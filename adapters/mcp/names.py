"""The names of MCP tools for models: `mcp__<server>__<tool>`, within the limits of providers.

Characters outside `[A-Za-z0-9_-]` become `_`. A name that is too long, or that two tools would share after that, ends
in a hash of the server's and the tool's own names instead. The names depend on the set of tools, not on its order.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection

LENGTH_MAX = 64
_HASH_LENGTH = 8
_FORBIDDEN = re.compile(r"[^A-Za-z0-9_-]")

ToolKey = tuple[str, str]
"""The server's name in the configuration, the tool's name as the server gives it."""


def tool_names(tools: Collection[ToolKey]) -> dict[ToolKey, str]:
    """Return a distinct name of at most 64 characters for each tool."""
    plain = {key: _FORBIDDEN.sub("_", "mcp__{}__{}".format(*key)) for key in tools}
    shared = Counter(plain.values())
    return {
        key: name if shared[name] == 1 and len(name) <= LENGTH_MAX else _hashed(key, name)
        for key, name in plain.items()
    }


def _hashed(key: ToolKey, name: str) -> str:
    digest = hashlib.sha256("\0".join(key).encode()).hexdigest()[:_HASH_LENGTH]
    return f"{name[: LENGTH_MAX - _HASH_LENGTH - 1]}_{digest}"
