"""Leases in memory: which worker drives which run, and which worker vanished.

A lease is a message with a time to live, in a stream in memory: a hint, which a restart of the server may forget
(W17).

Waiting for a lease to expire takes seconds, so deaths are detected by the server. Each worker has a consumer that
never gets a message, and that the server deletes as soon as the worker's connection is gone. Its advisory is the news
of a death. The connection may only have broken, so each worker that hears it asks for the missing one until that one
has had the time to reconnect (`alive`), and only then ends its leases and tells the others. Each lease is ended under
a condition, so that of many workers that hear of a death exactly one reports each lease.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import anyio
import msgspec

from ..errors import ConfigError, LogUnavailable
from ..ports import Lease
from . import headers
from .layout import UNHEARD, Layout
from .mailbox import Mailbox
from .opening import Namespace
from .streams import Message, WrongPosition, read_all, read_last, store
from .wire import Done, NoResponders, Wire

T = TypeVar("T")
_log = logging.getLogger(__name__)

GONE_AFTER_S = 0.005
"""How long a worker's connection may be gone before the server tells of it."""
SECOND_LOOK_S = 0.02
"""How long after that whoever hears it looks once more: a worker that was only cut off is back by then."""
RECONNECT_ROUND_TRIPS = 4
"""How many round trips it takes to connect again. Where one takes long, a worker has so much more time to be back."""
GRACE_S = 5.0
"""How long, after this process itself was disconnected, others get to come back before they count as dead."""

_DISCONNECTS = b"$SYS.ACCOUNT.*.DISCONNECT"
"""What the system account tells of connections that ended, if the workers' account imports it."""
_RECHECK_S = 0.1
_RETRY_S = 0.1
_FAREWELL_S = 1.0
_TTL_S_MIN = 1.0
_TOMBSTONE = (headers.TTL, b"1s")
_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Lease)
_SERVES = msgspec.json.Decoder(list[str])


class _Client(msgspec.Struct, frozen=True):
    name: str = ""


class _Disconnect(msgspec.Struct, frozen=True):
    client: _Client = _Client()


