"""Log a user in to a server, once for all processes of this user on this machine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from mcp import Client, MCPError

from ...eventlog.errors import FoldlogError
from ...runtime.agents.mcp_servers import HttpServer
from .oauth import login_flow
from .session import cause_of
from .streamable_http import http_transport


class LoginFailed(FoldlogError):
    """The server, or its authorization server, refused the login."""


async def log_in(config: HttpServer, show: Callable[[str], Awaitable[None]], port: int = 0) -> bool:
    """Log in; `show` gets the address to open. Return false if the server does not require a login.

    Raises `LoginFailed`, `OSError` for a port that is taken.
    """
    shown = False

    async def showing(address: str) -> None:
        nonlocal shown
        shown = True
        await show(address)

    async with login_flow(config, showing, port) as auth:
        try:
            async with Client(http_transport(config, auth), cache=None) as client:
                await client.list_tools()
        except (MCPError, BaseExceptionGroup) as error:
            raise LoginFailed(cause_of(error)) from None
    return shown
