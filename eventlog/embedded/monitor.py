"""The state of a server, read from its monitoring port on loopback."""

from __future__ import annotations

import asyncio
from typing import TypeVar

import msgspec
from msgspec import Struct, field

from ..names import SNAPSHOTS_SUFFIX
from .high_water import Head

ANSWER_TIMEOUT_S = 5.0

_Answer = TypeVar("_Answer")


class NoAnswer(Exception):
    """The server does not reply, or its reply is unexpected."""


class Activity(Struct, frozen=True):
    """The connections now and since the server's start, and the server's version."""

    connections: int
    total_connections: int
    version: str


class _State(Struct, frozen=True):
    messages: int
    last_seq: int


class _Config(Struct, frozen=True):
    storage: str


class _Stream(Struct, frozen=True):
    name: str
    created: str
    config: _Config
    state: _State


class _Account(Struct, frozen=True):
    stream_detail: list[_Stream] = field(default_factory=list)


class _JetStream(Struct, frozen=True):
    account_details: list[_Account] = field(default_factory=list)


async def activity(port: int) -> Activity:
    """Return the server's connections. Raises `NoAnswer`."""
    return await _get(port, "/varz", Activity)


async def heads(port: int) -> dict[str, Head]:
    """Return the end of each stream by name, without memory streams and snapshots, whose loss does not matter.

    Raises `NoAnswer`.
    """
    answer = await _get(port, "/jsz?accounts=1&streams=1&config=1", _JetStream)
    return {
        stream.name: Head(
            created=stream.created, last_sequence=stream.state.last_seq, messages=stream.state.messages
        )
        for account in answer.account_details
        for stream in account.stream_detail
        if stream.config.storage == "file" and not stream.name.endswith(SNAPSHOTS_SUFFIX)
    }


async def _get(port: int, path: str, kind: type[_Answer]) -> _Answer:
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            head, _, body = (await _exchange(port, path)).partition(b"\r\n\r\n")
        if b" 200 " not in head.partition(b"\r\n")[0]:
            raise NoAnswer(f"{path}: {head[:200]!r}")
        return msgspec.json.decode(body, type=kind)
    except (OSError, msgspec.MsgspecError) as cause:
        raise NoAnswer(f"{path}: {cause!r}") from cause


async def _exchange(port: int, path: str) -> bytes:
    """Send a GET over HTTP/1.0, whose response ends with the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n".encode())
        return await reader.read()
    finally:
        writer.close()
