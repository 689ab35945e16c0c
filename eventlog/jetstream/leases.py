"""Leases in memory: which worker drives which run, and which worker died.

A lease is a message with a time to live in a memory stream. It is only a hint, which the server may forget when it
restarts (W17): the claim in the log is the fence, and a wrong hint costs a fenced worker, never correctness.

Waiting for a lease to expire takes seconds, so the server detects deaths. Each worker has a consumer that never gets a
message, and that the server deletes as soon as the worker's connection is gone; its advisory is the news of a possible
death. The connection may only have broken, so each worker that receives the advisory sends requests to the missing one
(`alive`) until that one has had enough time to reconnect, measured in round trips. Only then it ends the leases, and
announces each (`died`). Each lease is ended with an expected position, so that of all workers that detect a death
exactly one reports each lease.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import anyio
import msgspec

from ..clock import SystemClock
from ..errors import ConfigError, LogUnavailable
from ..ports import Announce, HeldLease, Lease, Presence
from . import headers
from .layout import UNHEARD, Layout
from .mailbox import Mailbox
from .opening import Namespace
from .streams import Message, WrongPosition, read_all, read_last, store
from .wire import Done, NoResponders, Unanswered, Wire

T = TypeVar("T")
_log = logging.getLogger(__name__)

GONE_AFTER_S = 0.005
"""The time, in seconds, that a worker's connection may be gone before the server reports it."""
SECOND_LOOK_S = 0.02
"""The shortest time, in seconds, that a missing worker gets to reconnect."""
RECONNECT_ROUND_TRIPS = 4
"""The round trips of a reconnect; a missing worker gets this many times the slowest one in addition."""
GRACE_S = 8.0
"""The time, in seconds, that other workers get to reconnect after this process itself was disconnected.

It is more than `Wire.request_timeout_s`: a worker whose first renewal gets no reply waits for so long before the next.
"""
_DISCONNECTS = b"$SYS.ACCOUNT.*.DISCONNECT"
"""The system account's events about closed connections, if the workers' account imports them."""
_RECHECK_S = 0.1
_RETRY_S = 0.1
_FAREWELL_S = 1.0
_ANSWER_S = 1.0
_TTL_S_MIN = 1.0
_TOMBSTONE = (headers.TTL, b"1s")


class _Vouched(Lease, frozen=True, kw_only=True):
    """A lease as it is stored, with the time at which its worker renewed it (Unix seconds)."""

    at: float = 0.0

    @property
    def lease(self) -> Lease:
        """The lease itself."""
        return Lease(**{name: getattr(self, name) for name in Lease.__struct_fields__})


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Lease)
_PRESENCE = msgspec.json.Decoder(Presence)
_VOUCHED = msgspec.json.Decoder(_Vouched)


class _Client(msgspec.Struct, frozen=True):
    name: str = ""


class _Disconnect(msgspec.Struct, frozen=True):
    client: _Client = _Client()


