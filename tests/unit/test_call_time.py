"""A call that is begun in place gives what it gives when awaited: values, errors, its end by time or from outside."""

from __future__ import annotations

import asyncio

import pytest
from foldlog.eventlog.clock import SystemClock
from foldlog.runtime.driving.call_timeout import PausableTimeout
from foldlog.runtime.driving.eager import EagerCall


async def echo(value: str, *, waits: int = 0) -> str:
    for _ in range(waits):
        await asyncio.sleep(0)
    return value


async def fail(*, waits: int = 0) -> str:
    await echo("", waits=waits)
    raise KeyError("lost")


async def stubborn() -> str:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        await asyncio.sleep(0)
        return "tidied up"
    return "never"


async def test_what_never_waits_is_over_at_once():
    begun = EagerCall(echo("here"))
    assert not begun.waits
    assert begun.value == "here"


@pytest.mark.parametrize("waits", [1, 2, 5])
async def test_what_waits_goes_on_when_it_is_awaited(waits: int):
    begun = EagerCall(echo("there", waits=waits))
    assert begun.waits
    assert await begun == "there"


@pytest.mark.parametrize("waits", [0, 1])
async def test_an_error_comes_through_with_a_time_and_without(waits: int):
    for seconds in (None, 60.0):
        with pytest.raises(KeyError, match="lost"):
            await PausableTimeout(seconds, SystemClock()).of(fail(waits=waits))


async def test_a_cancellation_reaches_what_was_begun_and_may_be_answered_there():
    task = asyncio.create_task(PausableTimeout(60.0, SystemClock()).of(stubborn()))
    await asyncio.sleep(0)
    task.cancel()
    assert await task == "tidied up"


async def test_what_was_begun_runs_in_the_task_that_began_it():
    async def whose() -> list[asyncio.Task[object] | None]:
        first = asyncio.current_task()
        await asyncio.sleep(0)
        return [first, asyncio.current_task()]

    assert await PausableTimeout(60.0, SystemClock()).of(whose()) == [asyncio.current_task()] * 2


async def test_a_time_that_is_over_ends_the_call():
    limit = PausableTimeout(0.001, SystemClock())
    with pytest.raises(TimeoutError):
        await limit.of(asyncio.Event().wait())
    assert limit.expired


async def test_a_time_that_is_moved_before_the_first_wait_counts():
    limit = PausableTimeout(60.0, SystemClock())

    async def hurried() -> None:
        limit.move(asyncio.get_running_loop().time() + 0.001)
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await limit.of(hurried())


async def test_a_timeout_is_suspended_while_a_run_waits_for_an_operator():
    limit = PausableTimeout(0.01, SystemClock())

    async def call() -> str:
        limit.wait()
        await asyncio.sleep(0.02)
        limit.go_on()
        return "in time"

    assert await limit.of(call()) == "in time"
    assert not limit.expired
