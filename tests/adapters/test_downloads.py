"""`File.fetch()` against real servers on loopback: the rules of `http_request`, and a file with bytes."""

from __future__ import annotations

import pytest
from foldlog.adapters.builtin import downloads
from foldlog.adapters.builtin.addresses import PinnedTransport, is_any
from foldlog.eventlog import ConfigError
from foldlog.runtime import File, ToolFailed

from .test_http_request import answer, answering

pytestmark = pytest.mark.anyio
PNG = b"\x89PNG\r\n\x1a\n" + bytes(9)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine counts as public."""
    monkeypatch.setattr(downloads, "is_public", is_any)


async def test_a_file_at_a_url_gets_its_bytes_also_behind_a_redirect(loopback: None) -> None:
    moved = answer(status="302 Found", headers="Location: {url}/cat.png")
    async with answering(moved, answer(PNG, headers="Content-Type: image/png")) as server:
        file = await File.from_url(f"{server.url}/a.png", detail="low").fetch()
    assert (file.data, file.url, file.media_type, file.name, file.detail) == (
        PNG,
        None,
        "image/png",
        "a.png",
        "low",
    )
    assert await file.fetch() is file


async def test_what_the_server_says_that_it_is_counts_and_has_to_be_true(loopback: None) -> None:
    async with answering(answer(PNG, headers="Content-Type: application/pdf")) as server:
        with pytest.raises(ConfigError, match="should be application/pdf, but its content is image/png"):
            await File.from_url(f"{server.url}/a.png").fetch()


async def test_an_address_that_is_not_public_is_not_asked() -> None:
    async with answering(answer(PNG)) as server:
        with pytest.raises(ToolFailed):
            await File.from_url(f"{server.url}/a.png").fetch()
        assert server.requests == []


async def test_a_refusal_and_a_file_that_is_too_large_fail_by_name() -> None:
    transport = PinnedTransport(is_any)
    async with answering(answer(b"no", status="404 Not Found"), answer(PNG)) as server:
        with pytest.raises(ToolFailed, match="answered HTTP 404"):
            await downloads.fetched(server.url, 100, transport=transport)
        with pytest.raises(ToolFailed, match="more than the 16 bytes of one file"):
            await downloads.fetched(server.url, 16, transport=PinnedTransport(is_any))
