"""What the preparation of a run reads of earlier runs and of stored knowledge: once, then it stands in the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ..eventlog.events import KnowledgeFound, MemoryHydrated, Submitted
from ..projections.history import distinct_calls
from ..projections.messages import Message
from ..projections.run_state import RunState
from .journal import through_outages
from .memory import memory_use

if TYPE_CHECKING:
    from .drive import Host

ITEMS_MAX = 100
"""How many things are remembered at most, unless the agent's `context` says how long a history may be."""
PIECES_MAX = 5
"""How many pieces of knowledge a prompt gets."""


def is_needed(state: RunState) -> bool:
    """Whether the run has a memory that was not read yet. Raises `ConfigError` for one that cannot be read."""
    return _is_asked_for(state.submitted) and not state.hydrated


def _is_asked_for(submitted: Submitted | None) -> bool:
    if submitted is None:
        return False
    return bool(submitted.config.get("memory")) or submitted.metadata.get("memory") is not None


async def recall(host: Host, state: RunState, items_max: int | None) -> MemoryHydrated | None:
    """The run's memory as messages that share no call id with its own; null for a run without one.

    Raises `ConfigError`, `LogCorrupted`.
    """
    submitted = state.submitted
    use = memory_use(submitted, state.run) if submitted is not None and is_needed(state) else None
    if use is None or submitted is None:
        return None
    store = host.registry.memory(use.backend, host.log)
    items = await through_outages(host.log.clock, store.recall, use.scope, use.keys, items_max or ITEMS_MAX)
    own = [msgspec.convert(item, Message) for item in submitted.messages]
    _, *told = distinct_calls([("", own), *((item.id, item.messages) for item in items)])
    messages = [msgspec.to_builtins(message) for each in told for message in each]
    return MemoryHydrated(scope=use.scope, backend=use.backend, messages=messages)


async def look_up(host: Host, state: RunState) -> KnowledgeFound | None:
    """The knowledge that fits the input of a run with a memory; null for none. Raises `KnowledgeUnavailable`."""
    submitted = state.submitted
    if submitted is None or not _is_asked_for(submitted) or state.knowledge:
        return None
    store = host.registry.knowledge(host.log.namespace)
    found = await store.search(submitted.input, PIECES_MAX)
    return KnowledgeFound(items=msgspec.to_builtins(list(found))) if found else None