class JetStreamLeases:
    """`Leases` in a stream in memory. A single server forgets it when it restarts; it is then made again."""

    def __init__(self, wire: Wire, layout: Layout, namespace: Namespace) -> None:
        self._wire, self._layout, self._namespace = wire, layout, namespace
        self._patient_until = 0.0
        wire.on_up.add(self._be_patient)

    def _be_patient(self) -> None:
        self._patient_until = asyncio.get_running_loop().time() + GRACE_S

    async def vouch(self, lease: Lease, ttl_s: float) -> None:
        """The lease holds for the next `ttl_s` seconds (at least 1). Raises `LogUnavailable`."""
        ttl = b"%dms" % int(max(ttl_s, _TTL_S_MIN) * 1000)
        header = headers.build((headers.TTL, ttl))
        subject, data = self._layout.lease(lease), _ENCODER.encode(lease)
        await self._insist(lambda: store(self._wire, subject, data, header))

    async def end(self, lease: Lease) -> None:
        """The drive is over. Raises `LogUnavailable`."""
        subject, header = self._layout.lease(lease), headers.build(_TOMBSTONE)
        await self._insist(lambda: store(self._wire, subject, b"", header))

    async def live(self, run: str, worker: str, epoch: int) -> bool:
        """Return whether this holder vouches for this run and epoch; up to 0.3 s late. Raises `LogUnavailable`.

        Right after a reconnect, silence may mean that the holder has not had the time to say it again: it counts as
        alive, unless it has said that it ended.
        """
        subject = self._layout.lease_of(run, worker, epoch)
        last = await self._insist(lambda: read_last(self._wire, self._layout.leases, subject))
        if last is None:
            return asyncio.get_running_loop().time() < self._patient_until
        return last.data != b""

    async def _insist(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Once more if the stream was forgotten."""
        try:
            return await attempt()
        except NoResponders:
            await self._namespace.heal()
            return await attempt()

    @contextlib.asynccontextmanager
    async def presence(self, worker: str, agents: frozenset[str] = frozenset()) -> AsyncIterator[None]:
        """While open, the worker counts as there; leaving it ends its leases without news.

        A name may be present once at a time. Raises `LogUnavailable` when entered without a log.
        """
        appearing = _Repeated(self._wire, lambda: self._appear(worker, agents))
        sid = await self._wire.subscribe(self._layout.alive(worker), self._answer)
        try:
            await self._appear(worker, agents)
            with appearing:
                yield
        finally:
            if self._wire.is_up:  # else the server has seen the connection go
                with anyio.move_on_after(_FAREWELL_S, shield=True), contextlib.suppress(LogUnavailable):
                    await self._leave(worker)
            self._wire.unsubscribe(sid)

    def _answer(self, _subject: bytes, reply: bytes, _header: bytes, _data: bytes) -> None:
        if reply:
            self._wire.publish(reply)

    async def served(self) -> frozenset[str]:
        """Return the agents whose wake-ups are taken by workers that are there now. Raises `LogUnavailable`.

        A worker that said that it is there is asked whether it still is; where that is not allowed, it counts as there.
        """
        present = await self._insist(self._present)
        answers = await asyncio.gather(*(self._still_there(worker) for worker in present))
        alive = (present[worker] for worker, answer in zip(present, answers, strict=True) if answer)
        return frozenset().union(*alive)

    async def _present(self) -> dict[str, list[str]]:
        """What each worker that has not said goodbye serves."""
        messages = read_all(self._wire, self._layout.leases, self._layout.everybody_present)
        return {
            message.subject.split(b".")[2].decode(): _SERVES.decode(message.data)
            async for message in messages
            if message.data
        }

    async def _still_there(self, worker: str) -> bool:
        try:
            return await _answers(self._wire, self._layout, worker)
        except ConfigError:
            return True

    async def _appear(self, worker: str, agents: frozenset[str]) -> None:
        serves = _ENCODER.encode(sorted(agents))
        await self._insist(lambda: store(self._wire, self._layout.present(worker), serves))
        config = self._layout.presence_config(worker, GONE_AFTER_S)
        body = {"stream_name": self._layout.leases, "config": config}
        await self._wire.api(f"CONSUMER.CREATE.{self._layout.leases}.{worker}", body, Done)

    async def _leave(self, worker: str) -> None:
        """First the leases, then the consumer: who hears of its end finds nothing."""
        everything = {"filter": f"{self._layout.leases_prefix(worker)}.>"}
        await self._wire.api(f"STREAM.PURGE.{self._layout.leases}", everything, Done)
        await self._wire.api(f"CONSUMER.DELETE.{self._layout.leases}.{worker}", None, Done)

    @contextlib.asynccontextmanager
    async def deaths(self) -> AsyncIterator[AsyncIterator[Lease]]:
        """The leases of workers whose connection ended without a word, also before this was entered.

        An account that imports `$SYS.ACCOUNT.<itself>.DISCONNECT` hears of connections that bear a worker's name some
        milliseconds earlier, and in a cluster also when the server that kept the worker's consumer is gone.

        Raises `LogUnavailable` when entered without a log.
        """
        coroner = DeathWatch(self._wire, self._layout)
        scanning = _Repeated(self._wire, lambda: self._insist(coroner.scan))
        async with contextlib.AsyncExitStack() as stack:
            for subject, handler, without in (
                (self._layout.died, coroner.heard, UNHEARD),
                (self._layout.gone, coroner.told, UNHEARD),
                (_DISCONNECTS, coroner.disconnected, ""),  # silent, or denied, in most set-ups
            ):
                sid = self._wire.listen_if_allowed(subject, handler, without)
                stack.callback(self._wire.unsubscribe, sid)
            await self._wire.until_up()
            await self._wire.barrier()
            stack.callback(coroner.close)
            stack.enter_context(scanning)
            scanning.start()
            yield coroner


async def _answers(wire: Wire, layout: Layout, worker: str) -> bool:
    """Return whether the worker's connection lives. Raises `LogUnavailable`, `ConfigError` (denied)."""
    try:
        await wire.request(layout.alive(worker))
    except NoResponders:
        return False
    return True


class _Repeated:
    """Something to be done again after each reconnect, until it is done; in the background."""

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
                _log.exception("workers can neither be seen nor see each other")
                return None


class DeathWatch:
    """The iterator of `deaths`: hears that a worker's consumer is gone, and finds out what that means."""

    def __init__(self, wire: Wire, layout: Layout) -> None:
        self._wire, self._layout = wire, layout
        self._leases = Mailbox[Lease]()
        self._inquests: set[asyncio.Task[None]] = set()
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
        """Tell of nobody more."""
        self._closed = True
        self._wire.on_up.discard(self._be_patient)
        for task in self._inquests:
            task.cancel()
        self._leases.wake()

    def told(self, subject: bytes, _reply: bytes, _header: bytes, _data: bytes) -> None:
        """The server deleted the consumer of a worker."""
        self._inquire(subject.rpartition(b".")[2].decode())

    def disconnected(self, _subject: bytes, _reply: bytes, _header: bytes, data: bytes) -> None:
        """A connection ended; its name may be that of a worker."""
        name = msgspec.json.decode(data, type=_Disconnect).client.name
        if name:
            self._inquire(name)

    def heard(self, _subject: bytes, _reply: bytes, _header: bytes, data: bytes) -> None:
        """Somebody ended a lease of a dead worker; maybe this coroner."""
        self._leases.post(_DECODER.decode(data))

    async def scan(self) -> None:
        """Look at every worker that has not said goodbye."""
        async for message in read_all(self._wire, self._layout.leases, self._layout.everybody_present):
            self._inquire(message.subject.split(b".")[2].decode())

    def _be_patient(self) -> None:
        self._patient_until = asyncio.get_running_loop().time() + GRACE_S

    def _inquire(self, worker: str) -> None:
        task = asyncio.ensure_future(self._confirm(worker))
        self._inquests.add(task)
        task.add_done_callback(self._inquests.discard)

    async def _confirm(self, worker: str) -> None:
        # What is not found out now will be after the reconnect; and a connection may have a name that no worker has.
        with contextlib.suppress(LogUnavailable, ConfigError):
            if await self._gone(worker):
                await self._end_leases(worker)

    async def _gone(self, worker: str) -> bool:
        """Return whether nobody answers for the worker, now and for as long as it would take it to come back."""
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
        if present:  # else it said goodbye
            await asyncio.gather(*(self._tell(message) for message in messages if message not in present))
            await self._take(present[0])

    async def _tell(self, message: Message) -> None:
        if await self._take(message):
            self._wire.publish(self._layout.died, message.data)
            if self._wire.forbids(self._layout.died):  # it does not hear itself
                self._leases.post(_DECODER.decode(message.data))

    async def _take(self, message: Message) -> bool:
        """End a message unless somebody else did."""
        expected = (headers.EXPECTED, b"%d" % message.position)
        try:
            await store(self._wire, message.subject, b"", headers.build(expected, _TOMBSTONE))
        except WrongPosition:
            return False
        return True
