"""The tool `http_request` against real servers on loopback."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_address
from types import SimpleNamespace
from typing import Any, cast

import pytest
from foldlog.adapters.builtin import HttpSettings, http_request_tool
from foldlog.adapters.builtin.addresses import PinnedTransport, is_any, is_public, resolve
from foldlog.adapters.builtin.http_request import METHODS
from foldlog.eventlog import ConfigError
from foldlog.runtime.ports.tools import Retryable, ToolFailed, ToolTimedOut
from foldlog.runtime.tools.context import ToolContext

pytestmark = pytest.mark.anyio
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
CONTEXT = cast("ToolContext", SimpleNamespace(idempotency_key="run-1/c1", observe=lambda _: None))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Server:
    """Answers every request with `answer`, and keeps what came."""

    def __init__(self, *answers: bytes) -> None:
        self.answers, self.url = list(answers), ""
        self.requests: list[str] = []

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
        except asyncio.IncompleteReadError:
            writer.close()
            return
        length = int(head.lower().partition("content-length: ")[2].partition("\r\n")[0] or 0)
        self.requests.append(head + (await reader.readexactly(length)).decode())
        answer = self.answers.pop(0)
        writer.write(answer.replace(b"{url}", self.url.encode()))
        await writer.drain()
        writer.close()


@asynccontextmanager
async def serving(handle: Handler) -> AsyncIterator[str]:
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@asynccontextmanager
async def answering(*answers: bytes) -> AsyncIterator[Server]:
    server = Server(*answers)
    async with serving(server.handle) as server.url:
        yield server


def answer(body: bytes = b"", *, status: str = "200 OK", headers: str = "Content-Type: text/plain") -> bytes:
    return f"HTTP/1.1 {status}\r\n{headers}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


async def request(url: str, settings: HttpSettings | None = None, **arguments: Any) -> dict[str, Any]:
    tool = http_request_tool(settings or HttpSettings(private_addresses=True))
    result = await tool.call({"url": url, **arguments}, CONTEXT)
    return cast("dict[str, Any]", result)


async def test_an_answer_has_status_headers_and_body() -> None:
    async with answering(answer("schön".encode(), headers="X-A: 1\r\nContent-Type: text/plain")) as server:
        result = await request(server.url, headers={"X-Mine": "yes"})
    assert (result["status"], result["body"], result["headers"]["x-a"]) == (200, "schön", "1")
    assert "X-Mine: yes" in server.requests[0]
    assert "truncated" not in result


async def test_an_error_status_is_a_result() -> None:
    async with answering(answer(b"no", status="503 Busy")) as server:
        assert (await request(server.url))["status"] == 503


@pytest.mark.parametrize(("status", "in_doubt"), [("409 Conflict", False), ("503 Busy", True)])
async def test_an_error_status_says_whether_a_change_was_made(status: str, in_doubt: bool) -> None:
    async with answering(answer(b"no", status=status)) as server:
        with pytest.raises(ToolFailed, match=status[:3]) as failed:
            await request(server.url, method="POST", body="{}")
    assert (failed.value.in_doubt, failed.value.result["body"]) == (in_doubt, "no")


async def test_a_change_in_doubt_is_one_that_may_have_been_sent() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    async def doubt_of(url: str, method: str) -> bool:
        with pytest.raises(ToolFailed) as failed:
            await request(url, method=method)
        return failed.value.in_doubt

    async with serving(hang_up) as url:
        assert (await doubt_of(url, "POST"), await doubt_of(url, "GET")) == (True, False)
    assert not await doubt_of("http://127.0.0.1:1/", "POST")
    assert not await doubt_of("http://no-such-host.invalid/", "POST")
    elsewhere = answer(status="303 See Other", headers="Location: http://127.0.0.1:1/")
    async with answering(elsewhere) as server:
        assert await doubt_of(server.url, "POST")


async def test_a_request_that_changes_something_carries_the_calls_key() -> None:
    async with answering(answer(), answer()) as server:
        await request(server.url, method="POST", body="{}")
        await request(server.url)
    assert "idempotency-key: run-1/c1" in server.requests[0].lower()
    assert server.requests[0].endswith("\r\n\r\n{}")
    assert "idempotency-key" not in server.requests[1].lower()


async def test_a_body_that_is_not_text_comes_as_base64() -> None:
    async with answering(answer(b"\xff\0\xfe")) as server:
        result = await request(server.url)
    assert result["body_base64"] == "/wD+"
    assert "body" not in result


async def test_a_body_is_cut_at_its_limit_and_the_rest_is_not_read() -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while True:
                writer.write("ä".encode() * 1000)
                await writer.drain()
        except ConnectionError:
            writer.close()

    async with serving(endless) as url:
        result = await request(url, HttpSettings(private_addresses=True, body_bytes_max=1001))
    assert (result["body"], result["truncated"]) == ("ä" * 500, True)


async def test_redirects_are_followed_and_bounded() -> None:
    there = answer(status="302 Found", headers="Location: {url}/there")
    async with answering(there, answer(b"here")) as server:
        result = await request(server.url)
        assert (result["url"], result["body"]) == (f"{server.url}/there", "here")
    async with answering(*[there] * 7) as server:
        with pytest.raises(ToolFailed, match="redirect"):
            await request(server.url)
        assert len(server.requests) == 6


GIVEN = {"X-Api-Key": "s3cret", "Authorization": "Bearer s3cret", "Cookie": "s3cret", "User-Agent": "s3cret"}


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See", "307 Again", "308 Again"])
async def test_another_origin_gets_no_header_that_was_given(status: str) -> None:
    async with answering(answer(b"there")) as other:
        away = answer(status=status, headers=f"Location: {other.url}/there\r\nSet-Cookie: a=s3cret")
        async with answering(answer(status=status, headers="Location: /on"), away) as first:
            result = await request(first.url, headers={**GIVEN, "Accept": "s3cret", "X-Other": "1"})
    assert (result["body"], result["url"]) == ("there", f"{other.url}/there")
    assert all("X-Api-Key: s3cret" in each for each in first.requests)
    assert "s3cret" not in other.requests[0]
    names = {line.partition(":")[0].lower() for line in other.requests[0].split("\r\n")[1:] if line}
    assert names <= {"host", "accept", "accept-encoding", "user-agent", "connection"}


async def test_a_body_goes_to_no_other_origin_and_the_redirect_is_the_answer() -> None:
    async with answering(answer()) as other:
        away = answer(status="307 Again", headers=f"Location: {other.url}/there")
        async with answering(away) as first:
            result = await request(first.url, method="POST", body="s3cret")
    assert (result["status"], result["headers"]["location"]) == (307, f"{other.url}/there")
    assert other.requests == []


def bare_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress), ("deflate", bare_deflate)]
)
async def test_a_compressed_body_is_unpacked_no_further_than_what_is_kept(
    encoding: str, pack: Callable[[bytes], bytes]
) -> None:
    settings = HttpSettings(private_addresses=True, body_bytes_max=1000)
    bomb = pack(bytes(64 * 1024 * 1024))
    headers = f"Content-Type: text/plain\r\nContent-Encoding: {encoding}"
    async with answering(answer(bomb, headers=headers), answer(pack(b"whole"), headers=headers)) as server:
        tracemalloc.start()
        result = await request(server.url, settings)
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert (await request(server.url, settings))["body"] == "whole"
    assert result["truncated"] is True
    assert peak_bytes < 8 * 1024 * 1024


async def test_a_body_that_is_not_what_its_encoding_says_may_be_asked_for_again() -> None:
    async with answering(answer(b"no gzip", headers="Content-Encoding: gzip")) as server:
        with pytest.raises(Retryable, match="cannot be decompressed"):
            await request(server.url)


async def test_the_libraries_log_nothing_of_a_request(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    async with answering(answer(headers="X-Echo: s3cret")) as server:
        await request(f"{server.url}/?key=s3cret", headers={"X-Api-Key": "s3cret"})
    assert "s3cret" not in caplog.text


async def test_a_server_that_does_not_answer_costs_a_bounded_time() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with serving(silent) as url:
        with pytest.raises(ToolTimedOut, match=r"0\.2 s"):
            await request(url, HttpSettings(private_addresses=True, timeout_s=0.2))


async def test_a_connection_that_fails_may_be_tried_again() -> None:
    with pytest.raises(Retryable, match=r"127\.0\.0\.1:1"):
        await request("http://127.0.0.1:1/")
    with pytest.raises(Retryable, match="cannot be resolved"):
        await request("http://no-such-host.invalid/")


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://example.com/", "//x", "example.com", "http://", "http://[::1", ""]
)
async def test_what_is_not_a_web_address_is_refused(url: str) -> None:
    with pytest.raises(ToolFailed):
        await request(url)


async def test_a_redirect_to_another_scheme_is_refused() -> None:
    async with answering(answer(status="302 Found", headers="Location: file:///etc/passwd")) as server:
        with pytest.raises(ToolFailed):
            await request(server.url)


@pytest.mark.parametrize("headers", [{"a b": "c"}, {"a": "b\r\nc: d"}, {"a": "ä\ud800"}])
async def test_invalid_headers_are_not_sent(headers: dict[str, str]) -> None:
    async with answering(answer()) as server:
        with pytest.raises(ToolFailed):
            await request(server.url, headers=headers)
    assert server.requests == []


# --- who may be reached ---


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::1]", "0.0.0.0", "169.254.169.254", "10.0.0.1"]
)
async def test_an_address_that_is_not_public_is_refused(host: str) -> None:
    with pytest.raises(ToolFailed, match="not public"):
        await request(f"http://{host}:1/", HttpSettings())


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1::", True),
        ("127.0.0.1", False),
        ("192.168.1.1", False),
        ("172.16.0.1", False),
        ("100.64.0.1", False),
        ("224.0.0.1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:93.184.216.34", True),
        ("64:ff9b::a00:1", False),
        ("64:ff9b::5db8:d822", True),
        ("2002:7f00:1::", False),
        ("fe80::1", False),
        ("fd00::1", False),
        ("ff02::1", False),
        ("::", False),
    ],
)
def test_addresses_within_addresses_are_seen(address: str, public: bool) -> None:
    assert is_public(ip_address(address)) is public
    assert is_any(ip_address(address))


async def test_the_connection_goes_where_was_looked_and_the_server_is_told_the_name() -> None:
    async def rebinding(host: str, port: int) -> list[str]:
        looked.append(host)
        return ["127.0.0.1"] if host == "foldlog.invalid" else await resolve(host, port)

    looked: list[str] = []
    async with answering(answer(b"hi")) as server:
        url = server.url.replace("127.0.0.1", "foldlog.invalid")
        tool = http_request_tool(transport=PinnedTransport(is_any, rebinding))
        result = await tool.call({"url": url}, CONTEXT)
    assert (result["body"], result["url"], looked) == ("hi", url, ["foldlog.invalid"])
    assert f"Host: {url.removeprefix('http://')}" in server.requests[0]


async def test_one_private_address_among_public_ones_is_enough_to_refuse() -> None:
    async def both(host: str, port: int) -> list[str]:
        return ["93.184.216.34", "127.0.0.1"]

    tool = http_request_tool(transport=PinnedTransport(is_public, both))
    with pytest.raises(ToolFailed, match=r"127\.0\.0\.1, which is not public"):
        await tool.call({"url": "http://foldlog.invalid/"}, CONTEXT)


# --- what is declared ---


def test_a_tool_that_only_reads_is_pure_and_others_are_unsafe() -> None:
    assert http_request_tool().spec.effect == "unsafe"
    assert http_request_tool(HttpSettings(methods=("GET", "HEAD"))).spec.effect == "pure"
    assert (
        http_request_tool(HttpSettings(methods=("GET", "PUT"), effect="idempotent")).spec.effect
        == "idempotent"
    )


@pytest.mark.parametrize("method", [each for each in METHODS if each != "GET"])
async def test_a_method_that_is_not_allowed_is_refused(method: str) -> None:
    with pytest.raises(ToolFailed, match="not allowed, only GET"):
        await request("http://127.0.0.1:1/", HttpSettings(methods=("GET",)), method=method)


def test_methods_that_are_none_are_refused() -> None:
    with pytest.raises(ConfigError, match="methods"):
        HttpSettings(methods=cast("Any", ("FETCH",)))
    with pytest.raises(ConfigError, match="methods"):
        HttpSettings(methods=())
