"""Reading a run's memory and knowledge during its preparation: once, and from then on they are in the log."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec

from ...eventlog.events import MemoryHydrated
from ...projections.content_files import files_in
from ...projections.history import distinct_calls
from ...projections.messages import Message
from ...projections.run_state import RunState
from ..journal.outages import through_outages
from ..ports.memory import memory_use
from .host import Host

ITEMS_MAX = 100
"""The most items remembered, unless the agent's `context` limits the history."""
PIECES_MAX = 5
"""The number of pieces of knowledge added to a prompt."""


def is_needed(state: RunState) -> bool:
    """Return whether the run has a memory that was not read yet. Raises `ConfigError` if it cannot be read."""
    submitted = state.submitted
    return submitted is not None and not state.hydrated and memory_use(submitted, state.run) is not None


async def recall(host: Host, state: RunState, items_max: int | None) -> MemoryHydrated | None:
    """Return the run's memory as messages that share no call id with its own; null for a run without one.

    Raises `ConfigError`, `LogCorrupted`.
    """
    submitted = state.submitted
    use = memory_use(submitted, state.run) if submitted is not None and is_needed(state) else None
    if use is None or submitted is None:
        return None
    store = host.registry.memory(use.backend, host.log)
    items = await through_outages(host.log.clock, store.recall, use.scope, use.keys, items_max or ITEMS_MAX)
    own = [msgspec.convert(item, Message) for item in submitted.messages]
    _, *recalled = distinct_calls([("", own), *((item.id, item.messages) for item in items)])
    messages = [msgspec.to_builtins(message) for each in recalled for message in each]
    hydrated = MemoryHydrated(scope=use.scope, backend=use.backend, messages=messages)
    await through_outages(host.log.clock, _own_files, host, state.root, hydrated)
    return hydrated


async def _own_files(host: Host, root: str, hydrated: MemoryHydrated) -> None:
    """Copy the files of earlier runs: a family owns all that it refers to. What is gone is missed when it is read."""
    artifacts = host.log.artifacts
    for digest in dict.fromkeys(file.artifact for file in files_in(hydrated) if file.artifact):
        with contextlib.suppress(KeyError):
            await artifacts.of(root).put(await artifacts.find(digest))


async def look_up(host: Host, state: RunState) -> list[Any]:
    """Return the knowledge that matches the run's input, best first. Raises `KnowledgeUnavailable`, `ConfigError`."""
    store = host.registry.knowledge(host.log.namespace)
    found = await store.search(state.submitted.input if state.submitted else "", PIECES_MAX)
    items: list[Any] = msgspec.to_builtins(list(found))
    return items
