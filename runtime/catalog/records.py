"""The stored agents of a namespace as rows, and the fold of their register: all versions, on one subject of the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from ...eventlog.commits import Chain, Head, head_of
from ...eventlog.events import AgentRemoved, AgentSaved, Via
from ...eventlog.names import agents_subject
from ...eventlog.ports import Log, Stored
from ..agents.config import AgentConfig


class AgentVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a stored agent. `at` is Unix seconds.

    `config` is complete, with all defaults; `digest` is its SHA-256 (hex), which the runs that began with it have.
    """

    name: str
    version: int
    config: dict[str, Any]
    digest: str
    note: str
    by: str
    via: Via
    request_id: str
    at: float


class AgentChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a stored agent: this version was saved, or the agent was removed when it was the last one."""

    kind: Literal["saved", "removed"]
    version: int
    note: str
    by: str
    via: Via
    request_id: str
    at: float


class ConfigChange(msgspec.Struct, frozen=True):
    """A key that differs between two configurations, by its path (`retry.attempts`); null where it is missing."""

    key: str
    before: Any
    after: Any


class StoredAgent(msgspec.Struct, frozen=True):
    """A stored agent: its versions, oldest first, its changes, oldest first, and whether it is removed."""

    versions: tuple[AgentVersion, ...] = ()
    changes: tuple[AgentChange, ...] = ()
    removed: bool = False

    @property
    def last(self) -> AgentVersion:
        """The newest version."""
        return self.versions[-1]


class Catalog:
    """The fold of the register. Reading it again reads only what is new."""

    def __init__(self, log: Log) -> None:
        self._log, self.subject = log, agents_subject(log.events.shards)
        self._chain = Chain()
        self.agents: dict[str, StoredAgent] = {}
        """By name, also removed ones."""
        self.position = 0

    @property
    def head(self) -> Head:
        """The head of the register, as far as it was read."""
        return self._chain.head(self.subject)

    async def read(self) -> None:
        """Fold what was appended since. May be stale. Raises `LogUnavailable`, `LogCorrupted`."""
        async for stored in self._log.events.read(self.subject, after=self.position):
            self.fold(stored)

    def fold(self, stored: Stored) -> None:
        """Fold the next commit; one that was folded already is passed over. Raises `LogCorrupted`."""
        if stored.position <= self.position:
            return
        recorded = self._chain.verify(stored)
        self.position = head_of(recorded).position
        for event in recorded.commit.events:
            if isinstance(event, AgentSaved):
                self._saved(event, recorded.commit.at)
            elif isinstance(event, AgentRemoved):
                known = self.agents.get(event.name, StoredAgent())
                changes = *known.changes, _change("removed", event, "", recorded.commit.at)
                self.agents[event.name] = StoredAgent(known.versions, changes, removed=True)

    def _saved(self, event: AgentSaved, at: float) -> None:
        known = self.agents.get(event.name, StoredAgent())
        version = AgentVersion(
            name=event.name,
            version=event.version,
            config=event.config,
            digest=event.config_digest,
            note=event.note,
            by=event.by,
            via=event.via,
            request_id=event.request_id,
            at=at,
        )
        changes = *known.changes, _change("saved", event, event.note, at)
        self.agents[event.name] = StoredAgent((*known.versions, version), changes)


def _change(
    kind: Literal["saved", "removed"], event: AgentSaved | AgentRemoved, note: str, at: float
) -> AgentChange:
    return AgentChange(
        kind=kind,
        version=event.version,
        note=note,
        by=event.by,
        via=event.via,
        request_id=event.request_id,
        at=at,
    )


def in_order(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with its keys in the order of the reference; the log sorts them."""
    known = [key for key in AgentConfig.model_fields if key in config]
    return {key: config[key] for key in (*known, *(key for key in config if key not in known))}


def changed_keys(before: Any, after: Any, path: str = "") -> list[ConfigChange]:
    """Return the keys that differ between two configurations, by path; tables are compared key by key."""
    if isinstance(before, dict) and isinstance(after, dict):
        keys = [*before, *(key for key in after if key not in before)]
        return [
            change
            for key in keys
            for change in changed_keys(before.get(key), after.get(key), f"{path}.{key}" if path else key)
        ]
    return [] if before == after and type(before) is type(after) else [ConfigChange(path, before, after)]
