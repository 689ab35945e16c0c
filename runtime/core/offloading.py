"""Large tool results: stored next to the log, shown to the model by their head and tail, read in full by a tool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...eventlog.events import Context, Event, PlannerToolReturned, ToolResult, ToolSpec
from ...eventlog.ports import FamilyArtifacts
from ...projections.call_texts import answer_text, result_text
from ...projections.messages import sha256_hex
from ...projections.retrieval import LIMIT_MAX, OFFLOADED, RETRIEVE, SOURCE, retrieval_spec
from ...projections.run_state import RunState
from ..ports.files import File
from ..ports.media_types import by_signature
from ..ports.tools import Tool, ToolContextPort, ToolFailed
from .rules import Rules

SOONER = 8
"""In a long conversation, results are offloaded from this fraction of the usual size on."""


def artifact_id(state: RunState, rules: Rules, tool_name: str, text: str) -> str | None:
    """Return the id to offload the text of a result under; null for a small one, or a part of a large one."""
    context, tool = rules.context, state.tools.get(tool_name)
    if tool is not None and tool.source == SOURCE:
        return None
    data = text.encode(errors="replace")
    many = context.offload_at_messages
    sooner = many is not None and state.context.messages >= many
    return sha256_hex(data) if len(data) > context.artifact_bytes_min // (SOONER if sooner else 1) else None


def is_offloaded(event: Event) -> bool:
    """Return whether the event is a result of which the model sees only the head and the tail."""
    if isinstance(event, PlannerToolReturned):
        return event.offloaded_artifact_id is not None
    return isinstance(event, ToolResult) and OFFLOADED in event.metadata


def offload_event(state: RunState) -> Context | None:
    """Return the event that records a step's offloaded results, if there are any."""
    results = [call.result for call in state.calls.values() if call.result is not None]
    large = [result for result in results if is_offloaded(result)]
    if not large:
        return None
    # The step's own messages, which are added when it ends, count too.
    count = len(state.messages) + 1 + len(results)
    return Context(
        action="offload",
        before_count=count,
        after_count=count,
        details={
            "artifacts": [result.metadata[OFFLOADED] for result in large],
            "characters_before": sum(
                len(result_text(result.result, in_parts=result.in_parts)) for result in large
            ),
            "characters_after": sum(len(answer_text(result)) for result in large),
        },
    )


async def store(event: Event, artifacts: FamilyArtifacts) -> None:
    """Store the text of a result, if it is offloaded, as an artifact. Raises `LogUnavailable`."""
    if isinstance(event, ToolResult | PlannerToolReturned) and is_offloaded(event):
        text = result_text(event.result, in_parts=event.in_parts)
        await artifacts.put(text.encode(errors="replace"))


class Retrieval:
    """The tool that lets a model read the rest of an offloaded result."""

    def __init__(self, artifacts: FamilyArtifacts, injected: Mapping[str, str]) -> None:
        self.spec: ToolSpec = retrieval_spec(injected)
        self._artifacts = artifacts

    async def call(self, arguments: Mapping[str, Any], context: ToolContextPort) -> str | File:
        """Return the characters from `offset` on, at most `limit`; a file that is not text, whole, as a file.

        Raises `ToolFailed`.
        """
        given = {key: value for key, value in arguments.items() if value is not None}
        name, offset, limit = given.get("id"), given.get("offset", 0), given.get("limit", LIMIT_MAX)
        if not isinstance(name, str) or not _is_count(offset) or not _is_count(limit):
            raise ToolFailed("give id as text, offset and limit as whole numbers from 0 on")
        try:
            data = await self._artifacts.get(name)
        except KeyError:
            raise ToolFailed(f"there is no artifact {name!r}") from None
        text = _text_of(data)
        if text is None:
            return File.from_bytes(data)
        end = min(offset + min(limit, LIMIT_MAX), len(text))
        return f"{text[offset:end]}\n[characters {min(offset, len(text))} to {end} of {len(text)}]"


def _text_of(data: bytes) -> str | None:
    """Return the bytes as text; null for those of a file of another type."""
    if by_signature(data) is not None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def with_retrieval(tools: Mapping[str, Tool], rules: Rules, artifacts: FamilyArtifacts) -> dict[str, Tool]:
    """Return the tools of an agent plus the retrieval tool; a tool of the agent with that name takes precedence."""
    return {RETRIEVE: Retrieval(artifacts, rules.injected_tool_args), **tools}


def is_offered(spec: ToolSpec, state: RunState, rules: Rules) -> bool:
    """Return whether a run gets the tool: the retrieval tool only where long results are expected."""
    return spec.source != SOURCE or rules.context.windows or RETRIEVE in state.tools