class JetStreamLeases:
    """`Leases` in a memory stream. A single server forgets it when it restarts; it is then created again."""

    def __init__(self, wire: Wire, layout: Layout, namespace: Namespace) -> None:
        self._wire, self._layout, self._namespace = wire, layout, namespace
        self._clock = SystemClock()
        self._patient_until = 0.0
        wire.on_up.add(self._be_patient)

    def _be_patient(self) -> None:
        self._patient_until = asyncio.get_running_loop().time() + GRACE_S

    async def vouch(self, lease: Lease, ttl_s: float) -> None:
        """Set or renew the lease for the next `ttl_s` seconds (at least 1). Raises `LogUnavailable`."""
        ttl = b"%dms" % int(max(ttl_s, _TTL_S_MIN) * 1000)
        header = headers.build((headers.TTL, ttl))
        subject = self._layout.lease(lease)
        data = _ENCODER.encode(_Vouched(**msgspec.structs.asdict(lease), at=self._clock.now()))
        await self._insist(lambda: store(self._wire, subject, data, header))

    async def end(self, lease: Lease) -> None:
        """End the lease. Raises `LogUnavailable`."""
        subject, header = self._layout.lease(lease), headers.build(_TOMBSTONE)
        await self._insist(lambda: store(self._wire, subject, b"", header))

    async def live(self, run: str, worker: str, epoch: int) -> bool:
        """Return whether the worker has a lease on this run and epoch; up to 0.3 s late. Raises `LogUnavailable`.

        Right after a reconnect, the worker may not have had the time to renew the lease: it then counts as alive,
        unless it has ended the lease.
        """
        subject = self._layout.lease_of(run, worker, epoch)
        last = await self._insist(lambda: read_last(self._wire, self._layout.leases, subject))
        if last is None:
            return asyncio.get_running_loop().time() < self._patient_until
        return last.data != b""

    async def held(self) -> tuple[HeldLease, ...]:
        """Return all leases in force. Raises `LogUnavailable`."""
        return await self._insist(self._all_held)

    async def _all_held(self) -> tuple[HeldLease, ...]:
        messages = read_all(self._wire, self._layout.leases, self._layout.every_lease)
        found = [_VOUCHED.decode(message.data) async for message in messages if message.data]
        return tuple(HeldLease(lease=each.lease, renewed_at=each.at) for each in found)

    async def _insist(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat the attempt once, if the server has forgotten the stream."""
        try:
            return await attempt()
        except NoResponders:
            await self._namespace.heal()
            return await attempt()

    @contextlib.asynccontextmanager
    async def presence(self, announced: Presence) -> AsyncIterator[Announce]:
        """Announce the process while the context is open; leaving it ends its leases without a report.

        A name may be present only once at a time. Raises `LogUnavailable` when entered without a log.
        """
        worker, now = announced.worker, [announced]
        appearing = _Repeated(self._wire, lambda: self._appear(now[0]))

        async def again(changed: Presence) -> None:
            now[0] = changed
            await self._appear(changed)

        sid = await self._wire.subscribe(self._layout.alive(worker), self._answer)
        try:
            await self._appear(announced)
            with appearing:
                yield again
        finally:
            if self._wire.is_up:  # otherwise the server has noticed the disconnect
                with anyio.move_on_after(_FAREWELL_S, shield=True), contextlib.suppress(LogUnavailable):
                    await self._leave(worker)
            self._wire.unsubscribe(sid)

    def _answer(self, _subject: bytes, reply: bytes, _header: bytes, _data: bytes) -> None:
        if reply:
            self._wire.publish(reply)

    async def present(self) -> tuple[Presence, ...]:
        """Return the processes that are present now, by their names. Raises `LogUnavailable`.

        Each announced process gets a request. One that is connected but silent, such as a stopped one, is not
        present; if the server denies these requests, each counts as present.
        """
        announced = await self._insist(self._announced)
        answers = await asyncio.gather(*(self._still_there(each.worker) for each in announced))
        return tuple(each for each, answer in zip(announced, answers, strict=True) if answer)

    async def _announced(self) -> list[Presence]:
        messages = read_all(self._wire, self._layout.leases, self._layout.everybody_present)
        found = [_PRESENCE.decode(message.data) async for message in messages if message.data]
        return sorted(found, key=lambda each: each.worker)

    async def _still_there(self, worker: str) -> bool:
        try:
            return await _answers(self._wire, self._layout, worker)
        except ConfigError:
            return True
        except Unanswered:
            await self._wire.barrier()  # raises if it is the server that is silent
            return False

    async def _appear(self, announced: Presence) -> None:
        worker, told = announced.worker, _ENCODER.encode(announced)
        await self._insist(lambda: store(self._wire, self._layout.present(worker), told))
        config = self._layout.presence_config(worker, GONE_AFTER_S)
        body = {"stream_name": self._layout.leases, "config": config}
        await self._wire.api(f"CONSUMER.CREATE.{self._layout.leases}.{worker}", body, Done)

    async def _leave(self, worker: str) -> None:
        """End the leases first and then the consumer, so that nothing is left when its end is reported."""
        everything = {"filter": f"{self._layout.leases_prefix(worker)}.>"}
        await self._wire.api(f"STREAM.PURGE.{self._layout.leases}", everything, Done)
        await self._wire.api(f"CONSUMER.DELETE.{self._layout.leases}.{worker}", None, Done)

    @contextlib.asynccontextmanager
    async def deaths(self) -> AsyncIterator[AsyncIterator[Lease]]:
        """Yield the leases of workers whose connection ended unexpectedly, even before this was entered.

        An account that imports `$SYS.ACCOUNT.<itself>.DISCONNECT` is informed some milliseconds earlier of connections
        with a worker's name, and in a cluster even if the server with the worker's consumer died too.
        Raises `LogUnavailable` when entered without a log.
        """
        watch = DeathWatch(self._wire, self._layout)
        scanning = _Repeated(self._wire, lambda: self._insist(watch.scan))
        async with contextlib.AsyncExitStack() as stack:
            for subject, handler, without in (
                (self._layout.died, watch.lease_ended, UNHEARD),
                (self._layout.gone, watch.consumer_deleted, UNHEARD),
                (_DISCONNECTS, watch.disconnected, ""),  # most accounts do not import it, or deny it
            ):
                sid = self._wire.listen_if_allowed(subject, handler, without)
                stack.callback(self._wire.unsubscribe, sid)
            await self._wire.until_up()
            await self._wire.barrier()
            stack.callback(watch.close)
            stack.enter_context(scanning)
            scanning.start()
            yield watch


async def _answers(wire: Wire, layout: Layout, worker: str) -> bool:
    """Return whether the worker is connected. Raises `Unanswered` (silent), `LogUnavailable`, `ConfigError` (denied).

    It is asked twice, because the server may have sent the first request into a connection that was just breaking.
    """
    try:
        try:
            await wire.request(layout.alive(worker), timeout_s=_ANSWER_S)
        except Unanswered:
            await wire.request(layout.alive(worker), timeout_s=_ANSWER_S)
    except NoResponders:
        return False
    return True


class _Repeated:
    """An action in the background that is repeated after each reconnect, with retries until it succeeds."""

    def __init__(self, wire: Wire, act: Callable[[], Awaitable[None]]) -> None:
        self._wire, self._act = wire, act
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> None:
        self._wire.on_up.add(self.start)

    def __exit__(self, *_: object) -> None:
        self._wire.on_up.discard(self.start)
        if self._task is not None:
            self._task.cancel()

    def start(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._task = asyncio.ensure_future(self._repeat())

    async def _repeat(self) -> None:
        while True:
            try:
                return await self._act()
            except LogUnavailable:
                await asyncio.sleep(_RETRY_S)
            except ConfigError:
                _log.exception("workers can neither announce themselves nor detect the death of others")
                return None


class DeathWatch:
    """The iterator of `deaths`: confirms the death of a worker whose consumer is gone, and ends its leases."""

    def __init__(self, wire: Wire, layout: Layout) -> None:
        self._wire, self._layout = wire, layout
        self._leases = Mailbox[Lease]()
        self._checks: set[asyncio.Task[None]] = set()
        self._patient_until = 0.0
        self._closed = False
        wire.on_up.add(self._be_patient)

    def __aiter__(self) -> DeathWatch:
        return self

    async def __anext__(self) -> Lease:
        while not self._leases.items:
            if self._closed:
                raise StopAsyncIteration
            await self._leases.wait()
        return self._leases.items.popleft()

    def close(self) -> None:
        """End the iterator."""
        self._closed = True
        self._wire.on_up.discard(self._be_patient)
        for task in self._checks:
            task.cancel()
        self._leases.wake()

    def consumer_deleted(self, subject: bytes, _reply: bytes, _header: bytes, _data: bytes) -> None:
        """Handle the advisory that the server deleted the consumer of a worker."""
        self._check(subject.rpartition(b".")[2].decode())

    def disconnected(self, _subject: bytes, _reply: bytes, _header: bytes, data: bytes) -> None:
        """Handle the end of a connection, whose name may be that of a worker."""
        name = msgspec.json.decode(data, type=_Disconnect).client.name
        if name:
            self._check(name)

    def lease_ended(self, _subject: bytes, _reply: bytes, _header: bytes, data: bytes) -> None:
        """Report a dead worker's lease that a process, perhaps this one, has ended."""
        self._leases.post(_DECODER.decode(data))

    async def scan(self) -> None:
        """Check every announced worker."""
        async for message in read_all(self._wire, self._layout.leases, self._layout.everybody_present):
            self._check(message.subject.split(b".")[2].decode())

    def _be_patient(self) -> None:
        self._patient_until = asyncio.get_running_loop().time() + GRACE_S

    def _check(self, worker: str) -> None:
        task = asyncio.ensure_future(self._confirm(worker))
        self._checks.add(task)
        task.add_done_callback(self._checks.discard)

    async def _confirm(self, worker: str) -> None:
        # A check that fails now is repeated after the reconnect; and a connection's name may not be that of a worker.
        with contextlib.suppress(LogUnavailable, ConfigError):
            if await self._gone(worker):
                await self._end_leases(worker)

    async def _gone(self, worker: str) -> bool:
        """Return whether the worker does not reply, now and during the time that it needs to reconnect."""
        loop = asyncio.get_running_loop()
        began_at, slowest_s = loop.time(), 0.0
        while True:
            asked_at = loop.time()
            if await _answers(self._wire, self._layout, worker):
                return False
            now = loop.time()
            slowest_s = max(slowest_s, now - asked_at)
            back_until = began_at + SECOND_LOOK_S + RECONNECT_ROUND_TRIPS * slowest_s
            left_s = max(back_until, self._patient_until) - now
            if left_s <= 0:
                return True
            await asyncio.sleep(min(left_s, _RECHECK_S))

    async def _end_leases(self, worker: str) -> None:
        everything = f"{self._layout.leases_prefix(worker)}.>".encode()
        messages = [
            message async for message in read_all(self._wire, self._layout.leases, everything) if message.data
        ]
        present = [message for message in messages if message.subject == self._layout.present(worker)]
        if present:  # otherwise it left in an orderly way
            await asyncio.gather(*(self._announce(message) for message in messages if message not in present))
            await self._take(present[0])

    async def _announce(self, message: Message) -> None:
        if await self._take(message):
            self._wire.publish(self._layout.died, message.data)
            if self._wire.forbids(self._layout.died):  # it would not receive its own message
                self._leases.post(_DECODER.decode(message.data))

    async def _take(self, message: Message) -> bool:
        """End a lease, unless another process did; return whether it was ended here."""
        expected = (headers.EXPECTED, b"%d" % message.position)
        try:
            await store(self._wire, message.subject, b"", headers.build(expected, _TOMBSTONE))
        except WrongPosition:
            return False
        return True
