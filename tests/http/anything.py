"""Requests of any kind to an application: plausible ones, each broken a little, and the judgement of their answers."""

from __future__ import annotations

import asyncio
import json
import random
import string
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from foldlog.adapters.console.routing import Route

ANSWER_S = 60.0
"""Longer than any answer takes on a machine that does much else."""
JUNK: Sequence[Any] = (
    None, True, 0, -1, 2**31, 2**63, 1e308, "", " ", "x", "\0", "\ud7ff", "💥" * 9, "../..", "a" * 5000,
    [], [[]], {}, {"": None}, {"type": "text"}, "2026-13-01", "NaN", "0" * 40, ["a"] * 300,
)  # fmt: skip
JUNK_TEXTS: Sequence[str] = (
    "", "0", "x", "\xff\xfe", "%00", "%", "\x7f", "Bearer", "Bearer ", "bytes=0-", "=", "a, b;q=z", "*/*", "-1",
    "99999999999999999999", "application/json; charset=utf-7", "text/event-stream", "gzip", "[::1", "a\x0bb",
)  # fmt: skip
HEADERS = (
    "accept", "authorization", "content-length", "content-type", "content-encoding", "cookie", "host", "if-none-match",
    "idempotency-key", "last-event-id", "mcp-protocol-version", "mcp-session-id", "origin", "range", "traceparent",
    "transfer-encoding", "x-forwarded-user", "x-request-id", "a2a-version", "x-csrf-token",
)  # fmt: skip
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "BREW", "post")
NAMES = (
    "run",
    "runs",
    "input",
    "agent",
    "status",
    "limit",
    "before",
    "after",
    "data",
    "key",
    "id",
    "name",
    "",
)


class Wish(msgspec.Struct):
    """A request as it goes to an application: the body in pieces, each header once."""

    method: str
    path: str
    query: str = ""
    headers: dict[str, str] = {}
    pieces: list[bytes] = []
    breaks_off: bool = False
    """The sender is gone before the last piece."""

    @property
    def told(self) -> str:
        return f"{self.method} {self.path!r} ?{self.query!r} {self.headers} {[p[:300] for p in self.pieces]}"


class Reply(msgspec.Struct):
    """A response; status 0: none, which only a sender that is gone may get."""

    status: int
    headers: dict[str, str]
    body: bytes


async def send(app: Any, wish: Wish) -> Reply:
    """Send it, and take the answer until it ends; a stream is left as soon as it has begun to tell."""
    pieces, sent, told = list(wish.pieces) or [b""], list[Any](), asyncio.Event()

    async def receive() -> Any:
        if pieces:
            piece = pieces.pop(0)
            if not (wish.breaks_off and not pieces):
                return {"type": "http.request", "body": piece, "more_body": bool(pieces)}
        elif not wish.breaks_off:
            await told.wait()  # a client that is content with the first words
        return {"type": "http.disconnect"}

    async def answer(message: Any) -> None:
        sent.append(message)
        if message["type"] == "http.response.body":
            told.set()

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": wish.method, "scheme": "http",
        "path": wish.path, "raw_path": wish.path.encode("utf-8", "replace"), "root_path": "",
        "query_string": wish.query.encode("latin-1", "replace"),
        "headers": [(name.encode(), value.encode("latin-1", "replace")) for name, value in wish.headers.items()],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 7717), "state": {},
    }  # fmt: skip
    async with asyncio.timeout(ANSWER_S):
        await app(scope, receive, answer)
    start = next((each for each in sent if each["type"] == "http.response.start"), None)
    if start is None:
        return Reply(0, {}, b"")
    found = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in start["headers"]}
    return Reply(start["status"], found, b"".join(each.get("body", b"") for each in sent))


def wrong(wish: Wish, reply: Reply) -> str:
    """Return what is wrong with an answer; empty for nothing."""
    if reply.status == 0:
        return "" if wish.breaks_off else "there is no answer"
    if reply.status >= 500 and reply.status != 503:
        return f"it is a {reply.status}: {reply.body[:500]!r}"
    if reply.status < 400 or wish.method == "HEAD":
        return ""
    if "json" not in reply.headers.get("content-type", ""):
        return f"a refusal that is not JSON: {reply.status} {reply.headers} {reply.body[:300]!r}"
    try:
        document = json.loads(reply.body)
    except ValueError:
        return f"a refusal that cannot be read: {reply.body[:300]!r}"
    return "" if _message(document) else f"a refusal without a message: {document}"


def _message(document: Any) -> str:
    """Return the one message of a problem document, or of the errors of the protocols."""
    if not isinstance(document, dict):
        return ""
    error = document.get("error")
    found = document.get("detail") or (
        error.get("message") if isinstance(error, dict) else document.get("message")
    )
    return found if isinstance(found, str) and "Traceback" not in found else ""


