"""`foldlog telemetry`: traces, logs and metrics of a namespace, made from its log by a process of their own."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ..options import LogForm
from ..settings import Settings, settings_of

if TYPE_CHECKING:
    from ....eventlog.ports import Log
    from ....runtime import Runtime
    from ...telemetry.metrics import Metrics

LOOK_S = 5.0
"""The interval at which the gauges are set from the run list, in seconds."""


def telemetry(
    context: typer.Context,
    *,
    otlp: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Send traces, logs and metrics to this collector, by OTLP over HTTP.",
        ),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(metavar="PORT", min=0, max=65535, help="Serve /metrics for Prometheus on this port."),
    ] = None,
    metrics_host: Annotated[
        str, typer.Option(metavar="HOST", help="Address of --metrics-port.")
    ] = "127.0.0.1",
    state: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keep the place in the log in this file, across restarts."),
    ] = None,
    start: Annotated[
        Literal["beginning", "now"],
        typer.Option("--from", help="Where to start if the file has no place yet."),
    ] = "now",
    once: Annotated[
        bool, typer.Option("--once", help="Send what is stored by now, and exit; implies --from beginning.")
    ] = False,
    log_format: LogForm = "text",
) -> int:
    """Make traces, logs and metrics from the log until SIGTERM or Ctrl-C; workers are not involved.

    Prompts, answers, arguments and results are left out unless
    OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT is true.
    """
    from ..loops import run_async

    if otlp is None and metrics_port is None:
        raise typer.BadParameter("say where to: --otlp URL, --metrics-port PORT, or both")
    if once and otlp is None:
        raise typer.BadParameter(
            "--once needs --otlp: nothing can read the metrics of a process that has ended"
        )
    metrics_at = None if metrics_port is None else (metrics_host, metrics_port)
    return run_async(_tell(settings_of(context), otlp, metrics_at, state, start, once, log_format))


async def _tell(
    settings: Settings,
    otlp: str | None,
    metrics_at: tuple[str, int] | None,
    state: Path | None,
    start: Literal["beginning", "now"],
    once: bool,
    log_format: LogForm,
) -> int:
    import asyncio
    import logging
    import os

    from ....replay.ordering.rule_texts import RULES
    from ...telemetry.conventions import CAPTURE_CONTENT
    from ...telemetry.metrics import Metrics
    from ...telemetry.otlp import OtlpExporter
    from ...telemetry.subscriber import Sink, subscribe
    from ..judging import Judge
    from ..loops import interruption
    from ..opening import opened
    from ..output.records import announcer, show_logs
    from ..output.terminal import Screen

    show_logs(logging.WARNING if settings.quiet else logging.INFO, form=log_format)
    say = announcer(Screen(settings), log_format)
    exporter = OtlpExporter(otlp, settings.namespace) if otlp is not None else None
    metrics = Metrics(settings.namespace, RULES) if metrics_at is not None else None
    sinks: list[Sink] = [sink for sink in (exporter, metrics) if sink is not None]
    content = os.environ.get(CAPTURE_CONTENT, "").lower() == "true"
    async with contextlib.AsyncExitStack() as stack:
        runtime = await stack.enter_async_context(opened(settings, log_format=log_format))
        if exporter is not None:
            stack.push_async_callback(exporter.aclose)
        where = await stack.enter_async_context(_served(runtime, metrics, metrics_at))
        say(_where_to(settings.namespace, otlp, where))
        told = _lag(runtime.log, metrics)
        with interruption() as interrupted:
            following = asyncio.create_task(
                subscribe(
                    runtime.log,
                    sinks,
                    state=state,
                    start=start,
                    content=content,
                    once=once,
                    told=told,
                    judge=Judge(runtime.log),
                )
            )
            stopped = asyncio.create_task(interrupted.wait())
            try:
                await asyncio.wait({following, stopped}, return_when=asyncio.FIRST_COMPLETED)
                if following.done():
                    await following
            finally:
                following.cancel()
                stopped.cancel()
                await asyncio.gather(following, stopped, return_exceptions=True)
    say("telemetry has ended")
    return 0


def _lag(log: Log, metrics: Metrics | None) -> Callable[[float], None]:
    return lambda at: None if metrics is None else metrics.told(at, log.clock.now())


def _where_to(namespace: str, traces: str | None, metrics: str | None) -> str:
    parts = [
        f"traces, logs and metrics to {traces}" if traces else "",
        f"metrics at {metrics}/metrics" if metrics else "",
    ]
    return f"telemetry of the namespace {namespace}: " + ", ".join(part for part in parts if part)


@contextlib.asynccontextmanager
async def _served(
    runtime: Runtime, metrics: Metrics | None, at: tuple[str, int] | None
) -> AsyncIterator[str | None]:
    """Serve the metrics while open, if asked to; yields the address. Raises `ConfigError`."""
    if metrics is None or at is None:
        yield None
        return
    import asyncio

    from ...http.app import application, health_routes
    from ...http.server import served
    from ...http.texts import text_route

    async def look() -> None:
        index = await runtime.index()
        while True:
            await metrics.look(index, runtime.log.clock)
            await runtime.log.clock.sleep(LOOK_S)

    app = application(
        health_routes(runtime.log), [text_route("/metrics", metrics.text, "text/plain; version=0.0.4")]
    )
    looking = asyncio.create_task(look())
    try:
        async with served(app, *at, grace_s=1.0) as address:
            yield address
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
