"""The door of a protocol: the agents of a registry, for callers with tokens, by one executor."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from starlette.requests import Request

from ...eventlog.errors import ConfigError, NotRegistered
from ...eventlog.events import Actor, Trigger, Via
from ...runtime import Runtime
from ...runtime.catalog.agents import LiveAgents
from ...runtime.executors.installed import executor_factory
from ...runtime.handle import CallOutcome, Decision, RunHandle
from ...runtime.options import RunOptions
from ...runtime.ports.files import Content
from ...runtime.ports.runnable import Runnable
from ..http.access import Role
from ..http.identifiers import request_id, traceparent

KEY_MAX = 256
"""The longest idempotency key of a caller, in characters."""


class Origin(NamedTuple):
    """A caller, and the ids of its request."""

    actor: str
    request_id: str = ""
    traceparent: str = ""

    @classmethod
    def of(cls, actor: str, request: Request) -> Origin:
        """Return the origin of a request over HTTP."""
        return cls(actor, request_id(request), traceparent(request))


class Door:
    """The agents of this process, as a protocol may use them. `via` is the name of the protocol in events."""

    def __init__(
        self,
        runtime: Runtime,
        identified: Callable[[Request, Role], str],
        *,
        via: Via,
        executor: str = "durable",
        closing: asyncio.Event | None = None,
        stored: LiveAgents | None = None,
    ) -> None:
        """`identified` returns the name of a request's sender, who has a role. It raises `Refused` (401, 403).

        `stored` are the stored agents that callers may start, too.
        """
        self.stored = stored or LiveAgents()
        self.runtime, self.via, self._identified, self._executor = runtime, via, identified, executor
        self.closing = closing or asyncio.Event()
        """Set when the server takes no new requests: streams end, and a caller that is cut off did not leave."""
        executor_factory(executor)  # raises ConfigError for one that does not exist

    def origin(self, request: Request, role: Role = "operator") -> Origin:
        """Return who sends a request. Raises `Refused` (401, 403)."""
        return Origin.of(self._identified(request, role), request)

    @property
    def agents(self) -> Mapping[str, Runnable[Any]]:
        """The agents that callers may start, by name."""
        return {**self.stored.agents, **self.runtime.registry.agents}

    def agent(self, name: str) -> Runnable[Any]:
        """Return an agent. Raises `NotRegistered`, which tells a caller no names but its own."""
        found = self.agents.get(name)
        if found is None:
            raise NotRegistered(f"there is no agent {name!r:.80}")
        return found

    async def start(
        self, agent: Runnable[Any], content: Content, origin: Origin, *, key: str = "", options: RunOptions
    ) -> RunHandle[Any]:
        """Start a run for a caller; a `key` names the submission among those of this caller. Raises as `start` does."""
        trigger = Trigger(
            kind="api",
            name=self.via,
            key=key,
            request_id=origin.request_id,
            traceparent=origin.traceparent,
        )
        given = RunOptions(**options, executor=self._executor, trigger=trigger, by=self.by(origin))
        if key:
            given["idempotency_key"] = self.key_of(origin, key)
        return await self.runtime.start(agent, content, **given)

    def key_of(self, origin: Origin, key: str) -> str:
        """Return the idempotency key of a run: the same text of two callers names two runs. Raises `ConfigError`."""
        if len(key) > KEY_MAX or not key.isprintable():
            raise ConfigError(f"an idempotency key has at most {KEY_MAX} printable characters")
        return f"{self.via}:{origin.actor}:{key}"

    def session_of(self, origin: Origin, key: str) -> str:
        """Return a session for a run that begins a conversation: the same for the same key, else a new one."""
        if not key:
            return self.runtime.log.clock.new_id()
        return f"{self.via}-{hashlib.sha256(self.key_of(origin, key).encode()).hexdigest()[:32]}"

    async def answer(
        self,
        run: RunHandle[Any],
        approval_id: str,
        decision: Decision,
        origin: Origin,
        *,
        note: str = "",
        arguments: Mapping[str, Any] | None = None,
        outcome: CallOutcome | None = None,
        result: Any = None,
    ) -> None:
        """Answer an approval of a run or of one below it. Raises `ApprovalError`."""
        await run.resolve(approval_id, decision, note, arguments, outcome, result, by=self.by(origin))

    def by(self, origin: Origin) -> Actor:
        """Return who acts, through which door, as events tell it."""
        return Actor(by=origin.actor, via=self.via, request_id=origin.request_id)

    async def drive(self, run: RunHandle[Any]) -> None:
        """Get a run driven on that was driven in this process or in one that is gone; a worker's needs no word."""
        state = await run.state()
        if state.over or state.submitted is None or state.submitted.executor != self._executor:
            return
        if self.runtime.executor(self._executor).runs_in == "process" and self.runtime.registry.serves(
            state.agent
        ):
            await self.runtime.drive(run.run_id, self._executor)
