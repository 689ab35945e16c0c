"""Native tools: those that a model's provider runs itself while it answers, in the same words for every provider."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

NATIVE_TOOLS: Final = ("web_search", "code_execution", "file_search")
"""The names of all native tools."""


class NativeTool(msgspec.Struct, frozen=True, kw_only=True):
    """A native tool that an agent may use, with its options as configured."""

    type: str
    options: dict[str, Any] = {}

    def as_table(self) -> dict[str, Any]:
        """Return the tool as a table of a configuration."""
        return {"type": self.type, **self.options}


def native_tool(table: Mapping[str, Any]) -> NativeTool:
    """Return the native tool of a table, as `as_table` writes it."""
    return NativeTool(
        type=table["type"], options={name: each for name, each in table.items() if name != "type"}
    )
