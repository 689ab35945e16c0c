"""The eight ports, each method an operation that may have a fault."""

# ruff: noqa: D102 - the methods are documented at the ports.
from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar

from ..ports import (
    Announce,
    At,
    Deliveries,
    Delivery,
    DraftPiece,
    FamilyArtifacts,
    HeldLease,
    Lease,
    Log,
    Presence,
    RegisterKind,
    Selector,
    Stored,
    Subject,
    Timer,
    Wakeup,
    Write,
)
from .core import Core
from .plan import DuplicateDelivery, Fault

T = TypeVar("T")


class FaultyStream(Generic[T]):
    """A stream whose items are operations. An item that was taken is yielded even if a wait is cancelled."""

    def __init__(self, core: Core, operation: str, inner: AsyncIterator[T]) -> None:
        self._core, self._operation, self._inner = core, operation, inner
        self._items: deque[tuple[T, Fault | None]] = deque()

    def __aiter__(self) -> FaultyStream[T]:
        return self

    async def __anext__(self) -> T:
        self._core.check_alive()
        if not self._items:
            item = await anext(self._inner)
            fault = self._core.count(self._operation)
            self._items.append((item, fault))
            if isinstance(fault, DuplicateDelivery):
                self._items.append((item, None))
        item, fault = self._items[0]
        self._items[0] = (item, None)
        await self._core.hand_out(fault)
        self._items.popleft()
        return item

    async def aclose(self) -> None:
        """Close the wrapped stream, if it can be closed."""
        close: Any = getattr(self._inner, "aclose", None)
        if close is not None:
            await close()


class FaultyEvents:
    """`EventLog` with faults."""

    def __init__(self, inner: Log, core: Core) -> None:
        self._inner, self._core = inner.events, core
        self.shards = inner.events.shards

    async def append(self, *writes: Write) -> tuple[int, ...]:
        return await self._core.call("events.append", lambda: self._inner.append(*writes))

    async def read(self, selector: Selector, after: int = 0) -> AsyncIterator[Stored]:
        async def read() -> list[Stored]:
            return [stored async for stored in self._inner.read(selector, after)]

        for stored in await self._core.call("events.read", read):
            if stored.position <= self._core.known:
                yield stored

    async def head(self, selector: Selector) -> Stored | None:
        async def head() -> Stored | None:
            known = self._core.known
            if known == math.inf:
                return await self._inner.head(selector)
            stored = [s async for s in self._inner.read(selector) if s.position <= known]
            return stored[-1] if stored else None

        return await self._core.call("events.head", head)

    async def count(self, selector: Selector, after: int = 0) -> int:
        return await self._core.call("events.count", lambda: self._inner.count(selector, after))

    async def last_position(self, selector: Selector) -> int:
        return await self._core.call("events.last_position", lambda: self._inner.last_position(selector))

    async def heads(self, shard: int, kind: RegisterKind) -> AsyncIterator[Stored]:
        async def heads() -> list[Stored]:
            return [s async for s in self._inner.heads(shard, kind) if s.position <= self._core.known]

        for stored in await self._core.call("events.heads", heads):
            yield stored

    async def find(self, shard: int, run: str) -> Subject | None:
        async def find() -> Subject | None:
            subject = await self._inner.find(shard, run)
            if subject is None or self._core.known == math.inf:
                return subject
            known = [s async for s in self._inner.read(subject) if s.position <= self._core.known]
            return subject if known else None

        return await self._core.call("events.find", find)

    async def purge(self, below: Mapping[Subject, int]) -> None:
        await self._core.call("events.purge", lambda: self._inner.purge(below))

    async def sweep(self) -> int:
        return await self._core.call("events.sweep", self._inner.sweep)

    def follow(self, selector: Selector, after: int = 0, *, to_end: bool = False) -> AsyncIterator[Stored]:
        return FaultyStream(self._core, "events.follow", self._inner.follow(selector, after, to_end=to_end))


class _FaultyDeliveries(FaultyStream[Delivery]):
    def __init__(self, core: Core, inner: Deliveries) -> None:
        super().__init__(core, "wakeups.pull", inner)
        self._pulled = inner

    async def serve(self, agents: frozenset[str]) -> None:
        await self._core.call("wakeups.serve", lambda: self._pulled.serve(agents))


class FaultyWakeups:
    """`Wakeups` with faults."""

    def __init__(self, inner: Log, core: Core) -> None:
        self._inner, self._core = inner.wakeups, core

    async def send(self, wakeup: Wakeup) -> None:
        await self._core.call("wakeups.send", lambda: self._inner.send(wakeup))

    @contextlib.asynccontextmanager
    async def pull(self, agents: frozenset[str]) -> AsyncIterator[Deliveries]:
        self._core.check_alive()
        async with self._inner.pull(agents) as inner:
            yield _FaultyDeliveries(self._core, inner)

    async def ack(self, token: str) -> None:
        await self._core.call("wakeups.ack", lambda: self._inner.ack(token))

    async def nak(self, token: str, delay_s: float = 0.0) -> None:
        await self._core.call("wakeups.nak", lambda: self._inner.nak(token, delay_s))

    async def extend(self, token: str) -> None:
        await self._core.call("wakeups.extend", lambda: self._inner.extend(token))

    async def waiting(self, agents: frozenset[str]) -> dict[str, int]:
        return await self._core.call("wakeups.waiting", lambda: self._inner.waiting(agents))

    async def sweep(self) -> int:
        return await self._core.call("wakeups.sweep", self._inner.sweep)


