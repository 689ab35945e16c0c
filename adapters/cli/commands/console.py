"""`foldlog console`: the API with the browser's page."""

from __future__ import annotations

from typing import Annotated

import typer

from ..serving import Protocols, Served, Serving, serve_http, with_door
from ..settings import settings_of


@with_door
def console(
    context: typer.Context,
    *,
    registry: Annotated[
        str | None,
        typer.Option(metavar="MODULE:REGISTRY", help="Agents that may be started and driven here."),
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    protocols: Protocols = "",
    door: Serving,
) -> int:
    """Show runs and approvals in the browser, and steer them; serves the HTTP API, too.

    Runs until SIGTERM or Ctrl-C. It keeps nothing: everything that it shows is in the log.
    """
    from ..loops import run_async
    from ..protocols import read_names

    what = Served(
        api=True,
        console=True,
        protocols=read_names(protocols),
        executor="durable" if registry is None else "local",
        registry=registry,
        open=open_,
    )
    return run_async(serve_http(settings_of(context), what, door))
