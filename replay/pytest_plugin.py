"""pytest fixtures for agents: a log, a runtime, a real server, and parity as an assertion.

    async def test_an_order_is_refunded(assert_parity):
        await assert_parity(AGENT, script="refund.json", faults="crash@12")

    async def test_an_answer(foldlog_runtime):
        async with foldlog_runtime(AGENT) as runtime:
            assert (await runtime.run(AGENT, "question")).output == "answer"

With `--foldlog-golden DIR` the traces of `assert_parity` must equal those in the directory; `--golden-update` writes
them. A missing one is a warning, and a failure with `--golden-check` or in CI (`CI=true`). All fixtures are
synchronous, so they work with anyio and with pytest-asyncio. foldlog is loaded only when a fixture is used.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ..eventlog.memory import MemoryLog
    from ..eventlog.ports import Log
    from ..runtime import Registry, Runtime
    from ..runtime.ports.runnable import Runnable
    from .parity.parity import ParityReport

    RuntimeFactory = Callable[..., AbstractAsyncContextManager[Runtime]]
    AssertParity = Callable[..., Awaitable[ParityReport]]

GOLDEN = "--foldlog-golden"
GOLDEN_CHECK = "--golden-check"
GOLDEN_UPDATE = "--golden-update"
SERVER_S_MAX = 30.0
"""The time that a server may take to start or to stop, in seconds."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the plugin."""
    group = parser.getgroup("foldlog", "agents on foldlog")
    group.addoption(
        GOLDEN,
        metavar="DIR",
        default=None,
        help="compare the traces of assert_parity with those in this directory, one file a test",
    )
    group.addoption(
        GOLDEN_CHECK,
        action="store_true",
        help="a missing golden trace is a failure; the default if CI=true is set",
    )
    group.addoption(
        GOLDEN_UPDATE, action="store_true", help="write the golden traces that are missing or differ"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse options that contradict each other or have no effect."""
    check, update = config.getoption(GOLDEN_CHECK), config.getoption(GOLDEN_UPDATE)
    if check and update:
        raise pytest.UsageError(f"{GOLDEN_CHECK} and {GOLDEN_UPDATE} exclude each other")
    if (check or update) and config.getoption(GOLDEN) is None:
        raise pytest.UsageError(f"{GOLDEN_CHECK if check else GOLDEN_UPDATE} needs {GOLDEN} DIR")


@pytest.fixture
def foldlog_log() -> MemoryLog:
    """A new log in memory."""
    from ..eventlog.memory import MemoryLog

    return MemoryLog()


@pytest.fixture
def foldlog_runtime(foldlog_log: MemoryLog) -> RuntimeFactory:
    """A function that opens a runtime for agents, as an asynchronous context manager.

    It uses `foldlog_log` unless `log` is given, and a `registry` if one is given. `workers` (default 0) is the number
    of workers in this process that serve `executor="durable"`.
    """

    def opened(
        *agents: Runnable[Any], workers: int = 0, registry: Registry | None = None, log: Log | None = None
    ) -> AbstractAsyncContextManager[Runtime]:
        from ..runtime import Registry

        known = registry if registry is not None else Registry(agents=agents)
        return _opened(log if log is not None else foldlog_log, known, workers)

    return opened


@asynccontextmanager
async def _opened(log: Log, registry: Registry, workers: int) -> AsyncIterator[Runtime]:
    from ..runtime import Runtime

    async with AsyncExitStack() as stack:
        runtime = await stack.enter_async_context(Runtime.open(log=log, registry=registry))
        for number in range(workers):
            await stack.enter_async_context(_serving(log, registry, f"pytest-worker-{number + 1}"))
        yield runtime


@asynccontextmanager
async def _serving(log: Log, registry: Registry, name: str) -> AsyncIterator[None]:
    import asyncio

    from ..runtime import Worker
    from ..runtime.driving.host import Host

    worker = Worker(Host(log=log, registry=registry, worker=name), grace_s=1.0)
    serving = asyncio.create_task(worker.serve())
    try:
        yield
    finally:
        worker.stop()
        await serving


class Server:
    """A nats-server with JetStream for the whole session. Give each test its own namespace."""

    def __init__(self, url: str) -> None:
        self.url = url


@pytest.fixture(scope="session")
def foldlog_server() -> Iterator[Server]:
    """A real server in a temporary directory: `Runtime.open(foldlog_server.url, namespace=...)`."""
    import asyncio
    from concurrent.futures import Future
    from threading import Event, Thread

    from ..eventlog.embedded import EphemeralServer

    url, ended = Future[str](), Event()

    async def serve() -> None:
        async with EphemeralServer() as server:
            url.set_result(server.url)
            await asyncio.to_thread(ended.wait)

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            if url.done():
                raise
            url.set_exception(error)

    thread = Thread(target=run, name="foldlog-server", daemon=True)
    thread.start()
    try:
        yield Server(url.result(timeout=SERVER_S_MAX))
    finally:
        ended.set()
        thread.join(timeout=SERVER_S_MAX)


@pytest.fixture
def assert_parity(request: pytest.FixtureRequest) -> AssertParity:
    """`foldlog.replay.assert_parity`, which with `--foldlog-golden` also compares its trace with the golden one."""
    directory: str | None = request.config.getoption(GOLDEN)
    count = 0

    async def checked(runnable: Runnable[Any], *args: Any, **options: Any) -> ParityReport:
        from .parity.parity import assert_parity

        nonlocal count
        count += 1
        report = await assert_parity(runnable, *args, **options)
        if directory is not None:
            _hold(report, request, directory, count)
        return report

    return checked


def _hold(report: ParityReport, request: pytest.FixtureRequest, directory: str, count: int) -> None:
    import os
    import warnings

    from .ordering.golden import GoldenMissing, hold_golden

    number = "" if count == 1 else f"-{count}"
    name = f"{request.node.path.stem}.{request.node.name}{number}"
    trace = next(iter(report.traces.values()))
    update = request.config.getoption(GOLDEN_UPDATE)
    try:
        hold_golden(trace, request.config.rootpath / directory, name, update=update)
    except GoldenMissing as missing:
        advice = f"{missing}; write it with {GOLDEN_UPDATE}"
        if request.config.getoption(GOLDEN_CHECK) or os.environ.get("CI", "").lower() in {"true", "1"}:
            pytest.fail(advice, pytrace=False)
        warnings.warn(pytest.PytestWarning(advice), stacklevel=2)