@contextlib.asynccontextmanager
async def _entered(
    core: Core, operation: str, context: AbstractAsyncContextManager[AsyncIterator[T]]
) -> AsyncIterator[AsyncIterator[T]]:
    core.check_alive()
    async with context as inner:
        yield FaultyStream(core, operation, inner)


class FaultyTimers:
    """`Timers` with faults."""

    def __init__(self, inner: Log, core: Core) -> None:
        self._inner, self._core = inner.timers, core

    async def set(self, timer: Timer) -> None:
        await self._core.call("timers.set", lambda: self._inner.set(timer))

    async def cancel(self, timer: Timer) -> None:
        await self._core.call("timers.cancel", lambda: self._inner.cancel(timer))

    async def named(self, timer_id: str) -> AsyncIterator[Wakeup]:
        async def named() -> list[Wakeup]:
            return [wakeup async for wakeup in self._inner.named(timer_id)]

        for wakeup in await self._core.call("timers.named", named):
            yield wakeup


class FaultyLeases:
    """`Leases` with faults."""

    def __init__(self, inner: Log, core: Core) -> None:
        self._inner, self._core = inner.leases, core

    async def vouch(self, lease: Lease, ttl_s: float) -> None:
        await self._core.call("leases.vouch", lambda: self._inner.vouch(lease, ttl_s))

    async def end(self, lease: Lease) -> None:
        await self._core.call("leases.end", lambda: self._inner.end(lease))

    async def live(self, run: str, worker: str, epoch: int) -> bool:
        return await self._core.call("leases.live", lambda: self._inner.live(run, worker, epoch))

    async def held(self) -> tuple[HeldLease, ...]:
        return await self._core.call("leases.held", self._inner.held)

    @contextlib.asynccontextmanager
    async def presence(self, announced: Presence) -> AsyncIterator[Announce]:
        self._core.check_alive()
        context = self._inner.presence(announced)
        announce = await context.__aenter__()
        try:
            yield lambda changed: self._core.call("leases.announce", lambda: announce(changed))
        finally:
            if self._core.crashed:
                self._core.abandoned.append(context)
            else:
                await context.__aexit__(None, None, None)

    async def present(self) -> tuple[Presence, ...]:
        return await self._core.call("leases.present", self._inner.present)

    def deaths(self) -> AbstractAsyncContextManager[AsyncIterator[Lease]]:
        return _entered(self._core, "leases.deaths", self._inner.deaths())


class FaultyDrafts:
    """`Drafts` with faults."""

    def __init__(self, inner: Log, core: Core) -> None:
        self._inner, self._core = inner.drafts, core

    async def publish(self, root: str, piece: DraftPiece) -> None:
        await self._core.call("drafts.publish", lambda: self._inner.publish(root, piece))

    def follow(self, root: str) -> AbstractAsyncContextManager[AsyncIterator[DraftPiece]]:
        return _entered(self._core, "drafts.follow", self._inner.follow(root))

    async def purge(self, root: str) -> None:
        await self._core.call("drafts.purge", lambda: self._inner.purge(root))


class FaultyArtifacts:
    """`Artifacts` with faults."""

    def __init__(self, inner: Log, core: Core) -> None:
        self._inner, self._core = inner.artifacts, core

    def of(self, root: str) -> FaultyFamilyArtifacts:
        return FaultyFamilyArtifacts(self._inner.of(root), self._core)

    async def find(self, digest: str) -> bytes:
        return await self._core.call("artifacts.find", lambda: self._inner.find(digest))

    async def purge(self, root: str) -> None:
        await self._core.call("artifacts.purge", lambda: self._inner.purge(root))


class FaultyFamilyArtifacts:
    """`FamilyArtifacts` with faults."""

    def __init__(self, inner: FamilyArtifacts, core: Core) -> None:
        self._inner, self._core = inner, core

    async def put(self, data: bytes, digest: str = "") -> str:
        return await self._core.call("artifacts.put", lambda: self._inner.put(data, digest))

    async def get(self, digest: str) -> bytes:
        return await self._core.call("artifacts.get", lambda: self._inner.get(digest))


class FaultySnapshots:
    """`Snapshots` with faults."""

    def __init__(self, inner: Log, core: Core) -> None:
        self._inner, self._core = inner.snapshots, core

    async def put(self, run: str, data: bytes) -> None:
        await self._core.call("snapshots.put", lambda: self._inner.put(run, data))

    async def get(self, run: str) -> bytes | None:
        return await self._core.call("snapshots.get", lambda: self._inner.get(run))

    async def purge(self, run: str) -> None:
        await self._core.call("snapshots.purge", lambda: self._inner.purge(run))


class FaultyKeys:
    """`Keys` with faults."""

    def __init__(self, inner: Log, core: Core) -> None:
        self._inner, self._core = inner.keys, core

    async def in_use(self) -> bool:
        return await self._inner.in_use()  # without faults: it may be answered from memory

    async def get(self, name: str) -> tuple[int, bytes] | None:
        return await self._core.call("keys.get", lambda: self._inner.get(name))

    async def put(self, name: str, data: bytes, expected: At) -> int:
        return await self._core.call("keys.put", lambda: self._inner.put(name, data, expected))

    async def tidy(self, name: str) -> None:
        await self._core.call("keys.tidy", lambda: self._inner.tidy(name))

    def all(self) -> AsyncIterator[tuple[str, int, bytes]]:
        return FaultyStream(self._core, "keys.all", self._inner.all())
