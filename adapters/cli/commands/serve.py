"""`foldlog serve`: HTTP, for webhooks, signals and callbacks, for the API, and for protocols in front of agents."""

from __future__ import annotations

from typing import Annotated

import typer

from ..serving import Protocols, Served, Serving, serve_http, with_door
from ..settings import settings_of


@with_door
def serve(
    context: typer.Context,
    path: Annotated[
        str | None, typer.Argument(metavar="MODULE:REGISTRY", help="Registry of the agents to start.")
    ] = None,
    *,
    hooks: Annotated[
        bool, typer.Option("--hooks", help="Serve webhooks ([hooks.*]), signals and callbacks.")
    ] = False,
    api: Annotated[bool, typer.Option("--api", help="Serve the HTTP API at /api/v1.")] = False,
    console: Annotated[bool, typer.Option("--console", help="Serve the browser's page, with --api.")] = False,
    protocols: Protocols = "",
    executor: Annotated[
        str, typer.Option(metavar="NAME", help="Executor of the runs that --protocols start.")
    ] = "durable",
    door: Serving,
) -> int:
    """Serve HTTP until SIGTERM or Ctrl-C: requests under way are finished, new ones are not taken.

    Workers drive the runs that it starts.
    """
    from ..loops import run_async
    from ..protocols import read_names

    if console and not api:
        raise typer.BadParameter("--console shows what the API serves: add --api")
    names = read_names(protocols)
    if not (hooks or api or names):
        raise typer.BadParameter("say what to serve: --hooks, --api, --protocols")
    what = Served(hooks=hooks, api=api, console=console, protocols=names, executor=executor, registry=path)
    return run_async(serve_http(settings_of(context), what, door))
