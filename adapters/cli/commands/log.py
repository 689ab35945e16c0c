"""`foldlog log`: the project's own server, used if no other is configured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..exits import NO, OK
from ..options import Json
from ..settings import settings_of

if TYPE_CHECKING:
    from ....eventlog.embedded import ServerInfo

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Start, stop and inspect the project's own server.",
)


@app.command()
def asyncapi(context: typer.Context) -> int:
    """Print an AsyncAPI 3 document of all subjects of a log and the messages on them. Needs no server."""
    from importlib.metadata import version

    from ....eventlog.asyncapi import asyncapi_document
    from ..output.terminal import Screen

    Screen(settings_of(context)).json(asyncapi_document(version("foldlog")))
    return OK


@app.command()
def up(
    context: typer.Context,
    *,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Start even if the store has lost the end of a stream.")
    ] = False,
    json: Json = False,
) -> int:
    """Start the project's server, unless it is running."""
    from ....eventlog.embedded import ensure_server
    from ..loops import run_async

    _show(context, run_async(ensure_server(accept_loss=accept_loss)), json=json)
    return OK


@app.command()
def down(context: typer.Context, *, json: Json = False) -> int:
    """Stop the project's server. Runs in flight continue when it is started again."""
    from ....eventlog.embedded import log_directory, stop_server
    from ..loops import run_async
    from ..output.terminal import Screen

    screen, ended = Screen(settings_of(context)), run_async(stop_server())
    if json:
        screen.json({"ended": ended, "directory": str(log_directory())})
    else:
        screen.tell(f"{'stopped' if ended else 'not running:'} the server of {log_directory()}")
    return OK


@app.command()
def status(context: typer.Context, *, json: Json = False) -> int:
    """Show whether and where the project's server runs. Also shows what a power failure may lose. Exit 1: no server."""
    from ....eventlog.embedded import log_directory, server_status
    from ..output.terminal import Screen

    info = server_status()
    if info is not None:
        _show(context, info, json=json)
        return OK
    screen = Screen(settings_of(context))
    if json:
        screen.json({"running": False, "directory": str(log_directory())})
    else:
        screen.tell(f"not running: the server of {log_directory()}; it starts on demand")
    return NO


def _show(context: typer.Context, info: ServerInfo, *, json: bool) -> None:
    from ..output.terminal import Screen

    screen = Screen(settings_of(context))
    if json:
        screen.json(_document(info))
        return
    screen.tell(f"nats-server {info.version} at {info.address}, process {info.pid}, since {info.started_at}")
    screen.tell(f"log in {info.directory}, sync {info.sync}, monitoring at {info.monitor_url}")
    if info.risk is not None:
        screen.say((info.risk, "yellow"))


def _document(info: ServerInfo) -> dict[str, Any]:
    """Return all fields but the token."""
    return {
        "running": True,
        "address": info.address,
        "directory": str(info.directory),
        "name": info.name,
        "port": info.port,
        "pid": info.pid,
        "keeper_pid": info.keeper_pid,
        "version": info.version,
        "sync": info.sync,
        "monitor_url": info.monitor_url,
        "started_at": info.started_at,
    }
