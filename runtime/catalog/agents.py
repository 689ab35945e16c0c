"""Stored agents as users command them: each change is one event on the register of all of them (W57)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...eventlog.errors import (
    AgentChanged,
    AgentConfigError,
    AgentNotFound,
    AppendUnsure,
    ConfigProblem,
    Conflict,
    LogCorrupted,
    LogUnavailable,
)
from ...eventlog.events import Actor, AgentRemoved, AgentSaved, StoredEvent
from ...eventlog.names import check_name
from ...eventlog.ports import Log, Stored
from ..agents.agent import Agent
from ..agents.config import AgentConfig, config_digest
from ..core.submission import actor_of, check_text
from ..journal.outages import STALE_READ_S, Decisions
from ..journal.register import register_write
from ..ports.suggestions import nearest
from .checking import completed, sources
from .records import AgentChange, AgentVersion, Catalog, ConfigChange, StoredAgent, changed_keys

if TYPE_CHECKING:
    from ..agents.registry import Registry


READS_MAX = 50
RETRY_S = 0.5
logger = logging.getLogger("foldlog.agents")


class LiveAgents:
    """The stored agents that may be started, by name, kept up to date; those of code are not among them."""

    def __init__(self) -> None:
        self.agents: dict[str, Agent[Any]] = {}
        self._changed = asyncio.Event()

    async def changed(self) -> None:
        """Wait for the next change."""
        await self._changed.wait()

    def put(self, agents: dict[str, Agent[Any]]) -> None:
        """Replace the agents by the current ones, and wake the tasks that wait for a change."""
        self.agents = agents
        self._changed.set()
        self._changed = asyncio.Event()


class StoredAgents:
    """The stored agents of a namespace. All methods raise `LogUnavailable`, `LogCorrupted`."""

    def __init__(self, log: Log, registry: Registry) -> None:
        self._log, self._registry = log, registry
        self._catalog = Catalog(log)

    async def check(self, config: Mapping[str, Any] | Agent[Any, Any]) -> Sequence[ConfigProblem]:
        """Return all problems for which `save` would refuse the agent, each with its key; storing nothing."""
        return (await self._completed(config))[1]

    async def save(
        self,
        config: Mapping[str, Any] | Agent[Any, Any],
        *,
        version: int | None = None,
        note: str = "",
        by: str | Actor = "",
    ) -> AgentVersion:
        """Store the next version of the agent of this name; a configuration that is already the last one is left alone.

        `version` is the one that the change was made from, 0 for a new agent; null for whichever is the last. Runs that
        have begun keep theirs. Of an entry in `mcp_servers` that is empty, the one that workers have is stored.

        Raises `AgentConfigError`, whose `problems` are all that is wrong, also tools, providers, secrets and MCP
        servers that no worker has; `AgentChanged` if another change was first.
        """
        table, problems = await self._completed(config)
        if problems:
            named = f"agent {table['name']!r}: " if isinstance(table.get("name"), str) else ""
            raise AgentConfigError(named + "; ".join(problem.message for problem in problems), problems)
        check_text("the note", note)
        stored, actor = AgentConfig.from_config(table).to_config(), actor_of(by)
        digest, name = config_digest(stored), str(stored["name"])

        def decide(known: StoredAgent) -> StoredEvent | None:
            last = known.last.version if known.versions else 0
            if known.versions and not known.removed and known.last.digest == digest:
                return None
            self._expect(name, known, version)
            return AgentSaved(
                name=name,
                version=last + 1,
                config=stored,
                config_digest=digest,
                note=note,
                **actor.fields,
            )

        return (await self._change(name, decide)).last

    async def remove(self, name: str, *, version: int | None = None, by: str | Actor = "") -> None:
        """Start nothing more of an agent; its runs go on, and its versions stay. `version` as for `save`.

        Raises `AgentNotFound`, `AgentChanged`.
        """
        check_name("the agent", name)
        actor = actor_of(by)

        def decide(known: StoredAgent) -> StoredEvent | None:
            if known.removed:
                return None
            if known.versions:
                self._expect(name, known, version)
                return AgentRemoved(name=name, version=known.last.version, **actor.fields)
            raise _Missing

        try:
            await self._change(name, decide)
        except _Missing:
            raise self._not_found(name) from None

    async def list(self) -> list[AgentVersion]:
        """Return the last version of each stored agent, by name; without those that are removed."""
        agents = (await self._read()).agents
        return [known.last for _, known in sorted(agents.items()) if not known.removed]

    async def get(self, name: str, version: int | None = None) -> AgentVersion:
        """Return a version of an agent, by default the last one. A removed one has versions only by number.

        Raises `AgentNotFound`.
        """
        known = await self._known(name)
        if version is None and not known.removed:
            return known.last
        found = next((each for each in known.versions if each.version == version), None)
        if found is None:
            raise self._not_found(name, version)
        return found

    async def has(self, name: str) -> bool:
        """Return whether an agent of this name was ever stored, even if it is removed now."""
        return name in (await self._read()).agents

    async def versions(self, name: str) -> Sequence[AgentVersion]:
        """Return all versions of an agent, oldest first, also of a removed one. Raises `AgentNotFound`."""
        return (await self._known(name)).versions

    async def changes(self, name: str) -> Sequence[AgentChange]:
        """Return who changed an agent and when, oldest first. Raises `AgentNotFound`."""
        return (await self._known(name)).changes

    async def diff(self, name: str, before: int, after: int | None = None) -> Sequence[ConfigChange]:
        """Return the keys that differ between two versions, `after` by default the last. Raises `AgentNotFound`."""
        first, second = await self.get(name, before), await self.get(name, after)
        return changed_keys(first.config, second.config)

    async def load(self, name: str, version: int | None = None) -> Agent[Any]:
        """Return a stored agent, to start runs of: on workers, or here with what the registry of this process has.

        Raises `AgentNotFound`.
        """
        return self._registry.adopt((await self.get(name, version)).config)

    @contextlib.asynccontextmanager
    async def followed(self) -> AsyncIterator[LiveAgents]:
        """Yield the stored agents, kept up to date while this is open; outages of the log are waited for.

        Raises `LogUnavailable`, `LogCorrupted` if they cannot be read at first.
        """
        live, catalog = LiveAgents(), Catalog(self._log)
        await catalog.read()
        live.put(self._startable(catalog))
        following = asyncio.create_task(self._follow(live, catalog))
        try:
            yield live
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def _follow(self, live: LiveAgents, catalog: Catalog) -> None:
        while True:
            try:
                async for stored in self._log.events.follow(catalog.subject, catalog.position):
                    catalog.fold(stored)
                    live.put(self._startable(catalog))
            except LogUnavailable:
                await self._log.clock.sleep(RETRY_S)
            except LogCorrupted as error:
                logger.error("changes of stored agents are not seen here from now on: %s", error)  # noqa: TRY400
                return

    def _startable(self, catalog: Catalog) -> dict[str, Agent[Any]]:
        known = sorted(catalog.agents.items())
        return {
            name: self._registry.adopt(agent.last.config)
            for name, agent in known
            if agent.versions and not agent.removed and name not in self._registry.agents
        }

    async def _completed(
        self, config: Mapping[str, Any] | Agent[Any, Any]
    ) -> tuple[dict[str, Any], Sequence[ConfigProblem]]:
        given: object = config.to_config() if isinstance(config, Agent) else config
        if not isinstance(given, Mapping):
            raise AgentConfigError(f"an agent's configuration must be a table, not {given!r:.60}")
        return completed(given, sources(await self._log.leases.present(), self._registry))

    async def _change(self, name: str, decide: Callable[[StoredAgent], StoredEvent | None]) -> StoredAgent:
        """Load, decide, append; after a conflict, or an append without an answer, decide again (W1, W2)."""
        async for _ in Decisions(self._log.clock):
            catalog = await self._read()
            known = catalog.agents.get(name, StoredAgent())
            event = decide(known)
            if event is None:
                return known
            write = register_write(self._log, catalog.subject, catalog.head, event)
            with contextlib.suppress(Conflict, AppendUnsure):
                (position,) = await self._log.events.append(write)
                catalog.fold(Stored(catalog.subject, position, write.data))
                return catalog.agents[name]
        raise LogUnavailable(f"the agent {name!r} cannot be changed: other writers were first each time")

    async def _read(self) -> Catalog:
        """Return the catalog up to its last commit: a read may be stale, and what it lacks is asked for again."""
        catalog, clock = self._catalog, self._log.clock
        for attempt in range(READS_MAX):
            if attempt:
                await clock.sleep(STALE_READ_S)
            await catalog.read()
            if catalog.position >= await self._log.events.last_position(catalog.subject):
                return catalog
        raise LogUnavailable("the stored agents cannot be read up to their last change; try again")

    async def _known(self, name: str) -> StoredAgent:
        found = (await self._read()).agents.get(check_name("the agent", name))
        if found is None:
            raise self._not_found(name)
        return found

    def _expect(self, name: str, known: StoredAgent, version: int | None) -> None:
        """Raise `AgentChanged` unless the change was made from the last version."""
        last = 0 if known.removed or not known.versions else known.last.version
        if version is None or version == last:
            return
        change = known.changes[-1] if known.changes else None
        said = (
            f"{change.kind} as version {change.version}" if change and change.kind == "saved" else "removed"
        )
        by = f" by {change.by}" if change and change.by else ""
        now = f"it was {said}{by}" if change else "there is no such agent yet"
        raise AgentChanged(f"agent {name!r} is not at version {version}: {now}", last)

    def _not_found(self, name: str, version: int | None = None) -> AgentNotFound:
        known = self._catalog.agents.get(name)
        where = f"in namespace {self._log.namespace!r}"
        if known is None:
            names = [each for each, stored in self._catalog.agents.items() if not stored.removed]
            return AgentNotFound(f"there is no stored agent {name!r} {where}{nearest(name, names)}")
        if version is None:
            return AgentNotFound(
                f"the agent {name!r} was removed; its versions are still there, by their numbers"
            )
        return AgentNotFound(f"agent {name!r} has no version {version}; it has 1 to {known.last.version}")


class _Missing(Exception):
    """There is no agent to change."""
