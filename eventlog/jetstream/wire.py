"""Requests over a NATS connection, each with a bounded wait.

Every request gets a reply, or fails with `LogUnavailable`: at once when the connection breaks, or when nothing has come
for `request_timeout_s`. A request that was sent but got no reply fails with `Unanswered`, because it may have taken
effect. While the connection is down, requests wait for it as long as they would for a reply; it is reconnected
automatically.

All replies arrive on one subscription, `<inbox>.*`: the last token of the subject is the number of the request, so a
request costs one dictionary entry instead of a subscription. One timer for all requests (`_time_out`) sweeps the table
of open requests a few times a second, so a request does not need a timer of its own. A caller may pass any
`ReplyHandler` instead of a future, and is then called directly from the reading of the socket (`appends`).
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import msgspec
from nats.aio.client import Server
from nats.errors import Error as NatsError

from ..errors import ConfigError, LogUnavailable
from . import headers
from .address import credentials_file, masked, servers_of, tls_context
from .link import Handler, Link

T = TypeVar("T")

Reply = tuple[bytes, bytes]
"""The header and data of a message."""

RECONNECT_WAITS_S = (0.0, 0.02, 0.02, 0.05, 0.1, 0.25)
"""The waits before attempts to reconnect, in seconds; the last one repeats."""

_DIAL_S = 2.0
_PING_INTERVAL_S = 5.0
_SWEEP_S = 0.25
_NO_RESPONDERS = b"NATS/1.0 503"
_DENIED = re.compile(r'violation for (?P<what>publish|subscription) to "(?P<subject>[^"]*)"', re.IGNORECASE)
_log = logging.getLogger(__name__)


class Unanswered(LogUnavailable):
    """The request was sent, but no reply came: its outcome is unknown."""


class NoResponders(LogUnavailable):
    """There is no responder on this subject now: no such stream or consumer, or it has no leader."""


class Refused(LogUnavailable):
    """The server's API replied with an error. Attributes: `code`, `err_code`, `description`."""

    def __init__(self, what: str, fault: Fault) -> None:
        super().__init__(f"the NATS server refused {what}: {fault.description} (error {fault.err_code})")
        self.code, self.err_code, self.description = fault.code, fault.err_code, fault.description


class Fault(msgspec.Struct, frozen=True):
    """An error of the server's API."""

    code: int = 0
    err_code: int = 0
    description: str = ""


class Done(msgspec.Struct, frozen=True):
    """A reply of the API of which only the absence of an error matters."""


class _Verdict(msgspec.Struct, frozen=True):
    error: Fault | None = None


_VERDICTS = msgspec.json.Decoder(_Verdict)


class ReplyHandler(Protocol):
    """Receives one reply or error, for example an asyncio future. Its methods must not block or raise."""

    def done(self) -> bool:
        """Return whether it no longer waits."""
        ...

    def set_result(self, result: Any, /) -> None:
        """Receive the reply."""
        ...

    def set_exception(self, exception: Exception, /) -> None:
        """Receive the error, if there is no reply."""
        ...


class _Request:
    """A request in flight. `parts` collects the messages of a reply that ends with a status.

    Each of them moves the deadline on: a reply is late when nothing has come for `wait_s`.
    """

    __slots__ = ("deadline", "parts", "subject", "wait_s", "waiter")

    def __init__(
        self, waiter: ReplyHandler, subject: bytes, now: float, wait_s: float, parts: list[Reply] | None
    ) -> None:
        self.waiter, self.subject, self.parts = waiter, subject, parts
        self.wait_s, self.deadline = wait_s, now + wait_s

    def take(self, reply: Reply, now: float) -> bool:
        """Take a message of the reply; returns whether it was the last one."""
        last = self.parts is None or headers.status(reply[0]) > 0
        if self.parts is not None:
            self.parts.append(reply)
            self.deadline = now + self.wait_s
        if last and not self.waiter.done():
            self.waiter.set_result(reply if self.parts is None else self.parts)
        return last

    def fail(self, error: Exception) -> None:
        if not self.waiter.done():
            self.waiter.set_exception(error)


