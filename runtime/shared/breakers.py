"""Circuit breakers: what has failed too often in a row is left alone for a while, by all workers.

A breaker is an entity of the log. Its last commit holds its whole state, so that it is known to any process at any time
and by none for itself: a call that goes well writes nothing, a failed one appends the new count under condition, and so
does the first success after failures. What a breaker did to a run stands in the run's own log (`model_failed` with
`circuit_open`, `tool_result` with `breaker`), where replay finds it.

It is a help and no promise: a count that cannot be stored, because the log is away or the worker dies, is lost.
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
from ..journal.register import read_register, register_write

logger = logging.getLogger("foldlog.breakers")

CONFLICTS_MAX = 64
"""How often a count is decided again: as many others were faster."""

Change = Callable[[BreakerUpdated, float], BreakerUpdated | None]
"""The breaker's next state, at this time (Unix seconds); null for none."""


def provider_breaker(model: str) -> str:
    """The breaker of a model, given as provider:model: all models of a provider have one."""
    return f"model:{model.partition(':')[0]}"


def tool_breaker(agent: str, tool: str) -> str:
    """The breaker of an agent's tool: agents may have different tools of one name."""
    return f"tool:{agent}/{tool}"


class Refused(msgspec.Struct, frozen=True):
    """A call that is not to be made: `breaker` lets none through for `wait_s`."""

    breaker: str
    failures: int
    wait_s: float

    def __str__(self) -> str:
        return f"the circuit breaker {self.breaker} is open after {self.failures} failures in a row"


# --- the breaker as a value -------------------------------------------------------------------------------------------


def refusal(breaker: BreakerUpdated, now: float) -> Refused | None:
    """Return whether a call may be made now."""
    if breaker.state == "closed" or breaker.until <= now:
        return None
    return Refused(breaker.name, breaker.failures, breaker.until - now)


def after_failure(breaker: BreakerUpdated, rules: BreakerRules, now: float) -> BreakerUpdated | None:
    """One more failure; null for that of a call from before the breaker opened."""
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
    """Closed; null where it is already."""
    return BreakerUpdated(name=breaker.name, state="closed") if breaker.failures else None


def probing(breaker: BreakerUpdated, rules: BreakerRules, now: float) -> BreakerUpdated | None:
    """One call is let through; null where none is, or all are."""
    if breaker.state == "closed" or breaker.until > now:
        return None
    return msgspec.structs.replace(breaker, state="half_open", until=now + rules.open_s)


# --- in the log -------------------------------------------------------------------------------------------------------


class Breaker:
    """One call's dealings with a breaker: `admit`, make the call, then `worked` or `failed`. Raises nothing."""

    def __init__(self, log: Log, name: str, rules: BreakerRules) -> None:
        self._log, self._rules, self.name = log, rules, name
        self._subject = breaker_subject(name, log.events.shards)
        self._known = BreakerUpdated(name=name, state="closed")

    async def admit(self) -> Refused | None:
        """Null if the call is to be made. Of those that want to be the first again, one is let through."""
        try:
            for _ in range(CONFLICTS_MAX):
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
        """The call went well. Costs nothing unless there were failures when it began."""
        if self._known.failures:
            await self._change(lambda breaker, _: after_success(breaker))

    async def failed(self, error_type: str, run: str) -> None:
        """The call failed, in this run."""

        def count(breaker: BreakerUpdated, now: float) -> BreakerUpdated | None:
            after = after_failure(breaker, self._rules, now)
            return after and msgspec.structs.replace(after, error_type=error_type, run=run)

        await self._change(count)

    async def _change(self, change: Change) -> None:
        try:
            for _ in range(CONFLICTS_MAX):
                head, before = await self._read()
                after = change(before, self._log.clock.now())
                if after is None or await self._store(head, after):
                    return
        except LogUnavailable:
            logger.warning("the circuit breaker %s cannot be told what became of a call", self.name)

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
