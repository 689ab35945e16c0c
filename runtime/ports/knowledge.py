"""The port to long-term knowledge: pieces of text that are found by what a run is asked.

A store is found under entry point group `foldlog.knowledge`, name `default` (a function of the log's namespace), or
given as `Registry(knowledge=...)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from ...eventlog.errors import FoldlogError


class KnowledgeUnavailable(FoldlogError):
    """Stored knowledge cannot be read or written now: locked, damaged, or a full disk. The message says what to do."""


class KnowledgeItem(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of knowledge. `source` is where it came from, as given when it was added.

    `score` says how well it fits the query, higher is better; scores of different queries do not compare.
    """

    id: str
    text: str
    source: str = ""
    score: float = 0.0


class KnowledgeStore(Protocol):
    """Finds text by text."""

    async def search(self, query: str, limit: int) -> Sequence[KnowledgeItem]:
        """At most `limit` pieces that fit, the best first; the same for the same content. Any text is a query.

        Raises `KnowledgeUnavailable`, `ConfigError`.
        """
        ...

    async def add(self, text: str, source: str = "") -> Sequence[KnowledgeItem]:
        """Store a text in pieces, and return those that are new: what is stored already stays as it is.

        Raises `KnowledgeUnavailable`, `ConfigError`.
        """
        ...


class NoKnowledge:
    """The store of a process that has none: nothing is found."""

    async def search(self, query: str, limit: int) -> Sequence[KnowledgeItem]:
        """Nothing."""
        return ()

    async def add(self, text: str, source: str = "") -> Sequence[KnowledgeItem]:
        """Raises `KnowledgeUnavailable`."""
        raise KnowledgeUnavailable("no plugin for knowledge (entry point foldlog.knowledge) is installed")
