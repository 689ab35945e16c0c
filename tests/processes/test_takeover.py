"""Takeover from a lost owner: at once when its connection ends, by the lease when it hangs."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from foldlog.eventlog import Claimed, McpProgress, Released, ToolResult
from foldlog.replay import compare
from foldlog.runtime import Agent, RunHandle

from tests.processes import workshop
from tests.processes.support import (
    HERE,
    LEASE_S,
    PATIENCE_S,
    Place,
    command,
    one_is_gone,
    stored,
    submitted,
    undisturbed,
)


async def started(place: Place, agent: Agent[str]) -> RunHandle[str]:
    """A durable run whose tool is under way."""
    run = await place.runtime.start(agent, "question", executor="durable")
    await stored(run, McpProgress)
    return run


async def test_a_standby_goes_on_at_once_when_the_owners_connection_ends(place: Place):
    for _ in range(2):
        await place.worker()
    run = await started(place, workshop.waiter)
    (await place.owner(run)).kill()
    await stored(run, Claimed, count=2)
    workshop.open_gate()
    assert (await run.result(timeout_s=PATIENCE_S)).output == "At last"
    assert compare(await place.form(run), await undisturbed(workshop.waiter), by="shape").equal


async def test_all_runs_of_a_killed_worker_go_on(place: Place):
    victim = await place.worker()
    runs = [await started(place, workshop.waiter) for _ in range(10)]
    await place.worker()
    victim.kill()
    workshop.open_gate()
    for run in runs:
        assert (await run.result(timeout_s=PATIENCE_S)).output == "At last"
        await place.form(run)


async def test_a_worker_that_comes_after_the_death_goes_on(place: Place):
    victim = await place.worker()
    run = await started(place, workshop.waiter)
    victim.kill()
    await victim.gone()
    workshop.open_gate()
    await place.worker()
    assert (await run.result(timeout_s=PATIENCE_S)).output == "At last"


async def test_a_standby_goes_on_after_the_lease_when_the_owner_only_falls_silent(place: Place):
    for _ in range(2):
        await place.worker(lease_s=1.0)
    run = await started(place, workshop.waiter)
    owner = await place.owner(run)
    owner.stop()
    workshop.open_gate()
    assert (await run.result(timeout_s=PATIENCE_S)).output == "At last"
    claims = [event for event in (await place.trace(run)).events if isinstance(event, Claimed)]
    assert [claim.epoch for claim in claims] == [1, 2]
    assert claims[1].worker != owner.name


async def test_a_worker_finishes_the_local_run_of_a_killed_process(place: Place):
    process = await place.local_process("waiter", "mine")
    await place.worker()
    run = await submitted(place, "mine")
    await stored(run, McpProgress)
    process.kill()
    await stored(run, Claimed, count=2)
    workshop.open_gate()
    assert (await run.result(timeout_s=PATIENCE_S)).output == "At last"
    await place.form(run)


@pytest.mark.parametrize("by", ["call", "command"])
async def test_an_orphaned_local_run_is_driven_on_from_another_process(place: Place, by: str):
    process = await place.local_process("waiter", "mine")
    run = await submitted(place, "mine")
    await stored(run, McpProgress)
    process.kill()
    await process.gone()
    workshop.open_gate()
    if by == "call":
        await place.runtime.drive("mine")
    else:
        await command(place, "runs", "drive", "mine", "tests.processes.workshop:registry")
    assert (await run.result(timeout_s=PATIENCE_S)).output == "At last"
    await place.form(run)


@pytest.mark.parametrize(
    ("point", "times", "output"), [("in remit", 1, "remitted 12"), ("before remit", 0, None)]
)
async def test_what_a_killed_worker_did_is_looked_at_and_not_done_again(
    place: Place, point: str, times: int, output: str | None
):
    await place.worker(WORKSHOP_KILL=point)
    run = await place.runtime.start(workshop.banker, "question", executor="durable")
    await one_is_gone(list(place.processes.values()))
    await place.worker()
    assert (await run.result(timeout_s=PATIENCE_S)).output == "All remitted"
    (result,) = [event for event in (await place.trace(run)).events if isinstance(event, ToolResult)]
    assert (result.success, result.result) == (output is not None, output)
    assert [finding["status"] for finding in result.metadata["postcondition"]] == [
        "passed" if output else "failed"
    ]
    diary = workshop.read_diary()
    assert (diary.count("remit 12"), diary.count("looked")) == (times, 1)
    form = await place.form(run)
    if output is not None:
        (place.directory / "diary").unlink()
        assert compare(form, await undisturbed(workshop.banker)).equal


@pytest.mark.parametrize("point", ["before the key", "in settle"])
async def test_two_runs_with_one_key_act_once_though_a_worker_is_killed(place: Place, point: str):
    """One outcome for a key (W43): the worker dies before it records the key, or right after it acted."""
    for _ in range(2):
        await place.worker(lease_s=2.0, WORKSHOP_KILL=point)
    runs = [await place.runtime.start(workshop.settler, "question", executor="durable") for _ in range(3)]
    workshop.open_gate()
    await one_is_gone(list(place.processes.values()))
    await place.worker(lease_s=2.0)
    for run in runs:
        assert (await run.result(timeout_s=PATIENCE_S)).output == "All settled"
    assert workshop.read_diary().count("settle 12") == 1
    results = [
        event for run in runs for event in (await place.trace(run)).events if isinstance(event, ToolResult)
    ]
    assert [result.result for result in results] == ["settled 12"] * 3
    assert [bool(result.metadata.get("deduplicated")) for result in results].count(True) == 2


@asynccontextmanager
async def worker_command(place: Place, *options: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """`foldlog worker` over the workshop's agents, ready to serve."""
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("foldlog"),
        *("--server", place.url, "--namespace", place.namespace, "worker", "workshop:registry", *options),
        cwd=HERE,
        env=os.environ | {"WORKSHOP": str(place.directory)},
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        await said(process, "serves")
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def said(process: asyncio.subprocess.Process, word: str) -> None:
    """Read what the process says until it says this."""
    assert process.stderr is not None
    async with asyncio.timeout(PATIENCE_S):
        while line := await process.stderr.readline():
            if word in line.decode():
                return
    pytest.fail(f"it ended without saying {word!r}")


async def test_a_worker_told_to_end_finishes_short_work_and_gives_back_long_work(place: Place):
    async with worker_command(place, "--grace-s", "6", "--lease-s", str(LEASE_S)) as process:
        short, long = await started(place, workshop.brief), await started(place, workshop.waiter)
        process.terminate()
        await said(process, "draining")
        workshop.open_gate("side gate")
        assert (await short.result(timeout_s=PATIENCE_S)).output == "In time"
        await stored(long, Released)
        assert await asyncio.wait_for(process.wait(), PATIENCE_S) == 0
    await place.worker()
    await stored(long, Claimed, count=2)
    workshop.open_gate()
    assert (await long.result(timeout_s=PATIENCE_S)).output == "At last"
    results = [
        e for run in (short, long) for e in (await place.trace(run)).events if isinstance(e, ToolResult)
    ]
    assert [result.success for result in results] == [True, True]
    await place.form(long)
