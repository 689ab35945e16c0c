"""The do-nothing log: accepts everything, stores nothing. A test that passes on it proves nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from ..clock import Clock, SystemClock
from ..ports import (
    Announce,
    At,
    Deliveries,
    Delivery,
    DraftPiece,
    HeldLease,
    Lease,
    Presence,
    RegisterKind,
    Selector,
    Stored,
    Subject,
    Timer,
    Wakeup,
    Write,
)


class NothingLog:
    """All eight ports, which do nothing: no method raises, every stream ends at once."""

    def __init__(self, namespace: str = "default", *, clock: Clock | None = None, shards: int = 2) -> None:
        self.namespace = namespace
        self.clock: Clock = clock or SystemClock()
        self.events = _NoEvents(shards)
        self.wakeups = _NoWakeups()
        self.timers = _NoTimers()
        self.leases = _NoLeases()
        self.drafts = _NoDrafts()
        self.artifacts = _NoArtifacts()
        self.snapshots = _NoSnapshots()
        self.keys = _NoKeys()


async def _none() -> AsyncIterator[Any]:
    return
    yield


class _NoEvents:
    def __init__(self, shards: int) -> None:
        self.shards = shards

    async def append(self, *writes: Write) -> tuple[int, ...]:
        return tuple(0 for _ in writes)

    def read(self, selector: Selector, after: int = 0) -> AsyncIterator[Stored]:
        return _none()

    async def head(self, selector: Selector) -> Stored | None:
        return None

    async def count(self, selector: Selector, after: int = 0) -> int:
        return 0

    async def last_position(self, subject: Subject) -> int:
        return 0

    def heads(self, shard: int, kind: RegisterKind) -> AsyncIterator[Stored]:
        return _none()

    async def find(self, shard: int, run: str) -> Subject | None:
        return None

    async def purge(self, below: Mapping[Subject, int]) -> None:
        pass

    async def sweep(self) -> int:
        return 0

    def follow(self, selector: Selector, after: int = 0, *, to_end: bool = False) -> AsyncIterator[Stored]:
        return _none()


class _NoDeliveries:
    def __aiter__(self) -> _NoDeliveries:
        return self

    async def __anext__(self) -> Delivery:
        raise StopAsyncIteration

    async def serve(self, agents: frozenset[str]) -> None:
        pass


class _NoWakeups:
    async def send(self, wakeup: Wakeup) -> None:
        pass

    @asynccontextmanager
    async def pull(self, agents: frozenset[str]) -> AsyncIterator[Deliveries]:
        yield _NoDeliveries()

    async def ack(self, token: str) -> None:
        pass

    async def nak(self, token: str, delay_s: float = 0.0) -> None:
        pass

    async def extend(self, token: str) -> None:
        pass

    async def waiting(self, agents: frozenset[str]) -> dict[str, int]:
        return {}

    async def sweep(self) -> int:
        return 0


class _NoTimers:
    async def set(self, timer: Timer) -> None:
        pass

    async def cancel(self, timer: Timer) -> None:
        pass

    def named(self, timer_id: str) -> AsyncIterator[Wakeup]:
        return _none()


class _NoLeases:
    async def vouch(self, lease: Lease, ttl_s: float) -> None:
        pass

    async def end(self, lease: Lease) -> None:
        pass

    async def live(self, run: str, worker: str, epoch: int) -> bool:
        return False

    async def held(self) -> tuple[HeldLease, ...]:
        return ()

    @asynccontextmanager
    async def presence(self, announced: Presence) -> AsyncIterator[Announce]:
        async def again(_changed: Presence) -> None:
            pass

        yield again

    async def present(self) -> tuple[Presence, ...]:
        return ()

    @asynccontextmanager
    async def deaths(self) -> AsyncIterator[AsyncIterator[Lease]]:
        yield _none()


class _NoDrafts:
    async def publish(self, root: str, piece: DraftPiece) -> None:
        pass

    @asynccontextmanager
    async def follow(self, root: str) -> AsyncIterator[AsyncIterator[DraftPiece]]:
        yield _none()

    async def purge(self, root: str) -> None:
        pass


class _NoArtifacts:
    def of(self, root: str) -> _NoFamilyArtifacts:
        return _NoFamilyArtifacts()

    async def find(self, digest: str) -> bytes:
        return b""

    async def purge(self, root: str) -> None:
        pass


class _NoFamilyArtifacts:
    async def put(self, data: bytes, digest: str = "") -> str:
        return ""

    async def get(self, digest: str) -> bytes:
        return b""


class _NoSnapshots:
    async def put(self, run: str, data: bytes) -> None:
        pass

    async def get(self, run: str) -> bytes | None:
        return None

    async def purge(self, run: str) -> None:
        pass


class _NoKeys:
    async def in_use(self) -> bool:
        return False

    async def get(self, name: str) -> tuple[int, bytes] | None:
        return None

    async def put(self, name: str, data: bytes, expected: At) -> int:
        return 0

    async def tidy(self, name: str) -> None:
        pass

    def all(self) -> AsyncIterator[tuple[str, int, bytes]]:
        return _none()
