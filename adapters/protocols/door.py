"""The entrance of a protocol: identified callers start and steer runs of a registry's agents, on one executor."""

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
    """What a protocol may do with the agents of this process. Events name the protocol as `via`."""

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
        """`identified` returns the name of a request's sender, and raises `Refused` (401, 403) if it lacks the role.

        `stored` are stored agents that callers may start in addition to those of the registry. Raises `ConfigError` if
        the executor is not installed.
        """
        self.stored = stored or LiveAgents()
        self.runtime, self.via, self._identified, self._executor = runtime, via, identified, executor
        self.closing = closing or asyncio.Event()
        """Set when the server stops taking requests: streams end, and a lost connection no longer means that the caller
        left."""
        executor_factory(executor)  # raises ConfigError if it is not installed

    def origin(self, request: Request, role: Role = "operator") -> Origin:
        """Identify the sender of a request. Raises `Refused` (401, 403)."""
        return Origin.of(self._identified(request, role), request)

    @property
    def agents(self) -> Mapping[str, Runnable[Any]]:
        """The agents that callers may start, by name."""
        return {**self.stored.agents, **self.runtime.registry.agents}

    def agent(self, name: str) -> Runnable[Any]:
        """Return an agent. Raises `NotRegistered`, whose message repeats only the name that the caller sent."""
        found = self.agents.get(name)
        if found is None:
            raise NotRegistered(f"there is no agent {name!r:.80}")
        return found

    async def start(
        self, agent: Runnable[Any], content: Content, origin: Origin, *, key: str = "", options: RunOptions
    ) -> RunHandle[Any]:
        """Start a run for a caller; the same caller and `key` find the same run. Raises what `start` raises."""
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
        """Return the idempotency key of a run, which includes the caller: equal keys of two callers never collide.

        Raises `ConfigError` for a key that is too long or not printable.
        """
        if len(key) > KEY_MAX or not key.isprintable():
            raise ConfigError(f"an idempotency key has at most {KEY_MAX} printable characters")
        return f"{self.via}:{origin.actor}:{key}"

    def session_of(self, origin: Origin, key: str) -> str:
        """Return the id of a new conversation's session: derived from the key, or random without one."""
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
        """Return the actor of a caller's commands, as events record it."""
        return Actor(by=origin.actor, via=self.via, request_id=origin.request_id)

    async def drive(self, run: RunHandle[Any]) -> None:
        """Resume driving a run here, if its executor runs in a process; workers find their runs without being told."""
        state = await run.state()
        if state.over or state.submitted is None or state.submitted.executor != self._executor:
            return
        if self.runtime.executor(self._executor).runs_in == "process" and self.runtime.registry.serves(
            state.agent
        ):
            await self.runtime.drive(run.run_id, self._executor)
