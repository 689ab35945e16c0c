"""Fixtures for all tests. No test fails because of a slow machine or by chance.

So hypothesis has no deadlines, and draws random examples only in the nightly run.
"""

import gc
import os
import subprocess
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from _pytest.python import importtestmodule
from hypothesis import HealthCheck, settings

from tests.forked.commands import commands

# By day the examples are always the same, so that a change fails only by its own fault; the nightly run draws new ones.
by_day = settings(
    max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("foldlog", by_day)
settings.register_profile("nightly", by_day, max_examples=400, derandomize=False)
settings.load_profile("foldlog")

MEMORY = Path("/dev/shm")
ROOM_MIN = 4 << 30
"""A run of all tests needs well over one of these four GiB at once: the store of a long log, an environment."""


def keep_files_in_memory() -> None:
    """Put temporary files into memory, unless it is too small or `TMPDIR` names a directory.

    No test can tell the difference, because files in memory survive a killed process, too. On a disk, servers sync
    before they acknowledge, which takes a fifth of the time of all tests.
    """
    if "TMPDIR" in os.environ or not MEMORY.is_dir():
        return
    there = os.statvfs(MEMORY)
    if there.f_bavail * there.f_frsize >= ROOM_MIN and not there.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)


keep_files_in_memory()


def import_share(config: pytest.Config) -> None:
    """Import this process's share of the test modules that no process has compiled yet.

    All processes import the same modules in the same order. Where none is compiled, in a new clone, each would compile
    all of them at the same time.
    """
    number = int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
    count = int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    named = [config.invocation_params.dir / argument.partition("::")[0] for argument in config.args]
    paths = sorted(
        {each for path in named for each in (path.rglob("test_*.py") if path.is_dir() else [path])}
    )
    for path in paths[number::count]:
        if not any(path.parent.glob(f"__pycache__/{path.stem}.*-pytest-*.pyc")):
            with suppress(pytest.Collector.CollectError):  # which collecting will tell
                importtestmodule(path, config)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect without looking for garbage: what collecting makes stays, and is not looked at again by any test."""
    gc.disable()
    try:
        if "PYTEST_XDIST_WORKER" in os.environ:
            import_share(session.config)
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def no_knowledge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Hide the knowledge and tokens that the user of this machine has stored."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FOLDLOG_KNOWLEDGE", str(tmp_path_factory.mktemp("knowledge") / "knowledge.sqlite3"))
        yield


@pytest.fixture(scope="session")
def forked_commands() -> Iterator[Path]:
    """A directory with commands that start at once."""
    with commands() as directory:
        yield directory


@pytest.fixture(scope="session")
def mcp_server(forked_commands: Path) -> dict[str, Any]:
    """Return the entry of an MCP server over stdio, for tests that do not inspect its process."""
    return {"command": str(forked_commands / "mcp_server"), "args": ["stdio"]}


@pytest.fixture(scope="session")
def http_server(forked_commands: Path) -> Callable[..., AbstractContextManager[str]]:
    """Return a context manager that runs an MCP server over HTTP and yields its URL. The server is dead afterwards."""

    @contextmanager
    def serve(kind: str = "http", port: int = 0, **env: str) -> Iterator[str]:
        command = [forked_commands / "mcp_server", kind, str(port)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | env) as client:
            assert client.stdout is not None
            try:
                yield f"http://127.0.0.1:{int(client.stdout.readline())}/mcp"
            finally:
                client.kill()
                client.stdout.read()  # until the forked process has ended and closed the pipe

    return serve
