"""`foldlog mcp`: log in to MCP servers, and be one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..exits import OK
from ..settings import Settings, settings_of

if TYPE_CHECKING:
    from ....runtime.agents.mcp_servers import HttpServer

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Log in to MCP servers, or be one.")


@app.command()
def serve(
    context: typer.Context,
    path: Annotated[str, typer.Argument(metavar="MODULE:REGISTRY", help="Registry of the agents to serve.")],
    *,
    executor: Annotated[str, typer.Option(metavar="NAME", help="Executor of the runs.")] = "local",
    by: Annotated[str, typer.Option(metavar="NAME", help="Who calls; default: you.")] = "",
) -> int:
    """Serve agents as tools over stdio, for an MCP client that starts this command.

    Over HTTP `foldlog serve --protocols mcp` does it.
    """
    from ..actors import user_name
    from ..loading import check_executor
    from ..loops import run_async

    check_executor(executor)
    return run_async(_serve(settings_of(context), path, executor, by or user_name()))


async def _serve(settings: Settings, path: str, executor: str, by: str) -> int:
    from ...mcp_server.stdio import serve_stdio
    from ..loading import load_registry
    from ..opening import opened

    async with opened(settings, load_registry(path)) as runtime:
        await serve_stdio(runtime, executor=executor, actor=by)
    return OK


@app.command()
def login(
    context: typer.Context,
    server: Annotated[
        str, typer.Argument(metavar="SERVER", help="Its name in the agent or file, or its URL.")
    ],
    *,
    agents: Annotated[
        str | None,
        typer.Option(metavar="MODULE:NAME", help="An agent, or a registry of agents, that uses it."),
    ] = None,
    file: Annotated[
        str | None, typer.Option(metavar="FILE", help='A file with {"mcpServers": {...}} that has it.')
    ] = None,
    scope: Annotated[
        str | None,
        typer.Option(
            metavar="SCOPE", help="OAuth scopes to request; default: those that the server asks for."
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Redirect port, for a registered client.")] = 0,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Also open the address in a browser.")
    ] = True,
) -> int:
    """Log in to an MCP server with OAuth. The token is stored on this machine, for this user."""
    from ..loops import run_async

    config = _entry(server, agents, file)
    return run_async(_login(settings_of(context), server, config, scope, port, browser=browser))


async def _login(
    settings: Settings, server: str, config: HttpServer, scope: str | None, port: int, *, browser: bool
) -> int:
    import asyncio
    import webbrowser

    import msgspec

    from ....eventlog.errors import ConfigError
    from ....runtime.agents.mcp_servers import OAuth
    from ...mcp.login import log_in
    from ..output.terminal import Screen

    screen = Screen(settings)
    oauth = config.oauth or OAuth()
    if oauth.grant != "authorization_code":
        raise ConfigError(f"the server {server!r} uses the credentials of its entry and needs no login")
    if scope is not None:
        config = msgspec.structs.replace(config, oauth=msgspec.structs.replace(oauth, scope=scope))

    async def show(address: str) -> None:
        screen.say(f"open this address to log in:\n{address}")
        if browser:
            await asyncio.to_thread(webbrowser.open, address)

    try:
        asked = await log_in(config, show, port)
    except OSError as error:
        raise ConfigError(f"cannot listen on port {port}, or store the token: {error}") from None
    screen.say(f"logged in to {server}" if asked else f"{server} does not require a login")
    return OK


def _entry(server: str, agents: str | None, file: str | None) -> HttpServer:
    """Return the entry of the server, its variables resolved. Raises `ConfigError`."""
    import os

    from ....eventlog.errors import ConfigError
    from ....runtime import Registry
    from ....runtime.agents.mcp_servers import HttpServer, parse_servers, resolve
    from ....runtime.ports.suggestions import unknown
    from ..mcp_files import read_servers

    entries: dict[str, Any] = {}
    if "://" in server:
        entries = {server: {"url": server, "oauth": {}}}
    elif agents is not None:
        for each in Registry.load(agents).agents.values():
            entries |= getattr(each, "mcp_servers", {})
    elif file is not None:
        entries = read_servers(file)
    else:
        raise ConfigError(f"give --agents or --file, where the server {server!r} is configured, or its URL")
    if server not in entries:
        raise ConfigError(unknown("MCP server", server, entries))
    config = resolve(server, parse_servers({server: entries[server]})[server], os.environ)
    if not isinstance(config, HttpServer):
        raise ConfigError(f"the server {server!r} is a process and needs no login")
    return config
