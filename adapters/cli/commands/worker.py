"""`foldlog worker`: a process that drives the durable runs of a registry's agents."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from ..options import LogForm
from ..settings import Settings, settings_of

if TYPE_CHECKING:
    from ....eventlog.ports import Log
    from ....runtime import Registry, Worker
    from ..loops import Interruption

NAMES_MAX = 12
"""Maximum number of agents that a worker lists as it starts."""
HEALTH_GRACE_S = 1.0


def worker(  # noqa: PLR0913 - its options
    context: typer.Context,
    path: Annotated[str, typer.Argument(metavar="MODULE:REGISTRY", help="Registry of the agents to run.")],
    *,
    concurrency: Annotated[int, typer.Option(min=1, help="Maximum number of concurrent runs.")] = 100,
    lease_s: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=1,
            envvar="FOLDLOG_LEASE_S",
            help="Lease: how long a claim is valid without a heartbeat.",
        ),
    ] = 10.0,
    grace_s: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="How long runs may continue after SIGTERM.")
    ] = 30.0,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Unique name of this worker in the log.")
    ] = None,
    build: Annotated[
        str | None,
        typer.Option(metavar="ID", help="What you call this code; default: FOLDLOG_BUILD."),
    ] = None,
    log_format: LogForm = "text",
    health_port: Annotated[
        int | None,
        typer.Option(metavar="PORT", min=0, max=65535, help="Serve /healthz and /readyz on this port."),
    ] = None,
    health_host: Annotated[str, typer.Option(metavar="HOST", help="Address of --health-port.")] = "127.0.0.1",
) -> int:
    """Drive durable runs until SIGTERM or Ctrl-C.

    The first signal drains the worker, a second one ends it immediately.
    """
    from ..loops import run_async

    settings = settings_of(context)
    if settings.in_memory:
        raise typer.BadParameter(
            "callers cannot reach a log in the memory of this process: choose another --server"
        )
    health = None if health_port is None else (health_host, health_port)
    return run_async(_work(settings, path, concurrency, lease_s, grace_s, name, build, log_format, health))


async def _work(  # noqa: PLR0913, PLR0917 - the options of the command
    settings: Settings,
    path: str,
    concurrency: int,
    lease_s: float,
    grace_s: float,
    name: str | None,
    build: str | None,
    log_format: LogForm,
    health: tuple[str, int] | None,
) -> int:
    import asyncio
    import logging

    from ....eventlog.names import check_name
    from ....runtime import Worker
    from ....runtime.driving.host import Host, build_setting, public_url_setting
    from ....runtime.driving.namespace import NamespacePolicy, project_budgets, project_limits
    from ....runtime.journal.snapshots import snapshot_setting
    from ....runtime.opening import open_log
    from ...configuration.event_hooks import load_event_hooks
    from ..loading import load_registry
    from ..loops import interruption
    from ..output.records import announcer, show_logs
    from ..output.terminal import Screen
    from ..servers import address_of

    show_logs(logging.WARNING if settings.quiet else logging.INFO, form=log_format)
    say, registry = announcer(Screen(settings), log_format), load_registry(path)
    check_name("the namespace", settings.namespace)
    called, built = check_name("the worker's name", name or _own_name()), build_setting(build)
    async with open_log(
        settings.server, settings.namespace, name=called, role="worker", lease_s=lease_s
    ) as log:
        host = Host(
            log=log,
            registry=registry,
            worker=called,
            build=built,
            lease_s=lease_s,
            snapshot_events=snapshot_setting(),
            public_url=public_url_setting(),
            limits=project_limits(None),
            budgets=project_budgets(registry),
            policy=NamespacePolicy(log, None),
        )
        hooks = load_event_hooks()
        serving = Worker(host, concurrency=concurrency, grace_s=grace_s, hooks=hooks, stored=True)
        with interruption() as interrupted:
            stopping = asyncio.create_task(_stop(serving, interrupted, say))
            try:
                async with _retaining(log, registry), _health_of(serving, health) as where:
                    said = f"; health at {where}" if where else ""
                    of = f" of build {built}" if built else ""
                    serves = f"worker {called}{of} serves {_named(registry)} on {address_of(settings)}{said}"
                    await serving.serve(lambda: say(serves))
            finally:
                stopping.cancel()
                await registry.aclose()
    say(f"worker {called} has ended")
    return 0


@contextlib.asynccontextmanager
async def _retaining(log: Log, registry: Registry) -> AsyncIterator[None]:
    """Erase runs as the project's `[retention]` says while open, if it has one. Raises `ConfigError`."""
    from .retention import loaded

    retention = loaded(registry)
    if retention is None:
        yield
        return
    import asyncio

    from ....runtime.burying.retention import retain
    from ....runtime.shared.run_index import open_run_index

    index = await open_run_index(log)
    retaining = asyncio.create_task(retain(log, index, retention))
    try:
        yield
    finally:
        retaining.cancel()
        await asyncio.gather(retaining, return_exceptions=True)
        await index.aclose()


@contextlib.asynccontextmanager
async def _health_of(worker: Worker, at: tuple[str, int] | None) -> AsyncIterator[str | None]:
    """Serve the health of the worker while open, if asked to; yields the address. Raises `ConfigError`."""
    if at is None:
        yield None
        return
    from ...http.app import application, health_routes
    from ...http.server import served

    app = application(health_routes(worker.log, serving=lambda: worker.is_serving))
    async with served(app, *at, grace_s=HEALTH_GRACE_S) as address:
        yield address


async def _stop(serving: Worker, interrupted: Interruption, say: Callable[[str], None]) -> None:
    await interrupted.wait()
    say("draining: no new runs are taken (repeat to exit immediately)")
    serving.stop()


def _named(registry: Registry) -> str:
    """Return the names of the agents; if there are many, the first ones and the number of others."""
    names = sorted(registry.agents)
    more = len(names) - NAMES_MAX
    return ", ".join(names[:NAMES_MAX]) + (f" and {more} more agents" if more > 0 else "")


def _own_name() -> str:
    """Return a unique name, which no earlier worker had."""
    import os
    import re
    import secrets
    import socket

    host = re.sub("[^A-Za-z0-9_-]", "-", socket.gethostname())
    return f"{host}-{os.getpid()}-{secrets.token_hex(3)}"
