"""Circuit breakers: a provider or tool that failed too often in a row is not called for a while, by any worker.

A breaker is an entity of the log. Its last commit holds its whole state, so every process can read it at any time and
none has a copy of its own: a call that succeeds writes nothing, a failed one appends the new count under condition, and
so does the first success after failures. The effect of a breaker on a run is in the run's own log (`model_failed` with
`circuit_open`, `tool_result` with `breaker`), where replay finds it.

A breaker is best effort: a count that cannot be stored, because the log is away or the worker dies, is lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from ...eventlog.commits import Head
from ...eventlog.errors import Conflict, LogUnavailable
from ...eventlog.events import BreakerUpdated
from ...eventlog.names import breaker_subject
from ...eventlog.ports import Log
from ..core.rules import BreakerRules
from ..journal.outages import Decisions
from ..journal.register import read_register, register_write

logger = logging.getLogger("foldlog.breakers")

Change = Callable[[BreakerUpdated, float], BreakerUpdated | None]
"""Returns the breaker's next state at this time (Unix seconds); null to leave it."""


def provider_breaker(model: str) -> str:
    """Return the breaker of a model, given as provider:model: all models of a provider share one."""
    return f"model:{model.partition(':')[0]}"


def tool_breaker(agent: str, tool: str) -> str:
    """Return the breaker of an agent's tool; agents may have different tools of one name."""
    return f"tool:{agent}/{tool}"


class Refused(msgspec.Struct, frozen=True):
    """A call that must not be made: `breaker` is open for another `wait_s`."""

    breaker: str
    failures: int
    wait_s: float

    def __str__(self) -> str:
        return f"the circuit breaker {self.breaker} is open after {self.failures} failures in a row"


# --- the breaker as a value -------------------------------------------------------------------------------------------


def refusal(breaker: BreakerUpdated, now: float) -> Refused | None:
    """Return the refusal of a call made now; null if the call may be made."""
    if breaker.state == "closed" or breaker.until <= now:
        return None
    return Refused(breaker.name, breaker.failures, breaker.until - now)


def after_failure(breaker: BreakerUpdated, rules: BreakerRules, now: float) -> BreakerUpdated | None:
    """Return the state after a failure; null if the call began before the breaker opened."""
    if breaker.state == "open" and breaker.until > now:
        return None
    failures = breaker.failures + 1
    opens = failures >= rules.failures
    return msgspec.structs.replace(
        breaker,
        state="open" if opens else "closed",
        failures=failures,
        until=now + rules.open_s if opens else 0.0,
    )


def after_success(breaker: BreakerUpdated) -> BreakerUpdated | None:
    """Return the closed state; null if the breaker has no failures."""
    return BreakerUpdated(name=breaker.name, state="closed") if breaker.failures else None


def probing(breaker: BreakerUpdated, rules: BreakerRules, now: float) -> BreakerUpdated | None:
    """Return the half-open state that admits one probe call; null if the breaker is closed or still open."""
    if breaker.state == "closed" or breaker.until > now:
        return None
    return msgspec.structs.replace(breaker, state="half_open", until=now + rules.open_s)


# --- in the log -------------------------------------------------------------------------------------------------------


class Breaker:
    """The protocol of one call: `admit`, make the call, then `worked` or `failed`. Never raises."""

    def __init__(self, log: Log, name: str, rules: BreakerRules) -> None:
        self._log, self._rules, self.name = log, rules, name
        self._subject = breaker_subject(name, log.events.shards)
        self._known = BreakerUpdated(name=name, state="closed")

    async def admit(self) -> Refused | None:
        """Return null if the call may be made. When an open breaker's time is over, it admits one call as a probe."""
        try:
            async for _ in Decisions(self._log.clock):
                head, self._known = await self._read()
                now = self._log.clock.now()
                if (refused := refusal(self._known, now)) is not None:
                    return refused
                probe = probing(self._known, self._rules, now)
                if probe is None or await self._store(head, probe):
                    return None
        except LogUnavailable:
            logger.warning("the circuit breaker %s cannot be read; the call is made", self.name)
        return None

    async def worked(self) -> None:
        """Record a success. Costs nothing unless there were failures when the call began."""
        if self._known.failures:
            await self._change(lambda breaker, _: after_success(breaker))

    async def failed(self, error_type: str, run: str) -> None:
        """Record a failure of the call, in this run."""

        def count(breaker: BreakerUpdated, now: float) -> BreakerUpdated | None:
            after = after_failure(breaker, self._rules, now)
            return after and msgspec.structs.replace(after, error_type=error_type, run=run)

        await self._change(count)

    async def _change(self, change: Change) -> None:
        try:
            async for _ in Decisions(self._log.clock):
                head, before = await self._read()
                after = change(before, self._log.clock.now())
                if after is None or await self._store(head, after):
                    return
        except LogUnavailable:
            logger.warning("the circuit breaker %s cannot be updated with the outcome of a call", self.name)

    async def _read(self) -> tuple[Head, BreakerUpdated]:
        head, events = await read_register(self._log, self._subject)
        if not events:
            return head, BreakerUpdated(name=self.name, state="closed")
        (event,) = [event for event in events if isinstance(event, BreakerUpdated)]
        return head, event

    async def _store(self, head: Head, event: BreakerUpdated) -> bool:
        try:
            await self._log.events.append(register_write(self._log, self._subject, head, event))
        except Conflict:
            return False
        return True
