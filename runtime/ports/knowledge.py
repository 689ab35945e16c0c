"""The port to long-term knowledge: pieces of text that are searched for a run's input.

A store is found under entry point group `foldlog.knowledge`, name `default` (a function of the log's namespace), or
passed as `Registry(knowledge=...)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from ...eventlog.errors import FoldlogError


class KnowledgeUnavailable(FoldlogError):
    """Stored knowledge cannot be read or written now: locked, damaged, or a full disk. The message has the remedy."""


class KnowledgeItem(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of knowledge. `source` is its origin, as given when it was added.

    `score` is how well it matches the query, higher is better; scores of different queries are not comparable.
    """

    id: str
    text: str
    source: str = ""
    score: float = 0.0


class KnowledgeStore(Protocol):
    """Searches text by text."""

    async def search(self, query: str, limit: int) -> Sequence[KnowledgeItem]:
        """Return at most `limit` matching pieces, best first; deterministic for the same content. Any text is a query.

        Raises `KnowledgeUnavailable`, `ConfigError`.
        """
        ...

    async def add(self, text: str, source: str = "") -> Sequence[KnowledgeItem]:
        """Store a text in pieces, and return the new ones; pieces already stored stay unchanged.

        Raises `KnowledgeUnavailable`, `ConfigError`.
        """
        ...


class NoKnowledge:
    """The store of a process without one: it finds nothing."""

    async def search(self, query: str, limit: int) -> Sequence[KnowledgeItem]:
        """Return nothing."""
        return ()

    async def add(self, text: str, source: str = "") -> Sequence[KnowledgeItem]:
        """Raise `KnowledgeUnavailable`."""
        raise KnowledgeUnavailable("no plugin for knowledge (entry point foldlog.knowledge) is installed")
