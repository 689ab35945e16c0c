"""MCP servers that ask for OAuth: logins of people, tokens that are kept and refreshed, clients of their own."""

from __future__ import annotations

import asyncio
import json
import re
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from foldlog.adapters.mcp import McpToolSource
from foldlog.adapters.mcp.login import LoginFailed, log_in
from foldlog.eventlog.errors import ConfigError
from foldlog.eventlog.memory import MemoryLog
from foldlog.replay import export
from foldlog.runtime import Agent, Registry, Runtime
from foldlog.runtime.agents.mcp_servers import HttpServer, OAuth
from foldlog.runtime.ports.tools import ToolSourceUnavailable

from tests.adapters.test_mcp import Recorder, ServeHttp
from tests.fakes.oauth_server import CLIENT, SECRET
from tests.runtime.conftest import call as asks
from tests.runtime.conftest import calls, says, script

__all__ = ["script"]


@pytest.fixture(scope="module")
def server(http_server: ServeHttp) -> Iterator[str]:
    with http_server("oauth") as url:
        yield url


@pytest.fixture
async def url(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a server that knows nobody."""
    monkeypatch.setenv("FOLDLOG_MCP_TOKENS", str(tmp_path / "tokens"))
    await at(server, "POST", "/forget")
    return server


async def visit(address: str) -> None:
    """Be the browser of a user who agrees."""
    async with httpx2.AsyncClient(follow_redirects=True, trust_env=False) as browser:
        answer = await browser.get(address)
        assert "You are logged in" in answer.text


async def at(url: str, method: str, path: str) -> Any:
    async with httpx2.AsyncClient(trust_env=False) as client:
        answer = await client.request(method, url.replace("/mcp", path))
        return answer.json() if answer.content else None


async def delete(url: str, **oauth: Any) -> str:
    """Call a tool on a new connection."""
    factory = McpToolSource(idle_s=0)
    try:
        source = await factory.open({"srv": {"url": url, "oauth": oauth}})
        result: str = await source.tools["mcp__srv__delete"].call({"path": "/x"}, Recorder())
        await source.aclose()
        return result
    finally:
        await factory.aclose()


def token_file(tmp_path: Path) -> Path:
    (file,) = (tmp_path / "tokens").iterdir()
    return file


async def test_a_login_is_kept_for_later_connections_by_the_user_alone(url: str, tmp_path: Path):
    with pytest.raises(
        ToolSourceUnavailable, match=r"requires a login: run `foldlog mcp login`.*--scope 'books'"
    ):
        await delete(url)
    assert await log_in(HttpServer(url=url), visit)
    assert stat.S_IMODE(token_file(tmp_path).stat().st_mode) == 0o600
    assert stat.S_IMODE(token_file(tmp_path).parent.stat().st_mode) == 0o700
    assert await delete(url) == "deleted /x"
    assert await delete(url) == "deleted /x"
    assert (await at(url, "GET", "/state"))["seen"] == ["authorization_code"]


async def test_a_token_that_has_expired_or_was_revoked_is_refreshed_without_a_person(
    url: str, tmp_path: Path
):
    await log_in(HttpServer(url=url), visit)
    file = token_file(tmp_path)
    file.write_text(json.dumps(json.loads(file.read_text()) | {"expires_at": 1.0}))
    assert await delete(url) == "deleted /x"
    await at(url, "POST", "/revoke")
    assert await delete(url) == "deleted /x"
    assert (await at(url, "GET", "/state"))["seen"] == [
        "authorization_code",
        "refresh_token",
        "refresh_token",
    ]
    await at(url, "POST", "/revoke?refresh=1")
    with pytest.raises(ToolSourceUnavailable, match="foldlog mcp login"):
        await delete(url)
    await log_in(HttpServer(url=url), visit)
    assert await delete(url) == "deleted /x"


async def test_a_token_that_is_revoked_in_a_run_is_refreshed_and_the_call_is_made(url: str):
    await log_in(HttpServer(url=url), visit)
    factory = McpToolSource(idle_s=0)
    source = await factory.open({"srv": {"url": url, "oauth": {}}})
    for _ in range(2):
        assert await source.tools["mcp__srv__delete"].call({"path": "/x"}, Recorder()) == "deleted /x"
        await at(url, "POST", "/revoke")
    await at(url, "POST", "/revoke?refresh=1")
    with pytest.raises(Exception, match=r"foldlog mcp login.*the call was not sent"):
        await source.tools["mcp__srv__delete"].call({"path": "/x"}, Recorder())
    await source.aclose()
    await factory.aclose()


CONNECTING = """
import asyncio, sys
from foldlog.adapters.mcp import McpToolSource
from mcp.client.auth import OAuthClientProvider  # which takes a second to import

async def main():
    for line in sys.stdin:
        factory = McpToolSource(idle_s=0)
        source = await factory.open({"srv": {"url": line.strip(), "oauth": {}}})
        print(*source.tools, flush=True)
        await source.aclose()
        await factory.aclose()

asyncio.run(main())
"""


@asynccontextmanager
async def connecting() -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that connects to each address that it is told."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", CONNECTING),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=2**20,
    )
    try:
        yield process
    finally:
        process.kill()
        await process.wait()


async def connects(process: asyncio.subprocess.Process, url: str) -> bool:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{url}\n".encode())
    return b"mcp__srv__delete" in await process.stdout.readline()


async def test_processes_that_need_a_new_token_at_once_use_one_refresh_token_once(url: str, tmp_path: Path):
    await log_in(HttpServer(url=url), visit)
    async with connecting() as one, connecting() as other:
        await at(url, "POST", "/revoke")
        await at(url, "POST", "/gather?count=2")  # so that both have read the same tokens
        assert await asyncio.gather(connects(one, url), connects(other, url)) == [True, True]
        assert (await at(url, "GET", "/state"))["seen"] == ["authorization_code", "refresh_token"]
        file = token_file(tmp_path)
        file.write_text(json.dumps(json.loads(file.read_text()) | {"expires_at": 1.0}))
        assert await asyncio.gather(connects(one, url), connects(other, url)) == [True, True]
        assert (await at(url, "GET", "/state"))["seen"][1:] == ["refresh_token"] * 2


async def test_a_client_with_credentials_of_its_own_needs_no_login(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SECRET_OF_THE_MACHINE", SECRET)
    oauth = {"grant": "client_credentials", "client_id": CLIENT, "client_secret": "${SECRET_OF_THE_MACHINE}"}
    assert await delete(url, **oauth) == "deleted /x"
    assert (await at(url, "GET", "/state"))["seen"] == ["client_credentials"]
    assert not (tmp_path / "tokens").exists()
    with pytest.raises(ToolSourceUnavailable, match="invalid_grant"):
        await delete(url, **oauth | {"client_secret": "another"})


async def test_no_token_gets_into_the_log(url: str, tmp_path: Path, script: Any):
    await log_in(HttpServer(url=url), visit)
    model = script(calls(asks("mcp__srv__delete", path="/x")), says("gone"))
    agent = Agent("cleaner", model=model, mcp_servers={"srv": {"url": url, "oauth": {}}})
    log = MemoryLog()
    async with Runtime.open(log=log, registry=Registry(agents=[agent])) as runtime:
        assert (await runtime.run(agent, "clean up")).output == "gone"
    stored = b"".join([line async for line in export(log, artifacts=True)])
    tokens = json.loads(token_file(tmp_path).read_text())["tokens"]
    assert b"mcp__srv__delete" in stored
    for secret in (tokens["access_token"], tokens["refresh_token"]):
        assert secret.encode() not in stored


async def test_a_login_that_is_refused_says_why(url: str):
    async def refuse(address: str) -> None:
        redirect = re.search(r"redirect_uri=([^&]+)", address)
        assert redirect is not None
        async with httpx2.AsyncClient(trust_env=False) as browser:
            where = httpx2.QueryParams(f"x={redirect[1]}")["x"]
            await browser.get(f"{where}?error=access_denied&error_description=not+today")

    with pytest.raises(LoginFailed, match="not today"):
        await log_in(HttpServer(url=url), refuse)


async def test_a_server_that_asks_for_no_login_is_told_from_one_that_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, http_server: ServeHttp
):
    monkeypatch.setenv("FOLDLOG_MCP_TOKENS", str(tmp_path / "tokens"))
    with http_server("http") as url:
        assert not await log_in(HttpServer(url=url, oauth=OAuth()), visit)
    assert not (tmp_path / "tokens").exists()


async def test_the_command_prints_an_address_and_ends_after_the_login(url: str, tmp_path: Path):
    servers = tmp_path / "mcp.json"
    servers.write_text(json.dumps({"mcpServers": {"srv": {"url": url, "oauth": {}}}}))
    command = [
        sys.executable,
        "-m",
        "foldlog.adapters.cli",
        "mcp",
        "login",
        "srv",
        "--file",
        str(servers),
        "--no-browser",
    ]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    assert process.stdout is not None
    assert (await process.stdout.readline()).decode() == "open this address to log in:\n"
    await visit((await process.stdout.readline()).decode().strip())
    rest = (await process.stdout.read()).decode()
    assert await process.wait() == 0, rest
    assert rest == "logged in to srv\n"
    assert await delete(url) == "deleted /x"


@pytest.mark.parametrize(
    ("oauth", "message"),
    [
        ({"grant": "password"}, "srv.oauth.grant: Invalid enum value 'password'"),
        ({"client": "x"}, "srv.oauth: Object contains unknown field `client`"),
        ({"grant": "client_credentials", "client_id": "x"}, "srv.oauth: the grant client_credentials needs"),
        ({"client_secret": "x"}, "srv.oauth.client_secret: a client_secret needs a `client_id`"),
        ({"private_key": "x"}, "srv.oauth.private_key: a private key is only used"),
        (
            {"client_metadata_url": "http://x/y"},
            "srv.oauth.client_metadata_url: it must be an https URL with a path",
        ),
        ({"client_id": "${}"}, "srv.oauth.client_id: a variable is written"),
    ],
)
def test_a_wrong_entry_is_refused_by_the_name_of_its_key(oauth: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=re.escape(message)):
        McpToolSource().check({"srv": {"url": "http://x", "oauth": oauth}})
