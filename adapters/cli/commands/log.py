"""`foldlog log`: the project's own server, used if no other is configured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..exits import NO, OK
from ..options import Json
from ..settings import settings_of

if TYPE_CHECKING:
    from ....eventlog.embedded import ServerInfo

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Start, stop and inspect the project's own server; permissions for users of others.",
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


@app.command()
def permissions(
    context: typer.Context,
    *,
    role: Annotated[
        Literal["reader", "client", "retention", "worker", "operator"],
        typer.Option(help="What the user does in the namespace."),
    ],
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Inbox of this user alone, for FOLDLOG_ROLE; default: the role."),
    ] = None,
    shards: Annotated[
        int, typer.Option(min=1, max=256, help="Number of shards that the namespace has or will have.")
    ] = 4,
    single_server: Annotated[
        bool,
        typer.Option("--single-server", help="Let a worker make the streams in memory after a restart."),
    ] = False,
    form: Annotated[
        Literal["nats", "json"], typer.Option("--format", help="A file for the server, or JSON.")
    ] = "nats",
) -> int:
    """Print what a NATS user may do in the namespace, by role. Connects to nothing."""
    from ....eventlog.jetstream import permissions as granted
    from ..output.terminal import Screen

    settings = settings_of(context)
    found = granted.permissions(
        settings.namespace, role, shards=shards, inbox=name or "", volatile=single_server
    )
    screen, replies = Screen(settings), role in granted.REPLIES
    if form == "json":
        inbox = f"_INBOX.{settings.namespace}.{name or role}"
        permitted: dict[str, Any] = {verb: {"allow": subjects} for verb, subjects in found.items()}
        permitted["allow_responses"] = replies
        screen.json({"namespace": settings.namespace, "role": role, "inbox": inbox, "permissions": permitted})
    else:
        for line in _block(settings.namespace, role, name or role, found, replies=replies):
            screen.tell(line)
    return OK


def _block(
    namespace: str, role: str, inbox: str, found: Mapping[Any, tuple[str, ...]], *, replies: bool
) -> Iterator[str]:
    """Yield the lines of a file that a user's entry includes."""
    used = "" if inbox in {"client", "worker"} and inbox == role else f": connect with FOLDLOG_ROLE={inbox}"
    yield f"# Role {role} in namespace {namespace}. Answers come to _INBOX.{namespace}.{inbox}{used}"
    yield "permissions: {"
    for verb, subjects in found.items():
        yield f"  {verb}: {{allow: ["
        yield from (f'    "{subject}"' for subject in subjects)
        yield "  ]}"
    if replies:
        yield "  allow_responses: true"
    yield "}"


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
