"""Circuit breakers: when they open, whom they let through, and what of it costs an append."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from foldlog.eventlog import LogUnavailable, MemoryLog, SystemClock
from foldlog.eventlog.commits import decode
from foldlog.eventlog.events import BreakerUpdated
from foldlog.eventlog.names import breaker_subject
from foldlog.runtime.core.rules import BreakerRules
from foldlog.runtime.shared.breakers import Breaker, Refused, provider_breaker, tool_breaker

pytestmark = pytest.mark.anyio
RULES = BreakerRules(failures=3, open_s=30.0)
NAME = "model:sim"


class SetClock(SystemClock):
    """A clock that stands where it is set."""

    def __init__(self) -> None:
        self.stands_at = 1_800_000_000.0

    def now(self) -> float:
        return self.stands_at


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def log(clock: SetClock) -> MemoryLog:
    return MemoryLog(clock=clock)


def breaker(log: MemoryLog) -> Breaker:
    """One call's view of it, as any process has it."""
    return Breaker(log, NAME, RULES)


async def fail(log: MemoryLog, times: int = 1) -> None:
    """Calls that are let through, and fail."""
    for _ in range(times):
        call = breaker(log)
        assert await call.admit() is None
        await call.failed("transient", "r")


async def history(log: MemoryLog) -> list[BreakerUpdated]:
    """All that was stored of it."""
    commits = [
        decode(stored.data) async for stored in log.events.read(breaker_subject(NAME, log.events.shards))
    ]
    return [event for commit in commits for event in commit.events if isinstance(event, BreakerUpdated)]


async def test_calls_that_go_well_write_nothing(log: MemoryLog) -> None:
    for _ in range(3):
        call = breaker(log)
        assert await call.admit() is None
        await call.worked()
    assert await history(log) == []


async def test_it_opens_after_so_many_failures_in_a_row_and_refuses_every_caller(
    log: MemoryLog, clock: SetClock
) -> None:
    await fail(log, 3)
    clock.stands_at += 10
    refused = await breaker(log).admit()
    assert refused == Refused(NAME, 3, 20.0)
    assert str(refused) == "the circuit breaker model:sim is open after 3 failures in a row"
    assert [(event.state, event.failures) for event in await history(log)] == [
        ("closed", 1),
        ("closed", 2),
        ("open", 3),
    ]
    assert {(event.error_type, event.run) for event in await history(log)} == {("transient", "r")}


async def test_a_success_between_failures_restarts_the_count(log: MemoryLog) -> None:
    await fail(log, 2)
    call = breaker(log)
    await call.admit()
    await call.worked()
    await fail(log, 2)
    assert await breaker(log).admit() is None


async def test_when_its_time_is_over_it_lets_one_call_through_and_a_success_closes_it(
    log: MemoryLog, clock: SetClock
) -> None:
    await fail(log, 3)
    clock.stands_at += 30
    probe, other = breaker(log), breaker(log)
    assert await probe.admit() is None
    assert await other.admit() == Refused(NAME, 3, 30.0)
    await probe.worked()
    assert await other.admit() is None
    assert [event.state for event in await history(log)][-2:] == ["half_open", "closed"]


async def test_a_probe_that_fails_opens_it_for_as_long_again(log: MemoryLog, clock: SetClock) -> None:
    await fail(log, 3)
    clock.stands_at += 30
    await fail(log)
    assert await breaker(log).admit() == Refused(NAME, 4, 30.0)


async def test_a_probe_that_is_never_heard_of_again_is_followed_by_another(
    log: MemoryLog, clock: SetClock
) -> None:
    await fail(log, 3)
    clock.stands_at += 30
    await breaker(log).admit()
    clock.stands_at += 30
    assert await breaker(log).admit() is None


async def test_calls_that_began_before_it_opened_do_not_keep_it_open_longer(
    log: MemoryLog, clock: SetClock
) -> None:
    late = breaker(log)
    await late.admit()
    await fail(log, 3)
    clock.stands_at += 10
    await late.failed("transient", "r")
    assert await breaker(log).admit() == Refused(NAME, 3, 20.0)


class Away:
    """Events of a log that cannot be reached."""

    shards = 1

    async def head(self, subject: object) -> AsyncIterator[None]:
        raise LogUnavailable("away")


async def test_without_a_log_the_call_is_made_and_nothing_counted(log: MemoryLog) -> None:
    log.events = Away()  # type: ignore[assignment]
    call = breaker(log)
    assert await call.admit() is None
    await call.failed("transient", "r")


def test_providers_have_one_each_and_tools_one_for_each_agent() -> None:
    assert provider_breaker("openai:gpt-4o") == provider_breaker("openai:gpt-4o-mini") == "model:openai"
    assert tool_breaker("ops", "search") == "tool:ops/search"
