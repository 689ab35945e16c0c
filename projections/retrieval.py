"""The tool by which a model reads on in a result that it was shown in part: a run has it from its first such result on.

An agent with a `context` table has it from the beginning. What is said here is part of the digests of stored requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..eventlog.events import ToolSpec

RETRIEVE = "retrieve_artifact"
SOURCE = "context"
OFFLOADED = "offloaded_artifact_id"
"""What the metadata of a result that is shown in part calls its text."""
LIMIT_MAX = 16_000
"""How many characters are read at most at once."""

_PROPERTIES: dict[str, Any] = {
    "id": {"type": "string", "description": "the artifact's id, as the shortened result names it"},
    "offset": {"type": "integer", "minimum": 0, "description": "the first character, from 0"},
    "limit": {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "description": "how many"},
}


def retrieval_spec(injected: Mapping[str, str]) -> ToolSpec:
    """It only reads. An injected argument that has the name of one of its own is not added to it."""
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
    """The injected arguments of a tool: this one, which nobody chose, keeps its own names to itself."""
    if (tool_name, source) != (RETRIEVE, SOURCE):
        return injected
    return {name: text for name, text in injected.items() if name not in _PROPERTIES}


def is_offloaded(metadata: Mapping[str, Any]) -> bool:
    """Return whether a tool result with this metadata is shown in part."""
    return isinstance(metadata.get(OFFLOADED), str)
