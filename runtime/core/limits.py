"""Limits: how many calls of a tool, or of the tools of an MCP server, run at once in the namespace, over all processes.

    [limits]
    "tool:print" = 2
    "mcp:crm" = 3

Each limit is a semaphore of that size in the log, as a tool's `slot` is one of size 1 (ADR 0043). A call takes all that
it needs in the order of their names, so two calls never wait for each other's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ...eventlog.errors import ConfigError
from ...eventlog.events import ToolSpec

SIZE_MAX = 10_000
_NAME = re.compile(r"(tool|mcp):[A-Za-z0-9_.-]{1,128}")
_MCP = "mcp:"


def check_limits(table: object, where: str) -> dict[str, int]:
    """Return the limits of a table by their names. Raises `ConfigError`, which begins with `where`."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where}: must be a table of limits")
    for name, size in table.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigError(f'{where}: {name!r:.80} is no limit; write "tool:NAME" or "mcp:SERVER"')
        if type(size) is not int or not 1 <= size <= SIZE_MAX:
            raise ConfigError(f"{where}: the limit of {name!r} must be 1 to {SIZE_MAX:,}, not {size!r:.40}")
    return dict(table)


def limits_of(spec: ToolSpec) -> Iterator[str]:
    """Yield the names of the limits that a call of the tool may be under, in the order in which it takes them."""
    if spec.source.startswith(_MCP):
        yield f"mcp:{spec.source.removeprefix(_MCP)}"
    yield f"tool:{spec.name}"
