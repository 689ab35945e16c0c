"""Limits: how many calls, model calls or runs are at work at once in the namespace, over all processes.

    [limits]
    "tool:print" = 2                 # calls of a tool
    "mcp:crm" = 3                    # calls of all tools of an MCP server
    "provider:openai" = 20           # model calls
    "lane:mail" = 5                  # driven runs in lanes of this name, over all sessions
    namespace = 200                  # driven runs

Each limit is a semaphore of that size in the log, as a tool's `slot` is one of size 1 (ADR 0043). A call takes all that
it needs in the order of their names, so two calls never wait for each other's. Runs below others count only for their
agents: who waits for them holds the place of the family.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ...eventlog.errors import ConfigError
from ...eventlog.events import ToolSpec

SIZE_MAX = 10_000
NAMESPACE = "namespace"
_NAME = re.compile(r"(tool|mcp|provider|lane):[A-Za-z0-9_.-]{1,128}")
_MCP = "mcp:"


def check_limits(table: object, where: str) -> dict[str, int]:
    """Return the limits of a table by their names. Raises `ConfigError`, which begins with `where`."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where}: must be a table of limits")
    for name, size in table.items():
        if not isinstance(name, str) or not (name == NAMESPACE or _NAME.fullmatch(name)):
            raise ConfigError(
                f'{where}: {name!r:.80} is not a limit; write "tool:NAME", "mcp:SERVER", "provider:NAME", "lane:NAME" '
                "or namespace"
            )
        if type(size) is not int or not 1 <= size <= SIZE_MAX:
            raise ConfigError(f"{where}: the limit of {name!r} must be 1 to {SIZE_MAX:,}, not {size!r:.40}")
    return dict(table)


def limits_of(spec: ToolSpec) -> Iterator[str]:
    """Yield the names of the limits that a call of the tool may be under, in the order in which it takes them."""
    if spec.source.startswith(_MCP):
        yield f"mcp:{spec.source.removeprefix(_MCP)}"
    yield f"tool:{spec.name}"


def limits_of_run(lane: str | None) -> Iterator[str]:
    """Yield the names of the limits that a root run may be under, in the order in which it takes them."""
    if lane is not None:
        yield f"lane:{lane_kind(lane)}"
    yield NAMESPACE


def lane_kind(lane: str) -> str:
    """Return what lanes are counted as: the name of a named one, else what it is for, such as `session`."""
    kind, _, rest = lane.partition(":")
    return rest.partition(":")[0] if kind == "lane" else kind


def limit_of_model(model: str) -> str:
    """Return the name of the limit that calls of a model may be under."""
    return f"provider:{model.partition(':')[0]}"
