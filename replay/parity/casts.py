"""The registry of a parity check: the agent's own tools, counted as they start, and one model for all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, cast

from ...eventlog.events import ToolSpec
from ...eventlog.ports import Log
from ...runtime.agents.registry import Registry
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
"""How often the tool of a call was started, by the call's idempotency key (`run:step:index`)."""


class Attended:
    """Who counts the starts of tools, and who is told of their ends, once there is somebody."""

    def __init__(self) -> None:
        self.starts: Starts = Counter()
        self.audience: LiveReader | None = None

    async def ended(self, context: ToolContextPort) -> None:
        """A call has ended by itself."""
        if self.audience is not None:
            await self.audience.ended(context)


class CountedTool:
    """A tool that counts its starts, and whose reader is waited for."""

    def __init__(self, inner: Tool, attended: Attended) -> None:
        self._inner, self._attended = inner, attended

    @property
    def spec(self) -> ToolSpec:
        """That of the tool itself."""
        return self._inner.spec

    async def call(self, arguments: Mapping[str, Any], context: ToolContextPort) -> Any:
        """Count, and run it."""
        self._attended.starts[context.idempotency_key] += 1
        try:
            result = await self._inner.call(arguments, context)
        except Exception:
            await self._attended.ended(context)
            raise
        await self._attended.ended(context)
        return result

    async def verify(
        self, arguments: Mapping[str, Any], context: ToolContextPort, own: Evidence | None
    ) -> Verification:
        """As the tool itself does."""
        return await cast("Verifiable", self._inner).verify(arguments, context, own)


class _CountedSource:
    def __init__(self, inner: ToolSource, attended: Attended) -> None:
        self._inner = inner
        self.tools: Mapping[str, Tool] = {
            name: CountedTool(tool, attended) for name, tool in inner.tools.items()
        }

    async def aclose(self) -> None:
        await self._inner.aclose()


class _CountedSources:
    def __init__(self, inner: ToolSourceFactory, attended: Attended) -> None:
        self._inner, self._attended = inner, attended

    def check(self, servers: Mapping[str, Mapping[str, Any]]) -> None:
        self._inner.check(servers)

    async def open(self, servers: Mapping[str, Mapping[str, Any]]) -> ToolSource:
        return _CountedSource(await self._inner.open(servers), self._attended)

    async def aclose(self) -> None:
        await self._inner.aclose()


class CountedRegistry(Registry):
    """The agent that is checked with the agents and tools of its own registry; `model` answers for every provider."""

    def __init__(self, agent: Runnable[Any], base: Registry | None, model: ModelProvider) -> None:
        others = (
            [each for name, each in base.agents.items() if name != agent.name] if base is not None else []
        )
        super().__init__(agents=[agent, *others], tools=base.tools.values() if base is not None else ())
        self._model, self._base = model, base
        self.attended = Attended()

    def resolve(self, agent: Runnable[Any]) -> dict[str, Tool]:
        """The agent's tools, counted, but for those that are bound to a run when it is driven."""
        return {
            name: tool if isinstance(tool, TodoTool) else CountedTool(tool, self.attended)
            for name, tool in super().resolve(agent).items()
        }

    def provider(self, model: str) -> tuple[ModelProvider, str]:
        """The script, whatever the model."""
        return self._model, model.partition(":")[2] or model

    def memory(self, backend: str, log: Log) -> MemoryStore:
        """Those of the agent's own registry."""
        return self._base.memory(backend, log) if self._base is not None else super().memory(backend, log)

    def knowledge(self, namespace: str) -> KnowledgeStore:
        """That of the agent's own registry."""
        return self._base.knowledge(namespace) if self._base is not None else super().knowledge(namespace)

    def tool_sources(self) -> ToolSourceFactory:
        """The real tool servers, their tools counted."""
        return _CountedSources(super().tool_sources(), self.attended)
