"""A socket that broke is a lost connection, also on uvloop, which the command line uses; its log says so once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from typing import Any

import pytest
import uvloop
from foldlog.eventlog import DraftPiece, LogUnavailable
from foldlog.eventlog.conformance.suite import everything, run_in
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.eventlog.jetstream import JetStreamLog

PIECE = DraftPiece(run="r", step=1, attempt=1, epoch=1, channel="text", offset=0, text="a", at=0.0)


def socket_of(log: JetStreamLog) -> Any:
    return log._wire._link._transport._io_writer.transport


async def broken_under_use(unhandled: list[Any]) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    async with EphemeralServer() as server, JetStreamLog.open(server.url, shards=1) as log:
        run = run_in(log)
        await run.append()
        for _ in range(3):
            socket_of(log).abort()
            for _ in range(3):  # what a model says, in one turn of the loop and in the next
                with contextlib.suppress(LogUnavailable):
                    await log.drafts.publish("r", PIECE)
                await asyncio.sleep(0)
            assert await everything(log.events.read(run.subject)) == run.stored
        await run.append()
        assert await everything(log.events.read(run.subject)) == run.stored


def test_a_broken_socket_fails_no_draft_and_is_told_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    unhandled: list[Any] = []
    with caplog.at_level(logging.INFO):
        uvloop.run(broken_under_use(unhandled))
    assert unhandled == []
    told = [record.getMessage() for record in caplog.records]
    assert [line.partition(":")[0] for line in told] == ["NATS lost", "NATS back"] * 3
    assert all("reconnecting" in line for line in told[::2])


async def asked_before_the_loss_is_told() -> float:
    async with EphemeralServer() as server, JetStreamLog.open(server.url, shards=1) as log:
        began_at = time.monotonic()
        socket_of(log).abort()
        while log._wire.is_up:  # noqa: ASYNC110 - it is about the turn of the loop in which this changes
            await asyncio.sleep(0)
        await log._wire.until_up()
        return time.monotonic() - began_at


def test_a_request_that_meets_a_lost_connection_first_does_not_hide_when_it_was_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        took_s = uvloop.run(asked_before_the_loss_is_told())
    lost, back = [record.getMessage() for record in caplog.records]
    assert lost.startswith("NATS lost")
    said = re.fullmatch(r"NATS back: connected to \S+ after ([\d.]+) s", back)
    assert said is not None
    assert float(said[1]) <= took_s + 0.1  # it is rounded
