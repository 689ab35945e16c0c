"""The tool with which a model reads the rest of a shortened result. A run gets it with the first such result.

An agent with a `context` table has it from the beginning. Its texts are part of the digests of stored requests, so a
change of them makes old runs diverge.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..eventlog.events import ToolSpec

RETRIEVE = "retrieve_artifact"
SOURCE = "context"
OFFLOADED = "offloaded_artifact_id"
"""The key in a shortened result's metadata under which the artifact of the whole text is."""
LIMIT_MAX = 16_000
"""The most characters that one call reads."""

_PROPERTIES: dict[str, Any] = {
    "id": {"type": "string", "description": "the artifact's id, as the shortened result names it"},
    "offset": {"type": "integer", "minimum": 0, "description": "the first character, from 0"},
    "limit": {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "description": "how many"},
}


def retrieval_spec(injected: Mapping[str, str]) -> ToolSpec:
    """Return the tool's specification. Injected arguments with the name of one of its own are not added."""
    added = {
        name: {"type": "string", "description": text}
        for name, text in of_others(RETRIEVE, SOURCE, injected).items()
    }
    properties = {name: dict(schema) for name, schema in _PROPERTIES.items()} | added
    return ToolSpec(
        name=RETRIEVE,
        description="Read a part of a tool result that was too long to be shown whole.",
        parameters={"type": "object", "properties": properties, "required": ["id"]},
        effect="pure",
        lock=None,
        source=SOURCE,
    )


def of_others(tool_name: str, source: str, injected: Mapping[str, str]) -> Mapping[str, str]:
    """Return the injected arguments of a tool; for this tool, which is added automatically, without its own names."""
    if (tool_name, source) != (RETRIEVE, SOURCE):
        return injected
    return {name: text for name, text in injected.items() if name not in _PROPERTIES}


def is_offloaded(metadata: Mapping[str, Any]) -> bool:
    """Return whether a tool result with this metadata is shortened."""
    return isinstance(metadata.get(OFFLOADED), str)