class Sender:
    """Draws requests from one seed. `paths` fills the parameters of addresses, `tokens` those who may call."""

    def __init__(self, seed: int, ids: Callable[[str], Sequence[str]], tokens: Sequence[str]) -> None:
        self._dice, self._ids, self._tokens = random.Random(seed), ids, tokens

    def of_route(self, route: Route) -> Wish:
        """Return a request to a route of the API."""
        query = "" if route.query is None else self._query(route.query)
        body = b"" if route.body in (None, bytes) else self._json(self._value(route.body))
        return self._broken(self.wish(route.method, f"/api/v1{route.path}", query=query, body=body))

    def of(self, method: str, path: str, body: Any = None) -> Wish:
        """Return a request to any other address."""
        return self._broken(
            self.wish(method, path, body=b"" if body is None else self._json(self._bent(body)))
        )

    def wish(self, method: str, path: str, *, query: str = "", body: bytes = b"") -> Wish:
        dice = self._dice
        parts = [self._id(part) if part[:1] == "{" else part for part in path.split("/")]
        headers = {"host": "127.0.0.1:7717", "accept": "application/json, text/event-stream"}
        if dice.random() < 0.9:
            headers["authorization"] = f"Bearer {dice.choice(self._tokens)}"
        if body:
            headers["content-type"] = "application/json"
        return Wish(method, "/".join(parts), query, headers, self._pieces(body))

    def _id(self, part: str) -> str:
        found = self._ids(part.strip("{}").partition(":")[0])
        return self._dice.choice(found) if found and self._dice.random() < 0.8 else self._text()

    def _text(self) -> str:
        if self._dice.random() < 0.05:
            return "a" * self._dice.choice((65, 200, 300, 5000))
        return "".join(self._dice.choices(string.printable + "äß\u2028💥\0", k=self._dice.randrange(12)))

    def _pieces(self, body: bytes) -> list[bytes]:
        cut = self._dice.randrange(len(body) + 1)
        return [body] if self._dice.random() < 0.7 else [body[:cut], b"", body[cut:]]

    def _query(self, shape: type[Any]) -> str:
        fields = msgspec.structs.fields(shape)
        chosen = self._dice.sample(fields, k=min(len(fields), self._dice.choice((0, 0, 1, 2))))
        return "&".join(f"{each.encode_name}={self._value(each.type)}".replace(" ", "+") for each in chosen)

    def _value(self, shape: Any) -> Any:  # noqa: C901 - one line for each kind
        dice = self._dice
        if dice.random() < 0.12:
            return dice.choice(JUNK)
        kind = msgspec.inspect.type_info(shape) if not isinstance(shape, msgspec.inspect.Type) else shape
        match kind:
            case msgspec.inspect.StructType(fields=fields):
                asked = [each for each in fields if each.required or dice.random() < 0.5]
                return {each.encode_name: self._value(each.type) for each in asked}
            case msgspec.inspect.UnionType(types=types):
                return self._value(dice.choice(types))
            case msgspec.inspect.LiteralType(values=values):
                return dice.choice(values)
            case msgspec.inspect.IntType() | msgspec.inspect.FloatType():
                return dice.choice((0, 1, 7, 40, -3, 10**6, 0.5))
            case msgspec.inspect.BoolType():
                return dice.random() < 0.5
            case msgspec.inspect.NoneType():
                return None
            case msgspec.inspect.StrType():
                return self._string()
            case msgspec.inspect.ListType(item_type=item) | msgspec.inspect.VarTupleType(item_type=item):
                return [self._value(item) for _ in range(dice.randrange(3))]
            case msgspec.inspect.DictType(value_type=item):
                return {self._string(): self._value(item) for _ in range(dice.randrange(3))}
            case _:
                return dice.choice(JUNK)

    def _string(self) -> str:
        known = [each for name in NAMES for each in self._ids(name)]
        return self._dice.choice(known) if known and self._dice.random() < 0.6 else self._text()

    def _json(self, value: Any) -> bytes:
        return json.dumps(value).encode()

    def _bent(self, value: Any) -> Any:
        """Return the value with something of it lost, or changed for junk."""
        dice = self._dice
        if dice.random() < 0.06:
            return dice.choice(JUNK)
        if isinstance(value, dict):
            return {self._known(key): self._bent(each) for key, each in value.items() if dice.random() > 0.04}
        if isinstance(value, list):
            return [self._bent(each) for each in value for _ in range(dice.choice((1, 1, 1, 1, 1, 1, 0, 2)))]
        return self._filled(value)

    def _known(self, key: str) -> str:
        return key if self._dice.random() > 0.02 else self._text()

    def _filled(self, value: Any) -> Any:
        return self._id(value) if isinstance(value, str) and value[:1] == "{" else value

    def _broken(self, wish: Wish) -> Wish:  # noqa: C901 - one case for each way
        """Break it a little, or not at all."""
        dice = self._dice
        for _ in range(dice.choice((0, 0, 1, 1, 2, 3))):
            match dice.randrange(9):
                case 0:
                    wish.method = dice.choice(METHODS)
                case 1:
                    wish.path += dice.choice(("/", "//", "/..", "?", ";a=b", "%2f", "\n", "/" + self._text()))
                case 2:
                    wish.path = wish.path.replace("/", dice.choice(("//", "\\", "/./", "/")), 1) or "/"
                case 3:
                    wish.query += "&" + dice.choice(NAMES) + "=" + dice.choice((*JUNK_TEXTS, self._text()))
                case 4:
                    wish.headers[dice.choice(HEADERS)] = dice.choice(JUNK_TEXTS)
                case 5:
                    wish.headers.pop(dice.choice(list(wish.headers) or [""]), None)
                case 6:
                    body = bytearray(b"".join(wish.pieces) or b"{}")
                    for _ in range(dice.randrange(1, 4)):
                        body[dice.randrange(len(body))] = dice.randrange(256)
                    wish.pieces = self._pieces(bytes(body))
                case 7:
                    big = dice.choice(
                        (b"[" * 3000, b'{"a":' * 2000, b"\xff" * 70, b"9" * 5000, b'"' + b"a" * (9 << 20))
                    )
                    wish.pieces = [big]
                case _:
                    wish.breaks_off = dice.random() < 0.5
        return wish
