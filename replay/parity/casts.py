"""The registry of a parity check: the agent's own tools, counted as they start, and one model for all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, cast

from ...eventlog.events import ToolSpec
from ...eventlog.ports import Log
from ...runtime.agents.registry import Registry
from ...runtime.agents.standing_plan import PlanTool
from ...runtime.agents.todo import TodoTool
from ...runtime.ports.evidence import Evidence
from ...runtime.ports.knowledge import KnowledgeStore
from ...runtime.ports.memory import MemoryStore
from ...runtime.ports.models import ModelProvider
from ...runtime.ports.runnable import Runnable
from ...runtime.ports.tools import Tool, ToolContextPort, ToolSource, ToolSourceFactory
from ...runtime.tools.verified import Verifiable, Verification
from .live import LiveReader

Starts = Counter[str]
"""The number of starts of a call's tool, by its idempotency key: `run:step:index`, or `run:place` of a workflow."""


class ToolStarts:
    """Counts the starts of tools, and reports their ends to the live reader, once there is one."""

    def __init__(self) -> None:
        self.starts: Starts = Counter()
        self.reader: LiveReader | None = None

    async def ended(self, context: ToolContextPort) -> None:
        """Report the end of a call to the live reader."""
        if self.reader is not None:
            await self.reader.ended(context)


class CountedTool:
    """A tool that counts its starts, and waits at its end until the live reader has seen its events."""

    def __init__(self, inner: Tool, tool_starts: ToolStarts) -> None:
        self._inner, self._tool_starts = inner, tool_starts
        self.once = getattr(inner, "once", None)

    @property
    def spec(self) -> ToolSpec:
        """The specification of the wrapped tool."""
        return self._inner.spec

    async def call(self, arguments: Mapping[str, Any], context: ToolContextPort) -> Any:
        """Count the start, and call the wrapped tool."""
        self._tool_starts.starts[context.idempotency_key] += 1
        try:
            result = await self._inner.call(arguments, context)
        except Exception:
            await self._tool_starts.ended(context)
            raise
        await self._tool_starts.ended(context)
        return result

    async def verify(
        self, arguments: Mapping[str, Any], context: ToolContextPort, own: Evidence | None
    ) -> Verification:
        """Delegate to the wrapped tool."""
        return await cast("Verifiable", self._inner).verify(arguments, context, own)


class _CountedSource:
    def __init__(self, inner: ToolSource, tool_starts: ToolStarts) -> None:
        self._inner = inner
        self.tools: Mapping[str, Tool] = {
            name: CountedTool(tool, tool_starts) for name, tool in inner.tools.items()
        }

    async def aclose(self) -> None:
        await self._inner.aclose()


class _CountedSources:
    def __init__(self, inner: ToolSourceFactory, tool_starts: ToolStarts) -> None:
        self._inner, self._tool_starts = inner, tool_starts

    def check(self, servers: Mapping[str, Mapping[str, Any]]) -> None:
        self._inner.check(servers)

    async def open(self, servers: Mapping[str, Mapping[str, Any]]) -> ToolSource:
        return _CountedSource(await self._inner.open(servers), self._tool_starts)

    async def aclose(self) -> None:
        await self._inner.aclose()


class CountedRegistry(Registry):
    """The checked agent, with the agents and tools of its own registry; `model` replaces every provider."""

    def __init__(self, agent: Runnable[Any], base: Registry | None, model: ModelProvider) -> None:
        others = (
            [each for name, each in base.agents.items() if name != agent.name] if base is not None else []
        )
        tools, deps = (base.tools.values(), base.deps.factory) if base is not None else ((), None)
        super().__init__(agents=[agent, *others], tools=tools, deps=deps)
        self._model, self._base = model, base
        self.tool_starts = ToolStarts()

    def resolve(self, agent: Runnable[Any]) -> dict[str, Tool]:
        """Return the agent's tools, counted, except those that are bound to a run when it is driven."""
        return {
            name: tool if isinstance(tool, TodoTool | PlanTool) else CountedTool(tool, self.tool_starts)
            for name, tool in super().resolve(agent).items()
        }

    def provider(self, model: str) -> tuple[ModelProvider, str]:
        """Return the script as the provider of every model."""
        return self._model, model.partition(":")[2] or model

    def memory(self, backend: str, log: Log) -> MemoryStore:
        """Return the memory of the agent's own registry."""
        return self._base.memory(backend, log) if self._base is not None else super().memory(backend, log)

    def knowledge(self, namespace: str) -> KnowledgeStore:
        """Return the knowledge store of the agent's own registry."""
        return self._base.knowledge(namespace) if self._base is not None else super().knowledge(namespace)

    def tool_sources(self) -> ToolSourceFactory:
        """Return the real tool servers, with their tools counted."""
        return _CountedSources(super().tool_sources(), self.tool_starts)
