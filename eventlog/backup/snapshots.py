"""Snapshots of streams over the server's API: one stream to a file, and from a file to a stream.

The server sends a snapshot in chunks, and goes on once earlier ones are acknowledged; a restore is the reverse. Writers
go on beside a snapshot, which has the stream as it was at one instant.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ..errors import LogUnavailable
from ..jetstream import headers
from ..jetstream.wire import Fault, Refused, Wire

CHUNK_BYTES = 256 * 1024
SILENCE_S = 60.0
"""The longest wait for the next chunk of a snapshot, or for the server to finish a restore."""


class _Announced(msgspec.Struct, frozen=True):
    config: dict[str, Any] = {}
    state: dict[str, Any] = {}


class _Awaited(msgspec.Struct, frozen=True):
    deliver_subject: str = ""


class Restored(msgspec.Struct, frozen=True):
    """The state of a stream after its restore."""

    state: dict[str, Any] = {}
    error: Fault | None = None


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot in a file, with the configuration and state of its stream at that instant."""

    config: dict[str, Any]
    state: dict[str, Any]
    size_bytes: int
    sha256: str


async def save(wire: Wire, stream: str, path: Path) -> Written:
    """Write a snapshot of a stream to a new file. Raises `Refused`, `LogUnavailable`, OSError."""
    arrived: asyncio.Queue[tuple[bytes, bytes, bytes]] = asyncio.Queue()
    inbox = wire.inbox(b"snapshot")
    sid = await wire.subscribe(
        inbox, lambda _subject, reply, header, data: arrived.put_nowait((reply, header, data))
    )
    try:
        body = {"deliver_subject": inbox.decode(), "jsck": True, "chunk_size": CHUNK_BYTES}
        announced = await wire.api(f"STREAM.SNAPSHOT.{stream}", body, _Announced)
        sha, size_bytes = hashlib.sha256(), 0
        with path.open("xb") as file:
            async for chunk in _chunks(wire, stream, arrived):
                await asyncio.to_thread(file.write, chunk)
                sha.update(chunk)
                size_bytes += len(chunk)
    finally:
        wire.unsubscribe(sid)
    return Written(
        config=announced.config, state=announced.state, size_bytes=size_bytes, sha256=sha.hexdigest()
    )


async def _chunks(
    wire: Wire, stream: str, arrived: asyncio.Queue[tuple[bytes, bytes, bytes]]
) -> AsyncIterator[bytes]:
    """Yield the chunks of a snapshot, and acknowledge each once it was taken."""
    while True:
        try:
            async with asyncio.timeout(SILENCE_S):
                reply, header, data = await arrived.get()
        except TimeoutError:
            raise LogUnavailable(
                f"the server stopped sending the snapshot of {stream}: run the command again"
            ) from None
        if headers.status(header) >= 400:  # noqa: PLR2004 - as in HTTP
            raise LogUnavailable(
                f"the server cannot make a snapshot of {stream}: {headers.description(header)}"
            )
        if not data:
            return
        yield data
        if reply:
            wire.publish(reply)


async def load(wire: Wire, config: Mapping[str, Any], state: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Create a stream with this configuration from a snapshot; returns its state.

    Raises `Refused` (the stream exists, no space, a damaged snapshot), `LogUnavailable`, OSError.
    """
    name = config["name"]
    awaited = await wire.api(f"STREAM.RESTORE.{name}", {"config": config, "state": state}, _Awaited)
    subject = awaited.deliver_subject.encode()
    with path.open("rb") as file:
        while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
            _, data = await wire.request(subject, chunk, timeout_s=SILENCE_S)
            _look(name, data)
    _, data = await wire.request(subject, b"", timeout_s=SILENCE_S)
    return _look(name, data).state


def _look(name: str, data: bytes) -> Restored:
    answer = msgspec.json.decode(data, type=Restored) if data else Restored()
    if answer.error is not None:
        raise Refused(f"to restore the stream {name}", answer.error)
    return answer
