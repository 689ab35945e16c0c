"""`foldlog serve`: the HTTP door, for webhooks, signals and callbacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..options import LogForm
from ..settings import Settings, settings_of

if TYPE_CHECKING:
    from ....runtime import Registry

NAMES_MAX = 12
"""Maximum number of hooks that are listed at the start."""


def serve(
    context: typer.Context,
    path: Annotated[
        str | None, typer.Argument(metavar="MODULE:REGISTRY", help="Registry of the agents to start.")
    ] = None,
    *,
    hooks: Annotated[
        bool, typer.Option("--hooks", help="Serve webhooks ([hooks.*]), signals and callbacks.")
    ] = False,
    host: Annotated[str, typer.Option(metavar="HOST", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(metavar="PORT", min=0, max=65535, help="Port; default: 7717, or a free one."),
    ] = None,
    grace_s: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="How long requests may continue after SIGTERM.")
    ] = 10.0,
    log_format: LogForm = "text",
) -> int:
    """Serve HTTP until SIGTERM or Ctrl-C: requests under way are finished, new ones are not taken.

    Workers drive the runs that it starts.
    """
    from ..loops import run_async

    if not hooks:
        raise typer.BadParameter("say what to serve: --hooks")
    return run_async(_serve(settings_of(context), path, host, port, grace_s, log_format))


async def _serve(
    settings: Settings, path: str | None, host: str, port: int | None, grace_s: float, log_format: LogForm
) -> int:
    from ....runtime import Registry
    from ...http.app import application, health_routes, hook_routes
    from ...http.hooks import load_hooks
    from ...http.server import served
    from ..loading import load_registry
    from ..loops import interruption
    from ..opening import opened
    from ..output.records import announcer
    from ..output.terminal import Screen

    say = announcer(Screen(settings), log_format)
    registry: Registry = Registry() if path is None else load_registry(path)
    async with opened(settings, registry, log_format=log_format) as runtime:
        found = load_hooks(runtime)
        app = application(health_routes(runtime.log), hook_routes(runtime, found))
        with interruption() as interrupted:
            async with served(app, host, port, grace_s) as address:
                say(f"serving {_named(list(found))} at {address}")
                await interrupted.wait()
                say("draining: no new requests are taken (repeat to exit immediately)")
    say("the server has ended")
    return 0


def _named(names: list[str]) -> str:
    """Return the names of the hooks; of many, the first ones and the number of the others."""
    if not names:
        return "callbacks and signals, and no webhook"
    more = len(names) - NAMES_MAX
    told = ", ".join(names[:NAMES_MAX]) + (f" and {more} more" if more > 0 else "")
    return f"the webhook{'s' if len(names) > 1 else ''} {told}"