class Wire:
    """One connection and the requests on it. Created by `open`."""

    def __init__(self, servers: list[str], name: str, request_timeout_s: float) -> None:
        self.url = ",".join(masked(server) for server in servers)
        self.name = name
        self.request_timeout_s = request_timeout_s
        self.on_up: set[Callable[[], object]] = set()
        self.on_down: set[Callable[[], object]] = set()
        self._servers = servers
        self._link = Link(self._denied)
        self._calls: dict[bytes, _Request] = {}
        self._count = 0
        self._inbox_prefix = b"_INBOX"
        self._inbox = b""
        self._unheard: str | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self._up = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._trouble = ""
        self._attempts = 0
        self._lost_at: float | None = None
        self._denials: dict[bytes, str] = {}
        self._dispensable: dict[bytes, str] = {}
        self._forgone: set[str] = set()
        self._refused: asyncio.Future[str] = self._loop.create_future()

    @property
    def servers(self) -> tuple[str, ...]:
        """The URLs of the servers, with credentials."""
        return tuple(self._servers)

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        inbox: bytes,
        name: str = "",
        connect_timeout_s: float = 5.0,
        request_timeout_s: float = 5.0,
    ) -> Wire:
        """Connect to one of the servers in `url` (separated by commas), with retries for `connect_timeout_s`.

        Replies come to subjects that begin with `inbox`, under a prefix that is unique for each connection.
        `user:password@` or `token@` in the URL is used, and so is the credentials file named by `NATS_CREDS`.
        Raises `ConfigError` for a URL or credentials that cannot work, otherwise `LogUnavailable`.
        """
        wire = cls(servers_of(url), name, request_timeout_s)
        wire._inbox_prefix = inbox
        await wire._connect(connect_timeout_s)
        wire._inbox = wire._link.new_inbox().encode() + b"."
        wire.subscribe_now(wire._inbox + b"*", wire._take)
        wire._up.set()
        return wire

    async def _connect(self, timeout_s: float) -> None:
        dialing = asyncio.ensure_future(self._dial())
        try:
            futures: set[asyncio.Future[Any]] = {dialing, self._refused}
            await asyncio.wait(futures, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if self._refused.done():
                raise ConfigError(f"the NATS server at {self.url} {self._refused.result()}")
            if not dialing.done():
                raise self._unreachable()
            dialing.result()
        except BaseException:
            dialing.cancel()
            await asyncio.gather(dialing, return_exceptions=True)
            await self.close()
            raise

    async def _dial(self) -> None:
        try:
            await self._link.connect(
                servers=self._servers,
                name=self.name or "foldlog",
                error_cb=self._noticed,
                disconnected_cb=self._disconnected,
                reconnected_cb=self._reconnected,
                connect_timeout=_DIAL_S,  # type: ignore[arg-type]  # used as a float everywhere
                reconnect_time_wait=RECONNECT_WAITS_S[-1],  # type: ignore[arg-type]  # as above; for the first connection
                reconnect_to_server_handler=self._next_server,
                max_reconnect_attempts=-1,
                ping_interval=_PING_INTERVAL_S,  # type: ignore[arg-type]  # as above
                user_credentials=credentials_file(),
                tls=tls_context(),
                inbox_prefix=self._inbox_prefix,
            )
        except ImportError as error:
            package = (
                error.name or "aiohttp"
            )  # nats-py names it in the text only: pip install foldlog[websocket]
            raise ConfigError(f"connecting to {self.url} like this needs the package {package!r}") from error
        except (NatsError, ValueError, OSError) as error:
            raise ConfigError(f"cannot use {self.url} as the URL of a NATS server: {error}") from error

    async def close(self) -> None:
        """Close the connection; requests in flight fail."""
        self._closed = True
        self._up.clear()
        self._link.flush_now()
        self._fail_all("the log was closed")
        self._tell(self.on_down)
        if self._sweep is not None:
            self._sweep.cancel()
        await self._link.end()

    @property
    def server_version(self) -> str:
        """The version of the server, such as `2.12.1`."""
        return str(self._link.info.get("version", ""))

    @property
    def has_jetstream(self) -> bool:
        """True if the server was started with JetStream."""
        return bool(self._link.info.get("jetstream"))

    @property
    def clustered(self) -> bool:
        """True if the server is part of a cluster."""
        return "cluster" in self._link.info

    @property
    def payload_bytes_max(self) -> int:
        """The largest message that the server accepts, with its header."""
        return self._link.max_payload

    @property
    def lacks_tls(self) -> bool:
        """True if a URL requests TLS and the server does not require it."""
        asked = any(server.startswith(("tls://", "wss://")) for server in self._servers)
        return asked and not self._link.info.get("tls_required")

    @property
    def closed(self) -> bool:
        """True if the connection was closed and will not be up again."""
        return self._closed or bool(self._link.is_closed)

    @property
    def is_up(self) -> bool:
        """True if the connection is up."""
        return self._link.up

    # ---- sending

    async def request(
        self, subject: bytes, data: bytes = b"", header: bytes = b"", timeout_s: float | None = None
    ) -> Reply:
        """Send and return the reply. Raises `Unanswered`, `NoResponders`, `LogUnavailable`, `ConfigError` (denied)."""
        if not self._link.up:
            await self.until_up()
        future = self.future()
        self.ask(subject, data, header, future, timeout_s=timeout_s)
        return self.answered(subject, await future)

    async def request_many(self, subject: bytes, data: bytes) -> list[Reply]:
        """Send and return all messages of the reply; the last one has a status. Raises the errors of `request`."""
        if not self._link.up:
            await self.until_up()
        future = self.future()
        self.ask(subject, data, b"", future, parts=[])
        replies: list[Reply] = await future
        self.answered(subject, replies[-1])
        return replies

    def now(self) -> float:
        """Return monotonic seconds, in a finer resolution than that of some event loops."""
        return time.monotonic()

    def future(self) -> asyncio.Future[Any]:
        """Return a new future of this connection's loop."""
        return self._loop.create_future()

    def ask(
        self,
        subject: bytes,
        data: bytes,
        header: bytes,
        waiter: ReplyHandler,
        *,
        parts: list[Reply] | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Send now; `waiter` gets the reply, or `Unanswered`, or `ConfigError` (denied).

        Raises `LogUnavailable` while the connection is down. The reply may mean that there is no responder: see
        `answered`.
        """
        if not self._link.up:
            raise self._unreachable()
        if self._unheard is not None:
            waiter.set_exception(ConfigError(self._unheard))
            return
        token = self._expect(waiter, subject, parts, timeout_s)
        self._link.send(_publication(subject, self._inbox + token, header, data))

    def answered(self, subject: bytes, reply: Reply) -> Reply:
        """Return the reply. Raises `NoResponders` if the server sent it because the subject has no responder."""
        if reply[0].startswith(_NO_RESPONDERS):
            raise NoResponders(f"there is no responder for {subject.decode()} at {self.url} now")
        return reply

    def _expect(
        self, waiter: ReplyHandler, subject: bytes, parts: list[Reply] | None, timeout_s: float | None
    ) -> bytes:
        """Register a request with its deadline; returns the last token of its reply subject."""
        self._count += 1
        token = b"%x" % self._count
        wait_s = self.request_timeout_s if timeout_s is None else timeout_s
        self._calls[token] = _Request(waiter, subject, self._loop.time(), wait_s, parts)
        if self._sweep is None:
            self._sweep = self._loop.call_later(_SWEEP_S, self._time_out)
        return token

    async def api(self, method: str, body: object, answer: type[T]) -> T:
        """Send a request to `$JS.API.<method>`, and decode the reply. Raises `Refused`, and the errors of `request`."""
        data = b"" if body is None else msgspec.json.encode(body)
        _, reply = await self.request(b"$JS.API." + method.encode(), data)
        if fault := _VERDICTS.decode(reply).error:
            raise Refused(method, fault)
        return msgspec.json.decode(reply, type=answer)

    def publish(
        self,
        subject: bytes,
        data: bytes = b"",
        header: bytes = b"",
        reply: bytes = b"",
        *,
        unhurried: bool = False,
    ) -> None:
        """Send without waiting for a reply. Raises `LogUnavailable` while the connection is down."""
        if not self._link.up:
            raise self._unreachable()
        self._link.send(_publication(subject, reply, header, data), unhurried=unhurried)

    def flush(self) -> None:
        """Write everything that was sent so far now, not at the end of the loop's turn."""
        self._link.flush_now()

    async def until_up(self) -> None:
        """Return when the connection is up, or raise `LogUnavailable` after `request_timeout_s`."""
        if self.closed:
            raise self._unreachable()
        try:
            async with asyncio.timeout(self.request_timeout_s):
                while not self._link.up:
                    self._up.clear()
                    await self._up.wait()
        except TimeoutError:
            raise self._unreachable() from None

    # ---- listening

    def inbox(self, suffix: bytes) -> bytes:
        """Return a new unique subject for a subscription."""
        self._count += 1
        return b"%b%x.%b" % (self._inbox, self._count, suffix)

    def subscribe_now(self, subject: bytes, handler: Handler) -> int:
        """Subscribe without waiting for the server; returns the id for `unsubscribe`."""
        return self._link.listen(subject, handler)

    async def subscribe(self, subject: bytes, handler: Handler) -> int:
        """Subscribe; return the id once the server has accepted it. Raises `LogUnavailable`, `ConfigError` (denied)."""
        await self.until_up()
        sid = self.subscribe_now(subject, handler)
        try:
            await self.barrier()
            if denial := self._denials.pop(subject, None):
                raise ConfigError(denial)
        except BaseException:
            self.unsubscribe(sid)
            raise
        return sid

    def listen_if_allowed(self, subject: bytes, handler: Handler, without: str = "") -> int:
        """Subscribe to an optional subject; returns the id for `unsubscribe`.

        If the server denies it, that is logged once: as a warning with the consequence `without`, or for debugging.
        """
        self._dispensable[subject] = without
        return self.subscribe_now(subject, handler)

    def forbids(self, subject: bytes) -> bool:
        """Return whether the server has denied this subscription; certain only after `barrier`."""
        return subject in self._denials

    def unsubscribe(self, sid: int, *, linger_s: float = 0.0) -> None:
        """End a subscription; for `linger_s` seconds its handler still gets messages in flight."""
        self._link.unlisten(sid)
        if linger_s and not self._closed:
            self._loop.call_later(linger_s, self._link.forget, sid)
        else:
            self._link.forget(sid)

    async def barrier(self) -> None:
        """Return when the server has processed everything that was sent before. Raises `LogUnavailable`."""
        if not self._link.up:
            raise self._unreachable()
        pong = self._link.ping()
        token = self._expect(pong, b"PING", None, None)
        try:
            await pong
        finally:
            self._calls.pop(token, None)

    # ---- callbacks of the connection

    def _take(self, subject: bytes, reply: bytes, header: bytes, data: bytes) -> None:
        token = subject[len(self._inbox) :]
        call = self._calls.get(token)
        if call is not None and call.take((header, data), self._loop.time()):
            del self._calls[token]

    def _time_out(self) -> None:
        now = self._loop.time()
        for token in [
            token for token, call in self._calls.items() if call.deadline <= now or call.waiter.done()
        ]:
            call = self._calls.pop(token)
            call.fail(
                Unanswered(f"the NATS server at {self.url} did not reply within {self.request_timeout_s:g} s")
            )
        self._sweep = self._loop.call_later(_SWEEP_S, self._time_out) if self._calls else None

    def _fail_all(self, why: str) -> None:
        calls, self._calls = list(self._calls.values()), {}
        for call in calls:
            call.fail(Unanswered(why))

    async def _disconnected(self) -> None:
        if self._inbox and self._lost_at is None and not self._closed:
            cause = f" ({self._trouble})" if self._trouble else ""
            _log.warning(
                "NATS lost: the connection to the server at %s broke%s; reconnecting", self.url, cause
            )
            self._lost_at = self.now()
        self._up.clear()
        self._link.forget_unsent()
        self._fail_all(f"the connection to the NATS server at {self.url} broke before a reply came")
        self._tell(self.on_down)

    def _tell(self, listeners: set[Callable[[], object]]) -> None:
        for listener in tuple(listeners):
            listener()

    async def _reconnected(self) -> None:
        self._trouble = ""
        self._unheard = None
        self._attempts = 0
        if self._lost_at is not None:
            server = self._link.connected_url
            where = self.url if server is None else f"{server.hostname}:{server.port}"
            _log.warning("NATS back: connected to %s after %.1f s", where, self.now() - self._lost_at)
            self._lost_at = None
        self._up.set()
        self._tell(self.on_up)

    def _next_server(self, servers: list[Server], _info: dict[str, Any]) -> tuple[Server, float]:
        """Return the server to try next, and the seconds to wait before."""
        attempt, self._attempts = self._attempts, self._attempts + 1
        wait_s = RECONNECT_WAITS_S[min(attempt // len(servers), len(RECONNECT_WAITS_S) - 1)]
        return servers[attempt % len(servers)], wait_s

    async def _noticed(self, error: Exception) -> None:
        """Remember the error, for the messages of requests that fail because of it."""
        self._trouble = str(error) or type(error).__name__
        if isinstance(error, ssl.SSLCertVerificationError):
            self._refuse(
                f"has a certificate that is not trusted here ({error.verify_message}): name the file of its authority "
                "in NATS_CA, and the server by a name that the certificate has"
            )
        elif "authorization" in self._trouble.lower():
            self._refuse(
                f"refused the credentials ({self._trouble.removeprefix('nats: ')}): put user:password@ or token@ into "
                "the URL, or name a credentials file in NATS_CREDS"
            )
        _log.debug("connection to %s: %s", self.url, self._trouble)

    def _refuse(self, why: str) -> None:
        """Give up the first connection; a later one is tried again and again."""
        if not self._refused.done():
            self._refused.set_result(why)

    def _denied(self, text: str) -> None:
        """Fail the requests on a subject that the server denies."""
        match = _DENIED.search(text)
        subject = match["subject"].encode() if match else b""
        if match and match["what"].lower() == "subscription" and subject in self._dispensable:
            self._denials[subject] = text
            self._forgo(text, self._dispensable[subject])
            return
        message = f"the NATS server at {self.url} does not allow this user what foldlog needs: {text}"
        if subject == self._inbox + b"*":
            message += (
                ". Replies come to this subject, which depends on the namespace and the role: set FOLDLOG_ROLE to the "
                "role of this user, and use a namespace that it may use"
            )
            self._unheard = message
            for call in [*self._calls.values()]:
                call.fail(ConfigError(message))
            return
        _log.error(message)
        if match:
            if match["what"].lower() == "publish":
                for call in [*self._calls.values()]:  # a copy, because a handler may send again
                    if call.subject == subject:
                        call.fail(ConfigError(message))
            else:
                self._denials[subject] = message

    def _forgo(self, text: str, without: str) -> None:
        """Log once that the server denies an optional subject."""
        if without in self._forgone:
            return
        self._forgone.add(without)
        level = logging.WARNING if without else logging.DEBUG
        prefix = f"{without}: " if without else ""
        _log.log(level, "%sthe NATS server at %s does not allow this user: %s", prefix, self.url, text)

    def _unreachable(self) -> LogUnavailable:
        if self.closed:
            return LogUnavailable("the log was closed")
        cause = f" ({self._trouble})" if self._trouble else ""
        return LogUnavailable(
            f"cannot reach the NATS server at {self.url}{cause}: start it (`foldlog log up` starts an embedded one), "
            "or set NATS_URL to where one runs"
        )


def _publication(subject: bytes, reply: bytes, header: bytes, data: bytes) -> bytes:
    if header:
        size = len(header)
        return b"HPUB %b %b %d %d\r\n%b%b\r\n" % (subject, reply, size, size + len(data), header, data)
    return b"PUB %b %b %d\r\n%b\r\n" % (subject, reply, len(data), data)
